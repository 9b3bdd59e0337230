//! Devices and the trainings that run on them (`vramlab-monitor-1`), and the status that a training writes (`vramlab-status-1`).

use lab_analysis::forensics::Leak;
use lab_base::backends::DeviceMemory;
use lab_base::figures::{both, counted};
use lab_base::section::{Cell, Section, Table};
use memcore::memory::Category;
use serde::{Deserialize, Serialize};

use super::device::DeviceInfo;
use super::findings::Findings;
use super::run::{ByCategory, RingBytes};
use super::watch::Watched;

/// Devices and trainings at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MonitorResult {
    /// Every device that reports its memory in use.
    pub devices: Vec<DeviceMemory>,
    /// Every running vramlab training, by process.
    pub runs: Vec<RunStatus>,
    /// Every running training of PyTorch that is watched, by process.
    #[serde(default)]
    pub watched: Vec<Watched>,
}

/// Status of a running training.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunStatus {
    /// `vramlab-status-1`.
    pub schema: String,
    /// Process id.
    pub pid: u32,
    /// The network.
    pub model: String,
    /// Its device.
    pub device: DeviceInfo,
    /// When the training began: milliseconds since 1970.
    pub started_ms: u64,
    /// When the status was written, in the same unit.
    pub updated_ms: u64,
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// The last loss; null on a device that computes nothing.
    pub loss: Option<f64>,
    /// The five figures now.
    pub rings: RingBytes,
    /// Allocated bytes by category.
    pub by_category: ByCategory,
    /// Peak of allocated memory.
    pub peak_bytes: u64,
    /// Memory that grows from step to step; null if none does.
    pub leak: Option<Leak>,
}

impl RunStatus {
    /// Schema of the status that this program writes.
    pub const SCHEMA: &'static str = "vramlab-status-1";

    fn holds(&self, category: Category) -> u64 {
        self.by_category.get(category.name()).copied().unwrap_or(0)
    }

    fn row(&self) -> Vec<Cell> {
        vec![
            Cell::Text(self.pid.to_string()),
            Cell::Text(format!("{} on {}", self.model, self.device.backend)),
            Cell::Text(format!("{}/{}", self.step, self.steps)),
            self.loss.map_or_else(Cell::unknown, Cell::Number),
            Cell::Bytes(self.rings.allocated),
            Cell::Bytes(self.rings.reserved),
            Cell::Bytes(self.peak_bytes),
        ]
    }

    fn growth(&self) -> Option<Section> {
        let leak = self.leak.as_ref()?;
        let ends = leak.out_of_memory_step.map_or(String::new(), |step| format!(", until about step {step}"));
        let grows = both(leak.growth_bytes_per_step);
        let text = format!("process {}: memory grows by {grows} in each step{ends}: {}", self.pid, leak.advice);
        Some(Section::Note(text))
    }
}

impl MonitorResult {
    fn answer(&self) -> String {
        let of_torch = self.watched.iter().map(|run| run.reserved);
        let held = self.runs.iter().map(|run| run.rings.reserved).chain(of_torch).fold(0, u64::saturating_add);
        match (self.runs.len() as u64, self.watched.len() as u64) {
            (0, 0) => {
                "no training of vramlab runs, and none of PyTorch is watched (vramlab watch -- python train.py)".into()
            }
            (runs, 0) => format!("{} of vramlab, with {} reserved in all", counted(runs, "training"), both(held)),
            (0, watched) => format!("{} of PyTorch, with {} reserved in all", counted(watched, "training"), both(held)),
            (runs, watched) => {
                format!(
                    "{} of vramlab, {watched} of PyTorch, with {} reserved in all",
                    counted(runs, "training"),
                    both(held)
                )
            }
        }
    }

    fn devices_table(&self) -> Table {
        let row = |device: &DeviceMemory| {
            let DeviceMemory { backend, name, used_bytes, total_bytes } = device;
            let names = [backend, name].map(|text| Cell::Text(text.clone()));
            names.into_iter().chain([used_bytes, total_bytes].map(|bytes| Cell::bytes(*bytes))).collect()
        };
        let columns = ["backend", "device", "in use", "of"];
        Table::new("Devices, as their drivers report", &columns, self.devices.iter().map(row).collect())
    }

    /// A table of the bytes that each training holds, with a row for every category in use.
    fn categories_table(&self) -> Table {
        let processes: Vec<String> = self.runs.iter().map(|run| format!("process {}", run.pid)).collect();
        let columns: Vec<&str> = std::iter::once("holds").chain(processes.iter().map(String::as_str)).collect();
        let present = |category: &Category| self.runs.iter().any(|run| run.holds(*category) > 0);
        let row = |category: Category| {
            let name = Cell::Text(category.name().replace('_', " "));
            std::iter::once(name).chain(self.runs.iter().map(|run| Cell::Bytes(run.holds(category)))).collect()
        };
        Table::new("By category", &columns, Category::ALL.into_iter().filter(present).map(row).collect())
    }
}

impl Findings for MonitorResult {
    const SCHEMA: &'static str = "vramlab-monitor-1";

    fn title(&self) -> String {
        String::new()
    }

    fn sections(&self) -> Vec<Section> {
        let columns = ["process", "training", "step", "loss", "allocated", "reserved", "peak"];
        let runs = Table::new("Trainings of vramlab", &columns, self.runs.iter().map(RunStatus::row).collect());
        let mut sections = vec![Section::Answer(self.answer()), Section::List(runs)];
        sections.extend(self.runs.iter().filter_map(RunStatus::growth));
        if !self.watched.is_empty() {
            sections.push(Watched::table("Trainings of PyTorch", &self.watched));
        }
        sections.push(Section::List(self.devices_table()));
        sections.push(Section::Rest(vec![Section::Table(self.categories_table())]));
        sections
    }
}
