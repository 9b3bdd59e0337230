//! The command line as data.
//!
//! There is one file per group of flags; the command line (`cli`) is composed of them. Flags that describe the run make a [`RunSpec`], which
//! configuration files (`config`), arguments of transformers (`hf_args`), recipes of trainers (`recipe`), scans (`axes`) and lock files edit.

pub(crate) mod axes;
mod bench;
mod check;
mod cli;
mod config;
mod declared;
mod door;
mod dry_run;
mod global;
mod help;
mod hf_args;
mod line;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod model;
mod monitor;
mod opened;
mod output;
mod plan;
mod recipe;
#[cfg(target_os = "linux")]
mod rehearse;
mod replay;
mod report;
mod run;
mod scan;
mod scripts;
mod set;
mod settings;
mod shard;
mod show;
mod snapshot;
mod spellings;
pub(crate) mod tips;
mod training;
#[cfg(feature = "ui")]
mod ui;
mod values;
#[cfg(feature = "view")]
mod view;
mod weights;
mod what;
mod words;

use std::ffi::OsString;
use std::path::Path;

use clap::FromArgMatches;
use lab::backends::AUTO;
use lab::run::{RunSpec, UsualRelease};
use serde_json::{Map, Value};

pub(crate) use bench::BenchArgs;
pub(crate) use check::CheckArgs;
pub(crate) use cli::{Cli, Command};
pub(crate) use config::{from_result as config_text, read as toml_table};
pub(crate) use dry_run::{AskCudnn, DryRunArgs, FitArgs, PredictArgs};
pub(crate) use global::{ColorWhen, GlobalArgs};
pub(crate) use help::SHOWN;
#[cfg(feature = "ui")]
pub(crate) use help::TASKS;
pub(crate) use hf_args::FEW_BITS;
pub(crate) use man::ManArgs;
#[cfg(feature = "mcp")]
pub(crate) use mcp::McpArgs;
pub(crate) use model::named as network_named;
pub(crate) use model::{ModelArgs, ONLY_BUILT_IN};
pub(crate) use monitor::MonitorArgs;
pub(crate) use output::OutputArgs;
pub(crate) use plan::{LengthsArgs, PlanArgs};
#[cfg(target_os = "linux")]
pub(crate) use rehearse::{Cudnn, RehearseArgs, UseName};
pub(crate) use replay::{ReplayArgs, ReplayPolicy};
pub(crate) use report::{ExportArgs, HtmlArgs, ReportArgs};
pub(crate) use run::{CardsArgs, DevicesArgs, ListArgs, ModelsArgs, RunArgs};
pub(crate) use scan::ScanArgs;
pub(crate) use shard::Part;
pub(crate) use show::NetworkArgs;
pub(crate) use snapshot::{
    ComparedArgs, ConvertArgs, DiffArgs, ExplainArgs, RunsArgs, ShowArgs, SnapshotArgs, SnapshotCommand,
    SnapshotFormat, TraceRange, TuneArgs,
};
pub(crate) use training::{RecordArgs, TrainArgs, TrainingArgs};
#[cfg(feature = "ui")]
pub(crate) use ui::UiArgs;
#[cfg(feature = "view")]
pub(crate) use view::ViewArgs;
pub(crate) use weights::SaveArgs;
pub(crate) use words::Refusal;

use crate::exit::{Code, Failure};

/// A parsed command line.
pub(crate) struct Invocation {
    /// The parsed words.
    pub cli: Cli,
    /// The run, with the settings of files; empty for a command that runs nothing.
    pub run: RunSpec,
    /// The axes of a scan; empty unless the command scans.
    pub axes: Vec<axes::Axis>,
    /// Fields of the run that come from a file only.
    sources: config::Sources,
    /// Notes about the files that the words name.
    pub notes: Vec<String>,
}

impl Invocation {
    /// Adds the file's name to a failure about a value from a file: nobody typed the flag.
    pub(crate) fn at_its_source(&self, failure: Failure) -> Failure {
        at_its_source(failure, &self.sources)
    }
}

impl Invocation {
    /// Adds to the error about a network from a file the command that answers all the same: the script itself, on the card that was named.
    pub(crate) fn with_a_way_out(&self, failure: Failure) -> Failure {
        let Some(file) = &self.run.model.model_file else { return failure };
        let text = format!("{:#}", failure.error);
        // Every error about what no network here has says so.
        let is_refused = text.starts_with(&file.display().to_string()) && text.contains("not support");
        if failure.code != Code::Usage || !is_refused || text.contains("vramlab predict train.py") {
            return failure;
        }
        let mut said = self.run.repeated();
        said.retain(|name, _| name == "gpu");
        let card = if said.is_empty() { "--gpu rtx4090".into() } else { lab::results::command::flags(&said) };
        let problem = format!("{text}; instead: vramlab predict train.py {card}");
        Failure { error: anyhow::Error::msg(problem), ..failure }
    }
}

fn at_its_source(failure: Failure, sources: &config::Sources) -> Failure {
    let text = failure.error.to_string();
    let rest = text.strip_prefix("--").unwrap_or_default();
    let field = rest.split([':', ' ']).next().unwrap_or_default();
    match sources.get(field) {
        Some(file) => Failure { error: anyhow::Error::msg(format!("{file}: {rest}")), ..failure },
        None => failure,
    }
}

