//! `--shard`: selects this machine's share of the runs, and records it in the result.

use lab::results::Shard;
use serde_json::{Map, Value};

use crate::args::{Cli, Command, Part, ScanArgs};
use crate::exit::{Failure, Result};

/// Returns the description of a part for its result; `None` if nothing was divided.
pub(super) fn from_scan(scan: &ScanArgs, asked: Map<String, Value>, whole: Vec<String>) -> Option<Shard> {
    let part = scan.shard?;
    let version = ("version".to_string(), env!("CARGO_PKG_VERSION").into());
    Some(Shard { index: part.index, count: part.count, asked: asked.into_iter().chain([version]).collect(), whole })
}

/// Returns the items of this part; all if nothing was divided.
pub(super) fn mine<T>(part: Option<Part>, whole: Vec<T>) -> Vec<T> {
    let has = |position: usize| part.is_none_or(|part| part.has(position));
    whole.into_iter().enumerate().filter(|(position, _)| has(*position)).map(|(_, run)| run).collect()
}

/// Names a point by its values.
pub(super) fn named(point: &[(String, String)]) -> String {
    point.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Refuses `--shard` for a single run.
///
/// # Errors
/// A command that is neither a scan nor a run of experiments.
pub(super) fn check_alone(cli: &Cli) -> Result<()> {
    let shard = match &cli.command {
        Command::Train(args) => args.scan.shard,
        Command::Predict(args) => args.scan.shard,
        #[cfg(target_os = "linux")]
        Command::Rehearse(args) => args.scan.shard,
        _ => None,
    };
    match shard {
        Some(_) => Err(Failure::usage("--shard: only a scan (-L, -P) and `run` have parts")),
        None => Ok(()),
    }
}
