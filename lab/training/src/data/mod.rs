//! Data sets on the host: the input of training runs, before any of it is on a device.
//!
//! Everything here is plain vectors, without tensors or devices. A [`DataSpec`] names a source as the command line does (`synthetic`, `digits` or a
//! path), [`DataSpec::load`] reads it into a [`Dataset`], and [`Dataset::batch`] gathers examples of it.
//!
//! - `digits` is embedded: it needs no network and no file.
//! - IDX files (MNIST, Fashion-MNIST and their relatives) and CIFAR-10's binary version are read from a path.
//! - `synthetic` is noise of any shape: for memory, values do not matter.
//!
//! Files are not trusted. What a header promises is checked against the file's contents before anything is allocated for it, and every fault is a
//! [`DataError`] that names the file, the byte and the expectation.

mod cifar;
mod dataset;
mod digits;
mod error;
mod idx;
mod rng;
mod source;
mod spec;
mod synthetic;

pub use cifar::load_cifar10;
pub use dataset::{Dataset, Split, Targets};
pub use digits::digits;
pub use error::{DataError, Result};
pub use idx::{load_idx_directory, load_idx_file};
pub use rng::{SplitMix64, shuffle};
pub use spec::DataSpec;
pub use synthetic::Synthetic;
