//! `rehearse`: a user's own script on a card that does not exist.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use lab::cards::Card;
use lab::rehearse::{World, cards_of_a_machine};
use lab::run::Gpu;

use crate::destination::Destination;

use super::{HtmlArgs, OutputArgs, ScanArgs, values};

/// A card that a script can be shown: any card with a name, even without a recorded profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RehearsedCard(pub(crate) Gpu);

impl FromStr for RehearsedCard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Card::named(text) {
            Some(card) => Ok(Self(Gpu::of_card(card))),
            None => text.parse().map(Self),
        }
    }
}

/// Seconds after which a script ends whose phases are asked for.
const SECONDS_OF_PHASES: f64 = 600.0;

/// `vramlab rehearse`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RehearseArgs {
    /// The card: a name (rtx4090, a100-40, h200 …; `vramlab info cards` lists all), or the amount of memory for tensors (24GiB; capability 9.0).
    #[arg(long, value_name = "NAME|SIZE", default_value = "h200", help_heading = "Device")]
    pub gpu: RehearsedCard,
    /// The folder that stands first in the script's `PATH`: that of an environment which is not activated.
    #[arg(long, hide = true, value_name = "DIR")]
    pub path_first: Option<PathBuf>,
    /// True if --gpu was typed.
    #[arg(skip)]
    pub names_card: bool,
    /// Number of these cards, with --world on each machine [default: 1; with --world, one for each rank, 8 at most].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16), help_heading = "Device")]
    pub gpus: Option<u8>,
    /// Number of ranks. Those of --ranks are started, each with the variables of torchrun; the others are simulated. Give the
    /// command of one rank: python train.py, or torchrun, whose own numbers are then ignored.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Device")]
    pub world: Option<u32>,
    /// Ranks of --world that are started [default: all], 16 at most.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "world", help_heading = "Device")]
    pub ranks: Vec<u32>,
    /// Let events complete only when something waits for them, not immediately: the other bound for memory that waits for a stream. A script of
    /// several streams is run again this way for the upper figure (not with --no-needs).
    #[arg(long, help_heading = "Device")]
    pub late_events: bool,
    /// Who says which plans cuDNN has and what workspaces they take: the script's own cuDNN (9.8 or newer), which plans for the card
    /// without one, or nobody (each takes none).
    #[arg(long, value_name = "WHO", value_enum, default_value_t, help_heading = "Device")]
    pub cudnn: Cudnn,
    /// Refuse connections beyond this machine.
    #[arg(long, help_heading = "Device")]
    pub offline: bool,
    /// Make up data that is not there: data sets of a name, JSON lines, parquet, CSV, files of tokens, folders of pictures. Each text has so many
    /// words [default: 2048]; lengths are then made up, and the answer says so.
    #[arg(long, value_name = "WORDS", num_args = 0..=1, require_equals = true, default_missing_value = "2048",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub make_data: Option<u64>,
    /// End after this many steps of an optimizer [default: as soon as a step repeats the one before it, after 3 to 20 steps (more if a
    /// line runs every few steps), or 60 seconds after the first; no end if --seconds or --until-seen is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "End")]
    pub steps: Option<u64>,
    /// End after this many seconds.
    #[arg(long, value_name = "S", value_parser = values::positive, help_heading = "End")]
    pub seconds: Option<f64>,
    /// End after the step by which all of these have been seen.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum, help_heading = "End")]
    pub until_seen: Vec<UseName>,
    /// Tell each phase of the script with its own peak: load, train, evaluate, generate, save, resume. The script goes on to its end, for 600 seconds at
    /// most unless another end is given.
    #[arg(long, help_heading = "What is recorded")]
    pub phases: bool,
    /// Do not record which lines of the script allocate.
    #[arg(long, help_heading = "What is recorded")]
    pub no_stacks: bool,
    /// Do not compute small tensors: vramlab assumes zeros for everything that depends on data.
    #[arg(long, help_heading = "What is recorded")]
    pub no_values: bool,
    /// If a script runs out of memory, do not run it again to find out what it needs and which change makes it fit.
    #[arg(long, help_heading = "What is recorded")]
    pub no_needs: bool,
    /// Write PyTorch's memory snapshot of the process that reserved most; with several processes, each as FILE.RANK.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub snapshot: Option<PathBuf>,
    /// Write every event of the process that reserved most as JSON, in the columns of `train --events`; `report` and `replay` read it.
    #[arg(long, value_name = "FILE", value_parser = super::report::file, help_heading = "Output")]
    pub events: Option<Destination>,
    /// Keep the files that the script writes, in a folder that is new or empty; without this they are thrown away.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub keep_outputs: Option<PathBuf>,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
    /// The command, after the flags: python, torchrun, accelerate launch …, with its arguments; in a scan, {NAME} is replaced by the value.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Who answers for cuDNN's plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cudnn {
    /// The script's own cuDNN.
    #[default]
    Ask,
    /// Nobody.
    None,
}

/// Activities of a training besides its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UseName {
    /// The network in evaluation mode.
    Eval,
    /// torch.save or safetensors.
    Save,
    /// generate of transformers.
    Generate,
}

impl RehearseArgs {
    /// True if no end was asked for.
    fn has_no_end(&self) -> bool {
        self.steps.is_none() && self.seconds.is_none() && self.until_seen.is_empty()
    }

    /// True if the script ends as soon as memory is flat: no other end was asked for.
    pub(crate) fn until_settled(&self) -> bool {
        self.has_no_end() && !self.phases
    }

    /// Returns the ranks, and which of them are started; `None` if the command starts its ranks itself.
    pub(crate) fn world(&self) -> Option<World> {
        self.world.map(|size| World::new(size, self.ranks.clone()))
    }

    /// Returns the variables of the environment that the script gets besides.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let Some(first) = &self.path_first else { return Vec::new() };
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(first.clone()).chain(std::env::split_paths(&others));
        std::env::join_paths(all).map_or_else(|_| Vec::new(), |path| vec![("PATH".into(), path)])
    }

    /// Returns the number of cards of a machine.
    pub(crate) fn gpus(&self) -> usize {
        self.gpus.map_or_else(|| cards_of_a_machine(self.world), usize::from)
    }

    /// Returns the time after which the script ends.
    pub(crate) fn time(&self) -> Option<Duration> {
        // Times above a year are cut: they are not an end.
        let of_phases = Some(SECONDS_OF_PHASES).filter(|_| self.phases && self.has_no_end());
        self.seconds.or(of_phases).map(|seconds| Duration::from_secs_f64(seconds.min(3e7)))
    }
}
