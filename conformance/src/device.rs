//! The device under test.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcore::backend::Backend;

/// Where it is set, each trial is named on stderr before it runs: a case that ends the process cannot say its name afterwards.
pub const NAME_CASES: &str = "VRAMLAB_CASE";

/// What a suite may do with a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the memory suite may ask for more than is free, to see the device refuse. Leave it off where memory is
    /// the host's own: a machine that lends more than it has would be hurt.
    pub may_fill: bool,
}

/// The device under test, opened once and shared by all trials.
pub struct Device {
    backend: Arc<dyn Backend>,
    /// What may be done with it.
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

    /// Holds the device until the guard goes: some trials measure its memory. A trial that failed while it held it does
    /// not keep the others from theirs.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
