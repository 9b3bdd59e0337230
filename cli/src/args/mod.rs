//! What was typed, as data.
//!
//! One file per group of flags; the command line (`cli`) is made of them. A configuration file (`config`) is turned into flags that stand before
//! the typed ones, as is a run of a lock file (`lock_flags`), and one point of a scan (`axes`) into flags that stand behind them; as the last of equal flags wins, that is all there is to precedence.

pub(crate) mod axes;
mod bench;
mod check;
mod cli;
mod config;
mod device;
mod global;
mod lock_flags;
mod model;
mod monitor;
mod output;
mod paper;
mod parallel;
mod replay;
mod report;
mod run;
mod scan;
mod snapshot;
mod training;
mod values;
mod weights;
mod words;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

pub(crate) use bench::BenchArgs;
pub(crate) use check::CheckArgs;
pub(crate) use cli::{Cli, Command};
pub(crate) use config::from_result as config_text;
pub(crate) use device::{AllocatorArgs, AllocatorName, DeviceArgs};
pub(crate) use global::{ColorWhen, GlobalArgs};
pub(crate) use lock_flags::{run_flags, with_flags};
pub(crate) use model::{AttentionName, KeepName, LoopName, MaskName, ModelArgs};
pub(crate) use monitor::MonitorArgs;
pub(crate) use output::OutputArgs;
pub(crate) use paper::{DEFAULT_PROFILE, FitArgs, Gpu, PaperArgs, PredictArgs, Quantity};
pub(crate) use parallel::{DeviceList, DeviceName, ParallelArgs};
pub(crate) use replay::{ReplayArgs, ReplayPolicy};
pub(crate) use report::{ExportArgs, HtmlArgs, ReportArgs};
pub(crate) use run::{CardsArgs, DevicesArgs, ListArgs, RunArgs};
pub(crate) use scan::ScanArgs;
pub(crate) use snapshot::{
    ConvertArgs, DiffArgs, ExplainArgs, ShowArgs, SnapshotArgs, SnapshotCommand, SnapshotFormat, TuneArgs,
};
pub(crate) use training::{ImplementationName, ProfileArgs, RecordArgs, TrainArgs, TrainingArgs, ZeroGrad};
pub(crate) use weights::WeightsArgs;
pub(crate) use words::Refusal;
use words::first_line;

use crate::exit::Failure;

/// What is to be done, and the words that say so.
pub(crate) struct Invocation {
    /// The parsed words.
    pub cli: Cli,
    /// The words themselves, those of the configuration file included.
    pub words: Vec<OsString>,
    /// What is to be scanned; empty unless the command scans.
    pub axes: Vec<axes::Axis>,
}

/// Understands a command line, its configuration file included.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Invocation, Refusal> {
    let command = command(&words);
    let mut matches = command.clone().try_get_matches_from(&words)?;
    let mut words = words;
    if let Some(merged) = config::merge(&words, &matches)? {
        words = merged;
        matches = command.try_get_matches_from(&words)?;
    }
    let axes = matches.subcommand().map(|(name, matches)| axes::axes(name, matches)).transpose()?.unwrap_or_default();
    Ok(Invocation { cli: Cli::from_arg_matches(&matches)?, words, axes })
}

/// The same command line with other values for some options: one point of a scan.
pub(crate) fn parse_with(words: &[OsString], changes: &[(String, String)]) -> Result<Cli, Failure> {
    let matches = any_number(Cli::command()).try_get_matches_from(words);
    let command = matches.ok().and_then(|matches| matches.subcommand_name().map(String::from)).unwrap_or_default();
    let words: Vec<OsString> = words.iter().cloned().chain(axes::as_words(&command, changes)).collect();
    let matches = any_number(Cli::command()).try_get_matches_from(words);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let point: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Failure::usage(format!("scan at {}: {}", point.join(", "), first_line(&error)))
    })
}

/// A value may begin with a minus: what is wrong with it, its own flag says best.
fn any_number(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(any_number)
}

/// When to use colours, as the words say before they are parsed.
pub(crate) fn color(words: &[OsString]) -> ColorWhen {
    let word = |i: usize| words.get(i).and_then(|word| word.to_str());
    let choice = (1..words.len()).find_map(|i| match word(i)?.strip_prefix("--color")? {
        "" => word(i + 1),
        value => value.strip_prefix('='),
    });
    match choice {
        Some("always") => ColorWhen::Always,
        Some("never") => ColorWhen::Never,
        _ => ColorWhen::Auto,
    }
}

/// The whole command, coloured as the flags say: clap writes before they are parsed.
fn command(words: &[OsString]) -> clap::Command {
    any_number(Cli::command()).color(match color(words) {
        ColorWhen::Always => clap::ColorChoice::Always,
        ColorWhen::Never => clap::ColorChoice::Never,
        ColorWhen::Auto => clap::ColorChoice::Auto,
    })
}
