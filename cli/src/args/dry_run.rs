//! Flags of `predict` and `fit`: dry runs for a card that need not be present.

use lab::bytes::MemorySize;
use lab::run::{AllocatorSpec, CardSpec, ParallelSpec, ProfileSpec, Quantity, RanksSpec, RunSpec};

use super::scan::ScanArgs;
use super::{HtmlArgs, ModelArgs, OutputArgs, RecordArgs, TrainingArgs, values};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DryRunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub training: TrainingArgs,
    #[command(flatten)]
    pub card: CardSpec,
    #[command(flatten)]
    pub allocator: AllocatorSpec,
    #[command(flatten)]
    pub profile: ProfileSpec,
}

impl DryRunArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        let args = self.clone();
        RunSpec {
            model: args.model.spec,
            training: args.training.spec,
            shape: args.training.shape,
            profile: args.profile,
            allocator: args.allocator,
            card: args.card,
            ..RunSpec::default()
        }
    }
}

/// Networks that are not built in.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Any network")]
pub(crate) struct AnyModelArgs {
    /// Print the program that would be rehearsed, and do nothing else.
    #[arg(long = "script")]
    pub program: bool,
    /// Rehearse, whatever is kept of the network, and keep nothing.
    #[arg(long)]
    pub no_cache: bool,
    /// Your Python builds the network, whatever is built in, and the answer has the peak of each phase of a run: load, train, evaluate, generate (so many new tokens
    /// [default: 32]; with the prompt they are as many as an example has), save, and resume from a checkpoint on the card.
    #[arg(long, value_name = "NEW TOKENS", num_args = 0..=1, require_equals = true, default_missing_value = "32",
        value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "checkpoint_budget")]
    pub phases: Option<u32>,
}

/// Workspaces of convolutions.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Any network")]
pub(crate) struct CudnnArgs {
    /// Whether the cuDNN of your PyTorch names the workspaces of convolutions: auto asks it where they decide what fits.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_possible_values = true)]
    pub cudnn: AskCudnn,
}

/// When the cuDNN of the user's PyTorch is asked for the workspaces of convolutions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AskCudnn {
    /// Where they decide whether the run fits; what was answered once is known.
    #[default]
    Auto,
    /// Wherever they are not known.
    Ask,
    /// Never, and earlier answers are not used.
    None,
}

/// `vramlab predict`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub any: AnyModelArgs,
    #[command(flatten)]
    pub workspaces: CudnnArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Choose the blocks to recompute (--checkpoint) for the least time, so that PyTorch reserves at most so much, and show other choices beside them.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["checkpoint", "data_parallel", "devices"])]
    pub checkpoint_budget: Option<MemorySize>,
    #[command(flatten)]
    pub parallel: ParallelSpec,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
}

impl PredictArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        RunSpec { parallel: self.parallel.clone(), ..self.dry_run.spec() }
    }
}

/// `vramlab fit`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FitArgs {
    /// Quantity to search for: the largest batch (with --data-parallel: of each card), or the longest sequence, that fits.
    #[arg(long, value_name = "WHAT", default_value_t, value_parser = values::one_of::<Quantity>(Quantity::NAMES))]
    pub of: Quantity,
    /// End of the search [default: 1048576 examples, or as many tokens as the network takes, 131072 at most].
    #[arg(long, value_name = "N", value_parser = values::at_least_2())]
    pub maximum: Option<usize>,
    #[command(flatten)]
    pub workspaces: CudnnArgs,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    #[command(flatten)]
    pub ranks: RanksSpec,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
}

impl FitArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        RunSpec { parallel: self.ranks.clone().into(), ..self.dry_run.spec() }
    }
}
