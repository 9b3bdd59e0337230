//! The clock: samples of a median, until time is up or a stop is requested.

use std::time::{Duration, Instant};

use lab_base::error::Result;
use lab_base::figures::median;

/// Shortest duration of a sample. Shorter work runs several times in it, and is waited for once.
const SAMPLE: Duration = Duration::from_millis(2);

/// The most runs in a sample, so that a queue does not grow without end.
const MAX_RUNS: u64 = 1000;

/// Time limit of one measurement, and how to end it early.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Seconds after which no further sample begins. At least one sample is taken.
    pub seconds: f64,
    /// True if a stop was requested; checked between samples.
    pub stop: &'a dyn Fn() -> bool,
}

/// Duration of one run, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Median of the samples.
    pub median_ns: f64,
    /// Shortest sample.
    pub min_ns: f64,
    /// Longest sample.
    pub max_ns: f64,
    /// Number of samples.
    pub samples: usize,
    /// Runs in each sample.
    pub runs: u64,
}

impl Timing {
    /// Computes the timing from samples of `runs` runs each, in nanoseconds of one run; `None` without samples.
    pub fn from_samples(samples: &[f64], runs: u64) -> Option<Self> {
        let median_ns = median(samples)?;
        let (min_ns, max_ns) = samples.iter().fold((f64::MAX, 0.0), |(min, max), &ns| (ns.min(min), ns.max(max)));
        Some(Self { median_ns, min_ns, max_ns, samples: samples.len(), runs })
    }
}

/// Times `run`, which does its work the given number of times, waits for it and returns how long that took. It must have run before, because
/// first-run costs are not to be measured. `None` if the end came before the first sample.
pub fn time(limits: &Limits<'_>, run: &mut dyn FnMut(u64) -> Result<Duration>) -> Result<Option<Timing>> {
    let begin = Instant::now();
    if (limits.stop)() {
        return Ok(None);
    }
    let one = run(1)?;
    let runs = (SAMPLE.as_nanos() / one.as_nanos().max(1)).clamp(1, u128::from(MAX_RUNS)) as u64;
    let mut samples = Vec::new();
    if runs == 1 {
        samples.push(one.as_nanos() as f64);
    }
    while samples.is_empty() || (begin.elapsed().as_secs_f64() < limits.seconds && !(limits.stop)()) {
        samples.push(run(runs)?.as_nanos() as f64 / runs as f64);
    }
    Ok(Timing::from_samples(&samples, runs))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_middle_of_the_samples_is_what_counts() {
        let timing = Timing::from_samples(&[3.0, 1.0, 100.0], 1).unwrap();
        assert_eq!((timing.median_ns, timing.min_ns, timing.max_ns, timing.samples), (3.0, 1.0, 100.0, 3));
        assert_eq!(Timing::from_samples(&[], 1), None);
    }

    #[test]
    fn short_work_is_run_many_times_and_long_work_once() {
        let times = |ns: u64| {
            let most = Cell::new(0);
            let limits = Limits { seconds: 0.0, stop: &|| false };
            let timing = time(&limits, &mut |runs| {
                most.set(runs);
                Ok(Duration::from_nanos(ns * runs))
            });
            (most.get(), timing.unwrap().unwrap())
        };
        let (runs, short) = times(20_000);
        assert_eq!((runs, short.runs, short.samples, short.median_ns), (100, 100, 1, 20_000.0));
        let (runs, long) = times(1_000_000_000);
        assert_eq!((runs, long.runs, long.samples, long.median_ns), (1, 1, 1, 1e9));
    }

    #[test]
    fn an_end_is_an_end() {
        let limits = Limits { seconds: 1e9, stop: &|| true };
        assert_eq!(time(&limits, &mut |_| panic!("nothing is run")).unwrap(), None);
    }
}
