//! Networks that PyTorch exported: the `.pt2` files of `torch.export.save`, of torch 2.9 and later.
//!
//! ```text
//! archive ─► schema, lifetimes ─► program (names become slots), signature (what inputs and outputs are) ─► network on a device ─► step
//! ```
//!
//! The graph is the program as autograd sees it, with the operators that the user's modules called; each is one of [`memcore::ops`], which
//! decides what is saved. Reading a file runs nothing of it: it is JSON and raw bytes, and its pickle of example inputs is not opened.

mod adapted;
mod adapted_weight;
mod adversaries;
mod archive;
mod batches;
mod blocks;
mod call;
mod contents;
mod evaluation;
mod first_states;
mod flat_weights;
mod folded;
mod gathered;
mod guards;
mod inputs;
mod lifetimes;
mod load;
mod lora;
mod loss;
mod model;
mod modules;
mod names;
mod network;
mod open_sizes;
mod operators;
mod pieces;
mod program;
mod ranks;
mod read;
mod regions;
mod run;
mod schema;
mod signature;
mod sizes;
mod split;
mod stages;
mod step;
mod symbols;
mod transfer;
mod types;
mod uncached;
mod unrepresented;
mod value;
mod views;
mod zoo;

pub use inputs::{Content, Input};
pub use load::{Reads, load};
pub use loss::{Chosen, LossName};
pub use model::{Exported, check_ending, is_export};
pub use operators::covered;
pub use ranks::train_ranks;
pub use sizes::Sizes;
pub use split::train_split;
pub use step::train_from;
pub use zoo::{Listed, is_recorded, listed, names};
