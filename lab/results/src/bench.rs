//! Speed of devices (`vramlab-bench-1`): each as a share of its own roofline, side by side.

use lab_analysis::bench::{Allocator, Measured, OfDevice};
use lab_base::figures::number;
use lab_base::section::{Cell, Chart, Section, Series, Shape, Table};
use memcore::DType;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, Settings, again};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchResult {
    /// The program's version.
    pub version: String,
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// True if it was stopped early.
    pub interrupted: bool,
    /// Results by device.
    pub devices: Vec<BenchedDevice>,
    /// Allocators, on the host.
    pub allocators: Vec<BenchedAllocator>,
}

/// A device, or the reason why it is absent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchedDevice {
    /// The backend's name.
    pub backend: String,
    /// Its number in the backend; null if no device was seen.
    pub index: Option<usize>,
    /// Its own name.
    pub name: String,
    /// `processor`, `discrete`, `software`, …
    pub kind: String,
    /// True if it computes on the host's processor although its backend is not meant for that.
    pub software: bool,
    /// True if it could be opened.
    pub available: bool,
    /// Why it could not be opened.
    pub reason: Option<String>,
    /// Measurements.
    #[serde(flatten)]
    pub found: Option<DeviceFigures>,
}

/// Measurements of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceFigures {
    /// Its highest measured speeds.
    pub roofs: RoofResult,
    /// Its kernels.
    pub kernels: Vec<BenchedKernel>,
    /// Its training steps.
    pub training: Vec<BenchedKernel>,
    /// Measurements that it could not do.
    pub skipped: Vec<SkippedKernel>,
}

/// Highest measured speeds of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoofResult {
    /// Speed of a large copy, in 10⁹ bytes per second; on the processor of one past the caches.
    pub copy_gb_per_s: f64,
    /// Highest speed of float32 arithmetic, in 10⁹ operations per second; on the processor in registers, elsewhere of a large product.
    pub gemm_gflop_per_s: Option<f64>,
}

/// A kernel, or a training step. Times are those of one run, in microseconds: median, least, most.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchedKernel {
    /// What it is called.
    pub name: String,
    /// Its size.
    pub size: String,
    /// Its type.
    pub dtype: String,
    /// The median.
    pub us: f64,
    /// The least.
    pub us_min: f64,
    /// The most.
    pub us_max: f64,
    /// Samples taken.
    pub samples: usize,
    /// Runs in a sample.
    pub runs_per_sample: u64,
    /// Bytes that it moves at least.
    pub bytes: u64,
    /// Operations that it computes at least.
    pub flops: u64,
    /// Kernels launched.
    pub launches: u64,
    /// 10⁹ bytes moved per second.
    pub gb_per_s: f64,
    /// 10⁹ operations computed per second.
    pub gflop_per_s: f64,
    /// Share of the roofline, from 0 to 1.
    pub of_roof: Option<f64>,
    /// What bounds it: `memory` or `arithmetic`.
    pub bound: String,
    /// For a training step: its examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// For a training step: peak of reserved memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_reserved_bytes: Option<u64>,
}

/// A measurement that a device could not do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SkippedKernel {
    /// Label of the measurement.
    pub name: String,
    /// Reason.
    pub reason: String,
}

/// An allocation policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchedAllocator {
    /// Its name.
    pub policy: String,
    /// Operations of the program that it served.
    pub operations: usize,
    /// Mean time of an operation, in nanoseconds.
    pub ns_per_operation: f64,
}

impl From<&Measured> for BenchedKernel {
    fn from(measured: &Measured) -> Self {
        let Measured { name, size, dtype, demand, timing, of_roof, by_arithmetic } = measured;
        Self {
            name: (*name).into(),
            size: size.clone(),
            dtype: dtype.name().into(),
            us: timing.median_ns / 1e3,
            us_min: timing.min_ns / 1e3,
            us_max: timing.max_ns / 1e3,
            samples: timing.samples,
            runs_per_sample: timing.runs,
            bytes: demand.bytes,
            flops: demand.flops,
            launches: demand.launches,
            gb_per_s: measured.gb_per_s(),
            gflop_per_s: measured.gflop_per_s(),
            of_roof: *of_roof,
            bound: if *by_arithmetic { "arithmetic" } else { "memory" }.into(),
            batch: None,
            peak_reserved_bytes: None,
        }
    }
}

