//! Tests that count the bytes of the process: a program of their own, in which one runs at a time.

mod counting;
mod mutations;
mod replay;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For the one test that counts: the counters are the process's. A runner that gives each test its own process needs none of this.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
