//! Flags of `devices`, `list` and `run`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lab::run::{
    AllocatorSpec, CardSpec, DeviceList, DeviceSpec, ModelSpec, ParallelSpec, ProfileSpec, RunSpec, SplitSpec,
    TrainingSpec,
};

use super::{HtmlArgs, OutputArgs, ScanArgs};

/// `vramlab devices`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevicesArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab list`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab models`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ModelsArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `vramlab cards`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CardsArgs {
    /// Only these cards, with the sources of their figures [default: all].
    #[arg(value_name = "CARD")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Help of `--gpu` here, where the network has as much memory as it needs.
const GPU: &str = "The card that the figures are of: a name (rtx4090, a100-40, h200 …; `vramlab info cards` lists all), or the amount of memory for \
                   tensors (24GiB) [default: as much as is needed, with the workspaces of an H100]";

/// `vramlab run`
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("gpu", |arg| arg.help(GPU).help_heading(None::<&str>).conflicts_with_all(["backend", "device", "devices"])))]
pub(crate) struct RunArgs {
    /// Names of experiments, or `all`.
    #[arg(required_unless_present = "claims", value_name = "NAME")]
    pub names: Vec<String>,
    /// Show one table of the claims instead of the experiments: claim, source, verdict, number, condition. Without names, those of all experiments.
    #[arg(long)]
    pub claims: bool,
    /// Replace sizes of the experiment: batch=32,64 (`vramlab ask --full` names them).
    #[arg(long, value_name = "NAME=VALUES", value_parser = size_values)]
    pub set: Vec<(String, Vec<usize>)>,
    /// Ask about another network than the experiment's own, if its question allows that: batch-size, steady-state, release, cache. Such a network
    /// is measured, not predicted.
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = super::model::network())]
    pub model: Option<String>,
    /// Seed of all random numbers [default: 0].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Take flags from a file, with their names as keys. Typed flags override it.
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub card: CardSpec,
    /// Spread the network over these devices, in this order: cpu:0,wgpu:0. Only for an experiment that splits a network.
    #[arg(long, value_name = "A:0,B:1", conflicts_with_all = ["backend", "device"])]
    pub devices: Option<DeviceList>,
    #[command(flatten)]
    pub device: DeviceSpec,
    #[command(flatten)]
    pub allocator: AllocatorSpec,
    #[command(flatten)]
    pub profile: ProfileSpec,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
}

impl RunArgs {
    /// Returns the flags of the network and devices as fields of a run.
    pub(crate) fn spec(&self) -> RunSpec {
        let split = SplitSpec { devices: self.devices.clone(), ..SplitSpec::default() };
        RunSpec {
            model: ModelSpec { model: self.model.clone(), ..ModelSpec::default() },
            training: TrainingSpec { seed: self.seed, ..TrainingSpec::default() },
            profile: self.profile.clone(),
            allocator: self.allocator.clone(),
            card: self.card.clone(),
            device: self.device.clone(),
            parallel: ParallelSpec { split, ..ParallelSpec::default() },
            ..RunSpec::default()
        }
    }

    /// Returns the sizes to replace; the last one of a size that is given twice.
    pub(crate) fn sizes(&self) -> BTreeMap<String, Vec<usize>> {
        self.set.iter().cloned().collect()
    }
}

fn size_values(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, values) = text.split_once('=').ok_or("expected NAME=VALUES, as in batch=32,64")?;
    if name.is_empty() {
        return Err("the name is missing before '='".into());
    }
    let number = |value: &str| value.trim().parse().map_err(|e| format!("{value:?}: {e}"));
    let values: Vec<usize> = values.split(',').map(number).collect::<Result<_, String>>()?;
    Ok((name.to_string(), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_of_numbers() {
        assert_eq!(size_values("batch=32, 64"), Ok(("batch".into(), vec![32, 64])));
        for wrong in ["batch", "=3", "batch=", "batch=3,,4", "batch=-1", "batch=99999999999999999999999"] {
            assert!(size_values(wrong).is_err(), "{wrong}");
        }
    }
}
