//! Leak forensics: whether a run's memory grows, what grows, who holds it, when it will run out, and what to do.
//!
//! A [`Watch`] is called when a step ends, while the script's variables are still alive. The sign of a leak is not higher memory than before, but
//! what is left of *old* steps: in a healthy run only the first steps (parameters, optimizer state) and the last ones (variables, lists that are
//! emptied now and then) leave something; in a leaking run steps throughout do.
//!
//! | a run | what old steps left | verdict |
//! |---|---|---|
//! | variables that are replaced; batches of any sizes | nothing | clean |
//! | a list of the last n results, or one that is emptied | of the last n steps only | clean |
//! | parameters that are first used late | their state, at most what parameters can have | clean |
//! | anything kept in each step, or in each tenth | something in each third of the run | leak |
//! | one tensor that becomes longer | nothing, but more in each step while batches stay as they were | leak |

mod advice;
mod analyze;
mod holder;
mod watch;

use memcore::memory::{Category, CategoryBytes};
use serde::{Deserialize, Serialize};

pub use advice::Cause;
pub use holder::Link;
pub use watch::Watch;

/// Least number of steps for a verdict.
pub const MIN_STEPS: usize = 6;

/// Place where memory grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Operator that allocates, with the autograd node that it runs in.
    pub op: String,
    /// Path of the module; empty outside of any.
    pub scope: String,
    /// Phase of the step; empty if the script names none.
    pub phase: String,
    /// Present category of the memory.
    pub category: String,
    /// Bytes that a step adds, on average.
    pub bytes_per_step: u64,
    /// Number of allocations that are still alive.
    pub allocations: u64,
}

/// Growing memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// Number of steps seen.
    pub steps: usize,
    /// Bytes that a step adds, on average over the steps after the warm-up.
    pub growth_bytes_per_step: u64,
    /// Graph nodes on the host that a step adds.
    pub nodes_per_step: u64,
    /// Sites, most bytes first.
    pub sites: Vec<Site>,
    /// Path from the program to the memory of the largest site.
    pub holder: Vec<Link>,
    /// Kind of mistake.
    pub cause: Cause,
    /// Advice.
    pub advice: String,
    /// The first step (counted from 1) that will not fit, by estimate; `None` if the device does not say how much memory it has, or has enough for a
    /// billion steps.
    pub out_of_memory_step: Option<u64>,
}

/// State of the device at the end of a step.
struct Mark {
    /// Number of allocations so far: allocations with smaller numbers were made before.
    n_alloc: u64,
    allocated: u64,
    by_category: CategoryBytes,
    nodes: usize,
}

/// The steps that count: after the warm-up, and before the last one, whose variables are still alive.
fn settled(steps: usize) -> std::ops::Range<usize> {
    (steps / 4).clamp(2, 100)..steps.saturating_sub(1)
}

impl Mark {
    fn bytes_in(&self, category: Category) -> u64 {
        self.by_category[category as usize]
    }
}
