//! A requested run as data: the fields that were set, and no others.

mod device;
mod parallel;
mod switch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lab_imports::exported::Reads;
use lab_imports::huggingface::{AttentionMask, Head, Keep, REPRESENTED, Release, Script};
use lab_models::{Freeze, LoraTarget, Recompute};
use lab_training::{CheckpointSave, Ema, Evaluation, Hold, OptimizerKind, Precision, SavedOn, Turns};
use serde::{Deserialize, Serialize, Serializer};

use super::choices::{AttentionName, EvalKeep, LossChoice, OptimizerForm, SizeList, ZeroGrad};
#[cfg(feature = "flags")]
use super::flags;
use super::release::UsualRelease;
pub(super) use device::Convolutions;
pub use device::{AllocatorSpec, CardSpec, DeviceSpec, KernelSpec, ProfileSpec};
pub use parallel::{ParallelSpec, RanksSpec, SplitSpec};

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
    /// The card of a dry run.
    #[serde(flatten)]
    pub card: CardSpec,
    /// The device, or a dry run.
    #[serde(flatten)]
    pub device: DeviceSpec,
    /// How the device computes.
    #[serde(flatten)]
    pub kernels: KernelSpec,
    /// The split over devices.
    #[serde(flatten)]
    pub parallel: ParallelSpec,
    /// Its beginning.
    #[serde(flatten)]
    pub begin: BeginSpec,
    /// Sentences on what a file asks for and this run does otherwise. Not a field of a run.
    #[serde(skip)]
    pub left_out: Vec<String>,
    /// The file that sets each field, for those that nobody typed. Not a field of a run.
    #[serde(skip)]
    pub of_files: BTreeMap<String, String>,
}

