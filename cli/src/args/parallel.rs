//! `--devices`: a network split over several devices. `--data-parallel`: a step divided among many.

use lab::pipeline::Schedule;
use lab::run::{CutList, DeviceList, ParallelSpec};

use super::values;

/// A split over devices.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Split over devices")]
pub(crate) struct ParallelArgs {
    /// Split the network over these devices, in this order, by its layers: cpu:0,cpu:1 (predict: meta:0,meta:1). cpu and meta have as many devices
    /// as are named, each with its own allocator and ledger.
    #[arg(long, value_name = "A:0,B:1")]
    pub devices: Option<DeviceList>,
    /// Cut each batch into this many micro-batches [default: 1].
    #[arg(long, value_name = "K")]
    pub micro_batches: Option<usize>,
    /// Cut the network before these pieces (mlp, small networks, model files: a layer; gpt, config.json: embedding, blocks, output; a .pt2: as
    /// `vramlab show --full` numbers them) [default: so
    /// that the largest share of the parameters is as small as possible].
    #[arg(long, value_name = "1,2")]
    pub cut: Option<CutList>,
    /// Order of the micro-batches' passes: all forward passes first (gpipe), or one forward, one backward (1f1b) [default: 1f1b].
    #[arg(long, value_name = "ORDER", value_parser = values::one_of::<Schedule>(Schedule::NAMES))]
    pub pipeline_schedule: Option<Schedule>,
    #[command(flatten)]
    pub ranks: RanksArgs,
}

/// A step that is divided among ranks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Split over devices")]
pub(crate) struct RanksArgs {
    /// Divide each step's batch among this many ranks, each with the whole network on a device of its own (meta only; PyTorch's
    /// DistributedDataParallel). Only the first and the last rank are run, because all hold the same.
    #[arg(long, value_name = "N")]
    pub data_parallel: Option<usize>,
    /// ZeRO: also divide the optimizer's states (1), gradients (2), parameters (3), or nothing (0). A 16-bit --precision comes with float32 master
    /// weights, as in the paper.
    #[arg(long, value_name = "STAGE")]
    pub zero: Option<u8>,
    /// Keep gradients in the buckets in which they are reduced (DistributedDataParallel's option).
    #[arg(long)]
    pub gradient_as_bucket_view: bool,
    /// With --accumulate: reduce the gradients after every micro-batch, as a loop without no_sync() does (DistributedDataParallel) [default: after the
    /// last one alone].
    #[arg(long)]
    pub sync_each: bool,
}

impl RanksArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> ParallelSpec {
        ParallelSpec {
            data_parallel: self.data_parallel,
            zero: self.zero,
            gradient_as_bucket_view: self.gradient_as_bucket_view.then_some(true),
            sync_each: self.sync_each.then_some(true),
            ..ParallelSpec::default()
        }
    }
}

impl ParallelArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> ParallelSpec {
        let args = self.clone();
        ParallelSpec {
            devices: args.devices,
            micro_batches: args.micro_batches,
            cut: args.cut,
            pipeline_schedule: args.pipeline_schedule,
            ..args.ranks.spec()
        }
    }
}
