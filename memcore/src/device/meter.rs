//! Who is told of a device's launches: an estimate of their time.

use crate::backend::{Cost, KernelCall};

/// Is told of each kernel that a device launches, in order. On a device without values it hears the same calls as on one that computes.
pub trait Meter: Send + Sync {
    /// A kernel is launched, and does at least this work.
    fn launched(&self, call: &KernelCall, cost: &Cost);
}
