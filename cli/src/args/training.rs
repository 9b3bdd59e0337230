//! `train`: one run on a device.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ValueEnum, value_parser};
use lab::training::{OptimizerKind, Precision};
use memcore::Profile;
use memcore::backend::Tf32;
use memcore::profile::Release;

use super::scan::ScanArgs;
use super::values;
use super::{AllocatorArgs, DeviceArgs, ExportArgs, HtmlArgs, ModelArgs, OutputArgs, ParallelArgs, WeightsArgs};
use crate::destination::Destination;

/// How the network is trained.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Examples per step; with --accumulate, of each micro-batch [default: the model's].
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Optimizer steps [default: 10, or 20 epochs of a data set].
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// What to train on: synthetic, digits, or the path of MNIST or CIFAR-10 files.
    #[arg(long, value_name = "DATA", default_value = "synthetic")]
    pub data: String,
    /// The optimizer [default: the model's].
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(OptimizerKind::NAMES))]
    pub optimizer: Option<String>,
    /// How the optimizer goes through the parameters [default: foreach].
    #[arg(long, value_name = "FORM", value_enum)]
    pub optimizer_impl: Option<ImplementationName>,
    /// Learning rate [default: the model's].
    #[arg(long, value_name = "F", value_parser = values::non_negative, allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Weight decay [default: PyTorch's].
    #[arg(long, value_name = "F", value_parser = values::non_negative, allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Nesterov's momentum (momentum).
    #[arg(long)]
    pub nesterov: bool,
    /// Keep the largest second moment (adam, adamw).
    #[arg(long)]
    pub amsgrad: bool,
    /// Ascend instead of descending.
    #[arg(long)]
    pub maximize: bool,
    /// Keep the step counters on the device (adam, adamw; foreach or fused).
    #[arg(long)]
    pub capturable: bool,
    /// Types: float32, float32 with products in a 16-bit type (autocast; fp16 with a loss scaler), or a 16-bit type throughout [default: fp32].
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(Precision::NAMES))]
    pub precision: Option<String>,
    /// Micro-batches per optimizer step [default: 1].
    #[arg(long, value_name = "K")]
    pub accumulate: Option<usize>,
    /// What zero_grad leaves: no gradients, or zeros [default: none].
    #[arg(long, value_name = "KIND", value_enum)]
    pub zero_grad: Option<ZeroGrad>,
    /// Order of a step's phases, of: input, zero_grad, forward, loss, exit_autocast, backward, step, update, del (of the network's result),
    /// forward_no_grad, clear (of the list that --keep-intermediate fills), empty_cache, reset_peak [default: the model file's, or
    /// input,zero_grad,forward,loss,backward,step]. With --devices the order of the micro-batches' passes instead: gpipe (all forward first) or 1f1b
    /// (one forward, one backward) [default: 1f1b].
    #[arg(long, value_name = "PHASES")]
    pub schedule: Option<String>,
    /// Scale gradients so that their norm is at most this.
    #[arg(long, value_name = "NORM", value_parser = values::positive)]
    pub clip_grad_norm: Option<f64>,
    /// Seed of parameters, data and dropout [default: 0].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Take flags from a file: the same names as keys. What is typed wins.
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
}

/// Whose temporaries and workspaces.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct ProfileArgs {
    /// Whose temporaries and workspaces to count: a PyTorch release's, or those of this program's own kernels (`native`; on paper
    /// `native:cpu` and the like ask that backend for its workspaces) [default: the card's that --gpu names, else torch-2.11-sm90].
    ///
    /// Releases are torch-2.7 to torch-2.15: on the card that --gpu names, else on compute capability 9.0; or on another with -sm120, -sm100 (both
    /// from 2.8 on), -sm90, -sm89, -sm86, -sm80, -sm75, -sm70 (up to 2.10) or -sm60 (2.7 only), such as torch-2.13-sm80.
    #[arg(long, value_name = "PROFILE", value_parser = profile_name)]
    pub like: Option<String>,
    /// Convolutions, batch norm and (on compute capability 9.0 and 10.0, in 16 bits) attention as PyTorch has them with cuDNN: a workspace of this many bytes for
    /// each call's plan, which only a card tells; 0 is a start [default: without cuDNN].
    #[arg(long, value_name = "BYTES", value_parser = values::byte_count)]
    pub cudnn_workspace: Option<u64>,
    /// A variable of the environment that PyTorch runs in, NAME=VALUE; can be given several times: CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE,
    /// TORCH_CUBLASLT_UNIFIED_WORKSPACE, TORCH_CUBLAS_WORKSPACE_CACHE. The environment of this program is not taken. (PYTORCH_ALLOC_CONF is
    /// --alloc-conf.)
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub env: Vec<(String, String)>,
    /// Multiprocessors of the card that a PyTorch profile stands for: some temporaries depend on them [default: the named card's, or the best-known one's
    /// of the profile's compute capability].
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub multiprocessors: Option<u16>,
}

