//! Flags of `train`: one run on a device.

use std::path::PathBuf;

use clap::value_parser;
use lab::bytes::ByteSize;
use lab::run::{
    AllocatorSpec, BeginSpec, DeviceSpec, LoopSpec, ProfileSpec, RunSpec, Tf32Choice, TrainingSpec, Variable,
};
use memcore::Profile;
use memcore::profile::Release;

use super::scan::ScanArgs;
use super::values;
use super::{DeviceArgs, ExportArgs, HtmlArgs, ModelArgs, OutputArgs, ParallelArgs, WeightsArgs};
use crate::backends;
use crate::destination::Destination;

/// Settings of the training.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Take settings from arguments of transformers: the JSON of TrainingArguments, JSON or YAML of HfArgumentParser, or training_args.bin, in which
    /// nothing is executed. Typed flags override them; arguments that cannot be represented are refused by name, or named in a note.
    /// `vramlab predict --help` ends with a list of settings and their flags.
    #[arg(long, value_name = "FILE")]
    pub hf_args: Option<PathBuf>,
    /// Take settings from a recipe of axolotl, LLaMA-Factory, TRL, torchtune or ms-swift, without the trainer. Typed flags override them; keys that
    /// change memory and are not supported are an error by name, or named in a note.
    #[arg(long, value_name = "FILE.yaml", conflicts_with = "hf_args")]
    pub recipe: Option<PathBuf>,
    #[command(flatten)]
    pub spec: TrainingSpec,
    /// Take flags from a file, with their names as keys. Typed flags override it.
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Any setting of a run by its name, as in --set optimizer.lr=1e-4; can be given several times. The words before the last dot are for the
    /// reader.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub shape: LoopSpec,
}

/// Profile: whose temporaries and workspaces are counted.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct ProfileArgs {
    /// Profile whose temporaries and workspaces are counted: a PyTorch release, or this program's own kernels (`native`; for predictions, `native:cpu`
    /// and similar names ask that backend for its workspaces) [default: that of the card in --gpu and of the release that exported the network, else
    /// torch-2.11-sm90].
    ///
    /// Releases are torch-2.7 to torch-2.15: on the card in --gpu, else on compute capability 9.0; or on another one with -sm120, -sm100 (both from
    /// 2.8 on), -sm90, -sm89, -sm86, -sm80, -sm75, -sm70 (up to 2.10) or -sm60 (2.7 only), such as torch-2.13-sm80.
    #[arg(long, value_name = "PROFILE", value_parser = profile_name)]
    pub like: Option<String>,
    /// Count convolutions, batch norm and (on compute capability 9.0 and 10.0, in 16 bits) attention as in PyTorch with cuDNN: each call's plan takes
    /// a workspace of this many bytes, which only a card can tell; begin with 0 [default: without cuDNN].
    #[arg(long, value_name = "BYTES")]
    pub cudnn_workspace: Option<ByteSize>,
    /// An environment variable for PyTorch, NAME=VALUE; can be given several times: CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE,
    /// TORCH_CUBLASLT_UNIFIED_WORKSPACE, TORCH_CUBLAS_WORKSPACE_CACHE. This program's own environment is ignored. (For PYTORCH_ALLOC_CONF use
    /// --alloc-conf.)
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<Variable>,
    /// Multiprocessors of the card that a PyTorch profile stands for: some temporaries depend on their number [default: those of the named card, or
    /// of the best-known card with the profile's compute capability].
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    pub multiprocessors: Option<u16>,
}

impl ProfileArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> ProfileSpec {
        let Self { like, cudnn_workspace, env, multiprocessors } = self.clone();
        ProfileSpec {
            like,
            cudnn_workspace,
            env: (!env.is_empty()).then_some(env),
            multiprocessors,
            ..ProfileSpec::default()
        }
    }
}

impl TrainArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        let DeviceArgs { backend, device } = self.device.clone();
        RunSpec {
            model: self.model.spec.clone(),
            training: self.training.spec.clone(),
            shape: self.training.shape.clone(),
            profile: self.profile.spec(),
            allocator: self.allocator.clone(),
            device: DeviceSpec {
                gpu: None,
                backend,
                device,
                cuda_graph: self.cuda_graph.then_some(true),
                tf32: self.tf32,
            },
            parallel: self.parallel.spec(),
            begin: BeginSpec { load: self.weights.load.clone(), resume: self.weights.resume.clone() },
            left_out: Vec::new(),
            of_files: std::collections::BTreeMap::new(),
        }
    }
}

/// Parses a profile's name: our own kernels on a backend, or a release.
fn profile_name(text: &str) -> Result<String, String> {
    let ours: Vec<String> =
        backends::all().iter().filter(|entry| entry.computes()).map(|entry| format!("native:{}", entry.name)).collect();
    if Profile::named(text).is_some() || Release::named(text).is_some() || ours.iter().any(|name| name == text) {
        return Ok(text.into());
    }
    let nearest = Profile::nearest(text);
    Err(nearest.map_or_else(
        || format!("expected native, {}, or a release such as torch-2.11", ours.join(", ")),
        |nearest| nearest.to_string(),
    ))
}

/// Further records of a run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct RecordArgs {
    /// Write every allocation and free as JSON, with the operator that made it; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    pub events: Option<Destination>,
    /// Write the snapshot that PyTorch would write of this run, for pytorch.org/memory_viz (.pickle or .json).
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
    /// Launch a step's kernels as one CUDA graph once steps are alike: the same results and memory events, with fewer launches (cuda only).
    #[arg(long, help_heading = "Device")]
    pub cuda_graph: bool,
    /// Compute products of float32 on tensor cores, with factors rounded to TF32: only those of convolutions (conv), as PyTorch does by default, or
    /// of matrices as well (all). They are faster and less exact, and take the same memory (cuda, from compute capability 8.0 on).
    #[arg(long, value_name = "WHICH", help_heading = "Device", value_parser = values::one_of::<Tf32Choice>(Tf32Choice::NAMES))]
    pub tf32: Option<Tf32Choice>,
    #[command(flatten)]
    pub parallel: ParallelArgs,
    #[command(flatten)]
    pub allocator: AllocatorSpec,
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
