//! A requested run as data: the fields that were set, and no others.

use std::path::PathBuf;

use lab_base::bytes::{ByteSize, MemorySize};
use lab_imports::exported::Reads;
use lab_imports::huggingface::{AttentionMask, Head, Keep, REPRESENTED, Release, Script};
use lab_models::{Freeze, LoraTarget, Recompute};
use lab_training::pipeline;
use lab_training::{CheckpointSave, Ema, Evaluation, Hold, OptimizerKind, Precision, SavedOn, Turns};
use memcore::profile::ConvolutionWorkspaces;
use serde::{Deserialize, Serialize, Serializer};

use super::choices::{
    AllocatorName, AttentionName, EvalKeep, LossChoice, OptimizerForm, SizeList, Tf32Choice, Variable, ZeroGrad,
};
use super::devices::{CutList, DeviceList};
use super::gpu::Gpu;
use super::release::UsualRelease;

/// A run: network, training, device, memory profile, allocator, and how it is spread.
///
/// Command lines, configuration files, lock files, scans and searches make one of these and edit its fields; [`resolve`](super::resolve()) fills in
/// the rest. As JSON or TOML it is flat: the names of the fields are the names of the flags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The network.
    #[serde(flatten)]
    pub model: ModelSpec,
    /// The training.
    #[serde(flatten)]
    pub training: TrainingSpec,
    /// The shape of its loop.
    #[serde(flatten)]
    pub shape: LoopSpec,
    /// The profile: whose temporaries and workspaces are counted.
    #[serde(flatten)]
    pub profile: ProfileSpec,
    /// The allocator.
    #[serde(flatten)]
    pub allocator: AllocatorSpec,
    /// The device, or a dry run.
    #[serde(flatten)]
    pub device: DeviceSpec,
    /// The split over devices.
    #[serde(flatten)]
    pub parallel: ParallelSpec,
    /// Its beginning.
    #[serde(flatten)]
    pub begin: BeginSpec,
    /// Sentences on what a file asks for and this run does otherwise. Not a field of a run.
    #[serde(skip)]
    pub left_out: Vec<String>,
}

/// A network, and how it differs from its default form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ModelSpec {
    /// The network's name; `simple-cnn` by default.
    pub model: Option<String>,
    /// A network described in a file: TOML, a `config.json` of transformers, or a `.pt2` of torch.export.
    #[serde(serialize_with = "path_as_text")]
    pub model_file: Option<PathBuf>,
    /// The discriminator that a generator of a `.pt2` is trained against, another `.pt2`.
    #[serde(serialize_with = "path_as_text")]
    pub adversary: Option<PathBuf>,
    /// Layers or blocks.
    pub layers: Option<usize>,
    /// Width of the first layer, or of the embedding.
    pub width: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Tokens per example.
    pub sequence: Option<usize>,
    /// Number of different tokens.
    pub vocabulary: Option<usize>,
    /// Features per example.
    pub features: Option<usize>,
    /// Side of the pictures, in pixels.
    pub image: Option<usize>,
    /// Classes.
    pub classes: Option<usize>,
    /// Probability of dropping a value.
    pub dropout: Option<f64>,
    /// How attention is computed.
    pub attention: Option<AttentionName>,
    /// What is computed again in backward instead of being kept.
    pub checkpoint: Option<Recompute>,
    /// The operators whose results are kept of blocks that are computed again; none unless said.
    pub checkpoint_save: Option<CheckpointSave>,
    /// The head of a `config.json`'s network; that of `architectures` by default.
    pub head: Option<Head>,
    /// Texts that an example of multiple choice has; 4 by default.
    pub choices: Option<usize>,
    /// The release of transformers; the installed one by default, else the newest that is represented.
    pub transformers: Option<Release>,
    /// The part of a result that the script holds until the next one.
    pub keep: Option<Keep>,
    /// The `attention_mask` of a batch.
    pub attention_mask: Option<AttentionMask>,
    /// Last tokens of an example that are given scores; all unless said.
    pub logits_to_keep: Option<usize>,
    /// Texts in an example, told apart by their positions; one, without positions, unless said.
    pub packing: Option<usize>,
    /// True if the network is made on the device, not in main memory.
    pub built_on_device: bool,
    /// True if linear layers have weights of 4 bits, by bitsandbytes.
    #[serde(rename = "load-in-4bit")]
    pub load_in_4bit: bool,
    /// True if they have weights of 8 bits.
    #[serde(rename = "load-in-8bit")]
    pub load_in_8bit: bool,
    /// True if the scales of 4-bit weights are quantized, too: `bnb_4bit_use_double_quant`.
    pub double_quant: bool,
    /// The loss of a `.pt2`'s network, if it is not the network's own scalar; of a decoder's `config.json` the form of its loss.
    pub loss: Option<LossChoice>,
    /// The training loop.
    #[serde(rename = "loop")]
    pub script: Option<Script>,
    /// True if the output layer shares the token table.
    pub tied: bool,
    /// True if intermediate results are kept in a list that only the schedule's `clear` empties.
    pub keep_intermediate: bool,
    /// Contents of a `.pt2`, shared by all runs that are made of this one.
    #[serde(skip)]
    pub reads: Reads,
    /// The graph that was kept of this network, which the user's Python builds otherwise. Not a field of a run.
    #[serde(skip)]
    pub graph: Option<PathBuf>,
    /// The release of transformers if none is said. Not a field of a run.
    #[serde(skip)]
    pub usual_release: UsualRelease,
}

