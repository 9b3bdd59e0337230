//! One file per command.

mod bench;
pub(crate) mod cards;
pub(crate) mod check;
pub(crate) mod data_parallel;
mod devices;
mod docs;
mod events;
mod explain;
mod fit;
mod list;
mod monitor;
pub(crate) mod outcome;
pub(crate) mod parallel;
mod plan;
pub(crate) mod predict;
mod profile;
mod recording;
#[cfg(target_os = "linux")]
mod rehearse;
#[cfg(target_os = "linux")]
mod rehearse_scan;
mod replay;
mod report;
mod run;
mod run_scan;
mod scan;
pub(crate) mod snapshot;
mod train;
mod tune;
pub(crate) mod warnings;
mod weights;

use lab::run::ParallelSpec;

use crate::args::{Command, Invocation};
use crate::exit::{Code, Result};
use crate::ui::Ui;

/// Does what was asked.
///
/// # Errors
/// As the command fails; the failure knows the exit code.
pub(crate) fn run(invocation: &Invocation, ui: &Ui) -> Result<Code> {
    if let Some(code) = split(invocation, ui) {
        return code;
    }
    if invocation.axes.is_empty() {
        scan::check_alone(&invocation.cli)?;
    }
    match &invocation.cli.command {
        Command::Devices(args) => devices::run(args, ui),
        Command::List(args) => list::run(args, ui),
        Command::Cards(args) => cards::run(args, ui),
        Command::Run(args) if invocation.axes.is_empty() => run::run(args, &invocation.run, ui),
        Command::Run(args) => run_scan::run(invocation, args, ui),
        Command::Train(args) if invocation.axes.is_empty() => {
            train::run(plan::Plan::train(args, invocation.run.clone(), ui)?, &args.output, &args.page, ui)
        }
        Command::Predict(args) if invocation.axes.is_empty() => predict::run(args, &invocation.run, ui),
        Command::Train(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Predict(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Fit(args) => fit::run(args, &invocation.run, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) if !invocation.axes.is_empty() => rehearse_scan::run(invocation, args, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) => rehearse::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
        Command::Snapshot(args) => snapshot::run(args, ui),
        Command::Tune(args) => tune::run(args, ui),
        Command::Check(args) => check::run(args, &invocation.run, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Bench(args) => bench::run(args, ui),
        Command::Monitor(args) => monitor::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Completions { shell } => docs::completions(*shell, ui),
        Command::Man => docs::man(ui),
    }
}

/// A run over several devices, where one was asked for.
fn split(invocation: &Invocation, ui: &Ui) -> Option<Result<Code>> {
    let run = &invocation.run;
    if run.parallel == ParallelSpec::default() || !invocation.axes.is_empty() {
        return None;
    }
    match (&invocation.cli.command, &run.parallel.devices) {
        (Command::Train(args), Some(names)) => Some(parallel::train(args, run, names, ui)),
        (Command::Predict(args), Some(names)) => Some(parallel::predict(args, run, names, ui)),
        (Command::Train(args), None) => Some(data_parallel::train(args, run, ui)),
        (Command::Predict(args), None) => Some(data_parallel::predict(args, run, ui)),
        _ => None,
    }
}
