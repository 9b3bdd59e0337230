//! `vramlab bench`: every device beside its own roofs, in less than a minute.

use lab::bench::{Allocator, Short};
use lab::report::Part;
use serde_json::{Value, json};

use super::report;
use crate::args::BenchArgs;
use crate::backends::{self, Entry};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::bench as render;
use crate::render::bench::{Benched, Benches};
use crate::ui::Ui;

/// The part of the time that the allocators get.
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
    let progress = Progress::new(ui, 0);
    let stop = interrupt::asked;
    let mut devices = Vec::new();
    for place in places {
        if stop() {
            break;
        }
        let label = place.label();
        let tell = |what: &str| progress.set(0, format!("{label}: {what}"));
        devices.push(place.measure(&Short { seconds, stop: &stop, tell: &tell }));
    }
    let tell = |what: &str| progress.set(0, format!("allocators: {what}"));
    let short = Short { seconds: args.seconds * OF_ALLOCATORS, stop: &stop, tell: &tell };
    let allocators = if stop() { Vec::new() } else { short.allocators()? };
    drop(progress);
    deliver(&Benches { devices, allocators, interrupted: stop() }, args, ui)
}

/// Those that compute, or the one that was named.
fn entries(args: &BenchArgs) -> Result<Vec<&'static Entry>> {
    let computes = |entry: &&Entry| entry.name != "meta";
    match args.backend.as_deref() {
        Some("meta") => Err(Failure::usage(
            "--backend meta: it accounts for memory and computes nothing, so there is nothing to measure",
        )),
        Some(name) => Ok(backends::ALL.iter().filter(|entry| entry.name == name).collect()),
        None => Ok(backends::ALL.iter().filter(computes).collect()),
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

    fn measure(self, short: &Short<'_>) -> Benched {
        let backend = self.entry.name;
        let index = match self.index {
            Ok(index) => index,
            Err(reason) => return Benched { backend, index: None, name: String::new(), kind: "", found: Err(reason) },
        };
        let kind = (self.entry.about)(index).kind;
        (short.tell)("opening");
        let (name, found) = match (self.entry.open)(index) {
            Ok(device) => (device.device_name(), Ok(short.device(&device))),
            Err(error) => (String::new(), Err(error.to_string())),
        };
        Benched { backend, index: Some(index), name, kind, found }
    }
}

impl Benched {
    /// `cpu:0`; what only pretends to be a device of its own says so.
    pub(crate) fn label(&self) -> String {
        let software = if self.is_software() { " (software)" } else { "" };
        self.index.map_or_else(|| self.backend.to_string(), |index| format!("{}:{index}{software}", self.backend))
    }

    /// Whether it computes on the host's processor although it is no backend for that.
    fn is_software(&self) -> bool {
        self.kind == "software"
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "backend": self.backend,
            "index": self.index,
            "name": self.name,
            "kind": self.kind,
            "software": self.is_software(),
            "available": self.found.is_ok(),
            "reason": self.found.as_ref().err(),
        });
        if let (Ok(found), Value::Object(json)) = (&self.found, &mut json)
            && let Value::Object(figures) = found.json()
        {
            json.extend(figures);
        }
        json
    }
}

fn as_json(benches: &Benches, args: &BenchArgs) -> Value {
    json!({
        "schema": "vramlab-bench-1",
        "version": env!("CARGO_PKG_VERSION"),
        "settings": { "backend": args.backend, "seconds": args.seconds },
        "interrupted": benches.interrupted,
        "devices": benches.devices.iter().map(Benched::json).collect::<Vec<_>>(),
        "allocators": benches.allocators.iter().map(Allocator::json).collect::<Vec<_>>(),
    })
}

fn deliver(benches: &Benches, args: &BenchArgs, ui: &Ui) -> Result<Code> {
    let json = as_json(benches, args);
    let tables = [render::every(benches)];
    let text = render::text(benches, ui.style);
    if let Some(destination) = &args.page.html {
        report::page(destination, &[Part::Result(&json)], ui)?;
    }
    output::deliver(ui, &args.output, &Results { json: &json, tables: &tables, text: &text })?;
    if benches.interrupted {
        return Ok(Code::Interrupted);
    }
    let reasons: Vec<&str> =
        benches.devices.iter().filter_map(|device| device.found.as_ref().err()).map(String::as_str).collect();
    if reasons.len() == benches.devices.len() {
        return Err(Failure::new(Code::Device, anyhow::Error::msg(format!("no device: {}", reasons.join("; ")))));
    }
    Ok(Code::Done)
}