/// How the network is trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct TrainingSpec {
    /// Examples per step (per micro-batch, with accumulation); the network's own by default.
    pub batch: Option<usize>,
    /// Optimizer steps; 10, or 20 epochs of a data set, by default.
    pub steps: Option<usize>,
    /// `synthetic`, `digits` or a path; `synthetic` by default.
    pub data: Option<String>,
    /// The optimizer; the network's own by default.
    pub optimizer: Option<OptimizerKind>,
    /// Loop, foreach or fused; foreach by default.
    pub optimizer_impl: Option<OptimizerForm>,
    /// The parameters that are not trained; none unless said.
    pub freeze: Option<Freeze>,
    /// Rank of the adapters (LoRA) that are trained instead of the network; none unless said.
    pub lora: Option<usize>,
    /// The layers that have an adapter; PEFT's for the network by default.
    pub lora_target: Option<LoraTarget>,
    /// Probability of dropping an element of an adapter's input; 0 by default.
    pub lora_dropout: Option<f64>,
    /// True if the adapters have magnitudes: `use_dora`.
    pub dora: bool,
    /// Learning rate.
    pub lr: Option<f64>,
    /// Weight decay; PyTorch's by default.
    pub weight_decay: Option<f64>,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// Adam's variant with the largest second moment.
    pub amsgrad: bool,
    /// Ascend instead of descending.
    pub maximize: bool,
    /// Step counters on the device.
    pub capturable: bool,
    /// Types of parameters, inputs and products.
    pub precision: Option<Precision>,
    /// Micro-batches per optimizer step; 1 by default.
    pub accumulate: Option<usize>,
    /// Gradients after `zero_grad`; no gradients by default.
    pub zero_grad: Option<ZeroGrad>,
    /// The order of a step's phases, with commas between.
    pub schedule: Option<String>,
    /// The largest norm of the gradients.
    pub clip_grad_norm: Option<f64>,
    /// Seed of parameters, data and dropout; 0 by default.
    pub seed: Option<u64>,
}

/// What the training loop does besides one step after another with batches of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct LoopSpec {
    /// Examples of each batch in turn, instead of one size.
    pub batches: Option<SizeList>,
    /// Tokens of each batch's examples in turn; as many as the network takes unless said.
    pub lengths: Option<SizeList>,
    /// Steps from one evaluation to the next; without evaluations unless said.
    pub eval_every: Option<usize>,
    /// Examples of each batch of an evaluation; those of the training unless said.
    pub eval_batch: Option<usize>,
    /// Batches of an evaluation; 2 unless said.
    pub eval_steps: Option<usize>,
    /// What an evaluation keeps until its end; nothing unless said.
    pub eval_keep: Option<EvalKeep>,
    /// The average of the weights that is kept beside the network; none unless said.
    pub ema: Option<Ema>,
    /// The names that keep their values after a step, until they are bound again; all unless said.
    pub hold: Option<Hold>,
    /// True if the network and its pictures are put in channels-last.
    pub channels_last: bool,
    /// Memory of the host that keeps what forward saves for backward; none unless said.
    pub save_on_cpu: Option<SavedOn>,
}

/// Whose temporaries and workspaces are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ProfileSpec {
    /// A release of PyTorch, with or without a card's architecture, or `native`; the named card's by default.
    pub like: Option<String>,
    /// Workspace of each plan of cuDNN; without cuDNN by default.
    pub cudnn_workspace: Option<ByteSize>,
    /// What convolutions take besides.
    #[serde(skip)]
    pub convolutions: Convolutions,
    /// Variables of the environment that PyTorch is assumed to run in.
    pub env: Option<Vec<Variable>>,
    /// Multiprocessors of the card.
    pub multiprocessors: Option<u16>,
}

