//! A recorded run in the format of `golden/README.md`.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::caching::{AllocatorConfig, TorchVersion};
use memcore::memory::{Caching, Event};
use memcore::profile::Convolution;
use memcore::{Device, Profile};
use serde_json::Value;

/// Suffix of a recording's name if it is not for compute capability 9.0 and default settings. The file has the values.
const VARIANTS: [&str; 10] = [
    "",
    "_sm80",
    "_sm75",
    "_sm70",
    "_sm60",
    "_ltunified0",
    "_ltsize_32",
    "_ltsize_32_unified0",
    "_ltsize_65536",
    "_ws_16_8",
];

pub(crate) struct Recording {
    file: Value,
}

/// One row: its label, and the figures in the order of `lab::record::COLUMNS`.
pub(crate) struct RecordedRow {
    pub(crate) label: String,
    pub(crate) figures: Vec<u64>,
}

/// Memory events in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Alloc(u64),
    /// Index of the allocation, from 0.
    Free(u64),
    /// A segment or pages: the kind as in `ev`, and the size.
    Driver(char, u64),
    Oom(u64),
}

impl Recording {
    fn path(name: &str) -> String {
        format!("{}/tests/golden/{name}.json.gz", env!("CARGO_MANIFEST_DIR"))
    }

    pub(crate) fn load(name: &str) -> Self {
        let path = Self::path(name);
        let mut text = String::new();
        let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        Self { file: serde_json::from_str(&text).unwrap() }
    }

    /// The program, if the recording contains it.
    pub(crate) fn program(&self) -> &Value {
        &self.file["program"]
    }

    /// Recordings of the same program with other releases of PyTorch, cards and workspace settings.
    pub(crate) fn of_others(name: &str) -> Vec<Self> {
        let named = |minor, variant: &str| format!("torch-2.{minor}/{name}{variant}");
        let names = (4..=15).flat_map(|minor| VARIANTS.map(|variant| named(minor, variant)));
        let is_recorded = |name: &String| std::fs::exists(Self::path(name)).unwrap();
        names.filter(is_recorded).map(|name| Self::load(&name)).collect()
    }

    /// Release of PyTorch.
    pub(crate) fn release(&self) -> &str {
        self.text("torch")
    }

    /// Further variables of its environment.
    pub(crate) fn environment(&self) -> String {
        self.file["env"].to_string()
    }

    fn text(&self, key: &str) -> &str {
        self.file[key].as_str().unwrap()
    }

    /// Device with the run's memory, compute capability, allocator settings and environment.
    pub(crate) fn device(&self) -> Device {
        let total_bytes = self.file["capacity"].as_u64().unwrap();
        let meta = Arc::new(Meta::new(DeviceProfile { total_bytes, ..DeviceProfile::default() }));
        let sm = self.text("device").strip_prefix("FakeCUDA sm_").unwrap();
        let release = self.release().rsplit_once('.').unwrap().0;
        // A release without a profile gets the nearest one.
        let name = format!("torch-{release}-sm{sm}");
        let nearest = || Profile::nearest(&name).and_then(|nearest| Profile::named(nearest.name));
        let mut profile = Profile::named(&name).or_else(nearest).unwrap();
        let version = TorchVersion::of_release(profile.release.unwrap().minor);
        for (variable, value) in self.file["env"].as_object().unwrap() {
            let value = value.as_str().unwrap();
            match variable.as_str() {
                "FAKECUDNN_WS" => {
                    profile.convolution = Convolution::Cudnn { workspace_bytes: value.parse().unwrap() };
                    // It names the same bytes for every plan.
                    profile.cudnn_attention_repeats_gradients = false;
                }
                "ORACLE_CUDNN" | "FAKECUDA_SM" | "FAKECUDA_MEM" | "PYTORCH_ALLOC_CONF" => {}
                _ => profile = profile.with_environment(variable, value).unwrap(),
            }
        }
        profile.channels_last = self.text("name").starts_with("l_");
        let mut config = AllocatorConfig::for_version(version);
        config.update(self.text("alloc_conf")).unwrap();
        let allocator = Caching::new(meta.clone(), config).unwrap();
        Device::builder(meta).profile(profile).allocator(Box::new(allocator)).history(true).build()
    }

    pub(crate) fn rows(&self) -> Vec<RecordedRow> {
        let row = |row: &Value| RecordedRow {
            label: row[0].as_str().unwrap().into(),
            figures: row.as_array().unwrap()[1..].iter().map(|v| v.as_u64().unwrap()).collect(),
        };
        self.file["steps"].as_array().unwrap().iter().map(row).collect()
    }

    fn numbers(&self, key: &str) -> impl Iterator<Item = u64> {
        self.file[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap())
    }

    pub(crate) fn events(&self) -> Vec<Step> {
        let (mut sizes, mut freed) = (self.numbers("ev_size"), self.numbers("ev_free_ref"));
        let step = |kind: char| match kind {
            'f' => Some(Step::Free(freed.next().unwrap())),
            'a' => Some(Step::Alloc(sizes.next().unwrap())),
            'o' => Some(Step::Oom(sizes.next().unwrap())),
            'S' | 'F' | 'M' | 'U' => Some(Step::Driver(kind, sizes.next().unwrap())),
            _ => panic!("event {kind}"),
        };
        self.text("ev").chars().filter_map(step).collect()
    }

