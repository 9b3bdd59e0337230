//! Memory of a run in its result: the peak, the rings, why memory ran out.

use std::collections::BTreeMap;

use lab_base::figures::short;
use lab_training::Accuracy;
use memcore::Device;
use memcore::memory::{Category, CategoryBytes, OutOfMemory, PeakComposition, Rings};
use serde::{Deserialize, Serialize};

/// Bytes by the category's name.
pub type ByCategory = BTreeMap<String, u64>;

/// Converts it for a result.
pub fn by_category(bytes: &CategoryBytes) -> ByCategory {
    Category::ALL.into_iter().map(|category| (category.name().to_string(), bytes[category as usize])).collect()
}

/// The moment at which most was allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeakResult {
    /// Bytes allocated then.
    pub bytes: u64,
    /// Row in which it was reached; null if no row has it.
    pub label: Option<String>,
    /// Operator whose allocation reached it, with the autograd node that it ran in.
    pub op: String,
    /// Module that was running; empty outside of any.
    pub scope: String,
    /// Phase of the step.
    pub phase: String,
    /// Bytes requested, of those allocated then.
    pub requested_bytes: u64,
    /// Peak of reserved memory in the whole run.
    pub reserved_bytes: u64,
    /// Bytes allocated then, by category.
    pub by_category: ByCategory,
    /// Modules that held most then, most first.
    pub by_scope: Vec<ScopeBytes>,
    /// Memory of the host that saved tensors took in the whole run; null if they are on the device.
    pub host: Option<HostBytes>,
}

/// Memory of the host that saved tensors take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostBytes {
    /// The most that all copies had at once.
    pub copies_bytes: u64,
    /// Pinned blocks that hold them, each a power of two, which PyTorch keeps; 0 if the copies are pageable.
    pub pinned_bytes: u64,
}

impl HostBytes {
    /// What a device's saved tensors took; `None` if none was copied.
    pub(super) fn of_device(device: &Device) -> Option<Self> {
        let usage = device.host().usage();
        (usage.copies_peak > 0).then_some(Self { copies_bytes: usage.copies_peak, pinned_bytes: usage.pinned })
    }

    fn in_words(self) -> String {
        let copies = short(self.copies_bytes);
        match self.pinned_bytes {
            0 => format!("On the host: {copies} of saved tensors."),
            pinned => format!("On the host: {copies} of saved tensors, in {} of pinned memory.", short(pinned)),
        }
    }
}

/// Categories that are named in a sentence.
const TOP_CATEGORIES: usize = 4;

/// Bytes that a module held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScopeBytes {
    /// Path of the module; empty outside of any.
    pub scope: String,
    /// Bytes that it held, by category.
    pub by_category: ByCategory,
}

impl PeakResult {
    /// Memory at the peak, without the allocation that reached it.
    pub fn from_peak(peak: &PeakComposition, reserved_bytes: u64) -> Self {
        Self {
            bytes: peak.allocated_bytes,
            requested_bytes: peak.requested_bytes,
            reserved_bytes,
            by_category: by_category(&peak.by_category),
            ..Self::default()
        }
    }

    /// Says who holds it: `At the peak (16.59 GiB, in backward): 10.58 GiB activations, 1.39 GiB optimizer state, 474.7 MiB parameters.`
    pub(super) fn held_in_words(&self) -> String {
        let mut held: Vec<(&String, u64)> = self.by_category.iter().map(|(name, bytes)| (name, *bytes)).collect();
        held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let held = held.into_iter().filter(|(_, bytes)| *bytes > 0).take(TOP_CATEGORIES);
        let held: Vec<String> = held.map(|(name, bytes)| format!("{} {}", short(bytes), several(name))).collect();
        let phase = if self.phase.is_empty() { String::new() } else { format!(", in {}", self.phase) };
        let host = self.host.map(|host| format!(" {}", host.in_words())).unwrap_or_default();
        format!("At the peak ({}{phase}): {}.{host}", short(self.bytes), held.join(", "))
    }

    /// Category that held most, and its bytes; `None` for an empty peak.
    pub fn mostly(&self) -> Option<(&str, u64)> {
        let most = self.by_category.iter().max_by_key(|(_, bytes)| **bytes)?;
        Some((most.0.as_str(), *most.1)).filter(|(_, bytes)| *bytes > 0)
    }
}

