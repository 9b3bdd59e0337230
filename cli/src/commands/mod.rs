//! One file per command.

pub(crate) mod any_model;
#[cfg(target_os = "linux")]
mod any_model_graphs;
#[cfg(target_os = "linux")]
mod any_model_rehearsed;
mod bench;
pub(crate) mod cards;
pub(crate) mod check;
pub(crate) mod data_parallel;
mod devices;
mod diff;
mod docs;
mod endless;
pub(crate) mod estimate;
mod events;
mod explain;
mod fit;
mod hand_over;
mod list;
#[cfg(feature = "mcp")]
mod mcp;
mod models;
mod monitor;
pub(crate) mod outcome;
pub(crate) mod parallel;
mod plan;
mod planner;
mod planner_lengths;
pub(crate) mod predict;
mod profile;
mod recording;
#[cfg(target_os = "linux")]
mod rehearse;
#[cfg(target_os = "linux")]
mod rehearse_progress;
#[cfg(target_os = "linux")]
mod rehearse_scan;
mod replay;
mod report;
mod report_parts;
mod run;
mod run_scan;
mod scan;
mod shard;
mod show;
pub(crate) mod snapshot;
mod speeds;
mod train;
mod tries;
mod tune;
#[cfg(feature = "ui")]
mod ui;
#[cfg(feature = "view")]
mod view;
pub(crate) mod warnings;
mod watch;
mod weights;
mod workspaces;

use std::path::PathBuf;

use lab::run::ParallelSpec;

use crate::args::{Command, Invocation, SnapshotCommand};
use crate::exit::{Code, Failure, Result};
use crate::file_kind::{self, Kind};
use crate::ui::Ui;

