//! Leak forensics: whether a run's memory grows, what grows, who holds it, when it will run out, and what to do.
//!
//! A [`Watch`] is told when a step ends, while the script's variables still hold what they hold. What tells a leak from a healthy run is not
//! that memory is higher than before, but what is left of *old* steps: in a healthy run only the first steps (parameters, optimizer state) and
//! the last ones (variables, lists that are emptied now and then) leave something; in a leaking one steps all along the run do.
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

/// Steps that there must be before anything can be said.
pub const MIN_STEPS: usize = 6;

/// Where memory grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The operator that allocates, with the autograd node that it runs in.
    pub op: String,
    /// The module's path; empty outside of any.
    pub scope: String,
    /// The phase of the step; empty where the script names none.
    pub phase: String,
    /// What the memory is for now.
    pub category: String,
    /// Bytes that a step adds, on average.
    pub bytes_per_step: u64,
    /// Allocations that are still there.
    pub allocations: u64,
}

/// Memory that grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// Steps seen.
    pub steps: usize,
    /// Bytes that a step adds, on average over the steps after the warm-up.
    pub growth_bytes_per_step: u64,
    /// Graph nodes on the host that a step adds.
    pub nodes_per_step: u64,
    /// Where, most bytes first.
    pub sites: Vec<Site>,
    /// From who holds the largest site's memory to the memory.
    pub holder: Vec<Link>,
    /// What kind of mistake it is.
    pub cause: Cause,
    /// What to do.
    pub advice: String,
    /// The first step (counted from 1) that will not fit any more, as far as one can tell; `None` where the device does not say how much it has, or
    /// has enough for a billion.
    pub out_of_memory_step: Option<u64>,
}

/// The device when a step ended.
struct Mark {
    /// Allocations so far: what has a smaller number was made before.
    n_alloc: u64,
    allocated: u64,
    by_category: CategoryBytes,
    nodes: usize,
}

/// The steps that count: after the warm-up, and before the last one, whose variables are still there.
fn settled(steps: usize) -> std::ops::Range<usize> {
    (steps / 4).clamp(2, 100)..steps.saturating_sub(1)
}

impl Mark {
    fn of(&self, category: Category) -> u64 {
        self.by_category[category as usize]
    }
}
