//! The backend-agnostic core of vramlab: tensors, autograd, operators, and the account of every byte they take.
//!
//! It is given a [`backend::Backend`], and gives a [`Device`]: tensors on it, whose memory an allocator of PyTorch's rules hands out, and the list of
//! everything that happened to it.
//!
//! Data flows one way; no module knows one above it:
//!
//! ```text
//! nn, optim → ops → autograd → array → storage → device → memory → backend → layout, dtype, error
//! ```
//!
//! Five types say what there is: a [`Device`] gives memory, a [`storage::Storage`] owns a block of it, a [`Tensor`] is a
//! value with the [`autograd::Node`] it came from, a [`memory::Event`] is what happened to memory, and a
//! [`backend::KernelCall`] is what a backend is asked to run. Each has an example; whole programs are in `examples/`: an experiment, an
//! allocation policy, a backend. `use memcore::prelude::*` brings what most programs need.
//!
//! Whatever works on a device can fail as the device does: out of memory ([`Error::OutOfMemory`], with who holds it), a kernel or a type that
//! the backend does not have ([`Error::Unsupported`]), a driver that fails. A section on errors says what comes on top of that; a function without one
//! has nothing to add, or is a form of another one and fails as that does.
//!
//! What is `doc(hidden)` the project's own programs need to imitate another one's, and it may change: how long a script's variables live, the graph seen
//! from outside, faults made on purpose.
//!
//! Beside `error` lie the words that errors carry (`account`, `segment`). There is no GPU interface here, no file and no terminal.

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
