//! `rehearse` with `-L` and `-P`: rehearses a script with several values, and searches for the largest value that fits.

use lab::rehearse::{Points, at_point, reads_arguments, rehearse_points};
use lab::results::RehearsalScanResult;
use serde_json::{Map, Value};

use super::rehearse::request;
use super::rehearse_progress::Teller;
use super::shard;
use crate::args::axes::Axis;
use crate::args::{Invocation, RehearseArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Rehearses every point. Then, if only one parameter of whole numbers is scanned, searches for its largest value that fits.
///
/// # Errors
/// Those of a single rehearsal; and, before anything runs, marks that are nowhere in the command.
pub(super) fn run(invocation: &Invocation, args: &RehearseArgs, ui: &Ui) -> Result<Code> {
    refused(args)?;
    output::check(args.output.destinations().chain(&args.page.html))?;
    let request = request(args, ui);
    let points = axes::points(&invocation.axes);
    for point in &points {
        at_point(&request, point)?;
    }
    let names_variable = |axis: &Axis| axis.name.starts_with("env:");
    if !reads_arguments(&request.command) && !invocation.axes.iter().all(names_variable) {
        let how = "read the value from a variable, as in int(os.environ[\"BATCH\"]), and scan -L env:BATCH 8,64";
        return Err(Failure::usage(format!(
            "the script reads no arguments, so every value would be the same run; {how}"
        )));
    }
    let shard = shard::from_scan(&args.scan, asked(args), points.iter().map(|point| shard::named(point)).collect());
    let is_number = |value: &String| value.parse::<u64>().is_ok();
    let points = Points {
        names: invocation.axes.iter().map(|axis| axis.name.clone()).collect(),
        points: shard::mine(args.scan.shard, points),
        searches: matches!(invocation.axes.as_slice(), [axis] if axis.values.iter().all(is_number)),
        shard,
    };
    let mut teller = Teller::new(ui, &request.stop);
    let found = rehearse_points(&request, points, &mut |progress| teller.tell(progress))?;
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &found)?;
    Ok(code(&found))
}

/// Returns the question that all shards have in common: the command, and the flags that decide what it takes.
fn asked(args: &RehearseArgs) -> Map<String, Value> {
    let command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let flags = [
        ("command", command.into()),
        ("gpu", format!("{:?}", args.gpu).into()),
        ("gpus", args.gpus().into()),
        ("world", args.world.into()),
        ("ranks", args.ranks.clone().into()),
        ("steps", args.steps.into()),
        ("seconds", args.seconds.into()),
        ("until-seen", format!("{:?}", args.until_seen).into()),
        ("late-events", args.late_events.into()),
        ("cudnn", format!("{:?}", args.cudnn).into()),
        ("no-values", args.no_values.into()),
    ];
    flags.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// Refuses flags that only a single rehearsal has.
fn refused(args: &RehearseArgs) -> Result<()> {
    let given = [
        ("--continue", args.scan.go_on.is_some()),
        ("--snapshot", args.snapshot.is_some()),
        ("--events", args.events.is_some()),
        ("--keep-outputs", args.keep_outputs.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("{flag}: it belongs to a single rehearsal; a scan makes several")))
        }
        None => Ok(()),
    }
}

/// Returns the exit code: whether all requested points fit. Interrupts and points without a verdict have their own codes.
fn code(found: &RehearsalScanResult) -> Code {
    let asked = || found.points.iter().filter(|point| !point.searched);
    if found.interrupted {
        Code::Interrupted
    } else if asked().any(|point| point.rehearsal.fits_so_far().is_none()) {
        Code::Device
    } else if asked().all(|point| point.rehearsal.fits == Some(true)) {
        Code::Done
    } else {
        Code::Check
    }
}