    /// Driver calls of a run whose frees wait for another stream.
    pub(crate) fn segments(&self) -> Vec<Step> {
        let mut sizes = self.numbers("ev_size");
        let sized = |kind: char| (kind != 'f' && kind != 'c').then(|| (kind, sizes.next().unwrap()));
        let driver = |(kind, bytes)| matches!(kind, 'S' | 'F').then_some(Step::Driver(kind, bytes));
        self.text("ev").chars().filter_map(sized).filter_map(driver).collect()
    }

    /// Origin of each allocation.
    pub(crate) fn allocated_by(&self) -> Vec<&str> {
        let kinds = self.text("ev").chars().filter(|kind| matches!(kind, 'a' | 'f' | 'q'));
        kinds.zip(self.made_by()).filter(|(kind, _)| *kind == 'a').map(|(_, name)| name).collect()
    }

    /// Allocation and origin of each free, in the order of the allocations.
    pub(crate) fn freed_by(&self) -> Vec<(u64, &str)> {
        let kinds = self.text("ev").chars().filter(|kind| matches!(kind, 'a' | 'f' | 'q'));
        let frees = kinds.zip(self.made_by()).filter(|(kind, _)| *kind != 'a');
        let mut freed: Vec<(u64, &str)> = self.numbers("ev_free_ref").zip(frees.map(|(_, name)| name)).collect();
        freed.sort_unstable();
        freed
    }

    /// Origins of all allocations and frees.
    pub(crate) fn made_by(&self) -> Vec<&str> {
        let names: Vec<&str> =
            self.file["op_names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        self.numbers("ev_op").map(|i| names[i as usize]).collect()
    }
}

/// Origin of each allocation in the device's history.
pub(crate) fn allocated_by(device: &Device) -> Vec<String> {
    let label = |event: &Event| match event {
        Event::Alloc { origin, .. } => Some(memcore::context::label(origin.node, origin.op)),
        _ => None,
    };
    device.with_ledger(|ledger| ledger.history().iter().filter_map(label).collect())
}

/// Origin of each free in the device's history, in the order of the allocations.
///
/// PyTorch's profiler does not see frees by the program, and reports sizes, not allocations. The recording gave each free the next label that it
/// saw if the size was the same. This function does the same.
pub(crate) fn freed_by(device: &Device) -> Vec<(u64, String)> {
    let mut sizes = HashMap::new();
    let mut freed: Vec<(u64, u64, String)> = Vec::new();
    let mut seen: VecDeque<Option<(u64, String)>> = VecDeque::new();
    let mut order = Vec::new();
    device.with_ledger(|ledger| {
        for event in ledger.history() {
            match event {
                Event::Alloc { id, bytes, .. } => {
                    sizes.insert(id.0, *bytes);
                    seen.push_back(None);
                    order.push(None);
                }
                Event::Free { id, origin } => {
                    let (bytes, label) = (sizes[&id.0], memcore::context::label(origin.node, origin.op));
                    order.push(Some((id.0, bytes)));
                    if !label.is_empty() {
                        seen.push_back(Some((bytes, label)));
                    }
                }
                _ => {}
            }
        }
    });
    for event in order {
        let Some((id, bytes)) = event else {
            // The allocation itself.
            seen.pop_front();
            continue;
        };
        let label = match seen.front() {
            Some(Some((size, _))) if *size == bytes => seen.pop_front().flatten().map(|(_, label)| label),
            _ => None,
        };
        freed.push((id, bytes, label.unwrap_or_default()));
    }
    freed.sort_unstable();
    freed.into_iter().map(|(id, _, label)| (id, label)).collect()
}

/// The device's history in the same form.
pub(crate) fn events(device: &Device) -> Vec<Step> {
    let step = |event: &Event| match *event {
        Event::Alloc { requested_bytes, .. } => Some(Step::Alloc(requested_bytes)),
        Event::Free { id, .. } => Some(Step::Free(id.0)),
        Event::SegmentAlloc { bytes, .. } => Some(Step::Driver('S', bytes)),
        Event::SegmentFree { bytes, .. } => Some(Step::Driver('F', bytes)),
        Event::SegmentMap { bytes, .. } => Some(Step::Driver('M', bytes)),
        Event::SegmentUnmap { bytes, .. } => Some(Step::Driver('U', bytes)),
        Event::Oom { requested_bytes, .. } => Some(Step::Oom(requested_bytes)),
        _ => None,
    };
    device.with_ledger(|ledger| ledger.history().iter().filter_map(step).collect())
}

/// Every recording has a test: each recording of another release is of a program of 2.11, with the same name or with a variant's suffix.
#[test]
fn recordings_of_other_releases_belong_to_programs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let entries = |folder: &str| {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    for release in entries(folder).filter(|name| name.starts_with("torch-")) {
        for name in entries(&format!("{folder}/{release}")).filter(|name| !name.starts_with("split_")) {
            let name = name.strip_suffix(".json.gz").unwrap();
            let program =
                |end: &str| name.strip_suffix(end).is_some_and(|name| std::fs::exists(Recording::path(name)).unwrap());
            assert!(VARIANTS.into_iter().any(program), "{release}/{name}");
        }
    }
}
