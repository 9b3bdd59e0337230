//! Adapters of the installed drivers.

use std::sync::OnceLock;

use memcore::DType;
use memcore::error::{Error, Result};
use wgpu::{Adapter, Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

use crate::NAME;

/// Properties of an adapter that are known before it is opened.
#[derive(Clone, Debug)]
pub struct AdapterInfo {
    /// Name, as the driver gives it, with the graphics API through which it is reached.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`.
    pub api: &'static str,
    /// `discrete`, `integrated`, `virtual`, `software`, `other`.
    pub kind: &'static str,
    /// True if it computes on the host's processor.
    pub is_software: bool,
    /// True if it is a discrete card.
    pub is_discrete: bool,
    /// Size of the largest buffer, and so of the largest segment.
    pub max_segment_bytes: u64,
    /// The largest range of one operand that a kernel can bind.
    pub max_binding_bytes: u64,
    /// Features that kernels could use: `f16`, `subgroup`, `timestamps`.
    pub features: Vec<&'static str>,
    /// Element types that the backend computes with on this adapter.
    pub dtypes: Vec<DType>,
}

/// Element types for which kernels exist on every adapter. 16-bit floats are stored packed in words and computed in
/// f32, so that they need no feature.
pub(crate) const DTYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];

impl AdapterInfo {
    fn from_adapter(adapter: &Adapter) -> Self {
        let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
        let known = [
            ("f16", wgpu::Features::SHADER_F16),
            ("subgroup", wgpu::Features::SUBGROUP),
            ("timestamps", wgpu::Features::TIMESTAMP_QUERY),
        ];
        let api = info.backend.to_str();
        Self {
            name: format!("{} ({api})", info.name),
            api,
            kind: match info.device_type {
                DeviceType::DiscreteGpu => "discrete",
                DeviceType::IntegratedGpu => "integrated",
                DeviceType::VirtualGpu => "virtual",
                DeviceType::Cpu => "software",
                DeviceType::Other => "other",
            },
            is_software: info.device_type == DeviceType::Cpu,
            is_discrete: info.device_type == DeviceType::DiscreteGpu,
            max_segment_bytes: limits.max_buffer_size,
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            features: known.iter().filter(|(_, f)| features.contains(*f)).map(|(name, _)| *name).collect(),
            dtypes: DTYPES.to_vec(),
        }
    }
}

/// Sort key: discrete cards first, software last.
fn rank(adapter: &Adapter) -> u8 {
    match adapter.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

/// Every adapter, discrete cards first. The drivers are asked once: a card does not appear while a program runs, and
/// each query loads the drivers anew.
fn all() -> &'static [Adapter] {
    static ALL: OnceLock<Vec<Adapter>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut descriptor = InstanceDescriptor::new_without_display_handle();
        descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
        descriptor.flags = InstanceFlags::empty().with_env();
        let instance = Instance::new(descriptor);
        let mut adapters = pollster::block_on(instance.enumerate_adapters(Backends::all()));
        adapters.sort_by_key(rank);
        adapters
    })
}

/// Returns every adapter, discrete cards first and software last; [`Wgpu::open`](crate::Wgpu::open) takes an index of
/// this list. Empty without a driver.
pub fn adapters() -> Vec<AdapterInfo> {
    all().iter().map(AdapterInfo::from_adapter).collect()
}

/// Returns the adapter at `index`.
pub(crate) fn at(index: usize) -> Result<(Adapter, AdapterInfo)> {
    let all = all();
    if all.is_empty() {
        return Err(Error::backend(NAME, NO_ADAPTER));
    }
    let adapter = all.get(index).ok_or_else(|| {
        Error::backend(NAME, format!("there is no adapter {index}; numbers go from 0 to {}", all.len() - 1))
    })?;
    Ok((adapter.clone(), AdapterInfo::from_adapter(adapter)))
}

/// The message for a machine without a driver.
pub const NO_ADAPTER: &str = "no adapter: neither Vulkan, Metal nor DX12 found a device. Install the card's driver; for a \
software device on Debian or Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1";
