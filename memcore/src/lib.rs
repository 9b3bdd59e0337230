//! The backend-independent core of vramlab: tensors, autograd, operators, and the account of every byte that they take.
//!
//! From a [`backend::Backend`] it makes a [`Device`]. Tensors on the device get their memory from an allocator with
//! PyTorch's rules, and a ledger lists every event.
//!
//! Data flows one way; no module knows one above it:
//!
//! ```text
//! nn, optim → ops → autograd → array → storage → device → memory → backend → layout, dtype, error
//! ```
//!
//! Five types come first: a [`Device`] gives memory, a [`storage::Storage`] owns a block of it, a [`Tensor`] is a value
//! with the [`autograd::Node`] that made it, a [`memory::Event`] is one allocation or free, and a
//! [`backend::KernelCall`] is work for a backend. Each has an example. Whole programs are in `examples/`: an
//! experiment, an allocation policy, a backend. `use memcore::prelude::*` imports what most programs need.
//!
//! Every function that works on a device can fail as the device does: out of memory ([`Error::OutOfMemory`], with who
//! holds it), a kernel or a type that the backend does not have ([`Error::Unsupported`]), a driver that fails. An
//! `Errors` section lists only what is added to that. A function without one adds nothing, or is a form of another
//! function and fails like it.
//!
//! Items that are `doc(hidden)` serve the project's own programs, which imitate another program, and may change: the
//! lifetimes of a script's variables, the graph seen from outside, faults made on purpose.
//!
//! In the layer of `error` are the types that errors carry (`account`, `segment`). The core has no GPU interface, no files and
//! no terminal.

mod account;
pub mod amp;
pub mod array;
pub mod autograd;
pub mod backend;
pub mod context;
mod deviation;
pub mod device;
pub mod dtype;
pub mod error;
pub mod layout;
pub mod memory;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod prelude;
pub mod profile;
mod segment;
pub mod storage;
pub mod tape;

pub use array::Array;
pub use autograd::{NoGrad, Tensor};
pub use deviation::{Deviation, Deviations};
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, Result};
pub use layout::{Layout, MAX_RANK};
pub use profile::Profile;
