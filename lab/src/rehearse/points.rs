//! Rehearses one script with several values, and searches for the largest value that fits.

use lab_base::error::Result;
use lab_results::{LargestValue, RehearsalPoint, RehearsalScanResult, Shard};

use super::collect::Rehearsed;
use super::progress::{Progress, Watch};
use super::rehearsal::rehearse;
use super::request::Request;
use super::scan::{Next, Tried, at_point, next};
use super::tries;

/// Values to rehearse a script with.
#[derive(Clone, Debug, Default)]
pub struct Points {
    /// Names of what is varied.
    pub names: Vec<String>,
    /// The combinations of values, each with its names.
    pub points: Vec<Vec<(String, String)>>,
    /// True if the largest value that fits is searched for: there is one name, and its values are whole numbers.
    pub searches: bool,
    /// The part of a scan that this is; a part shows neither the largest value nor the law.
    pub shard: Option<Shard>,
}

/// Rehearses every point. Then, if that is asked for, searches for the largest value that fits.
///
/// # Errors
/// Those of a single rehearsal.
pub fn rehearse_points(request: &Request, points: Points, watch: &mut Watch) -> Result<RehearsalScanResult> {
    let found = RehearsalScanResult { shard: points.shard, ..RehearsalScanResult::default() };
    // Values that do not fit are not run again with more memory: the law tells what they need.
    let request = Request { needs: false, ..request.clone() };
    let mut scan = Scan { request, watch, found };
    scan.found.command = scan.request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    scan.found.parameters = points.names;
    for point in &points.points {
        if !scan.rehearse(point, false)? {
            break;
        }
    }
    if scan.found.shard.is_some() {
        return Ok(scan.found);
    }
    if let Some(name) = scan.found.parameters.first().cloned().filter(|_| points.searches && !scan.found.interrupted) {
        scan.found.largest = scan.largest(&name)?;
    }
    scan.found.law = scan.found.law_of_points();
    scan.try_changes()?;
    Ok(scan.found)
}

struct Scan<'a, 'w> {
    request: Request,
    watch: &'a mut Watch<'w>,
    found: RehearsalScanResult,
}

impl Scan<'_, '_> {
    /// Rehearses a point; returns whether to go on.
    fn rehearse(&mut self, point: &[(String, String)], searched: bool) -> Result<bool> {
        let rehearsed = self.once(point)?;
        let values = point.iter().map(|(_, value)| value.clone()).collect();
        self.found.points.push(RehearsalPoint { values, searched, rehearsal: rehearsed.result });
        Ok(!self.found.interrupted)
    }

    /// Runs the script with these values.
    fn once(&mut self, point: &[(String, String)]) -> Result<Rehearsed> {
        let request = at_point(&self.request, point)?;
        // An interruption is seen when the script is followed.
        let _later = (self.watch)(Some(Progress::Point { values: point.to_vec() }));
        let rehearsed = rehearse(&request, self.watch)?;
        self.found.gpu = rehearsed.result.gpu.clone();
        self.found.interrupted |= rehearsed.interrupted;
        Ok(rehearsed)
    }

    /// Adds proposals if something does not fit. A setting that helps by replay is rehearsed before it is proposed.
    fn try_changes(&mut self) -> Result<()> {
        let setting = if self.found.interrupted { None } else { tries::setting(&self.found) };
        let rehearsed = match setting {
            Some(point) => Some((self.once(&point)?, point)),
            None => None,
        };
        // An interrupted rehearsal has no verdict.
        let rehearsed = rehearsed.as_ref().filter(|(rehearsed, _)| !rehearsed.interrupted);
        let tried = rehearsed.map(|(rehearsed, point)| (point.as_slice(), &rehearsed.result));
        self.found.tries = tries::of_scan(&self.request, &self.found, tried);
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
                end => return Ok(Some(in_words(name, end, self.perhaps()))),
            }
        }
    }

    /// The rehearsed values that fit perhaps, in order.
    fn perhaps(&self) -> Vec<u64> {
        let perhaps = self.found.points.iter().filter(|point| point.rehearsal.fits_perhaps());
        let mut values: Vec<u64> = perhaps.filter_map(|point| point.values.first()?.parse().ok()).collect();
        values.sort_unstable();
        values
    }
}

fn of_point(point: &RehearsalPoint) -> Option<Tried> {
    let value = point.values.first()?.parse().ok()?;
    Some(Tried { value, fits: point.rehearsal.fits_in_a_search(), most_bytes: point.most_bytes() })
}

/// Words for the end of a search. `perhaps`: values that fit perhaps, in order.
fn in_words(name: &str, end: Next, perhaps: Vec<u64>) -> LargestValue {
    let largest = match end {
        Next::Largest(value) => value,
        Next::Between(value, _) => Some(value),
        _ => None,
    };
    let perhaps: Vec<u64> = perhaps.into_iter().filter(|value| Some(*value) > largest).collect();
    // The next value: whether it does not fit, or fits perhaps.
    let next = |above: u64| match perhaps.contains(&above) {
        true => format!("{above} fits perhaps"),
        false => format!("{above} does not"),
    };
    let (value, verified, in_words) = match end {
        Next::Largest(Some(value)) => (
            Some(value),
            true,
            format!("{name} {value} is the largest that fits; {}: both were rehearsed.", next(value + 1)),
        ),
        Next::Largest(None) => match perhaps.last() {
            Some(last) => (None, true, format!("No {name} fits surely; {last} fits perhaps.")),
            None => (None, true, format!("No {name} fits.")),
        },
        Next::Between(value, Some(above)) => {
            (Some(value), false, format!("{name} {value} fits, {}; nothing between them was tried.", next(above)))
        }
        Next::Between(value, None) => {
            (Some(value), false, format!("{name} {value} fits, and a larger one may: no more were tried."))
        }
        Next::DoesNotGrow => (None, false, format!("What the script takes does not grow with {name}.")),
        Next::NotInOrder => (
            None,
            false,
            format!("No largest {name} is given: a larger one fits although a smaller one does not, or not surely."),
        ),
        Next::Unknown(value) => {
            (None, false, format!("No largest {name} is given: whether {value} fits is not known."))
        }
        // Not reached: the search continues while the next step is `Try`.
        Next::Try(value) => (None, false, format!("{name} {value} was not tried.")),
    };
    LargestValue { value, verified, perhaps: perhaps.last().copied(), in_words }
}
