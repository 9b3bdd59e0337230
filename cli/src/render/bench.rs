//! How fast the devices are, for people: side by side, each beside its own roofs.

use lab::experiments::{Cell, Table};
use lab::figures::number;
use memcore::DType;

use super::style::Style;
use super::{WIDTH, table, wrapped};
use lab::bench::{Allocator, Measured, OfDevice};

/// A device, or why there is none.
pub(crate) struct Benched {
    /// The backend's name.
    pub backend: &'static str,
    /// Its number there; none where no device was seen.
    pub index: Option<usize>,
    /// Its own name.
    pub name: String,
    /// `processor`, `discrete`, `software`, …
    pub kind: &'static str,
    /// What was measured, or why nothing was.
    pub found: Result<OfDevice, String>,
}

/// Everything that was measured.
pub(crate) struct Benches {
    /// Device by device.
    pub devices: Vec<Benched>,
    /// On the host.
    pub allocators: Vec<Allocator>,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

/// Everything, as it is shown on a terminal.
pub(crate) fn text(benches: &Benches, style: Style) -> String {
    let mut out = table::titled(&roofs(benches), style);
    for device in &benches.devices {
        if let Err(reason) = &device.found {
            out += &format!("{}\n", wrapped(&format!("{}: absent: {reason}", device.label()), WIDTH, 2));
        }
        for skipped in device.found.iter().flat_map(|found| &found.skipped) {
            let text = format!("{}: {} is left out: {}", device.label(), skipped.name, skipped.reason);
            out += &format!("{}\n", wrapped(&text, WIDTH, 2));
        }
    }
    let kernels = side_by_side("Kernels in f32, and how near the roof", benches, kernels);
    let training = side_by_side("Training steps", benches, steps);
    for table in [kernels, training, allocators(benches)].iter().filter(|table| !table.rows.is_empty()) {
        out += &format!("\n{}", table::titled(table, style));
    }
    let reading = "The roof is the device's own: what a large copy moves or a large product computes, whichever bounds the \
                   kernel. What stays in the caches can pass it.";
    out += &format!("{}\n", wrapped(reading, WIDTH, 0));
    if benches.interrupted {
        out += "stopped early: the rest was not measured\n";
    }
    out
}

fn roofs(benches: &Benches) -> Table {
    let rate = |rate: Option<f64>, unit: &str| {
        Cell::Text(rate.filter(|rate| *rate > 0.0).map_or("–".into(), |rate| format!("{} {unit}", figure(rate / 1e9))))
    };
    let row = |device: &Benched| {
        let roofs = device.found.as_ref().ok().map(|found| &found.roofs);
        let name = if device.found.is_err() { "absent".to_string() } else { device.name.clone() };
        vec![
            Cell::Text(device.label()),
            Cell::Text(name),
            rate(roofs.map(|roofs| roofs.copy_bytes_per_s), "GB/s"),
            rate(roofs.and_then(|roofs| roofs.flops_per_s(DType::F32)), "GFLOP/s"),
        ]
    };
    let columns = ["device", "name", "copy", "product, f32"].map(String::from).to_vec();
    Table { title: "Devices and their roofs".into(), columns, rows: benches.devices.iter().map(row).collect() }
}

/// A device's measurements of one kind.
type Of = fn(&Benched) -> Vec<&Measured>;

fn kernels(device: &Benched) -> Vec<&Measured> {
    device.found.iter().flat_map(|found| &found.kernels).collect()
}

fn steps(device: &Benched) -> Vec<&Measured> {
    device.found.iter().flat_map(|found| &found.training).map(|trained| &trained.step).collect()
}

/// A row for each measurement, a column for each device.
fn side_by_side(title: &str, benches: &Benches, of: Of) -> Table {
    let devices: Vec<&Benched> = benches.devices.iter().filter(|device| device.found.is_ok()).collect();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for measured in devices.iter().flat_map(|device| of(device)) {
        let name = (measured.name, measured.size.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |(name, size): &(&str, &str)| {
        let cell = |device: &&Benched| {
            let found = of(device).into_iter().find(|measured| measured.name == *name && measured.size == *size);
            Cell::Text(found.map_or("–".into(), in_short))
        };
        [*name, *size].map(|text| Cell::Text(text.into())).into_iter().chain(devices.iter().map(cell)).collect()
    };
    let columns = ["what", "size"].map(String::from).into_iter().chain(devices.iter().map(|device| device.label()));
    let columns = columns.collect();
    Table { title: title.into(), columns, rows: names.iter().map(row).collect() }
}

/// Time, rate of what bounds it, part of the roof.
fn in_short(measured: &Measured) -> String {
    let rate = if measured.by_arithmetic {
        format!("{} GFLOP/s", figure(measured.gflop_per_s()))
    } else {
        format!("{} GB/s", figure(measured.gb_per_s()))
    };
    let part = measured.of_roof.map_or(String::new(), |part| format!(", {:.0} %", 100.0 * part));
    format!("{}, {rate}{part}", duration(measured.timing.median_ns))
}

/// Three digits: no figure here is known better.
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

fn allocators(benches: &Benches) -> Table {
    let row = |allocator: &lab::bench::Allocator| {
        vec![Cell::Text(allocator.policy.into()), Cell::Number(allocator.ns_per_operation())]
    };
    let columns = ["policy", "ns per operation"].map(String::from).to_vec();
    let title = "Allocators, on the host: a training run's allocations and frees".into();
    Table { title, columns, rows: benches.allocators.iter().map(row).collect() }
}

/// Everything in one table, a row for each measurement: for CSV and Markdown.
pub(crate) fn every(benches: &Benches) -> Table {
    let columns = ["device", "what", "size", "us", "GB/s", "GFLOP/s", "of roof"].map(String::from).to_vec();
    let row = |device: &Benched, measured: &Measured| {
        vec![
            Cell::Text(device.label()),
            Cell::Text(measured.name.into()),
            Cell::Text(measured.size.clone()),
            Cell::Number(measured.timing.median_ns / 1e3),
            Cell::Number(measured.gb_per_s()),
            Cell::Number(measured.gflop_per_s()),
            measured.of_roof.map_or_else(|| Cell::Text("–".into()), Cell::Number),
        ]
    };
    let of = |device| kernels(device).into_iter().chain(steps(device)).map(move |measured| row(device, measured));
    let mut rows: Vec<Vec<Cell>> = benches.devices.iter().flat_map(of).collect();
    for allocator in &benches.allocators {
        let (none, us) = (Cell::Text("–".into()), allocator.ns_per_operation() / 1e3);
        let name = [Cell::Text("host".into()), Cell::Text(allocator.policy.into()), Cell::Text("one operation".into())];
        rows.push(name.into_iter().chain([Cell::Number(us), none.clone(), none.clone(), none]).collect());
    }
    Table { title: "How fast the devices are".into(), columns, rows }
}
