//! Flags of `plan`.

use std::path::PathBuf;

use lab::run::{Allowed, RanksSpec, RunSpec};
use serde_json::Value;

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

/// Examples of different lengths.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Lengths that vary")]
pub(crate) struct LengthsArgs {
    /// Say instead what examples of these lengths need: which batch is the longest, when it comes, which order takes least. The file has a number of tokens
    /// for each example, one a line, a JSON list, or lines of JSON. --sequence cuts longer examples, as max_length does.
    #[arg(long, value_name = "FILE")]
    pub example_lengths: Option<PathBuf>,
    /// Name of the lengths, or of the tokens, in lines of JSON [default: length, lengths, num_tokens or input_ids].
    #[arg(long, value_name = "NAME", requires = "example_lengths")]
    pub column: Option<String>,
    /// Pad batches to a multiple of so many tokens, as the collator's pad_to_multiple_of does.
    #[arg(long, value_name = "N", requires = "example_lengths", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub pad_to_multiple_of: Option<u32>,
    /// Compare with rows of so many tokens that packing fills.
    #[arg(long, value_name = "TOKENS", requires = "example_lengths", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub pack: Option<u32>,
}

impl LengthsArgs {
    /// True if the question is about lengths.
    pub(crate) fn are_given(&self) -> bool {
        self.example_lengths.is_some()
    }

    /// Tokens of packed rows.
    pub(crate) fn packed(&self) -> Option<usize> {
        self.pack.map(|tokens| tokens as usize)
    }

    /// Its flags, for the command that repeats the answer.
    pub(crate) fn settings(&self) -> Vec<(&'static str, Value)> {
        let file = self.example_lengths.as_ref().map(|file| file.display().to_string().into());
        let flags = [
            ("example-lengths", file),
            ("column", self.column.clone().map(Value::from)),
            ("pad-to-multiple-of", self.pad_to_multiple_of.map(Value::from)),
            ("pack", self.pack.map(Value::from)),
        ];
        flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Cards of a machine, where nobody says how many.
const CARDS_OF_A_MACHINE: usize = 8;

/// `vramlab plan`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Examples of a step, on all cards together [default: those of --batch, or the network's own].
    #[arg(long, value_name = "N")]
    pub global_batch: Option<usize>,
    /// Divide each step among so many cards: the plan chooses replicas or ZeRO's stage. --data-parallel N is the same. vramlab does not search tensor, sequence,
    /// context, expert and pipeline parallelism.
    #[arg(long, value_name = "N", conflicts_with_all = ["data_parallel", "zero"], value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub world: Option<u32>,
    /// Machines on which these cards are, for the time that they take to send [default: one for each 8 cards].
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub nodes: Option<u32>,
    /// Plan for each of these cards instead, or for any that has a name, and compare them.
    #[arg(long, value_name = "A,B|any", conflicts_with = "gpu")]
    pub gpus: Option<String>,
    /// Prices of the cards an hour, in any currency: a TOML file of lines such as `rtx4090 = 0.4`.
    #[arg(long, value_name = "FILE", requires = "gpus")]
    pub prices: Option<PathBuf>,
    /// Changes of the training's results that the plan may make.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub allow: Vec<Change>,
    /// Write the plan into this folder for other programs: a script, TrainingArguments, PEFT and bitsandbytes, recipes, accelerate and DeepSpeed. No file
    /// is replaced.
    #[arg(long, value_name = "FOLDER", conflicts_with = "gpus")]
    pub hand_over: Option<PathBuf>,
    #[command(flatten)]
    pub lengths: LengthsArgs,
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
        if let Some(world) = self.world.filter(|world| *world > 1) {
            spec.parallel.ranks.data_parallel = Some(world as usize);
        }
        spec.training.batch = self.global_batch.or(spec.training.batch);
        spec
    }

    /// Machines on which so many cards are.
    pub(crate) fn machines(&self, cards: usize) -> usize {
        self.nodes.map_or(cards.div_ceil(CARDS_OF_A_MACHINE), |nodes| nodes as usize)
    }

    /// What may change of the training's results.
    pub(crate) fn allowed(&self) -> Allowed {
        let may = |change| self.allow.contains(&change);
        Allowed { numbers: may(Change::Numbers), optimizer: may(Change::Optimizer), adapters: may(Change::Adapters) }
    }
}
