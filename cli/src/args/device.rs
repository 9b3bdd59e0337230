//! Flags of the device, its size, and its allocator.

use clap::builder::PossibleValuesParser;
use lab::bytes::MemorySize;
use lab::run::{AllocatorName, AllocatorSpec};

use super::values;
use crate::backends;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Backend that computes. `auto` takes the first that works; `meta` only counts memory and computes nothing [default: auto].
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(backends::names()))]
    pub backend: Option<String>,
    /// Number of the backend's device, as `vramlab info devices` lists it [default: 0].
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// Size of the device, and policy of its allocator.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct AllocatorArgs {
    /// Give the device only this much memory (8GiB, 512MiB, bytes): it runs out of memory as a smaller device would.
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<MemorySize>,
    /// Limit the allocator to this share of the device, as set_per_process_memory_fraction does.
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, in the syntax of PYTORCH_ALLOC_CONF.
    #[arg(long, value_name = "SETTINGS")]
    pub alloc_conf: Option<String>,
    /// Allocator: PyTorch's caching allocator (caching), or every request directly from the driver (direct) [default: caching].
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
