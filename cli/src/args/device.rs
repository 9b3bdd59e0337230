//! Which device, how large, and how its memory is handed out.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;

use super::values;
use crate::backends;

/// Which device.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// What computes. `auto` takes the first that works; `meta` accounts for memory and computes nothing.
    #[arg(long, value_name = "NAME", default_value = backends::AUTO,
        value_parser = PossibleValuesParser::new(backends::names()))]
    pub backend: String,
    /// Which of the backend's devices, as `vramlab devices` numbers them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}

/// How large the device may be taken to be, and how its memory is handed out.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct AllocatorArgs {
    /// Pretend that the device has only this much memory (8GiB, 512MiB, bytes), through the real out-of-memory path.
    #[arg(long, value_name = "SIZE", value_parser = values::memory_of_device)]
    pub memory_limit: Option<u64>,
    /// Let the allocator take no more than this share of the device, as set_per_process_memory_fraction does.
    #[arg(long, value_name = "F", value_parser = values::fraction)]
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, in the syntax of PYTORCH_ALLOC_CONF.
    #[arg(long, value_name = "SETTINGS")]
    pub alloc_conf: Option<String>,
    /// How memory is handed out: PyTorch's caching allocator, or every request straight from the driver.
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    pub allocator: AllocatorName,
}

/// An allocation policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllocatorName {
    /// PyTorch's.
    #[default]
    Caching,
    /// No cache.
    Direct,
}

impl AllocatorName {
    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AllocatorName::Caching => "caching",
            AllocatorName::Direct => "direct",
        }
    }
}

impl AllocatorArgs {
    /// Whether the user said how much memory there is to be.
    pub(crate) fn limits(&self) -> bool {
        self.memory_limit.is_some() || self.memory_fraction.is_some_and(|fraction| fraction < 1.0)
    }
}
