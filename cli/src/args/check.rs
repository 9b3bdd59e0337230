//! Flags of `check`, which compares runs with their earlier memory.

use std::path::PathBuf;
use std::str::FromStr;

use lab::lock;
use lab::run::{DeviceSpec, RunSpec};

use super::{DryRunArgs, OutputArgs, values};

/// Help of `--backend` here, where another backend is the usual one.
const BACKEND: &str = "Backend of the runs. `meta` computes nothing: the figures are the same on every machine, and it is fast [default: meta]";

/// `vramlab check`
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("backend", |arg| arg.help(BACKEND)))]
pub(crate) struct CheckArgs {
    /// The lock file: runs, the flags that repeat them, and the memory that they took.
    #[arg(long, value_name = "FILE", help_heading = "Check")]
    pub baseline: PathBuf,
    /// Write to the file instead of failing: the run that the other flags describe or, without any, all runs of the file, measured anew.
    #[arg(long, help_heading = "Check")]
    pub update: bool,
    /// Name of the run in the file [default: all of them; with --update and flags of a run: default].
    #[arg(long, value_name = "NAME", help_heading = "Check")]
    pub name: Option<String>,
    /// Growth that still passes: bytes (1MiB), or a share (2%).
    #[arg(long, value_name = "BYTES|PERCENT", default_value = "0", help_heading = "Check")]
    pub tolerance: Tolerance,
    /// Also fail if the list of events differs in any way, or if memory shrank.
    #[arg(long, help_heading = "Check")]
    pub strict: bool,
    #[command(flatten)]
    pub device: DeviceSpec,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CheckArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        RunSpec { device: self.device.clone(), ..self.dry_run.spec() }
    }
}

/// A tolerance, as typed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tolerance {
    /// The text as typed.
    pub text: String,
    /// The parsed tolerance.
    pub value: lock::Tolerance,
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = match text.trim().strip_suffix('%') {
            Some(percent) => lock::Tolerance::Percent(values::non_negative(percent.trim())?),
            None => lock::Tolerance::Bytes(lab::bytes::parse(text)?),
        };
        Ok(Self { text: text.trim().into(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_bytes_or_shares() {
        let value = |text: &str| text.parse::<Tolerance>().map(|t| t.value);
        assert_eq!(value("1MiB"), Ok(lock::Tolerance::Bytes(1 << 20)));
        assert_eq!(value("2.5 %"), Ok(lock::Tolerance::Percent(2.5)));
        for text in ["-1", "-1%", "%", "much", "nan%"] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
