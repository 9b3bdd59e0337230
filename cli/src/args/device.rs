//! Flags of the device, its size, and its allocator.

use clap::builder::PossibleValuesParser;
use lab::bytes::MemorySize;
use lab::run::{AllocatorName, AllocatorSpec};

use super::values;
use crate::backends;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// What computes. `auto` takes the first that works; `meta` accounts for memory and computes nothing [default: auto].
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(backends::names()))]
    pub backend: Option<String>,
    /// Which of the backend's devices, as `vramlab devices` numbers them [default: 0].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// How large the device may be taken to be, and how its memory is handed out.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct AllocatorArgs {
    /// Give the device only this much memory (8GiB, 512MiB, bytes): it runs out there as a smaller one would.
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<MemorySize>,
    /// Let the allocator take no more than this share of the device, as set_per_process_memory_fraction does.
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, in the syntax of PYTORCH_ALLOC_CONF.
    #[arg(long, value_name = "SETTINGS")]
    pub alloc_conf: Option<String>,
    /// How memory is handed out: by PyTorch's caching allocator (caching), or every request straight from the driver (direct) [default: caching].
    #[arg(long, value_name = "POLICY", value_parser = values::one_of::<AllocatorName>(AllocatorName::NAMES))]
    pub allocator: Option<AllocatorName>,
}

impl AllocatorArgs {
    /// Returns the flags as fields of a run.
    pub(crate) fn spec(&self) -> AllocatorSpec {
        let Self { memory_limit, memory_fraction, alloc_conf, allocator } = self.clone();
        AllocatorSpec { memory_limit, memory_fraction, alloc_conf, allocator }
    }
}
