//! How a run is spread: a network over devices, a batch over ranks.

use lab_training::pipeline;
use serde::{Deserialize, Serialize};

use crate::run::devices::{CutList, DeviceList};
#[cfg(feature = "flags")]
use crate::run::flags;

/// The split of a run over devices.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Split over devices"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ParallelSpec {
    /// The network's layers over devices.
    #[cfg_attr(feature = "flags", command(flatten))]
    #[serde(flatten)]
    pub split: SplitSpec,
    /// Each step's batch over ranks.
    #[cfg_attr(feature = "flags", command(flatten))]
    #[serde(flatten)]
    pub ranks: RanksSpec,
}

/// A network whose layers are on several devices.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Split over devices"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct SplitSpec {
    /// Split the network over these devices, in this order, by its layers: cpu:0,cpu:1 (predict: meta:0,meta:1). cpu and meta have as many devices
    /// as are named, each with its own allocator and ledger.
    #[cfg_attr(feature = "flags", arg(long, value_name = "A:0,B:1"))]
    pub devices: Option<DeviceList>,
    /// Cut each batch into this many micro-batches [default: 1].
    #[cfg_attr(feature = "flags", arg(long, value_name = "K"))]
    pub micro_batches: Option<usize>,
    /// Cut the network before these pieces (mlp, small networks, model files: a layer; gpt, config.json: embedding, blocks, output; a .pt2: as
    /// `vramlab show --full` numbers them) [default: so
    /// that the largest share of the parameters is as small as possible].
    #[cfg_attr(feature = "flags", arg(long, value_name = "1,2"))]
    pub cut: Option<CutList>,
    /// Order of the micro-batches' passes: all forward passes first (gpipe), or one forward, one backward (1f1b) [default: 1f1b].
    #[cfg_attr(feature = "flags", arg(long, value_name = "ORDER", value_parser = flags::one_of::<pipeline::Schedule>(pipeline::Schedule::NAMES)))]
    pub pipeline_schedule: Option<pipeline::Schedule>,
}

/// A step that is divided among ranks.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Split over devices"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RanksSpec {
    /// Divide each step's batch among this many ranks, each with the whole network on a device of its own (meta only; PyTorch's
    /// DistributedDataParallel). Only the first and the last rank are run, because all hold the same.
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub data_parallel: Option<usize>,
    /// ZeRO: also divide the optimizer's states (1), gradients (2), parameters (3), or nothing (0). A 16-bit --precision comes with float32 master
    /// weights, as in the paper.
    #[cfg_attr(feature = "flags", arg(long, value_name = "STAGE"))]
    pub zero: Option<u8>,
    /// Keep gradients in the buckets in which they are reduced (DistributedDataParallel's option).
    #[cfg_attr(feature = "flags", arg(long))]
    #[serde(with = "super::switch")]
    pub gradient_as_bucket_view: bool,
    /// With --accumulate: reduce the gradients after every micro-batch, as a loop without no_sync() does (DistributedDataParallel) [default: after the
    /// last one alone].
    #[cfg_attr(feature = "flags", arg(long))]
    #[serde(with = "super::switch")]
    pub sync_each: bool,
}
