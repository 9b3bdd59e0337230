//! Handles: numbers that look like addresses but point to nothing. No handle is given twice.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Distance between handles. Some libraries use the lowest bits of a handle for themselves.
const STEP: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0x5500_0000_0000);

pub(crate) fn new() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}
