//! The choice between the library and the backend's own kernels: both are timed on the device, once for each shape.
//!
//! The library lays NCHW operands out anew, its host code takes longer than a launch, and for few channels it may have nothing good: on an H100
//! its first gradient of ResNet-18's weights in bfloat16 took 2.0 of the 4.1 ms of a step. The choice is kept in the process and on disk,
//! because the two add up in different orders.

use std::fmt::Debug;

use memcore::Result;

use crate::cache;
use crate::libraries::Version;
use crate::queue::Queue;
use crate::timer::{CLEARLY, Timer};

/// Times that each is timed; the shortest counts.
const ROUNDS: usize = 2;

/// What is kept.
const LIBRARY: &[u8] = b"library";
const OWN: &[u8] = b"own";

/// The choice for one task, made or not.
pub(super) struct Choice(String);

impl Choice {
    /// The times depend on the card, the library, the own kernels and the task.
    pub(super) fn for_task([card, kernels]: [&str; 2], (major, minor): Version, task: &impl Debug) -> Self {
        let parts = [card, &format!("cuDNN {major}.{minor}"), kernels, &format!("{task:?}")];
        Self(format!("cudnn-{}.choice", cache::fingerprint(parts)))
    }

    /// True if the own kernels were faster, in this process or another.
    pub(super) fn is_own(&self) -> bool {
        cache::kept(&self.0).is_some_and(|kept| kept == OWN)
    }

    /// Decides whether the library is to compute tasks like this, one of which it has just computed. Both calls, of the library and of
    /// the own kernels, overwrite the result.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) fn decide(self, queue: &Queue, calls: [&dyn Fn() -> Result<()>; 2]) -> Result<bool> {
        let [library, own] = calls;
        let timer = match cache::kept(&self.0) {
            Some(kept) if kept == LIBRARY => return Ok(true),
            _ => Timer::new(queue),
        };
        let Ok(timer) = timer else { return Ok(true) };
        // The own kernels may have to be loaded.
        own()?;
        let mut shortest = [f32::INFINITY; 2];
        for _ in 0..ROUNDS {
            for (shortest, call) in shortest.iter_mut().zip(calls) {
                *shortest = shortest.min(timer.time(call)?);
            }
        }
        let is_library = shortest[1] >= shortest[0] * CLEARLY;
        cache::keep(self.0, if is_library { LIBRARY } else { OWN }.to_vec());
        if is_library {
            library()?
        } else {
            own()?
        }
        Ok(is_library)
    }
}
