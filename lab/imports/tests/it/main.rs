//! The tests of networks from files, as one program.

mod archives;
mod export_names;
mod exported;
mod exported_checkpointed;
mod exported_eager;
mod exported_evaluated;
mod exported_mutations;
mod exported_ranks;
mod exported_recurrent;
mod exported_split;
mod family_graphs;
mod golden_models;
mod huggingface;
mod huggingface_heads;
mod huggingface_split;
mod model_files;
mod transformers;

/// The folder of exports that PyTorch wrote, and of what it took to train them.
const EXPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/exported");