/// A network, and how it differs from its default form.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Model"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ModelSpec {
    /// The network: a name of `vramlab info models`, or its name on the hub (meta-llama/Llama-3.1-8B) [default: simple-cnn].
    #[cfg_attr(feature = "flags", arg(long, help_heading = flags::MOST_USED, value_name = "NAME", hide_possible_values = true, value_parser = flags::network()))]
    pub model: Option<String>,
    /// A network described in a file: TOML, with training settings (flags override them), a `config.json` of Hugging Face's transformers, or a
    /// `.pt2` of torch.export.
    #[cfg_attr(feature = "flags", arg(long, help_heading = flags::MOST_USED, value_name = "FILE"))]
    #[serde(serialize_with = "path_as_text")]
    pub model_file: Option<PathBuf>,
    /// The discriminator of a generative adversarial network, a `.pt2` whose generator is --model-file. Both are trained in turns, as in PyTorch's
    /// tutorial of DCGAN: the discriminator on real pictures and on made ones, then the generator, with an optimizer each.
    #[cfg_attr(feature = "flags", arg(long, value_name = "FILE"))]
    #[serde(serialize_with = "path_as_text")]
    pub adversary: Option<PathBuf>,
    /// Layers: hidden layers of mlp, blocks of gpt.
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub layers: Option<usize>,
    /// Width: neurons per hidden layer (mlp), embedding (gpt, seq2seq-attention), or channels of the first stage (resnet, vgg16, mobilenet_v2,
    /// densenet121, convnext).
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub width: Option<usize>,
    /// Attention heads.
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub heads: Option<usize>,
    /// Tokens per example.
    #[cfg_attr(feature = "flags", arg(long, help_heading = flags::MOST_USED, value_name = "N"))]
    pub sequence: Option<usize>,
    /// Number of different tokens.
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub vocabulary: Option<usize>,
    /// Features per example (mlp).
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub features: Option<usize>,
    /// Side of the pictures in pixels (resnet, vgg16, mobilenet_v2, densenet121, convnext) [default: 224].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub image: Option<usize>,
    /// Classes (mlp, resnet, vgg16, mobilenet_v2, densenet121, convnext).
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub classes: Option<usize>,
    /// Probability of dropping a value (gpt, vgg16, mobilenet_v2, densenet121), or of dropping the last block for an example (convnext). The
    /// probability rises up to that block.
    #[cfg_attr(feature = "flags", arg(long, value_name = "P", allow_negative_numbers = true))]
    pub dropout: Option<f64>,
    /// Attention as separate operators (eager: the scores are kept), or as one kernel (sdpa), for gpt and for transformers, where sdpa is the default.
    #[cfg_attr(feature = "flags", arg(long, value_name = "KIND", value_parser = flags::one_of::<AttentionName>(AttentionName::NAMES)))]
    pub attention: Option<AttentionName>,
    /// Recompute in backward instead of keeping: none, blocks (each by itself), blocks:N (every N-th), sqrt (segments of about √n blocks), or numbers of
    /// blocks from 0 (1,3). Blocks of mlp are hidden layers with their ReLU, those of gpt and transformers their blocks. Blocks of resnet, mobilenet_v2 and
    /// convnext are residual blocks, and convnext's segments lie within a stage. Blocks of vgg16 are its five stages, those of densenet121 layers up to their
    /// bottleneck. A .pt2 has numbered modules, or modules by paths such as 'h.*'. densenet121 and encoders of transformers take none and blocks alone, decoders
    /// all but sqrt [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "WHAT"))]
    pub checkpoint: Option<Recompute>,
    /// Keep the results of these operators of recomputed blocks, as create_selective_checkpoint_contexts does: some of mm, mm:2 (every second one, as
    /// torchtitan), addmm, bmm, matmuls (all three), attention (fused kernels), convolution [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "OPERATORS"))]
    pub checkpoint_save: Option<CheckpointSave>,
    /// The head on the hidden states (transformers) [default: that of the class in `architectures`, else the language model's].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAME", value_parser = flags::one_of::<Head>(Head::NAMES)))]
    pub head: Option<Head>,
    /// Number of texts from which an example chooses (transformers with a multiple-choice head) [default: 4].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub choices: Option<usize>,
    /// The release of transformers, such as 4.51 [default: the one that is installed for the Python of --python, else the newest known].
    #[cfg_attr(feature = "flags", arg(long, value_name = "RELEASE"))]
    pub transformers: Option<Release>,
    /// Result that the script holds until the next one: the output with logits and cache, or only the loss (transformers) [default: output].
    #[cfg_attr(feature = "flags", arg(long, value_name = "WHAT", value_parser = flags::one_of::<Keep>(Keep::NAMES)))]
    pub keep: Option<Keep>,
    /// The attention_mask of a batch: none, full (of ones: all examples have the same length), or padded (examples of a little more than half their
    /// length, with padding at the end) (transformers) [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "KIND", value_parser = flags::one_of::<AttentionMask>(AttentionMask::NAMES)))]
    pub attention_mask: Option<AttentionMask>,
    /// Score the last N tokens of each example alone, and take the loss of their labels: logits_to_keep (decoders of transformers) [default: all].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub logits_to_keep: Option<usize>,
    /// Each example holds N texts, told apart by position_ids without an attention_mask, as packing trainers pass them (decoders of transformers)
    /// [default: one text, without position_ids].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub packing: Option<usize>,
    /// Make the network on the device (`with torch.device("cuda")`), instead of making it in main memory and moving it (transformers).
    #[cfg_attr(feature = "flags", arg(long))]
    pub built_on_device: bool,
    /// Keep the weights of linear layers in 4 bits, as bitsandbytes does (transformers). With --lora of decoders it needs no Python.
    #[cfg_attr(feature = "flags", arg(long = "load-in-4bit"))]
    #[serde(rename = "load-in-4bit")]
    pub load_in_4bit: bool,
    /// Keep them in 8 bits.
    #[cfg_attr(feature = "flags", arg(long = "load-in-8bit"))]
    #[serde(rename = "load-in-8bit")]
    pub load_in_8bit: bool,
    /// Quantize the scales of 4-bit weights, too (bnb_4bit_use_double_quant).
    #[cfg_attr(feature = "flags", arg(long))]
    pub double_quant: bool,
    /// The loss if the network gives no scalar: sum or mean of its first output, cross-entropy against classes, mse against values (a .pt2) [default:
    /// the network's own scalar, else cross-entropy for an output of [batch, classes], else mean]. A decoder's config.json takes checkpointed or chunked:N:
    /// backward computes output layer and loss again, of all tokens or of N parts in turn. It takes liger, too, Liger's fused loss.
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAME", value_parser = flags::one_of::<LossChoice>(LossChoice::NAMES)))]
    pub loss: Option<LossChoice>,
    /// Put Liger's kernels in: norms, rotary positions, gates, and the fused loss, as `apply_liger_kernel_to_…` and use_liger_kernel do (Llama, Mistral, Qwen2,
    /// Qwen3, Gemma and Phi-3 of transformers).
    #[cfg_attr(feature = "flags", arg(long))]
    pub liger: bool,
    /// The training loop: plain (batch, zero_grad, forward, backward, step), or trainer: that of transformers' Trainer, without a cache, with fused
    /// AdamW over two groups, lr 5e-5, no weight decay, gradients clipped at 1.0, unless flags say otherwise (transformers) [default: plain].
    #[cfg_attr(feature = "flags", arg(long = "loop", value_name = "KIND", value_parser = flags::one_of::<Script>(Script::NAMES)))]
    #[serde(rename = "loop")]
    pub script: Option<Script>,
    /// Share the output layer's weights with the token table (gpt).
    #[cfg_attr(feature = "flags", arg(long))]
    pub tied: bool,
    /// Keep intermediate results in a list that only a schedule's `clear` empties: hidden activations (two-layer), attention weights
    /// (seq2seq-attention).
    #[cfg_attr(feature = "flags", arg(long))]
    pub keep_intermediate: bool,
    /// Contents of a `.pt2`, shared by all runs that are made of this one.
    #[cfg_attr(feature = "flags", arg(skip))]
    #[serde(skip)]
    pub reads: Reads,
    /// The graph that was kept of this network, which the user's Python builds otherwise. Not a field of a run.
    #[cfg_attr(feature = "flags", arg(skip))]
    #[serde(skip)]
    pub graph: Option<PathBuf>,
    /// The release of transformers if none is said. Not a field of a run.
    #[cfg_attr(feature = "flags", arg(skip))]
    #[serde(skip)]
    pub usual_release: UsualRelease,
}

