//! Flags of `train`: one run on a device.

use std::path::PathBuf;

use lab::run::{
    AllocatorSpec, BeginSpec, DeviceSpec, KernelSpec, LoopSpec, ParallelSpec, ProfileSpec, RunSpec, TrainingSpec,
};

use super::scan::ScanArgs;
use super::{ExportArgs, HtmlArgs, ModelArgs, OutputArgs, SaveArgs};
use crate::destination::Destination;

/// Settings of the training.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Take settings from arguments of transformers: the JSON of TrainingArguments, JSON or YAML of HfArgumentParser, or training_args.bin, in which
    /// nothing is executed. Typed flags override them; an argument that vramlab does not support is an error with its name, or named in a note.
    /// `vramlab predict --help` ends with a list of settings and their flags.
    #[arg(long, value_name = "FILE")]
    pub hf_args: Option<PathBuf>,
    /// Take settings from a recipe of axolotl, LLaMA-Factory, TRL, torchtune or ms-swift, without the trainer. Typed flags override them; keys that
    /// change memory and are not supported are an error by name, or named in a note.
    #[arg(long, value_name = "FILE.yaml", conflicts_with = "hf_args")]
    pub recipe: Option<PathBuf>,
    /// What TrainingArguments' bf16 and fp16 say: autocast over weights of the type that the release of transformers loads. --precision overrides it.
    #[arg(long, value_name = "bf16|fp16", hide = true, value_parser = ["bf16", "fp16"])]
    pub autocast: Option<String>,
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

impl TrainArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        let args = self.clone();
        RunSpec {
            model: args.model.spec,
            training: args.training.spec,
            shape: args.training.shape,
            profile: args.profile,
            allocator: args.allocator,
            device: args.device,
            kernels: args.kernels,
            parallel: args.parallel,
            begin: args.begin,
            ..RunSpec::default()
        }
    }
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
    pub begin: BeginSpec,
    #[command(flatten)]
    pub save: SaveArgs,
    #[command(flatten)]
    pub device: DeviceSpec,
    #[command(flatten)]
    pub kernels: KernelSpec,
    #[command(flatten)]
    pub parallel: ParallelSpec,
    #[command(flatten)]
    pub allocator: AllocatorSpec,
    #[command(flatten)]
    pub profile: ProfileSpec,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
}
