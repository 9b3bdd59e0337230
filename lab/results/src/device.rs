//! A device, and all that a build sees (`vramlab-devices-1`).

use lab_base::figures::{counted, short};
use lab_base::section::{Cell, Section, Table};
use memcore::backend::Backend;
use serde::{Deserialize, Serialize};

use super::findings::Findings;

/// A device. Bytes; null if the device does not say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The backend's name.
    pub backend: String,
    /// Its number in the backend.
    pub index: usize,
    /// Its own name.
    pub name: String,
    /// True if it holds values.
    pub computes: bool,
    /// True if its memory is the host's own.
    #[serde(default)]
    pub host_memory: bool,
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Free memory.
    pub free_bytes: Option<u64>,
    /// The largest segment that can be taken at once; null if all of the memory can.
    pub max_segment_bytes: Option<u64>,
    /// The largest operand of a kernel; null if there is no limit.
    pub max_binding_bytes: Option<u64>,
    /// Types that it computes with.
    pub dtypes: Vec<String>,
}

impl DeviceInfo {
    /// Asks a device for its properties.
    pub fn from_backend(backend: &dyn Backend, index: usize) -> Self {
        let (memory, limits) = (backend.memory_info(), backend.limits());
        Self {
            backend: backend.name().to_string(),
            index,
            name: backend.device_name(),
            computes: backend.computes(),
            host_memory: backend.host_memory(),
            total_bytes: memory.map(|m| m.total_bytes),
            free_bytes: memory.map(|m| m.free_bytes),
            max_segment_bytes: Some(limits.max_segment_bytes)
                .filter(|&bytes| memory.is_none_or(|m| bytes < m.total_bytes)),
            max_binding_bytes: Some(limits.max_binding_bytes).filter(|&bytes| bytes < u64::MAX),
            dtypes: limits.dtypes.iter().map(|dtype| dtype.name().to_string()).collect(),
        }
    }
}

/// Every device of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Devices {
    /// Devices, in order of preference.
    pub devices: Vec<SeenDevice>,
}

/// A device, or the reason why it is absent; then its properties are null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeenDevice {
    /// The backend's name.
    pub backend: String,
    /// Its number in the backend.
    pub index: Option<usize>,
    /// Its own name.
    pub name: Option<String>,
    /// True if it holds values.
    pub computes: Option<bool>,
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Free memory.
    pub free_bytes: Option<u64>,
    /// The largest segment that can be taken at once.
    pub max_segment_bytes: Option<u64>,
    /// The largest operand of a kernel.
    pub max_binding_bytes: Option<u64>,
    /// Types that it computes with.
    pub dtypes: Vec<String>,
    /// `processor`, `discrete`, `integrated`, `software`, …
    pub kind: Option<String>,
    /// Optional features that kernels may use.
    pub features: Vec<String>,
    /// True if it can be opened.
    pub available: bool,
    /// Why it cannot be opened.
    pub reason: Option<String>,
}

impl SeenDevice {
    /// A device that was opened.
    pub fn opened(info: DeviceInfo) -> Self {
        Self {
            backend: info.backend,
            index: Some(info.index),
            name: Some(info.name),
            computes: Some(info.computes),
            total_bytes: info.total_bytes,
            free_bytes: info.free_bytes,
            max_segment_bytes: info.max_segment_bytes,
            max_binding_bytes: info.max_binding_bytes,
            dtypes: info.dtypes,
            available: true,
            ..Self::default()
        }
    }

    /// Its special properties, or why it is absent, in a sentence; `None` if there is nothing to say.
    fn particulars(&self) -> Option<String> {
        if let Some(reason) = &self.reason {
            let own = format!("backend {}: ", self.backend);
            return Some(format!("{}: {}", self.backend, reason.strip_prefix(&own).unwrap_or(reason)));
        }
        let limit = |what: &str, limit: Option<u64>| limit.map(|limit| format!("{what} up to {}", short(limit)));
        let limits = [limit("segments", self.max_segment_bytes), limit("operands", self.max_binding_bytes)];
        let features = Some(self.features.join(", ")).filter(|list| !list.is_empty());
        let parts: Vec<String> = limits.into_iter().chain([features]).flatten().collect();
        let (index, kind) = (self.index.unwrap_or(0), self.kind.as_deref().unwrap_or_default());
        (!parts.is_empty()).then(|| format!("{}: device {index} is {kind}: {}", self.backend, parts.join(", ")))
    }

    fn row(&self) -> Vec<Cell> {
        let name = self.name.clone().unwrap_or_else(|| "absent".into());
        let types: Vec<String> = self.dtypes.iter().map(|name| abbreviated(name)).collect();
        vec![
            Cell::Text(self.backend.clone()),
            self.index.map_or_else(Cell::unknown, |index| Cell::Text(index.to_string())),
            Cell::Text(name),
            Cell::bytes(self.total_bytes),
            Cell::bytes(self.free_bytes),
            Cell::Text(types.join(" ")),
        ]
    }
}

/// `f32` for `float32`.
fn abbreviated(dtype: &str) -> String {
    let prefixes = [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")];
    let shorter = prefixes.iter().find_map(|(long, short)| Some(format!("{short}{}", dtype.strip_prefix(long)?)));
    shorter.unwrap_or_else(|| dtype.into())
}

impl Findings for Devices {
    const SCHEMA: &'static str = "vramlab-devices-1";

    fn title(&self) -> String {
        let named = |there: bool| {
            let names = self.devices.iter().filter(move |device| device.available == there);
            names.map(|device| match device.index {
                Some(index) => format!("{}:{index}", device.backend),
                None => device.backend.clone(),
            })
        };
        let (there, absent) = (named(true).collect::<Vec<_>>(), named(false).collect::<Vec<_>>());
        let absent = if absent.is_empty() { String::new() } else { format!("; absent: {}", absent.join(", ")) };
        format!("{}: {}{absent}", counted(there.len() as u64, "device"), there.join(", "))
    }

    fn sections(&self) -> Vec<Section> {
        let columns = ["backend", "device", "name", "memory", "free", "types"];
        let table = Table::new("", &columns, self.devices.iter().map(SeenDevice::row).collect());
        let notes = self.devices.iter().filter_map(SeenDevice::particulars).map(Section::Note);
        std::iter::once(Section::List(table)).chain(notes).collect()
    }
}

#[cfg(test)]
mod tests {
    use memcore::DType;

    use super::*;

    #[test]
    fn types_have_short_names() {
        let all = [
            DType::F64,
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::I64,
            DType::I32,
            DType::I8,
            DType::U8,
            DType::Bool,
        ];
        let names = all.map(|dtype| abbreviated(dtype.name()));
        assert_eq!(names, ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"]);
    }
}