/// How the network is trained.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Training"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct TrainingSpec {
    /// Examples per step, or with --accumulate of each micro-batch [default: the model's].
    #[cfg_attr(feature = "flags", arg(long, help_heading = flags::MOST_USED, value_name = "N"))]
    pub batch: Option<usize>,
    /// Optimizer steps [default: 10, or 20 epochs of a data set].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub steps: Option<usize>,
    /// Data set: synthetic, digits, or the path of MNIST or CIFAR-10 files [default: synthetic].
    #[cfg_attr(feature = "flags", arg(long, value_name = "DATA"))]
    pub data: Option<String>,
    /// The optimizer [default: the model's].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAME", value_parser = flags::one_of::<OptimizerKind>(OptimizerKind::NAMES)))]
    pub optimizer: Option<OptimizerKind>,
    /// Form of the optimizer: one parameter after the other (loop), lists of parameters (foreach), or one kernel (fused) [default: foreach].
    #[cfg_attr(feature = "flags", arg(long, value_name = "FORM", value_parser = flags::one_of::<OptimizerForm>(OptimizerForm::NAMES)))]
    pub optimizer_impl: Option<OptimizerForm>,
    /// Do not train these parameters, named as PyTorch names them (requires_grad_(False)): names of parameters or modules with commas between, * for any
    /// characters, ! before what is trained after all (--freeze '*,!head') [default: all are trained].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAMES"))]
    pub freeze: Option<Freeze>,
    /// Train adapters of this rank (LoRA) instead of the network, as PEFT does [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "RANK"))]
    pub lora: Option<usize>,
    /// Put adapters on these layers: all-linear, names with commas between, or a regular expression [default: PEFT's for the network].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAMES"))]
    pub lora_target: Option<LoraTarget>,
    /// Drop elements of the adapters' inputs with this probability [default: 0].
    #[cfg_attr(feature = "flags", arg(long, value_name = "P"))]
    pub lora_dropout: Option<f64>,
    /// Train these modules whole beside the adapters, as copies: names with commas between (PEFT's modules_to_save) [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAMES"))]
    pub modules_to_save: Option<String>,
    /// Give the adapters magnitudes (DoRA).
    #[cfg_attr(feature = "flags", arg(long))]
    pub dora: bool,
    /// Divide the adapters' results by the root of their rank (rsLoRA), which takes the same memory.
    #[cfg_attr(feature = "flags", arg(long))]
    pub rslora: bool,
    /// Take each parameter's step in backward, as soon as its gradient is there, and free the gradient (torchtune's optimizer_in_bwd).
    #[cfg_attr(feature = "flags", arg(long))]
    pub step_in_backward: bool,
    /// Learning rate [default: the model's].
    #[cfg_attr(feature = "flags", arg(long, value_name = "F", allow_negative_numbers = true))]
    pub lr: Option<f64>,
    /// Weight decay [default: PyTorch's].
    #[cfg_attr(feature = "flags", arg(long, value_name = "F", allow_negative_numbers = true))]
    pub weight_decay: Option<f64>,
    /// Nesterov's momentum (momentum).
    #[cfg_attr(feature = "flags", arg(long))]
    pub nesterov: bool,
    /// Keep the largest second moment (adam, adamw).
    #[cfg_attr(feature = "flags", arg(long))]
    pub amsgrad: bool,
    /// Ascend instead of descending.
    #[cfg_attr(feature = "flags", arg(long))]
    pub maximize: bool,
    /// Keep the step counters on the device (adam and adamw, foreach or fused).
    #[cfg_attr(feature = "flags", arg(long))]
    pub capturable: bool,
    /// Types: float32, float32 with products in a 16-bit type (autocast, with fp16 a loss scaler), or a 16-bit type throughout [default: fp32].
    #[cfg_attr(feature = "flags", arg(long, value_name = "TYPE", value_parser = flags::one_of::<Precision>(Precision::NAMES)))]
    pub precision: Option<Precision>,
    /// Micro-batches per optimizer step [default: 1].
    #[cfg_attr(feature = "flags", arg(long, value_name = "K"))]
    pub accumulate: Option<usize>,
    /// Gradients after zero_grad: none (set_to_none=True), or zeros [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "KIND", value_parser = flags::one_of::<ZeroGrad>(ZeroGrad::NAMES)))]
    pub zero_grad: Option<ZeroGrad>,
    /// Order of a step's phases, of: input, zero_grad, forward, loss, exit_autocast, backward, step, update, del (of the network's result),
    /// forward_no_grad, clear (of the list that --keep-intermediate fills), empty_cache, reset_peak [default: the model file's, or
    /// input,zero_grad,forward,loss,backward,step].
    #[cfg_attr(feature = "flags", arg(long, value_name = "PHASES"))]
    pub schedule: Option<String>,
    /// Scale gradients so that their norm is at most this.
    #[cfg_attr(feature = "flags", arg(long, value_name = "NORM", allow_negative_numbers = true))]
    pub clip_grad_norm: Option<f64>,
    /// Seed of parameters, data and dropout [default: 0].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub seed: Option<u64>,
}