/// A category in the plural: `activations`, `optimizer state`.
fn several(category: &str) -> String {
    match category {
        "temporary" => "temporaries".into(),
        "activation" | "parameter" | "gradient" | "input" | "buffer" | "workspace" => format!("{category}s"),
        other => other.replace('_', " "),
    }
}

/// Five figures, each at least as large as the previous one, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingBytes {
    /// Bytes requested.
    pub requested: u64,
    /// Bytes in blocks.
    pub allocated: u64,
    /// Bytes in blocks, with blocks that were freed and are still in use by other streams.
    pub active: u64,
    /// Bytes in segments.
    pub reserved: u64,
    /// Bytes in use on the device, as its driver reports; null if it does not.
    pub driver: Option<u64>,
}

impl From<&Rings> for RingBytes {
    fn from(rings: &Rings) -> Self {
        Self {
            requested: rings.requested_bytes,
            allocated: rings.allocated_bytes,
            active: rings.active_bytes,
            reserved: rings.reserved_bytes,
            driver: rings.driver_bytes,
        }
    }
}

/// What the driver's figure holds besides segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverheadsResult {
    /// Parts that were measured.
    pub parts: Vec<OverheadPart>,
    /// Bytes that no part explains.
    pub unexplained_bytes: i64,
}

/// A part of the overheads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverheadPart {
    /// Name of the part.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Test examples that are classified correctly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccuracyResult {
    /// Number classified correctly.
    pub right: usize,
    /// Number classified.
    pub of: usize,
    /// Share classified correctly.
    pub share: f64,
}

impl From<Accuracy> for AccuracyResult {
    fn from(accuracy: Accuracy) -> Self {
        Self { right: accuracy.right, of: accuracy.of, share: accuracy.share() }
    }
}

impl AccuracyResult {
    /// Formats it.
    pub fn text(&self) -> String {
        format!("test accuracy {:.2} % ({} of {})", 100.0 * self.share, self.right, self.of)
    }
}

/// Why a run ran out of memory, and how much it lacks. A run that was refused before its first allocation has nulls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutOfMemoryResult {
    /// The message, in sentences.
    pub message: String,
    /// Full or fragmented, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Memory of the whole run with enough memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needed>,
    /// Bytes that the whole run lacks.
    pub missing_bytes: Option<u64>,
    /// The request that failed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub moment: Option<FailedRequest>,
}

/// Memory of a run with enough memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Needed {
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory.
    pub reserved_bytes: u64,
}

/// The request that failed, and the device at that moment. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Size of the block that was needed.
    pub block_bytes: u64,
    /// Size of the segment that the driver was asked for.
    pub segment_bytes: u64,
    /// Free memory that the driver reports.
    pub free_bytes: Option<u64>,
    /// Total memory that the driver reports.
    pub total_bytes: Option<u64>,
    /// The most that the allocator was allowed to take.
    pub allowed_bytes: Option<u64>,
    /// Bytes freed by emptying the cache.
    pub released_bytes: u64,
    /// The largest request that would have succeeded.
    pub largest_fit_bytes: u64,
    /// The five figures.
    pub rings: RingBytes,
    /// Bytes held, by category.
    pub by_category: ByCategory,
    /// Modules that held most, most first.
    pub top_scopes: Vec<TopScope>,
}

/// All bytes that a module held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopScope {
    /// Path of the module.
    pub scope: String,
    /// Bytes.
    pub bytes: u64,
}

impl OutOfMemoryResult {
    /// Converts a report; `message` is its text.
    pub fn from_report(report: &OutOfMemory, message: String) -> Self {
        let needs = report
            .needs
            .map(|needs| Needed { allocated_bytes: needs.allocated_bytes, reserved_bytes: needs.reserved_bytes });
        let top = |(scope, bytes): &(String, u64)| TopScope { scope: scope.clone(), bytes: *bytes };
        let moment = FailedRequest {
            requested_bytes: report.requested_bytes,
            block_bytes: report.block_bytes,
            segment_bytes: report.segment_bytes,
            free_bytes: report.free_bytes,
            total_bytes: report.total_bytes,
            allowed_bytes: report.allowed_bytes,
            released_bytes: report.released_bytes,
            largest_fit_bytes: report.largest_fit_bytes,
            rings: (&report.rings).into(),
            by_category: by_category(&report.by_category),
            top_scopes: report.top_scopes.iter().map(top).collect(),
        };
        Self {
            message,
            verdict: Some(report.verdict.to_string()),
            needs,
            missing_bytes: report.missing_bytes(),
            moment: Some(moment),
        }
    }
}
