//! `rehearse` with `-L` and `-P`: rehearses a script with several values, and searches for the largest value that fits.

use lab::rehearse::{Next, Rehearsed, Request, Tried, at_point, next, rehearse};
use lab::results::{LargestValue, RehearsalPoint, RehearsalScanResult};
use serde_json::{Map, Value};

use super::rehearse::request;
use super::rehearse_progress::told;
use super::{rehearse_tries, shard};
use crate::args::{Invocation, RehearseArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;
use crate::{interrupt, output};

/// Rehearses every point. Then, if only one parameter of whole numbers is scanned, searches for its largest value that fits.
///
/// # Errors
/// Those of a single rehearsal; and, before anything runs, marks that are nowhere in the command.
pub(super) fn run(invocation: &Invocation, args: &RehearseArgs, ui: &Ui) -> Result<Code> {
    refused(args)?;
    output::check(args.output.destinations().chain(&args.page.html))?;
    // Values that do not fit are not run again with more memory: the law tells what they need.
    let request = Request { needs: false, ..request(args, ui) };
    let points = axes::points(&invocation.axes);
    for point in &points {
        at_point(&request, point)?;
    }
    let shard = shard::of(&args.scan, asked(args), points.iter().map(|point| shard::named(point)).collect());
    let points = shard::mine(args.scan.shard, points);
    let mut scan = Scan { request, ui, found: RehearsalScanResult { shard, ..RehearsalScanResult::default() } };
    scan.found.parameters = invocation.axes.iter().map(|axis| axis.name.clone()).collect();
    scan.found.command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    for point in &points {
        if !scan.rehearse(point, false)? {
            break;
        }
    }
    // A shard has only some of the points, so it shows neither the largest value nor the law.
    if let [axis] = invocation.axes.as_slice()
        && !scan.found.interrupted
        && scan.found.shard.is_none()
        && axis.values.iter().all(|value| value.parse::<u64>().is_ok())
    {
        scan.found.largest = scan.largest(&axis.name)?;
    }
    if scan.found.shard.is_none() {
        scan.found.law = scan.found.law_of_points();
        scan.try_changes(args)?;
    }
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &scan.found)?;
    Ok(code(&scan.found))
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

struct Scan<'a> {
    request: Request,
    ui: &'a Ui,
    found: RehearsalScanResult,
}

impl Scan<'_> {
    /// Rehearses a point; returns whether to go on.
    fn rehearse(&mut self, point: &[(String, String)], searched: bool) -> Result<bool> {
        let rehearsed = self.once(point)?;
        let values = point.iter().map(|(_, value)| value.clone()).collect();
        self.found.points.push(RehearsalPoint { values, searched, rehearsal: rehearsed.result });
        Ok(!self.found.interrupted)
    }

    /// Runs the script with these values.
    fn once(&mut self, point: &[(String, String)]) -> Result<Rehearsed> {
        self.ui.tell(shard::named(point));
        let request = at_point(&self.request, point)?;
        let ui = self.ui;
        let rehearsed = rehearse(&request, &mut |progress| {
            if let Some(progress) = progress {
                ui.tell_apart(format!("  {}", told(progress, &request.stop)));
            }
            interrupt::flow()
        })?;
        self.found.gpu = rehearsed.result.gpu.clone();
        self.found.interrupted |= rehearsed.interrupted;
        Ok(rehearsed)
    }

    /// Adds proposals if something does not fit. A setting that helps by replay is rehearsed before it is proposed.
    fn try_changes(&mut self, args: &RehearseArgs) -> Result<()> {
        let setting = if self.found.interrupted { None } else { rehearse_tries::setting(&self.found) };
        let rehearsed = setting.map(|point| Ok::<_, Failure>((self.once(&point)?, point))).transpose()?;
        // An interrupted rehearsal has no verdict.
        let rehearsed = rehearsed.as_ref().filter(|(rehearsed, _)| !rehearsed.interrupted);
        let tried = rehearsed.map(|(rehearsed, point)| (point.as_slice(), &rehearsed.result));
        self.found.tries = rehearse_tries::of(args, &self.found, tried);
        Ok(())
    }

    /// Searches for the largest value that fits. Returns `None` if the user interrupted the search.
    fn largest(&mut self, name: &str) -> Result<Option<LargestValue>> {
        loop {
            let tried: Vec<Tried> = self.found.points.iter().filter_map(of_point).collect();
            let searched = self.found.points.iter().filter(|point| point.searched).count();
            match next(&tried, searched, self.found.gpu.total_bytes) {
                Next::Try(value) => {
                    if !self.rehearse(&[(name.to_string(), value.to_string())], true)? {
                        return Ok(None);
                    }
                }
                end => return Ok(Some(in_words(name, end))),
            }
        }
    }
}

fn of_point(point: &RehearsalPoint) -> Option<Tried> {
    let value = point.values.first()?.parse().ok()?;
    Some(Tried { value, fits: point.rehearsal.fits_so_far(), taken_bytes: point.taken_bytes() })
}

fn in_words(name: &str, end: Next) -> LargestValue {
    let (value, verified, in_words) = match end {
        Next::Largest(Some(value)) => (
            Some(value),
            true,
            format!("{name} {value} is the largest that fits; {} does not: both were rehearsed.", value + 1),
        ),
        Next::Largest(None) => (None, true, format!("No {name} fits.")),
        Next::Between(value, Some(above)) => {
            (Some(value), false, format!("{name} {value} fits, {above} does not; nothing between them was tried."))
        }
        Next::Between(value, None) => {
            (Some(value), false, format!("{name} {value} fits, and a larger one may: no more were tried."))
        }
        Next::DoesNotGrow => (None, false, format!("What the script takes does not grow with {name}.")),
        Next::NotInOrder => {
            (None, false, format!("No largest {name} is given: a larger one fits although a smaller one does not."))
        }
        Next::Unknown(value) => {
            (None, false, format!("No largest {name} is given: whether {value} fits is not known."))
        }
        // Not reached: the search continues while the next step is `Try`.
        Next::Try(value) => (None, false, format!("{name} {value} was not tried.")),
    };
    LargestValue { value, verified, in_words }
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