/// What the training loop does besides one step after another with batches of one size.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Loop"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct LoopSpec {
    /// Examples of each batch in turn, from the first again after the last: 32,32,32,17 is an epoch with a smaller last batch. With --accumulate
    /// each micro-batch takes the next one. Of synthetic data.
    #[cfg_attr(feature = "flags", arg(long, value_name = "N,N,…"))]
    pub batches: Option<SizeList>,
    /// Tokens of each batch's examples in turn: 512,128,1024 (gpt, gpt2, transformers) [default: as many as the network takes].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N,N,…"))]
    pub lengths: Option<SizeList>,
    /// Evaluate after every N steps, under torch.no_grad() and model.eval(), in a function of its own. The loop's variables keep their values
    /// meanwhile [default: no evaluation].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub eval_every: Option<usize>,
    /// Examples of each batch of an evaluation [default: as in training].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub eval_batch: Option<usize>,
    /// Batches of an evaluation [default: 2, after which nothing grows].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub eval_steps: Option<usize>,
    /// What an evaluation keeps of its batches until its end: nothing (each loss is read as a number), or the logits of all, in a list
    /// [default: nothing].
    #[cfg_attr(feature = "flags", arg(long, value_name = "WHAT", value_parser = flags::one_of::<EvalKeep>(EvalKeep::NAMES)))]
    pub eval_keep: Option<EvalKeep>,
    /// Keep an exponential moving average of the weights, taken after each step: AveragedModel, a copy of the module with its buffers (model), or a
    /// list of clones (parameters) [default: none].
    #[cfg_attr(feature = "flags", arg(long, value_name = "KIND", value_parser = flags::one_of::<Ema>(Ema::NAMES)))]
    pub ema: Option<Ema>,
    /// Names of the script that keep their values after a step, until they are bound again in the next one: some of inputs, outputs, loss, or none,
    /// as if a function took the step. The others are deleted after it [default: inputs,outputs,loss].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAMES"))]
    pub hold: Option<Hold>,
    /// Put the network and its pictures in channels-last: model.to(memory_format=torch.channels_last) once, and the same of each batch after it is
    /// on the card. Convolutions with --cudnn-workspace read it. PyTorch's own copy it into row-major order. Only counted (predict).
    #[cfg_attr(feature = "flags", arg(long))]
    pub channels_last: bool,
    /// Keep what forward saves for backward on the host, as torch.autograd.graph.save_on_cpu does: in pageable memory, or =pinned
    /// (pin_memory=True) [default: on the card].
    #[cfg_attr(feature = "flags", arg(long, value_name = "MEMORY", num_args = 0..=1, require_equals = true, default_missing_value = "pageable", value_parser = flags::one_of::<SavedOn>(SavedOn::NAMES)))]
    pub save_on_cpu: Option<SavedOn>,
}

/// The beginning of a run.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Weights"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct BeginSpec {
    /// Begin with the weights of a safetensors file. Its tensors must have the names (PyTorch's), sizes and types of the model's. Everything else
    /// starts anew.
    #[cfg_attr(feature = "flags", arg(long, value_name = "FILE"))]
    #[serde(serialize_with = "path_as_text")]
    pub load: Option<PathBuf>,
    /// Continue where the run that wrote this file with --save ended: weights, optimizer state, loss scale, random state, position in the data.
    /// --steps counts further steps.
    #[cfg_attr(feature = "flags", arg(long, value_name = "FILE"))]
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
