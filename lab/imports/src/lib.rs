//! Networks from the files of other programs.
//!
//! This crate reads files, and returns networks that [`lab_training`] trains: [`huggingface`], the architectures of transformers from
//! a `config.json`, with the loops that train them there; [`hf_args`], what `TrainingArguments` ask for; [`recipes`], what the YAML files of trainers
//! ask for; [`model_file`], networks of layers in TOML; [`exported`], graphs that `torch.export` saved; [`networks`], which of them a name means, and [`published`], configurations of others by
//! their names. A feature of a file that no network here has is an error with its name.

pub mod exported;
pub mod hf_args;
pub mod huggingface;
pub mod model_file;
pub mod networks;
mod on_rank;
pub mod published;
pub mod recipes;
mod zipped;
