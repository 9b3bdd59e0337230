//! `rehearse`: somebody's own script on a card that is not there.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use lab::cards::Card;
use lab::rehearse::World;
use lab::run::Gpu;

use crate::destination::Destination;

use super::{HtmlArgs, OutputArgs, ScanArgs, values};

/// A card that a script may be told of: any with a name, also those for which no profile is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RehearsedCard(pub(crate) Gpu);

impl FromStr for RehearsedCard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Card::named(text) {
            Some(card) => Ok(Self(Gpu::Card { card, least_context: false })),
            None => text.parse().map(Self),
        }
    }
}

/// `vramlab rehearse`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RehearseArgs {
    /// The card: a name (rtx4090, a100-40, h200 …; `vramlab cards` lists all), or how much memory it has for tensors (24GiB; capability 9.0).
    #[arg(long, value_name = "NAME|SIZE", default_value = "h200", help_heading = "Device")]
    pub gpu: RehearsedCard,
    /// How many of it there are [default: 1; with --world, one for each rank, 8 at most]; with --world, on each machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16), help_heading = "Device")]
    pub gpus: Option<u8>,
    /// Of so many ranks, start those of --ranks, each with the variables of torchrun; the others are answered for. The command is one rank's: python train.py, or torchrun, whose own numbers then do not count.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Device")]
    pub world: Option<u32>,
    /// Which ranks of --world are started [default: all], 16 at most.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "world", help_heading = "Device")]
    pub ranks: Vec<u32>,
    /// Events complete when something waits for them, not at once: the other bound for memory that waits for a stream.
    #[arg(long, help_heading = "Device")]
    pub late_events: bool,
    /// End after so many steps of an optimizer [default: 3; without an end where --seconds or --until-seen is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "End")]
    pub steps: Option<u64>,
    /// End after so long.
    #[arg(long, value_name = "S", value_parser = values::positive, help_heading = "End")]
    pub seconds: Option<f64>,
    /// End after the step by which all of these were seen.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum, help_heading = "End")]
    pub until_seen: Vec<UseName>,
    /// Do not record which lines of the script allocate.
    #[arg(long, help_heading = "What is recorded")]
    pub no_stacks: bool,
    /// Do not compute small tensors: what depends on data counts as zeros.
    #[arg(long, help_heading = "What is recorded")]
    pub no_values: bool,
    /// Do not run a script again that ran out of memory, on a card with memory enough, to see what it needs.
    #[arg(long, help_heading = "What is recorded")]
    pub no_needs: bool,
    /// Write PyTorch's memory snapshot of the process that reserved most; with several, each as FILE.RANK.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub snapshot: Option<PathBuf>,
    /// Write every event of the process that reserved most as JSON, in the columns of `train --events`; `report` and `replay` read it.
    #[arg(long, value_name = "FILE", value_parser = super::report::file, help_heading = "Output")]
    pub events: Option<Destination>,
    /// Keep what the script would write, in a folder that is new or empty; without this it is thrown away.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub keep_outputs: Option<PathBuf>,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
    /// The command, after `--`: python, torchrun, accelerate launch …, with its arguments; in a scan, {NAME} stands for the value.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What a training may do besides steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UseName {
    /// The network in evaluation mode.
    Eval,
    /// torch.save or safetensors.
    Save,
    /// generate of transformers.
    Generate,
}

/// Cards of a machine, unless said otherwise.
const GPUS_OF_MACHINE: u32 = 8;

/// Steps, unless something else ends the script.
const STEPS: u64 = 3;

impl RehearseArgs {
    /// After how many steps the script ends.
    pub(crate) fn steps(&self) -> Option<u64> {
        let other_end = self.seconds.is_some() || !self.until_seen.is_empty();
        self.steps.or((!other_end).then_some(STEPS))
    }

    /// The ranks that are started, where the command does not do that.
    pub(crate) fn world(&self) -> Option<World> {
        self.world.map(|size| World::new(size, self.ranks.clone()))
    }

    /// How many cards a machine has.
    pub(crate) fn gpus(&self) -> usize {
        let each = self.world.map_or(1, |size| size.min(GPUS_OF_MACHINE) as usize);
        self.gpus.map_or(each, usize::from)
    }

    /// After how long it ends.
    pub(crate) fn time(&self) -> Option<Duration> {
        // More than a year is not an end.
        self.seconds.map(|seconds| Duration::from_secs_f64(seconds.min(3e7)))
    }
}