impl From<&OfDevice> for DeviceFigures {
    fn from(found: &OfDevice) -> Self {
        let training = found.training.iter().map(|trained| BenchedKernel {
            batch: Some(trained.batch),
            peak_reserved_bytes: Some(trained.peak_reserved_bytes),
            ..BenchedKernel::from(&trained.step)
        });
        let skipped = found.skipped.iter().map(|s| SkippedKernel { name: s.name.into(), reason: s.reason.clone() });
        Self {
            roofs: RoofResult {
                copy_gb_per_s: found.roofs.copy_bytes_per_s / 1e9,
                gemm_gflop_per_s: found.roofs.flops_per_s(DType::F32).map(|rate| rate / 1e9),
            },
            kernels: found.kernels.iter().map(BenchedKernel::from).collect(),
            training: training.collect(),
            skipped: skipped.collect(),
        }
    }
}

impl From<&Allocator> for BenchedAllocator {
    fn from(allocator: &Allocator) -> Self {
        let ns_per_operation = allocator.ns_per_operation();
        Self { policy: allocator.policy.into(), operations: allocator.operations, ns_per_operation }
    }
}

impl BenchedDevice {
    /// `cpu:0`, with a remark if the device is software.
    fn label(&self) -> String {
        let software = if self.software { " (software)" } else { "" };
        self.index.map_or_else(|| self.backend.clone(), |index| format!("{}:{index}{software}", self.backend))
    }

    fn kernels(&self) -> impl Iterator<Item = &BenchedKernel> {
        self.found.iter().flat_map(|found| &found.kernels)
    }

    fn training(&self) -> impl Iterator<Item = &BenchedKernel> {
        self.found.iter().flat_map(|found| &found.training)
    }

    /// Remarks that the tables do not contain.
    fn remarks(&self) -> Vec<String> {
        let absent = self.reason.iter().map(|reason| {
            let own = format!("backend {}: ", self.backend);
            format!("{}: absent: {}", self.label(), reason.strip_prefix(&own).unwrap_or(reason))
        });
        let skipped = self.found.iter().flat_map(|found| &found.skipped);
        let skipped = skipped.map(|one| format!("{}: {} is left out: {}", self.label(), one.name, one.reason));
        absent.chain(skipped).collect()
    }
}

impl BenchedKernel {
    /// Time, rate of the resource that limits it, share of the roofline.
    fn in_short(&self) -> String {
        let rate = match self.bound.as_str() {
            "arithmetic" => format!("{} GFLOP/s", figure(self.gflop_per_s)),
            _ => format!("{} GB/s", figure(self.gb_per_s)),
        };
        let part = self.of_roof.map_or(String::new(), |part| format!(", {:.0} %", 100.0 * part));
        format!("{}, {rate}{part}", duration(1e3 * self.us))
    }

    fn row(&self, device: &BenchedDevice) -> Vec<Cell> {
        let [device, name, size] = [device.label(), self.name.clone(), self.size.clone()].map(Cell::Text);
        let figures = [self.us, self.gb_per_s, self.gflop_per_s].map(Cell::Number);
        let of_roof = self.of_roof.map_or_else(Cell::unknown, Cell::Number);
        [device, name, size].into_iter().chain(figures).chain([of_roof]).collect()
    }
}

/// Formats three digits: no figure here is known better.
fn figure(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x if x >= 0.1 => format!("{x:.2}"),
        x => number(x),
    }
}

fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{} µs", figure(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", figure(ns / 1e6)),
        ns => format!("{} s", figure(ns / 1e9)),
    }
}

/// Devices that a chart can tell apart.
const MAX_SERIES: usize = 8;

impl BenchResult {
    fn measured(&self) -> impl Iterator<Item = &BenchedDevice> {
        self.devices.iter().filter(|device| device.found.is_some())
    }

    fn roofs(&self) -> Table {
        let rate = |rate: Option<f64>, unit: &str| {
            let text = rate.filter(|rate| *rate > 0.0).map(|rate| Cell::Text(format!("{} {unit}", figure(rate))));
            text.unwrap_or_else(Cell::unknown)
        };
        let row = |device: &BenchedDevice| {
            let roofs = device.found.as_ref().map(|found| &found.roofs);
            let name = if device.found.is_none() { "absent".to_string() } else { device.name.clone() };
            vec![
                Cell::Text(device.label()),
                Cell::Text(name),
                rate(roofs.map(|roofs| roofs.copy_gb_per_s), "GB/s"),
                rate(roofs.and_then(|roofs| roofs.gemm_gflop_per_s), "GFLOP/s"),
            ]
        };
        let columns = ["device", "name", "copy", "arithmetic, f32"];
        Table::new("Devices and their rooflines", &columns, self.devices.iter().map(row).collect())
    }

