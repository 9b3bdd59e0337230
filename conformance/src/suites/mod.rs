//! The suites. Each is a function from a device to named trials; [`SUITES`] lists them in the order of their runs.
//!
//! To add a suite, write a file beside these and a line in the list. Gradients, optimizers and training use core's
//! autograd on top of the kernels: they come last.

mod aliasing;
mod coverage;
mod determinism;
mod gradients;
mod kernels;
mod memory;
mod optimizers;
mod training;
mod transfer;
mod trial;
mod validation;
mod virtual_memory;
mod workspace;

use std::sync::Arc;

use libtest_mimic::Trial;

use crate::device::Device;

/// One suite.
pub struct Suite {
    /// First part of its trials' names.
    pub name: &'static str,
    /// True if the suite makes sense only on a device with values.
    pub needs_values: bool,
    trials: fn(&Arc<Device>) -> Vec<Trial>,
}

impl Suite {
    /// Its trials on a device, `suite::…`.
    pub fn trials(&self, device: &Arc<Device>) -> Vec<Trial> {
        (self.trials)(device)
    }
}

/// Every suite, in the order of their runs.
pub const SUITES: &[Suite] = &[
    Suite { name: "coverage", needs_values: false, trials: coverage::trials },
    Suite { name: "memory", needs_values: false, trials: memory::trials },
    Suite { name: "virtual_memory", needs_values: false, trials: virtual_memory::trials },
    Suite { name: "validation", needs_values: false, trials: validation::trials },
    Suite { name: "transfer", needs_values: true, trials: transfer::trials },
    Suite { name: "kernels", needs_values: true, trials: kernels::trials },
    Suite { name: "aliasing", needs_values: true, trials: aliasing::trials },
    Suite { name: "workspace", needs_values: true, trials: workspace::trials },
    Suite { name: "determinism", needs_values: true, trials: determinism::trials },
    Suite { name: "gradients", needs_values: true, trials: gradients::trials },
    Suite { name: "optimizers", needs_values: true, trials: optimizers::trials },
    Suite { name: "training", needs_values: true, trials: training::trials },
];
