//! `vramlab monitor`

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use lab::section::{Cell, Table};
use memcore::memory::Category;
use serde_json::{Value, json};

use crate::args::MonitorArgs;
use crate::backends;
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::render::{WIDTH, bytes, table, wrapped};
use crate::status;
use crate::ui::Ui;
use crate::visible::sequence;
use lab::backends::DeviceMemory;

/// Shows devices and running trainings, once or until Ctrl-C.
///
/// # Errors
/// A result that cannot be written; a directory of statuses that others can write. That nothing runs, or that a driver is absent, is no failure.
pub(super) fn run(args: &MonitorArgs, ui: &Ui) -> Result<Code> {
    output::check(&args.json)?;
    let to_file = matches!(args.json, Some(Destination::File(_)));
    if to_file && !args.once {
        return Err(Failure::usage(
            "--json FILE: a file holds one look; add --once, or write to standard output: --json -",
        ));
    }
    let live = stdout().is_terminal() && !args.once && args.json.is_none();
    loop {
        let seen = Seen::now()?;
        match &args.json {
            Some(destination) => destination.write(ui, &output::json_line(&seen.json())?)?,
            // To the upper left corner, and what was below is gone.
            None if live => ui.print(&format!("{}{}{}", sequence("H"), sequence("J"), seen.text(ui)))?,
            None => ui.print(&seen.text(ui))?,
        }
        if args.once || ui.nobody_reads() || !wait(Duration::from_secs_f64(args.interval)) {
            return Ok(Code::Done);
        }
    }
}

/// Until the next look; `false` when an end was asked for, which is how one leaves a monitor.
fn wait(period: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < period {
        if interrupt::asked() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50).min(period));
    }
    !interrupt::asked()
}

/// What was there at one look.
struct Seen {
    devices: Vec<DeviceMemory>,
    runs: Vec<Value>,
}

impl Seen {
    fn now() -> Result<Self> {
        let runs = status::running()?;
        Ok(Self { devices: backends::all().iter().flat_map(|entry| (entry.memory)()).collect(), runs })
    }

    fn json(&self) -> Value {
        let devices = json!(self.devices);
        json!({ "schema": "vramlab-monitor-1", "devices": devices, "runs": self.runs })
    }

    fn text(&self, ui: &Ui) -> String {
        let mut out = table::titled(&self.device_table(), ui.style);
        if self.runs.is_empty() {
            return out + "\nno training of vramlab runs\n";
        }
        out += &format!("\n{}", table::titled(&self.run_table(), ui.style));
        out += &format!("\n{}", table::titled(&self.category_table(), ui.style));
        for (pid, leak) in self.runs.iter().map(|run| (&run["pid"], &run["leak"])).filter(|(_, leak)| !leak.is_null()) {
            let growth = leak["growth_bytes_per_step"].as_u64().unwrap_or(0);
            let ends = leak["out_of_memory_step"].as_u64();
            let ends = ends.map_or(String::new(), |step| format!(", until about step {step}"));
            let advice = leak["advice"].as_str().unwrap_or_default();
            let text = format!("process {pid}: memory grows by {} in each step{ends}: {advice}", bytes::both(growth));
            out += &format!("\n{}\n", wrapped(&text, WIDTH, 2));
        }
        out
    }

    fn device_table(&self) -> Table {
        let some = |bytes: Option<u64>| bytes.map_or_else(|| Cell::Text("–".into()), Cell::Bytes);
        let row = |d: &DeviceMemory| {
            vec![Cell::Text(d.backend.into()), Cell::Text(d.name.clone()), some(d.used_bytes), some(d.total_bytes)]
        };
        let columns = ["backend", "device", "in use", "of"].map(String::from).to_vec();
        Table { title: "Devices, as their drivers say".into(), columns, rows: self.devices.iter().map(row).collect() }
    }

    fn run_table(&self) -> Table {
        let row = |run: &Value| {
            let ring = |name: &str| run["rings"][name].as_u64().map_or_else(|| Cell::Text("–".into()), Cell::Bytes);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            vec![
                Cell::Text(run["pid"].to_string()),
                Cell::Text(format!("{} on {}", text(&run["model"]), text(&run["device"]["backend"]))),
                Cell::Text(format!("{}/{}", run["step"], run["steps"])),
                run["loss"].as_f64().map_or_else(|| Cell::Text("–".into()), Cell::Number),
                ring("allocated"),
                ring("reserved"),
                run["peak_bytes"].as_u64().map_or_else(|| Cell::Text("–".into()), Cell::Bytes),
            ]
        };
        let columns = ["process", "training", "step", "loss", "allocated", "reserved", "peak"].map(String::from);
        let rows = self.runs.iter().map(row).collect();
        Table { title: "Trainings of vramlab".into(), columns: columns.to_vec(), rows }
    }

    /// What each holds, by category; a row per category that is anywhere.
    fn category_table(&self) -> Table {
        let mut columns = vec!["holds".to_string()];
        columns.extend(self.runs.iter().map(|run| format!("process {}", run["pid"])));
        let held = |run: &Value, category: Category| run["by_category"][category.name()].as_u64().unwrap_or(0);
        let present = |category: &Category| self.runs.iter().any(|run| held(run, *category) > 0);
        let row = |category: Category| {
            let cells = self.runs.iter().map(|run| Cell::Bytes(held(run, category)));
            std::iter::once(Cell::Text(category.name().replace('_', " "))).chain(cells).collect()
        };
        let rows = Category::ALL.into_iter().filter(present).map(row).collect();
        Table { title: "By category".into(), columns, rows }
    }
}
