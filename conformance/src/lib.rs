//! The tests that a backend must pass.
//!
//! Given a way to open a backend, it runs more than eight thousand named trials and returns an exit code.
//!
//! A backend's crate has one test of a few lines (see [`main`]). The suites run on any
//! [`Backend`](memcore::backend::Backend):
//!
//! - **coverage**: every kernel of the contract has cases, in the types and sizes that matter;
//! - **memory**: segments, their alignment, and how a device refuses and continues;
//! - **virtual_memory**: reservations that are mapped piece by piece, on devices that support them;
//! - **validation**: calls that break the contract are refused before a backend sees them;
//! - **transfer**: bytes arrive, in the order of the calls;
//! - **kernels**: every case against the f64 [`Reference`], with outputs poisoned beforehand and guard bytes around
//!   every operand;
//! - **aliasing**: operands in separate segments, one operand read twice, results that overwrite an argument;
//! - **workspace**: a kernel works with the workspace that it is given, even with none;
//! - **determinism**: the same call gives the same bits;
//! - **gradients**: core's autograd on the device, operator by operator, against f64 on the reference, whose gradients
//!   are tested by central differences;
//! - **optimizers**: every optimizer in every form, with every option, against values that PyTorch computed;
//! - **training**: five steps of small networks, loss by loss.
//!
//! Cases are data, one line each: see [`cases`] for where to add one.

pub mod case;
pub mod cases;
mod data;
mod device;
mod entry;
pub mod execute;
mod operators;
pub mod plan;
pub mod reference;
pub mod suites;
mod tolerance;

pub use case::{Bound, Case, CaseBuilder, Spec};
pub use data::Data;
pub use device::{Device, NAME_CASES, Options};
pub use entry::{REQUIRE_DEVICE, is_required, main, main_with, or_skip, trials};
pub use reference::Reference;
pub use tolerance::Tolerance;
