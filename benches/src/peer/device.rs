//! The devices that the workloads run on.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use backend_cpu::Cpu;
use backend_cuda::Cuda;
use backend_wgpu::Wgpu;
use memcore::Device;
use memcore::backend::{Backend, Tf32};

/// The device that `--device` names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU with this index.
    Cuda(usize),
    /// The adapter with this index, as `vramlab devices` lists them.
    Wgpu(usize),
}

/// An opened device, with its properties for the JSON line.
pub(crate) struct Opened {
    pub(crate) device: Device,
    pub(crate) name: &'static str,
    /// Threads that compute on the host.
    pub(crate) threads: usize,
}

impl Chosen {
    /// Parses `cpu`, `cuda` or `wgpu`; the last two may have `:N`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text.split_once(':').unwrap_or((text, "0")) {
            ("cpu", "0") => Ok(Chosen::Cpu),
            ("cuda", index) => Ok(Chosen::Cuda(index.parse().with_context(|| format!("--device {text}"))?)),
            ("wgpu", index) => Ok(Chosen::Wgpu(index.parse().with_context(|| format!("--device {text}"))?)),
            _ => bail!("no device {text}: cpu, cuda, wgpu, cuda:N or wgpu:N"),
        }
    }

    /// Opens the device, with fresh memory; on an NVIDIA GPU the launches of a step may be one graph.
    pub(crate) fn open(self, cuda_graph: bool) -> Result<Opened> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(match self {
            Chosen::Cpu => {
                let cpu = Cpu::new()?;
                let threads = cpu.threads();
                Opened { device: Device::builder(Arc::new(cpu)).build(), name: "cpu", threads }
            }
            Chosen::Cuda(index) => {
                let cuda = Cuda::open(index)?;
                // PyTorch's default, which this is compared with. A card without TF32 computes in float32, in both
                // programs.
                let _ = cuda.allow_tf32(Tf32::Convolutions);
                if cuda_graph {
                    cuda.use_graphs()?;
                }
                Opened { device: Device::builder(Arc::new(cuda)).build(), name: "cuda", threads }
            }
            Chosen::Wgpu(index) => {
                let wgpu = Arc::new(Wgpu::open(index)?);
                Opened { device: Device::builder(wgpu).build(), name: "wgpu", threads }
            }
        })
    }
}
