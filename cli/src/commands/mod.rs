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
        Command::Run(args) if invocation.axes.is_empty() => run::run(args, ui),
        Command::Run(args) => run_scan::run(invocation, args, ui),
        Command::Train(args) if invocation.axes.is_empty() => {
            train::run(plan::Plan::train(args, args.spec(), ui)?, &args.output, &args.page, ui)
        }
        Command::Predict(args) if invocation.axes.is_empty() => predict::run(args, ui),
        Command::Train(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Predict(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Fit(args) => fit::run(args, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) if !invocation.axes.is_empty() => rehearse_scan::run(invocation, args, ui),
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) => rehearse::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
        Command::Snapshot(args) => snapshot::run(args, ui),
        Command::Tune(args) => tune::run(args, ui),
        Command::Check(args) => check::run(args, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Bench(args) => bench::run(args, ui),
        Command::Monitor(args) => monitor::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Completions { shell } => docs::completions(*shell, ui),
        Command::Man(args) => docs::man(args, ui),
    }
}

/// A run over several devices, where one was asked for.
fn split(invocation: &Invocation, ui: &Ui) -> Option<Result<Code>> {
    let (parallel, spec) = match &invocation.cli.command {
        Command::Train(args) => (&args.parallel, args.spec()),
        Command::Predict(args) => (&args.parallel, args.spec()),
        _ => return None,
    };
    if spec.parallel == ParallelSpec::default() || !invocation.axes.is_empty() {
        return None;
    }
    match (&invocation.cli.command, &parallel.devices) {
        (Command::Train(args), Some(names)) => Some(parallel::train(args, names, ui)),
        (Command::Predict(args), Some(names)) => Some(parallel::predict(args, names, ui)),
        (Command::Train(args), None) => Some(data_parallel::train(args, ui)),
        (Command::Predict(args), None) => Some(data_parallel::predict(args, ui)),
        _ => None,
    }
}
