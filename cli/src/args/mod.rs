//! What was typed, as data.
//!
//! One file per group of flags; commands are made of groups. A configuration file (`config`) is turned into flags that stand before the typed
//! ones, and one point of a scan (`scan`) into flags that stand behind them; as the last of equal flags wins, that is all there is to precedence.

mod bench;
mod check;
mod config;
mod device;
mod model;
mod monitor;
mod output;
mod paper;
mod parallel;
mod replay;
mod report;
mod run;
pub(crate) mod scan;
mod snapshot;
mod training;
mod values;
mod weights;

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use bench::BenchArgs;
pub(crate) use check::{CheckArgs, run_flags, with_flags};
pub(crate) use config::from_result as config_text;
pub(crate) use device::{AllocatorArgs, AllocatorName, DeviceArgs};
pub(crate) use model::{AttentionName, KeepName, ModelArgs};
pub(crate) use monitor::MonitorArgs;
pub(crate) use output::OutputArgs;
pub(crate) use paper::{FitArgs, Gpu, PaperArgs, PredictArgs, Quantity};
pub(crate) use parallel::{DeviceList, DeviceName, ParallelArgs};
pub(crate) use replay::{ReplayArgs, ReplayPolicy};
pub(crate) use report::{ExportArgs, HtmlArgs, ReportArgs};
pub(crate) use run::{DevicesArgs, ListArgs, RunArgs};
pub(crate) use scan::ScanArgs;
pub(crate) use snapshot::{
    ConvertArgs, DiffArgs, ExplainArgs, ShowArgs, SnapshotArgs, SnapshotCommand, SnapshotFormat, TuneArgs,
};
pub(crate) use training::{ImplementationName, ProfileArgs, RecordArgs, TrainArgs, TrainingArgs, ZeroGrad};
pub(crate) use weights::WeightsArgs;

use crate::exit::Failure;

/// The memory that training a neural network takes: measured on a device, predicted without one, and explained to the byte.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "vramlab",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    args_override_self = true,
    max_term_width = 100,
    after_help = "Example: train a small network on the CPU and see where its memory goes\n  vramlab train --model mlp --data digits"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct GlobalArgs {
    /// Say nothing but the results: no progress, no notes.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Also say what was chosen, and why.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colours; with `auto`, the variable NO_COLOR turns them off.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColorWhen,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List every device that this build sees, with its memory.
    #[command(after_help = "Example: the devices, for another program\n  vramlab devices --json -")]
    Devices(DevicesArgs),
    /// List the experiments, with the question and the claims of each.
    #[command(after_help = "Example: the experiments, and the sizes that can be set in each\n  vramlab list -v")]
    List(ListArgs),
    /// Run experiments: a question, a prediction, a measurement, a verdict.
    #[command(after_help = "Example: one experiment without a device, with its own sizes\n  \
            vramlab run batch-size --backend meta --set batch=32,64,128")]
    Run(RunArgs),
    /// Train a network and account for its memory, phase by phase.
    #[command(after_help = "Example: handwritten digits in a minute, on the CPU\n  \
            vramlab train --model mlp --data digits --backend cpu\n\n\
            Example: the peak for three batch sizes\n  \
            vramlab train --model simple-cnn -L batch 32,64,128\n\n\
            Example: a network split over two devices\n  \
            vramlab train --model mlp --devices cpu:0,cpu:1 --micro-batches 4\n\n\
            Example: ten steps in two halves\n  \
            vramlab train --model mlp --data digits --steps 5 --save half.safetensors\n  \
            vramlab train --model mlp --data digits --steps 5 --resume half.safetensors")]
    Train(TrainArgs),
    /// Predict what the same training takes in PyTorch, without a device; what would change it, and whether it fits a card.
    #[command(after_help = "Example: does GPT-2 with a batch of 8 fit in 24 GiB?\n  \
            vramlab predict --model gpt2 --batch 8 --gpu 24GiB")]
    Predict(PredictArgs),
    /// Find the largest batch (or sequence) for a card, with the law of the peak, verified.
    #[command(after_help = "Example: the largest batch of GPT-2 on an RTX 4090\n  \
            vramlab fit --model gpt2 --optimizer adamw --gpu rtx4090")]
    Fit(FitArgs),
    /// Run a recorded allocation trace through any allocator, or several side by side.
    #[command(after_help = "Example: what would expandable segments and a perfect plan have taken?\n  \
            vramlab replay run.json --compare caching,expandable,planned\n\n\
            Example: a run of one's own, recorded and replayed on a smaller device\n  \
            vramlab train --model mlp --data digits --events run.json\n  \
            vramlab replay run.json --memory-limit 24MiB")]
    Replay(ReplayArgs),
    /// Look at PyTorch's memory snapshots: who holds what, what differs, what other settings would have taken.
    #[command(after_help = "Example: who holds the memory of a recorded run?\n  \
            vramlab snapshot show snapshot.pickle")]
    Snapshot(SnapshotArgs),
    /// Find the best settings of PyTorch's allocator for a recorded run.
    #[command(after_help = "Example: the PYTORCH_ALLOC_CONF for a run that was recorded with stacks\n  \
            vramlab tune snapshot.pickle")]
    Tune(TuneArgs),
    /// Hold runs against a memory lock file: fails when memory grew, and names who grew.
    #[command(
        after_help = "Example: write down what a run takes, and fail in continuous integration when it takes more\n  \
            vramlab check --baseline memory.lock.json --update --model gpt2 --batch 8\n  \
            vramlab check --baseline memory.lock.json\n\n\
            Example: a second run in the same file, and 2 % of growth allowed\n  \
            vramlab check --baseline memory.lock.json --update --name small --model-file examples/models/digits-mlp.toml\n  \
            vramlab check --baseline memory.lock.json --tolerance 2%\n\n\
            Example: after a change that was meant\n  \
            vramlab check --baseline memory.lock.json --update"
    )]
    Check(CheckArgs),
    /// Explain a pasted out-of-memory message of PyTorch, and what to try.
    #[command(after_help = "Example: what the end of a log says\n  \
            tail -n 20 train.log | vramlab explain -")]
    Explain(ExplainArgs),
    /// Measure how fast the devices are, each beside its own roofs, in less than a minute.
    #[command(after_help = "Example: every device, as a page with a chart\n  vramlab bench --html bench.html\n\n\
            Example: the processor alone, in five seconds, for another program\n  \
            vramlab bench --backend cpu --seconds 5 --json -")]
    Bench(BenchArgs),
    /// Watch the devices' memory and the trainings that run, live.
    #[command(after_help = "Example: what runs now, for another program\n  vramlab monitor --once --json -")]
    Monitor(MonitorArgs),
    /// Make a report to look at, one HTML file, from results and recordings.
    #[command(after_help = "Example: a page of a run's memory, from what was written of it\n  \
            vramlab report run.json events.json -o run.html\n\n\
            Example: the two files, or the page at once\n  \
            vramlab train --model simple-cnn --json run.json --events events.json\n  \
            vramlab train --model simple-cnn --html run.html\n\n\
            Example: where memory was, for ui.perfetto.dev\n  \
            vramlab report events.json --export-trace trace.json")]
    Report(ReportArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: completions for bash, in this session\n  source <(vramlab completions bash)")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(after_help = "Example: read it\n  vramlab man | man -l -")]
    Man,
}