/// Runs a command.
///
/// # Errors
/// Those of the command; the failure has the exit code.
pub(crate) fn run(invocation: &Invocation, ui: &Ui) -> Result<Code> {
    check_files(&invocation.cli.command)?;
    if let Some(code) = split(invocation, ui) {
        return code;
    }
    if invocation.axes.is_empty() {
        scan::check_alone(&invocation.cli)?;
        shard::check_alone(&invocation.cli)?;
    }
    match &invocation.cli.command {
        Command::Devices(args) => devices::run(args, ui),
        Command::List(args) => list::run(args, ui),
        Command::Cards(args) => cards::run(args, ui),
        Command::Models(args) => models::run(args, ui),
        Command::Show(args) => show::run(args, &invocation.run, ui),
        Command::Run(args) if invocation.axes.is_empty() => run::run(args, &invocation.run, ui),
        Command::Run(args) => run_scan::run(invocation, args, ui),
        Command::Train(args) if invocation.axes.is_empty() => {
            train::run(plan::Plan::train(args, invocation.run.clone(), ui)?, &args.output, &args.page, ui)
        }
        Command::Predict(args) if invocation.axes.is_empty() => predict::run(args, &invocation.run, ui),
        Command::Train(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Predict(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Fit(args) => fit::run(args, &invocation.run, ui),
        Command::Plan(args) if args.lengths.are_given() => planner_lengths::run(args, &invocation.run, ui),
        Command::Plan(args) => planner::run(args, &invocation.run, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) if !invocation.axes.is_empty() => rehearse_scan::run(invocation, args, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) => rehearse::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
        Command::Snapshot(args) => snapshot::run(args, ui),
        Command::Diff(args) => diff::run(args, ui),
        Command::Tune(args) => tune::run(args, ui),
        Command::Check(args) => check::run(args, &invocation.run, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Bench(args) => bench::run(args, ui),
        Command::Estimate { configuration, arguments } => estimate::run(configuration, arguments, ui),
        Command::Monitor(args) => monitor::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        #[cfg(feature = "view")]
        Command::View(args) => view::run(args, ui),
        Command::Completions { shell } => docs::completions(*shell, ui),
        Command::Man(args) => docs::man(args, ui),
        #[cfg(feature = "ui")]
        Command::Ui(args) => ui::run(args, ui),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(args, ui),
    }
}

/// Refuses files of a kind that the command cannot use.
///
/// # Errors
/// Such a file, with its kind and what to do with it instead.
fn check_files(command: &Command) -> Result<()> {
    const SNAPSHOT: &str = "a snapshot (torch.cuda.memory._dump_snapshot writes one)";
    let all = |paths: &[&PathBuf], allowed: &[Kind], wanted: &str| {
        paths.iter().try_for_each(|path| file_kind::check(path, allowed, wanted))
    };
    let model = |path: &Option<PathBuf>| {
        let path: Vec<&PathBuf> = path.iter().collect();
        all(&path, &[Kind::Config, Kind::Exported], "a network (config.json, a .pt2 of torch.export, TOML)")
    };
    let recording = |path| all(&[path], &[Kind::Snapshot, Kind::Trace], "a recording of allocations");
    match command {
        Command::Snapshot(args) => match &args.command {
            SnapshotCommand::Show(args) => all(&[&args.file], &[Kind::Snapshot], SNAPSHOT),
            SnapshotCommand::Convert(args) => all(&[&args.file], &[Kind::Snapshot], SNAPSHOT),
            SnapshotCommand::Diff(args) => all(&[&args.before, &args.after], &[Kind::Snapshot], SNAPSHOT),
            SnapshotCommand::Replay(args) => recording(&args.file),
        },
        Command::Replay(args) => recording(&args.file),
        Command::Tune(args) => recording(&args.file),
        Command::Report(args) => {
            let files: Vec<&PathBuf> = args.files.iter().collect();
            all(&files, &[Kind::Finding, Kind::Snapshot, Kind::Trace], "a result or a recording")
        }
        #[cfg(feature = "view")]
        Command::View(args) => {
            let files: Vec<&PathBuf> = args.files.iter().collect();
            all(&files, &[Kind::Finding, Kind::Snapshot], "a recording (a snapshot, or what --events wrote)")
        }
        Command::Check(args) => all(&[&args.baseline], &[Kind::Lock], "a memory lock file (check --update writes one)"),
        Command::Explain(args) => match args.text.as_slice() {
            [one] => all(&[&PathBuf::from(one)], &[], "a log with PyTorch's message"),
            _ => Ok(()),
        },
        Command::Train(args) => model(&args.model.spec.model_file),
        Command::Predict(args) => {
            let word = args.spec().model.model_file;
            let word: Vec<&PathBuf> = word.iter().collect();
            all(&word, &[Kind::Config, Kind::Exported, Kind::Directory, Kind::Diffusers], "a network")
        }
        Command::Fit(args) => model(&args.dry_run.model.spec.model_file),
        Command::Plan(args) => model(&args.dry_run.model.spec.model_file),
        Command::Show(args) => model(&args.spec().model.model_file),
        _ => Ok(()),
    }
}

/// Runs over several devices, if requested.
fn split(invocation: &Invocation, ui: &Ui) -> Option<Result<Code>> {
    let run = &invocation.run;
    let is_one_run = run.parallel == ParallelSpec::default() && invocation.axes.is_empty();
    if let (false, Command::Predict(args)) = (is_one_run, &invocation.cli.command)
        && args.checkpoint_budget.is_some()
    {
        return Some(Err(Failure::usage("--checkpoint-budget is for one run on one card")));
    }
    if run.parallel == ParallelSpec::default() || !invocation.axes.is_empty() {
        return None;
    }
    match (&invocation.cli.command, &run.parallel.split.devices) {
        (Command::Train(args), Some(names)) => Some(parallel::train(args, run, names, ui)),
        (Command::Predict(args), Some(names)) => Some(parallel::predict(args, run, names, ui)),
        (Command::Train(args), None) => Some(data_parallel::train(args, run, ui)),
        (Command::Predict(args), None) => Some(data_parallel::predict(args, run, ui)),
        _ => None,
    }
}
