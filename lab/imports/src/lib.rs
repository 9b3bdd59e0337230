//! Networks as others write them down.
//!
//! It is given files, and gives networks that [`lab_training`] trains: [`huggingface`], the architectures of transformers from
//! a `config.json`, with the loops that train them there; [`hf_args`], what `TrainingArguments` ask for; [`model_file`], networks of
//! layers in TOML; [`exported`], graphs that `torch.export` saved. What a file says and no network here does is refused by name.

pub mod exported;
pub mod hf_args;
pub mod huggingface;
pub mod model_file;
