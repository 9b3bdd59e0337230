//! The best possible allocation of a run that is known in advance.
//!
//! A run is a list of [`Lifetime`]s: size, birth, death. *Dynamic storage allocation* is the problem of giving each an
//! offset, in as few bytes as possible, so that no two overlap that live at the same time. It is NP-hard. But the bytes
//! that live at one time are a lower bound for any allocator, and on 70 recorded training scripts (up to 1 600
//! allocations) the packings here come within 5.2 % of it at worst and 0.2 % at the median. So the bound, the plan and
//! a real policy's reserved bytes tell apart three costs: the needs of the workload, placement, and not knowing the
//! future.
//!
//! A [`Plan`] can be checked ([`Plan::check`]) independently of the code that made it, and so can its [`Bound`]. If the
//! two sizes are equal, the plan is proven optimal. [`Planned`] follows a plan on a device.

mod follow;
mod pack;
mod plan;

pub use follow::Planned;
pub use pack::pack;
pub use plan::{ALIGNMENT_BYTES, Bound, Lifetime, Packing, Plan, lifetimes};
