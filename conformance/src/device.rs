//! The device under test.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcore::backend::Backend;

/// If this variable is set, each trial's name is printed on stderr before it runs: a case that ends the process cannot
/// report its name afterwards.
pub const NAME_CASES: &str = "VRAMLAB_CASE";

/// Permissions of the suites on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Lets the memory suite ask for more than is free, to see the device refuse. Leave it off if the memory is the
    /// host's own: a machine that overcommits memory would suffer.
    pub may_fill: bool,
}

/// The device under test, opened once and shared by all trials.
pub struct Device {
    backend: Arc<dyn Backend>,
    /// Permissions on this device.
    pub options: Options,
    turn: Mutex<()>,
}

impl Device {
    /// Shares a backend among trials.
    pub fn new(backend: Arc<dyn Backend>, options: Options) -> Arc<Self> {
        Arc::new(Self { backend, options, turn: Mutex::default() })
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The backend, to build a device of core's upon.
    pub fn shared(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    /// Holds the device until the guard is dropped: some trials measure its memory. A trial that fails while holding it
    /// does not block the others.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
