//! `vramlab bench`: measures in less than a minute how fast every device is, as a share of its own roofline.

use std::time::Instant;

use lab::bench::Short;
use lab::results::{BenchResult, BenchedAllocator, BenchedDevice, DeviceFigures};
use serde_json::json;

use crate::args::BenchArgs;
use crate::backends;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;
use lab::backends::Entry;

/// Steps of the progress bar.
const PROGRESS: u64 = 100;
/// Share of the time for measuring allocators.
const OF_ALLOCATORS: f64 = 0.1;

/// Measures the devices of every backend, or of one.
///
/// # Errors
/// A backend that computes nothing; with code 3, no device that could be measured.
pub(super) fn run(args: &BenchArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    let entries = entries(args)?;
    let places: Vec<Place> = entries.into_iter().flat_map(places).collect();
    let there = places.iter().filter(|place| place.index.is_ok()).count().max(1);
    let seconds = args.seconds * (1.0 - OF_ALLOCATORS) / there as f64;
    let progress = Progress::new(ui, PROGRESS);
    let start = Instant::now();
    // Progress follows the clock: the number of measurements is not known in advance.
    let done = || ((start.elapsed().as_secs_f64() / args.seconds * PROGRESS as f64) as u64).min(PROGRESS - 1);
    let stop = interrupt::asked;
    let mut devices = Vec::new();
    for place in places {
        if stop() {
            break;
        }
        let label = place.label();
        let tell = |what: &str| progress.set(done(), format!("{label}: {what}"));
        devices.push(place.measure(&Short { seconds, stop: &stop, tell: &tell }));
    }
    let tell = |what: &str| progress.set(done(), format!("allocators: {what}"));
    let short = Short { seconds: args.seconds * OF_ALLOCATORS, stop: &stop, tell: &tell };
    let allocators = if stop() { Vec::new() } else { short.allocators()? };
    drop(progress);
    let found = BenchResult {
        version: env!("CARGO_PKG_VERSION").into(),
        settings: [("backend", json!(args.backend)), ("seconds", json!(args.seconds))]
            .map(|(name, value)| (name.to_string(), value))
            .into_iter()
            .collect(),
        interrupted: stop(),
        devices,
        allocators: allocators.iter().map(BenchedAllocator::from).collect(),
    };
    deliver(&found, args, ui)
}

/// Returns the backends that compute, or the one that was named.
fn entries(args: &BenchArgs) -> Result<Vec<&'static Entry>> {
    let asked = |entry: &&Entry| args.backend.as_deref().map_or(entry.computes(), |name| entry.name == name);
    let entries: Vec<&'static Entry> = backends::all().iter().filter(asked).collect();
    match entries.iter().find(|entry| !entry.computes()) {
        Some(Entry { name, .. }) => Err(Failure::usage(format!(
            "--backend {name}: it only counts memory and computes nothing, so there is nothing to measure"
        ))),
        None => Ok(entries),
    }
}

/// Where a device may be.
struct Place {
    entry: &'static Entry,
    index: Result<usize, String>,
}

fn places(entry: &'static Entry) -> Vec<Place> {
    match (entry.count)() {
        Ok(0) => vec![Place { entry, index: Err("it sees no device".into()) }],
        Ok(count) => (0..count).map(|index| Place { entry, index: Ok(index) }).collect(),
        Err(error) => vec![Place { entry, index: Err(error.to_string()) }],
    }
}

impl Place {
    fn label(&self) -> String {
        self.index.as_ref().map_or_else(|_| self.entry.name.to_string(), |index| format!("{}:{index}", self.entry.name))
    }

    fn measure(self, short: &Short<'_>) -> BenchedDevice {
        let kind = self.index.as_ref().map_or("", |index| (self.entry.about)(*index).kind);
        let opened = self.index.clone().and_then(|index| {
            (short.tell)("opening");
            (self.entry.open)(index).map_err(|error| error.to_string())
        });
        let found = opened.as_ref().ok().map(|device| DeviceFigures::from(&short.device(device)));
        BenchedDevice {
            backend: self.entry.name.into(),
            index: self.index.ok(),
            name: opened.as_ref().map_or_else(|_| String::new(), |device| device.device_name()),
            kind: kind.into(),
            software: kind == "software",
            available: found.is_some(),
            reason: opened.err(),
            found,
        }
    }
}

fn deliver(found: &BenchResult, args: &BenchArgs, ui: &Ui) -> Result<Code> {
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), found)?;
    if found.interrupted {
        return Ok(Code::Interrupted);
    }
    let reasons: Vec<&str> = found.devices.iter().filter_map(|device| device.reason.as_deref()).collect();
    if reasons.len() == found.devices.len() {
        return Err(Failure::new(Code::Device, anyhow::Error::msg(format!("no device: {}", reasons.join("; ")))));
    }
    Ok(Code::Done)
}