/// What is to be done, and the words that say so.
pub(crate) struct Invocation {
    /// The parsed words.
    pub cli: Cli,
    /// The words themselves, those of the configuration file included.
    pub words: Vec<OsString>,
    /// What is to be scanned; empty unless the command scans.
    pub axes: Vec<scan::Axis>,
}

/// Why the words do not make a command.
pub(crate) enum Refusal {
    /// Clap's error; also help and version.
    Clap(clap::Error),
    /// Ours.
    Failure(Failure),
}

impl From<clap::Error> for Refusal {
    fn from(error: clap::Error) -> Self {
        Refusal::Clap(error)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failure(failure)
    }
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
    let axes = matches.subcommand().map(|(name, matches)| scan::axes(name, matches)).transpose()?.unwrap_or_default();
    Ok(Invocation { cli: Cli::from_arg_matches(&matches)?, words, axes })
}

/// The same command line with other values for some options: one point of a scan.
pub(crate) fn parse_with(words: &[OsString], changes: &[(String, String)]) -> Result<Cli, Failure> {
    let words: Vec<OsString> = words.iter().cloned().chain(scan::as_words(changes)).collect();
    let matches = any_number(Cli::command()).try_get_matches_from(words);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let point: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Failure::usage(format!("scan at {}: {}", point.join(", "), first_line(&error)))
    })
}

/// What clap objects to, without its hints.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

/// A value may begin with a minus: what is wrong with it, its own flag says best.
fn any_number(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(any_number)
}

/// The whole command, coloured as the flags say: clap writes before they are parsed.
fn command(words: &[OsString]) -> clap::Command {
    let word = |i: usize| words.get(i).and_then(|word| word.to_str());
    let choice = (1..words.len()).find_map(|i| match word(i)?.strip_prefix("--color")? {
        "" => word(i + 1),
        value => value.strip_prefix('='),
    });
    any_number(Cli::command()).color(match choice {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    })
}

/// Whether an option was given in words, not by default.
fn given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_that_parses() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let text = sub.get_after_help().unwrap_or_else(|| panic!("{} has no example", sub.get_name())).to_string();
            let line = text.lines().find_map(|line| line.trim().strip_prefix("vramlab "));
            let shell = |c: char| matches!(c, '|' | '>' | ')');
            if let Some(line) = line.and_then(|line| line.split(shell).next()) {
                let words = std::iter::once("vramlab").chain(line.split_whitespace());
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}
