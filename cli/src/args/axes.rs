//! Axes of a scan: options with their values, and the points that they form.

use clap::ArgMatches;
use lab::experiments;
use lab::run::RunSpec;

use super::Cli;
use super::words::given;
use crate::exit::{Failure, Result};

/// Largest number of points of a scan: more is a mistake in typing.
const MAX_POINTS: usize = 10_000;

/// One option and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// The option, without dashes.
    pub name: String,
    /// Its values, as they would be typed.
    pub values: Vec<String>,
}

/// Returns the axes of a command line, in its order.
///
/// # Errors
/// Options that the command lacks or that cannot be scanned; invalid ranges; too many points.
pub(super) fn axes(command: &str, matches: &ArgMatches) -> Result<Vec<Axis>> {
    // Commands that do not scan lack these options; asking clap for their values would panic.
    if matches.ids().all(|id| id != "parameter_list" && id != "parameter_scan" && id != "parameter_step_size") {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (words, at) in occurrences(matches, "parameter_list", 2) {
        let values: Vec<String> = words[1].split(',').map(|value| value.trim().to_string()).collect();
        if values.iter().any(String::is_empty) {
            return Err(Failure::usage(format!("-L {}: an empty value in {:?}", words[0], words[1])));
        }
        found.push((at, Axis { name: words[0].clone(), values }));
    }
    let mut steps = occurrences(matches, "parameter_step_size", 1);
    let ranges = occurrences(matches, "parameter_scan", 3);
    for (i, (words, at)) in ranges.iter().enumerate() {
        let next = ranges.get(i + 1).map_or(usize::MAX, |(_, next)| *next);
        let own: Vec<usize> = (0..steps.len()).filter(|&s| (*at..next).contains(&steps[s].1)).collect();
        let step = own.last().map_or("1".to_string(), |&s| steps[s].0[0].clone());
        own.into_iter().rev().for_each(|s| drop(steps.remove(s)));
        let values = range(&words[1], &words[2], &step)
            .map_err(|problem| Failure::usage(format!("-P {} {} {}: {problem}", words[0], words[1], words[2])))?;
        found.push((*at, Axis { name: words[0].clone(), values }));
    }
    if !steps.is_empty() {
        return Err(Failure::usage("-D: stands before any -P; it sets the step of the -P before it"));
    }
    found.sort_by_key(|(at, _)| *at);
    let axes: Vec<Axis> = found.into_iter().map(|(_, axis)| axis).collect();
    check(command, &axes)?;
    Ok(axes)
}

/// Returns the words of each occurrence of an option with `n` values, and its position.
fn occurrences(matches: &ArgMatches, id: &str, n: usize) -> Vec<(Vec<String>, usize)> {
    if !given(matches, id) {
        return Vec::new();
    }
    let words = matches.get_occurrences::<String>(id).into_iter().flatten().map(|o| o.cloned().collect::<Vec<_>>());
    let places = matches.indices_of(id).into_iter().flatten().step_by(n);
    words.filter(|words| words.len() == n).zip(places).collect()
}

fn check(command: &str, axes: &[Axis]) -> Result<()> {
    let mut root = Cli::declared();
    root.build();
    for (i, axis) in axes.iter().enumerate() {
        let name = axis.name.as_str();
        let known =
            root.find_subcommand(command).is_some_and(|sub| sub.get_arguments().any(|a| a.get_long() == Some(name)));
        // A rehearsal scans the user's own command: the name is looked up there.
        let scannable = command == "rehearse" || known && RunSpec::has_field(name) || command == "ask" && is_size(name);
        if !scannable {
            return Err(Failure::usage(format!("scan: {command} has no option --{name} that can be scanned")));
        }
        if axes[..i].iter().any(|other| other.name == name) {
            return Err(Failure::usage(format!("scan: --{name} is scanned twice")));
        }
    }
    let points = axes.iter().try_fold(1usize, |n, axis| n.checked_mul(axis.values.len()));
    match points {
        Some(points) if points <= MAX_POINTS => Ok(()),
        _ => Err(Failure::usage(format!("scan: more than {MAX_POINTS} combinations"))),
    }
}

/// True if an experiment has a size of that name.
pub(crate) fn is_size(name: &str) -> bool {
    experiments::ALL.iter().any(|experiment| experiment.sizes().iter().any(|size| size.name == name))
}

/// Returns the values from `min` to `max`; `max` is included if a step ends there.
fn range(min: &str, max: &str, step: &str) -> Result<Vec<String>, String> {
    if let (Ok(min), Ok(max), Ok(step)) = (min.parse::<i64>(), max.parse::<i64>(), step.parse::<i64>()) {
        if step < 1 || min > max {
            return Err("needs MIN up to MAX and a step above 0".into());
        }
        let count = (max.abs_diff(min) / step.unsigned_abs()).saturating_add(1);
        if count > MAX_POINTS as u64 {
            return Err(format!("more than {MAX_POINTS} values"));
        }
        return Ok((0..count as i64).map(|i| (min + i * step).to_string()).collect());
    }
    let number =
        |text: &str| text.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or(format!("{text:?} is not a number"));
    let (min, max, step) = (number(min)?, number(max)?, number(step)?);
    if step <= 0.0 || min > max {
        return Err("needs MIN up to MAX and a step above 0".into());
    }
    // The last value belongs to the range even if its sum is off by a rounding error.
    let count = ((max - min) / step * (1.0 + 1e-9)).floor() + 1.0;
    if count > MAX_POINTS as f64 {
        return Err(format!("more than {MAX_POINTS} values"));
    }
    Ok((0..count as u64).map(|i| trimmed(min + i as f64 * step)).collect())
}

/// Formats a value without the digits of rounding errors: 0.3, not 0.30000000000000004.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.12}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Returns every combination, the last axis fastest.
pub(crate) fn points(axes: &[Axis]) -> Vec<Vec<(String, String)>> {
    let mut points = vec![Vec::new()];
    for axis in axes {
        let with = |point: &Vec<(String, String)>, value: &String| {
            let mut point = point.clone();
            point.push((axis.name.clone(), value.clone()));
            point
        };
        points = points.iter().flat_map(|point| axis.values.iter().map(move |value| with(point, value))).collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes_of(words: &[&str]) -> Result<Vec<Axis>> {
        let words = ["vramlab", "train"].iter().chain(words).map(|w| w.to_string());
        let matches = Cli::declared().try_get_matches_from(words).unwrap();
        let (name, matches) = matches.subcommand().unwrap();
        axes(name, matches)
    }

    fn axis(name: &str, values: &[&str]) -> Axis {
        Axis { name: name.into(), values: values.iter().map(|v| v.to_string()).collect() }
    }

    #[test]
    fn lists_and_ranges_become_values_in_the_order_of_the_words() {
        let words = [
            "-P",
            "batch",
            "32",
            "100",
            "-D",
            "32",
            "-L",
            "optimizer",
            "sgd,adam",
            "-P",
            "lr",
            "0.1",
            "0.3",
            "-D",
            "0.1",
        ];
        let expected = [
            axis("batch", &["32", "64", "96"]),
            axis("optimizer", &["sgd", "adam"]),
            axis("lr", &["0.1", "0.2", "0.3"]),
        ];
        assert_eq!(axes_of(&words).unwrap(), expected);
        assert_eq!(axes_of(&[]).unwrap(), []);
        assert_eq!(axes_of(&["-P", "batch", "1", "3"]).unwrap(), [axis("batch", &["1", "2", "3"])]);
        assert_eq!(points(&expected).len(), 18);
        assert_eq!(points(&expected)[1][2], ("lr".to_string(), "0.2".to_string()));
    }

    #[test]
    fn what_cannot_be_scanned_is_an_error() {
        for (words, part) in [
            (&["-L", "nosuch", "1,2"][..], "no option --nosuch"),
            (&["-L", "json", "a,b"], "no option --json"),
            (&["-L", "batch", "1,,2"], "an empty value"),
            (&["-P", "batch", "3", "1"], "MIN up to MAX"),
            (&["-P", "batch", "1", "3", "-D", "0"], "a step above 0"),
            (&["-P", "batch", "1", "x"], "\"x\" is not a number"),
            (&["-P", "batch", "0", "9223372036854775807"], "more than 10000"),
            (&["-P", "batch", "-9223372036854775808", "9223372036854775807"], "more than 10000"),
            (&["-P", "lr", "0", "1", "-D", "1e-300"], "more than 10000"),
            (&["-D", "2"], "before any -P"),
            (&["-L", "batch", "1", "-L", "batch", "2"], "scanned twice"),
        ] {
            let failure = axes_of(words).expect_err(&format!("{words:?}"));
            assert!(failure.error.to_string().contains(part), "{words:?}: {}", failure.error);
        }
    }
}