impl ProfileArgs {
    /// The profile's name; `unless` said, and of a release that is named without a card that one's.
    pub(crate) fn like(&self, unless: &str) -> String {
        match &self.like {
            None => unless.into(),
            Some(name) if Release::named(name).is_some() => {
                let sm = unless.rsplit_once("-sm").map_or("90", |(_, sm)| sm);
                format!("{name}-sm{sm}")
            }
            Some(name) => name.clone(),
        }
    }
}

/// A profile's name, one of our own kernels' by backend, or a release's.
fn profile_name(text: &str) -> Result<String, String> {
    const OURS: &[&str] = &[
        #[cfg(feature = "cpu")]
        "native:cpu",
        #[cfg(feature = "wgpu")]
        "native:wgpu",
        #[cfg(feature = "cuda")]
        "native:cuda",
    ];
    if Profile::named(text).is_some() || Release::named(text).is_some() || OURS.contains(&text) {
        return Ok(text.into());
    }
    let nearest = Profile::nearest(text);
    Err(nearest.map_or_else(
        || format!("expected native, {}, or a release such as torch-2.11", OURS.join(", ")),
        |nearest| nearest.to_string(),
    ))
}

/// What else is written down.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct RecordArgs {
    /// Write every allocation and free as JSON, with who made it; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    pub events: Option<Destination>,
    /// Write what PyTorch's memory snapshot of this run would be, for pytorch.org/memory_viz (.pickle or .json).
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<Destination>,
    /// Also print the table of torch.cuda.memory_summary().
    #[arg(long)]
    pub summary: bool,
    /// Also print every counter of torch.cuda.memory_stats().
    #[arg(long)]
    pub stats: bool,
    #[command(flatten)]
    pub exports: ExportArgs,
}

/// `vramlab train`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub training: TrainingArgs,
    #[command(flatten)]
    pub weights: WeightsArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Launch what a step computes as one CUDA graph once steps are alike: the same results and memory events, fewer
    /// launches (cuda only).
    #[arg(long, help_heading = "Device")]
    pub cuda_graph: bool,
    /// Products of float32 on tensor cores, their factors rounded to TF32: as PyTorch does convolutions by default, faster
    /// and less exact; the same memory (cuda, from compute capability 8.0 on).
    #[arg(long, value_name = "WHICH", value_enum, help_heading = "Device")]
    pub tf32: Option<Tf32Name>,
    #[command(flatten)]
    pub parallel: ParallelArgs,
    #[command(flatten)]
    pub allocator: AllocatorArgs,
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
}

/// How an optimizer goes through its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImplementationName {
    /// One after the other.
    Loop,
    /// Lists at a time, as PyTorch does on a GPU.
    Foreach,
    /// One kernel.
    Fused,
}

/// Products that may be computed in TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tf32Name {
    /// Convolutions: torch.backends.cudnn.allow_tf32.
    Conv,
    /// Products of matrices as well: torch.backends.cuda.matmul.allow_tf32.
    All,
}

impl Tf32Name {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tf32Name::Conv => "conv",
            Tf32Name::All => "all",
        }
    }
}

impl From<Tf32Name> for Tf32 {
    fn from(name: Tf32Name) -> Tf32 {
        match name {
            Tf32Name::Conv => Tf32::Convolutions,
            Tf32Name::All => Tf32::All,
        }
    }
}

/// What zero_grad leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ZeroGrad {
    /// No gradients: set_to_none=True.
    None,
    /// Zeros: set_to_none=False.
    Zero,
}
