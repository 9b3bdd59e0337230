//! Words and code of the changes that answers propose: one list for the table of a prediction, and for the `Try` of predictions, of
//! rehearsals and of messages.

/// The variable with the settings of PyTorch's allocator.
pub const ALLOC_CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// The setting that keeps memory from being fragmented.
pub const EXPANDABLE: &str = "expandable_segments:True";

/// Returns the setting of the allocator as it is written before a command.
pub fn alloc_conf(settings: &str) -> String {
    format!("{ALLOC_CONF}={settings}")
}

/// A change, and what to write for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wording {
    /// The change in a word or two.
    pub words: &'static str,
    /// Code of a network of transformers.
    pub script: &'static str,
}

/// Activations of a block are computed again in the backward pass.
pub const CHECKPOINTING: Wording = Wording { words: "checkpointing", script: "model.gradient_checkpointing_enable()" };

/// What always helps, where nothing is known of the script: need less memory.
pub const NEED_LESS: &str =
    "a smaller batch or a shorter sequence, recomputation (gradient checkpointing), 16-bit types, accumulation";