    /// A table with a row for each measurement and a column for each device.
    fn side_by_side<'a, I>(&'a self, title: &str, of: fn(&'a BenchedDevice) -> I) -> Table
    where
        I: Iterator<Item = &'a BenchedKernel>,
    {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for kernel in self.measured().flat_map(of) {
            let name = (kernel.name.as_str(), kernel.size.as_str());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let row = |(name, size): &(&str, &str)| {
            let cell = |device| {
                let found = of(device).find(|kernel| kernel.name == *name && kernel.size == *size);
                found.map_or_else(Cell::unknown, |kernel| Cell::Text(kernel.in_short()))
            };
            [*name, *size].map(|text| Cell::Text(text.into())).into_iter().chain(self.measured().map(cell)).collect()
        };
        let columns = ["what", "size"].map(String::from).into_iter().chain(self.measured().map(BenchedDevice::label));
        Table { title: title.into(), columns: columns.collect(), rows: names.iter().map(row).collect() }
    }

    /// A chart with kernels along the axis and a series for each device.
    fn near(&self) -> Chart {
        let mut labels: Vec<String> = Vec::new();
        for kernel in self.measured().flat_map(BenchedDevice::kernels) {
            if !labels.contains(&kernel.name) {
                labels.push(kernel.name.clone());
            }
        }
        let point = |kernel: &BenchedKernel| {
            let place = labels.iter().position(|label| *label == kernel.name)?;
            Some((place as f64, 100.0 * kernel.of_roof?))
        };
        let series = |(color, device): (usize, &BenchedDevice)| Series {
            name: device.label(),
            points: device.kernels().filter_map(point).collect(),
            color,
            shape: Shape::Dots,
        };
        Chart {
            title: "Percent of the roofline: memory's or arithmetic's, whichever is nearer".into(),
            x: "kernel".into(),
            series: self.measured().take(MAX_SERIES).enumerate().map(series).collect(),
            labels,
            bytes: false,
            limit: Some(("the roofline".into(), 100.0)),
        }
    }

    fn policies(&self) -> Table {
        let row = |allocator: &BenchedAllocator| {
            vec![Cell::Text(allocator.policy.clone()), Cell::Number(allocator.ns_per_operation)]
        };
        let title = "Allocators, on the host: a training run's allocations and frees";
        Table::new(title, &["policy", "ns per operation"], self.allocators.iter().map(row).collect())
    }

    /// A row for each measurement.
    fn every(&self) -> Table {
        let columns = ["device", "what", "size", "us", "GB/s", "GFLOP/s", "of roof"];
        let of = |device| BenchedDevice::kernels(device).chain(device.training()).map(move |kernel| kernel.row(device));
        let host = |allocator: &BenchedAllocator| {
            let [host, policy, what] = ["host", &allocator.policy, "one operation"].map(|text| Cell::Text(text.into()));
            let us = Cell::Number(allocator.ns_per_operation / 1e3);
            vec![host, policy, what, us, Cell::unknown(), Cell::unknown(), Cell::unknown()]
        };
        let rows = self.devices.iter().flat_map(of).chain(self.allocators.iter().map(host)).collect();
        Table::new("Every measurement", &columns, rows)
    }
}

impl Findings for BenchResult {
    const SCHEMA: &'static str = "vramlab-bench-1";

    fn title(&self) -> String {
        let told = |device: &BenchedDevice| {
            let roofs = &device.found.as_ref()?.roofs;
            let product = roofs.gemm_gflop_per_s.map_or(String::new(), |rate| format!(", {} GFLOP/s", figure(rate)));
            Some(format!("{} {} GB/s{product}", device.label(), figure(roofs.copy_gb_per_s)))
        };
        let all: Vec<String> = self.devices.iter().filter_map(told).collect();
        if all.is_empty() { "No device was measured".into() } else { all.join("; ") }
    }

    fn sections(&self) -> Vec<Section> {
        let reading = "The roofline is measured on the device: the most bytes that are copied, or operations that are computed, whichever bounds \
                       the kernel; on the processor by a copy past the caches and by multiply-adds in registers, elsewhere by a large copy \
                       and a large product. A kernel whose data stay in the caches can exceed it.";
        let mut sections = vec![Section::List(self.roofs())];
        sections.extend(self.devices.iter().flat_map(BenchedDevice::remarks).map(Section::Note));
        let kernels = self.side_by_side("Kernels in f32, and their share of the roofline", BenchedDevice::kernels);
        let training = self.side_by_side("Training steps", BenchedDevice::training);
        sections.push(Section::List(training));
        sections.push(Section::Rest(vec![
            Section::Table(kernels),
            Section::Table(self.policies()),
            Section::Note(reading.into()),
        ]));
        sections.push(Section::Note("Kernels and allocators one by one: --full, --html FILE.".into()));
        if self.interrupted {
            sections.push(Section::Note("Stopped early: the rest was not measured.".into()));
        }
        sections.push(Section::Drawing(self.near()));
        let every = vec![Section::Table(self.every())];
        sections.push(Section::Details { title: "Every measurement".into(), sections: every });
        sections.push(again(&["bench"], &self.settings));
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.every())
    }
}
