//! One file per command.

pub(crate) mod check;
mod devices;
mod docs;
mod events;
mod explain;
pub(crate) mod fit;
mod list;
mod monitor;
mod opening;
pub(crate) mod outcome;
pub(crate) mod parallel;
mod plan;
pub(crate) mod predict;
mod recording;
pub(crate) mod replay;
mod report;
mod run;
mod scan;
pub(crate) mod snapshot;
mod subject;
pub(crate) mod techniques;
mod train;
mod tune;
mod weights;

use crate::args::{Command, Invocation};
use crate::exit::{Code, Failure, Result};
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
        Command::Run(args) => run::run(args, ui),
        Command::Train(args) if invocation.axes.is_empty() => {
            train::run(plan::Plan::train(args, ui)?, &args.output, &args.page, ui)
        }
        Command::Predict(args) if invocation.axes.is_empty() => predict::run(args, ui),
        Command::Train(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Predict(args) => scan::run(invocation, &args.output, &args.page, &args.record, ui),
        Command::Fit(args) => fit::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
        Command::Snapshot(args) => snapshot::run(args, ui),
        Command::Tune(args) => tune::run(args, ui),
        Command::Check(args) => check::run(args, invocation, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Monitor(args) => monitor::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Completions { shell } => docs::completions(*shell, ui),
        Command::Man => docs::man(ui),
    }
}

/// A run over several devices, where one was asked for.
fn split(invocation: &Invocation, ui: &Ui) -> Option<Result<Code>> {
    let parallel = match &invocation.cli.command {
        Command::Train(args) => &args.parallel,
        Command::Predict(args) => &args.parallel,
        _ => return None,
    };
    let axes = &invocation.axes;
    let names = match &parallel.devices {
        Some(names) if axes.is_empty() => names,
        // The typed list, or one that is scanned.
        Some(_) => return Some(Err(scanned())),
        None if axes.iter().any(|axis| axis.name == "devices") => return Some(Err(scanned())),
        None => return None,
    };
    match &invocation.cli.command {
        Command::Train(args) => Some(parallel::train(args, names, ui)),
        Command::Predict(args) => Some(parallel::predict(args, names, ui)),
        _ => None,
    }
}

fn scanned() -> Failure {
    Failure::usage("scan: its points are runs on one device; --devices names several")
}