/// What convolutions take besides their operands: no field of a run, but a further run for another figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convolutions {
    /// What the profile says.
    #[default]
    AsProfiled,
    /// The most that cuDNN may need.
    Copying,
    /// What cuDNN named.
    Named(ConvolutionWorkspaces),
}

/// How much memory there is, and how it is handed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct AllocatorSpec {
    /// Memory that the device is assumed to have.
    pub memory_limit: Option<MemorySize>,
    /// The share of the device that the allocator may take.
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, as in `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: Option<String>,
    /// The policy; the caching allocator by default.
    pub allocator: Option<AllocatorName>,
}

/// The device. A dry run where no backend is named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct DeviceSpec {
    /// For a dry run: a card by its name, or an amount of memory for tensors; by default more than any card has.
    pub gpu: Option<Gpu>,
    /// The backend, or `auto` for the first that works.
    pub backend: Option<String>,
    /// Number of the backend's device; 0 by default.
    pub device: Option<usize>,
    /// True if steps are launched as CUDA graphs.
    pub cuda_graph: Option<bool>,
    /// Products of float32 that may be computed in TF32.
    pub tf32: Option<Tf32Choice>,
}

/// The split of a run over devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ParallelSpec {
    /// The devices that the network's layers are split over.
    pub devices: Option<DeviceList>,
    /// Micro-batches of a split run; 1 by default.
    pub micro_batches: Option<usize>,
    /// The pieces before which the network is cut.
    pub cut: Option<CutList>,
    /// The order of the micro-batches' passes; `1f1b` by default.
    pub pipeline_schedule: Option<pipeline::Schedule>,
    /// Ranks that each step's batch is divided among.
    pub data_parallel: Option<usize>,
    /// ZeRO's stage.
    pub zero: Option<u8>,
    /// True if gradients live in the buckets that they are reduced in.
    pub gradient_as_bucket_view: Option<bool>,
    /// True if the gradients of each micro-batch are reduced, not their sum.
    pub sync_each: Option<bool>,
}

/// The beginning of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct BeginSpec {
    /// Weights to begin with.
    #[serde(serialize_with = "path_as_text")]
    pub load: Option<PathBuf>,
    /// A saved state to continue from.
    #[serde(serialize_with = "path_as_text")]
    pub resume: Option<PathBuf>,
}

/// The network, by default.
const DEFAULT_MODEL: &str = "simple-cnn";

/// Batches of an evaluation, unless said: the second has what the first leaves.
const EVAL_STEPS: usize = 2;

impl LoopSpec {
    /// Number of steps, of so many batches each, after which everything in the loop has had its turn.
    pub(super) fn period(&self, accumulate: Option<usize>) -> usize {
        self.turns().period(accumulate.unwrap_or(1), self.eval_every.unwrap_or(1))
    }

    /// What is evaluated between steps, of a training with batches of this size.
    pub(super) fn evaluation(&self, batch: usize) -> Option<Evaluation> {
        self.eval_every.map(|every| Evaluation {
            every,
            batch: self.eval_batch.unwrap_or(batch),
            batches: self.eval_steps.unwrap_or(EVAL_STEPS),
            keeps_results: self.eval_keep == Some(EvalKeep::Logits),
        })
    }

    /// Sizes of the batches in turn.
    pub(super) fn turns(&self) -> Turns {
        let sizes = |list: &Option<SizeList>| list.as_ref().map_or_else(Vec::new, |list| list.sizes().to_vec());
        Turns { batches: sizes(&self.batches), lengths: sizes(&self.lengths) }
    }
}

impl ModelSpec {
    /// The network's name, unless it comes from a file.
    pub fn name(&self) -> &str {
        self.model.as_deref().unwrap_or(DEFAULT_MODEL)
    }

    /// The network's name, or the path of its file.
    pub(super) fn shown_name(&self) -> String {
        self.model_file.as_ref().map_or_else(|| self.name().into(), |path| path.display().to_string())
    }

    /// The release of transformers that counts.
    pub(super) fn release(&self) -> Release {
        self.transformers.or(self.usual_release.release()).unwrap_or(REPRESENTED)
    }

    /// True if the library's `Trainer` trains it.
    pub fn by_trainer(&self) -> bool {
        self.script == Some(Script::Trainer)
    }
}

/// Writes a path for display. A path that is not text is shown as closely as text can; it can still be opened.
fn path_as_text<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}
