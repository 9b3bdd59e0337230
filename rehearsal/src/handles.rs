//! Handles: numbers that look like addresses of nothing, never given twice.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Some libraries keep the lowest bits of a handle for themselves.
const STEP: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0x5500_0000_0000);

pub(crate) fn new() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}
