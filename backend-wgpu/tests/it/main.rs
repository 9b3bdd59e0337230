//! The backend on the first adapter, as one program.

mod endurance;
mod events;
mod exports;
mod fusion;
mod launches;
#[path = "../../../lab/tests/it/losses.rs"]
mod losses;
mod products;
#[path = "../../../lab/tests/runs/mod.rs"]
mod runs;
mod threads;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For the one test that uses the adapter: tests of one process share its device, wait for their own work and count their own calls.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
