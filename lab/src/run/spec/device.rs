//! Where a run's memory is: the card or device, whose temporaries are counted, and the allocator.

use lab_base::bytes::{ByteSize, MemorySize};
use memcore::profile::ConvolutionWorkspaces;
use serde::{Deserialize, Serialize};

use crate::run::choices::{AllocatorName, Tf32Choice, Variable};
#[cfg(feature = "flags")]
use crate::run::flags;
use crate::run::gpu::Gpu;

/// The profile: whose temporaries and workspaces are counted.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Memory"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ProfileSpec {
    /// Profile whose temporaries and workspaces are counted: a PyTorch release, or this program's own kernels (`native`; for predictions, `native:cpu`
    /// and similar names ask that backend for its workspaces) [default: that of the card in --gpu and of the release that exported the network, else
    /// torch-2.11-sm90].
    ///
    /// Releases are torch-2.7 to torch-2.15: on the card in --gpu, else on compute capability 9.0; or on another one with -sm120, -sm100 (both from
    /// 2.8 on), -sm90, -sm89, -sm86, -sm80, -sm75, -sm70 (up to 2.10) or -sm60 (2.7 only), such as torch-2.13-sm80.
    #[cfg_attr(feature = "flags", arg(long, value_name = "PROFILE"))]
    pub like: Option<String>,
    /// Count convolutions, batch norm and (on compute capability 9.0 and 10.0, in 16 bits) attention as in PyTorch with cuDNN: each call's plan takes
    /// a workspace of this many bytes, which only a card can tell; begin with 0 [default: without cuDNN].
    #[cfg_attr(feature = "flags", arg(long, value_name = "BYTES"))]
    pub cudnn_workspace: Option<ByteSize>,
    /// What convolutions take besides. Not a field of a run.
    #[cfg_attr(feature = "flags", arg(skip))]
    #[serde(skip)]
    pub convolutions: Convolutions,
    /// An environment variable for PyTorch, NAME=VALUE; can be given several times: CUBLAS_WORKSPACE_CONFIG, CUBLASLT_WORKSPACE_SIZE,
    /// TORCH_CUBLASLT_UNIFIED_WORKSPACE, TORCH_CUBLAS_WORKSPACE_CACHE. This program's own environment is ignored. (For PYTORCH_ALLOC_CONF use
    /// --alloc-conf.)
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAME=VALUE"))]
    pub env: Option<Vec<Variable>>,
    /// Multiprocessors of the card that a PyTorch profile stands for: some temporaries depend on their number [default: those of the named card, or
    /// of the best-known card with the profile's compute capability].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..)))]
    pub multiprocessors: Option<u16>,
}

/// What convolutions take besides their operands: no field of a run, but a further run for another figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convolutions {
    /// What the profile says.
    #[default]
    AsProfiled,
    /// The most that cuDNN may need.
    Copying,
    /// What cuDNN named.
    Named(ConvolutionWorkspaces),
}

/// How much memory there is, and how it is handed out.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Memory"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct AllocatorSpec {
    /// Give the device only this much memory (8GiB, 512MiB, bytes): it runs out of memory as a smaller device would.
    #[cfg_attr(feature = "flags", arg(long, value_name = "SIZE"))]
    pub memory_limit: Option<MemorySize>,
    /// Limit the allocator to this share of the device, as set_per_process_memory_fraction does.
    #[cfg_attr(feature = "flags", arg(long, value_name = "F", allow_negative_numbers = true))]
    pub memory_fraction: Option<f64>,
    /// Settings of the caching allocator, in the syntax of PYTORCH_ALLOC_CONF.
    #[cfg_attr(feature = "flags", arg(long, value_name = "SETTINGS"))]
    pub alloc_conf: Option<String>,
    /// Allocator: PyTorch's caching allocator (caching), or every request directly from the driver (direct) [default: caching].
    #[cfg_attr(feature = "flags", arg(long, value_name = "POLICY", value_parser = flags::one_of::<AllocatorName>(AllocatorName::NAMES)))]
    pub allocator: Option<AllocatorName>,
}

/// The card of a dry run.
#[cfg_attr(feature = "flags", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CardSpec {
    /// The card: a name (rtx4090, a100-40, h200 …; the CUDA context is subtracted from its memory; `vramlab info cards` lists all), or the amount of
    /// memory for tensors (24GiB) [default: more than any card has].
    #[cfg_attr(feature = "flags", arg(long, help_heading = flags::MOST_USED, value_name = "NAME|SIZE"))]
    pub gpu: Option<Gpu>,
}

/// The device. A dry run where no backend is named.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Device"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct DeviceSpec {
    /// Backend that computes. `auto` takes the first that works; `meta` only counts memory and computes nothing [default: auto].
    #[cfg_attr(feature = "flags", arg(long, value_name = "NAME"))]
    pub backend: Option<String>,
    /// Number of the backend's device, as `vramlab info devices` lists it [default: 0].
    #[cfg_attr(feature = "flags", arg(long, value_name = "N"))]
    pub device: Option<usize>,
}

/// How the device computes.
#[cfg_attr(feature = "flags", derive(clap::Args), command(next_help_heading = "Device"))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct KernelSpec {
    /// Launch a step's kernels as one CUDA graph once steps are alike: the same results and memory events, with fewer launches (cuda only).
    #[cfg_attr(feature = "flags", arg(long))]
    #[serde(with = "super::switch")]
    pub cuda_graph: bool,
    /// Compute products of float32 on tensor cores, with factors rounded to TF32: only those of convolutions (conv), as PyTorch does by default, or
    /// of matrices as well (all). They are faster and less exact, and take the same memory (cuda, from compute capability 8.0 on).
    #[cfg_attr(feature = "flags", arg(long, value_name = "WHICH", value_parser = flags::one_of::<Tf32Choice>(Tf32Choice::NAMES)))]
    pub tf32: Option<Tf32Choice>,
}
