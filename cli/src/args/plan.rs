//! Flags of `plan`.

use lab::run::{Allowed, RanksSpec, RunSpec};

use super::dry_run::CudnnArgs;
use super::{DryRunArgs, HtmlArgs, OutputArgs};

/// A change of the training's results that a plan may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Change {
    /// Other numeric types: autocast, 16-bit weights.
    Numbers,
    /// Another optimizer.
    Optimizer,
    /// Adapters (LoRA, QLoRA) instead of the network.
    Adapters,
}

impl Change {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Optimizer => "optimizer",
            Self::Adapters => "adapters",
        }
    }
}

/// `vramlab plan`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Examples of a step, on all cards together [default: those of --batch, or the network's own].
    #[arg(long, value_name = "N")]
    pub global_batch: Option<usize>,
    /// Plan for each of these cards instead, or for any that has a name, and compare them.
    #[arg(long, value_name = "A,B|any", conflicts_with = "gpu")]
    pub gpus: Option<String>,
    /// Prices of the cards an hour, in any currency: a TOML file of lines such as `rtx4090 = 0.4`.
    #[arg(long, value_name = "FILE", requires = "gpus")]
    pub prices: Option<std::path::PathBuf>,
    /// Changes of the training's results that the plan may make.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub allow: Vec<Change>,
    /// Write the plan into this folder for other programs: a script, TrainingArguments, PEFT and bitsandbytes, recipes, accelerate and DeepSpeed. No file
    /// is replaced.
    #[arg(long, value_name = "FOLDER", conflicts_with = "gpus")]
    pub hand_over: Option<std::path::PathBuf>,
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

impl PlanArgs {
    /// Returns the flags as fields of a run with all examples of a step in one batch.
    pub(crate) fn spec(&self) -> RunSpec {
        let mut spec = RunSpec { parallel: self.ranks.clone().into(), ..self.dry_run.spec() };
        spec.training.batch = self.global_batch.or(spec.training.batch);
        spec
    }

    /// What may change of the training's results.
    pub(crate) fn allowed(&self) -> Allowed {
        let may = |change| self.allow.contains(&change);
        Allowed { numbers: may(Change::Numbers), optimizer: may(Change::Optimizer), adapters: may(Change::Adapters) }
    }
}
