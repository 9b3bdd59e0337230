//! `--shard`: which runs of the whole are this machine's, and what the result says of it.

use lab::results::Shard;
use serde_json::{Map, Value};

use crate::args::{Cli, Command, Part, ScanArgs};
use crate::exit::{Failure, Result};

/// What a part's result says; `None` where nothing was divided.
pub(super) fn of(scan: &ScanArgs, asked: Map<String, Value>, whole: Vec<String>) -> Option<Shard> {
    let part = scan.shard?;
    let version = ("version".to_string(), env!("CARGO_PKG_VERSION").into());
    Some(Shard { index: part.index, count: part.count, asked: asked.into_iter().chain([version]).collect(), whole })
}

/// Those of the whole that are this part's; all where nothing was divided.
pub(super) fn mine<T>(part: Option<Part>, whole: Vec<T>) -> Vec<T> {
    let has = |position: usize| part.is_none_or(|part| part.has(position));
    whole.into_iter().enumerate().filter(|(position, _)| has(*position)).map(|(_, run)| run).collect()
}

/// A point by its values.
pub(super) fn named(point: &[(String, String)]) -> String {
    point.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Refuses `--shard` where there is one run only.
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