/// Parses a command line, with its configuration file.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Invocation, Refusal> {
    let words = without_help(words);
    let few = declared::few(&words);
    match few.map(|names| declared::only(names, || parse_declared(words.clone()))) {
        // What is said of an error may name flags of any command.
        Some(Err(Refusal::Clap(_))) | None => parse_declared(words),
        // It may be a command that starts a script, after all.
        Some(Err(_)) if few == Some(&["predict"]) => parse_declared(words),
        Some(parsed) => parsed,
    }
}

/// Parses a command line by the flags that are declared.
fn parse_declared(words: Vec<OsString>) -> Result<Invocation, Refusal> {
    let mut command = command(&words);
    command.build();
    let line::Entered { words, notes } = door::enter(words, &command)?;
    let mut matches = command.try_get_matches_from_mut(&words)?;
    let files = config::Files::read(&matches)?;
    if let Some(words) = files.before(&words, &matches) {
        matches = command.try_get_matches_from_mut(words)?;
    }
    let axes = matches.subcommand().map(|(name, matches)| axes::axes(name, matches)).transpose()?.unwrap_or_default();
    let mut cli = Cli::from_arg_matches(&matches)?;
    #[cfg(target_os = "linux")]
    if let (Command::Rehearse(args), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
        args.names_card = words::given(matches, "gpu");
    }
    let flags = matches.subcommand_name().and_then(|name| command.find_subcommand(name)).unwrap_or(&command);
    let set = set::read_set(&cli.command, flags)?;
    let run = run(&cli.command, &files.fields, &set.fields);
    let run = run.map_err(|error| at_its_source(Failure::from(error), &files.sources))?;
    let run = RunSpec { left_out: files.left_out, of_files: files.sources.clone(), ..run };
    let notes = notes.into_iter().chain(files.notes).chain(set.notes).collect();
    Ok(Invocation { cli, run, axes, sources: files.sources, notes })
}

/// `vramlab help predict` as `vramlab predict --help`: a command of its own would stand in the list.
fn without_help(mut words: Vec<OsString>) -> Vec<OsString> {
    let first = words.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-'));
    if let Some(at) = first.map(|at| at + 1).filter(|at| words[*at] == "help") {
        words.remove(at);
        words.push("--help".into());
    }
    words
}

/// Returns the run of a command: its flags, the fields of files that no typed flag overrides, and what `--set` sets.
fn run(command: &Command, files: &Map<String, Value>, set: &Map<String, Value>) -> lab::Result<RunSpec> {
    let (typed, model, on_device) = match command {
        Command::Run(args) => (args.spec(), None, true),
        Command::Train(args) => (args.spec(), Some(&args.model), true),
        Command::Predict(args) => (args.spec(), Some(&args.dry_run.model), false),
        Command::Fit(args) => (args.spec(), Some(&args.dry_run.model), false),
        Command::Plan(args) => (args.spec(), Some(&args.dry_run.model), false),
        Command::Show(args) => (args.spec(), Some(&args.model), false),
        Command::Check(args) => (args.spec(), Some(&args.dry_run.model), false),
        _ => return Ok(RunSpec::default()),
    };
    // Checked here: a value that is not a number would be lost in the table of fields.
    typed.check_part()?;
    let mut run = typed.with(files.iter().chain(set).map(|(name, value)| (name.as_str(), value)))?;
    // A card that is named need not be present.
    if on_device && run.parallel.split.devices.is_none() && run.card.gpu.is_none() {
        run.device.backend.get_or_insert_with(|| AUTO.into());
        run.device.device.get_or_insert(0);
    }
    run.check()?;
    let cudnn = match command {
        Command::Predict(args) => Some(args.workspaces.cudnn),
        Command::Fit(args) => Some(args.workspaces.cudnn),
        Command::Plan(args) => Some(args.workspaces.cudnn),
        _ => None,
    };
    let asks_cudnn = cudnn == Some(AskCudnn::Ask);
    let python = model.and_then(|model| model.python.as_deref());
    run.model.usual_release = usual_release(&run, python.filter(|_| run.model.is_pretrained() || !asks_cudnn))?;
    Ok(run)
}

/// Returns the release of transformers that counts for a `config.json` if none is said.
pub(crate) fn usual_release(run: &RunSpec, python: Option<&Path>) -> lab::Result<UsualRelease> {
    if run.model.is_pretrained() {
        return UsualRelease::installed(python, &lab::python::of_process);
    }
    match python {
        Some(_) if run.model.model_file.is_none() => Err(lab::Error::usage(
            "python",
            "a built-in network needs none, unless --cudnn ask starts it; name a config.json or a network that your Python builds",
        )),
        _ => Ok(UsualRelease::default()),
    }
}

/// Lets values begin with a minus: the flag's own parser explains best what is wrong with one.
fn any_number(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(any_number)
}

/// Returns when to use colours, read from the words before they are parsed.
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

/// Returns the whole command line, with what its short or its long help shows.
pub(crate) fn whole(short: bool) -> clap::Command {
    help::shaped(any_number(Cli::declared()), short)
}

/// Returns the whole command, coloured as the flags say: clap may print before they are parsed.
fn command(words: &[OsString]) -> clap::Command {
    let short = words.iter().take_while(|word| *word != "--").any(|word| word == "-h");
    whole(short).color(match color(words) {
        ColorWhen::Always => clap::ColorChoice::Always,
        ColorWhen::Never => clap::ColorChoice::Never,
        ColorWhen::Auto => clap::ColorChoice::Auto,
    })
}
