//! A split run for people: what each device held.

use lab::results::DeviceInfo;
use lab::section::{Cell, Table};
use memcore::memory::Category;

use super::style::Style;
use super::{WIDTH, bytes, counted, memory, premises, table, wrapped};
use lab::pipeline::{PipelineResult, PipelineSettings};
use lab::results::Premise;
use lab::run::DeviceName;

/// A split run, done.
pub(crate) struct Report {
    /// The devices, as typed, and what is known of them.
    pub devices: Vec<(DeviceName, DeviceInfo)>,
    /// What the network is called.
    pub model: String,
    /// What it is.
    pub description: String,
    /// The settings in force.
    pub settings: PipelineSettings,
    /// What came of it.
    pub result: PipelineResult,
}

/// Everything about the run.
pub(crate) fn text(report: &Report, premises: &[Premise], style: Style) -> String {
    let (settings, result) = (&report.settings, &report.result);
    let run = &settings.run;
    let lines = [
        format!("{}: {}", report.model, report.description),
        format!(
            "batch {} in {}, {}, {}, {}, {}, seed {}",
            run.batch,
            micro_batches(settings.micro_batches),
            settings.schedule.name(),
            run.optimizer.kind.name(),
            run.precision.name(),
            counted(run.steps as u64, "step"),
            run.seed,
        ),
    ];
    let mut out: String = lines.iter().map(|line| format!("{}\n", wrapped(line, WIDTH, 2))).collect();
    out += &format!("{}\n", premises::line(premises));
    // All columns are more than a terminal has room for.
    let all = devices(report);
    out += &format!("\n{}", table::titled(&picked(&all, "What each device took, and sent", &[0, 1, 2, 3, 7]), style));
    out += &format!("\n{}", table::titled(&picked(&all, "What it held of the network", &[0, 4, 5, 6]), style));
    out += &format!("\n{}", table::titled(&categories(report), style));
    if let [first, .., last] = result.losses.as_slice() {
        out += &format!("loss {first:.4} → {last:.4}\n");
    }
    out += &result.accuracy.map_or_else(String::new, |accuracy| format!("{}\n", memory::accuracy(accuracy)));
    let moved: u64 = result.stages.iter().map(|stage| stage.sent_bytes).sum();
    out += &format!(
        "{}\n",
        wrapped(&format!("{} crossed the cuts in all, gradients included.", bytes::both(moved)), WIDTH, 0)
    );
    out
}

fn micro_batches(parts: usize) -> String {
    if parts == 1 { "one micro-batch".into() } else { format!("{parts} micro-batches") }
}

fn picked(table: &Table, title: &str, columns: &[usize]) -> Table {
    let names = columns.iter().filter_map(|i| table.columns.get(*i).cloned());
    let row = |row: &Vec<Cell>| columns.iter().filter_map(|i| row.get(*i).cloned()).collect();
    Table { title: title.into(), columns: names.collect(), rows: table.rows.iter().map(row).collect() }
}

/// One row per device.
pub(crate) fn devices(report: &Report) -> Table {
    let columns =
        ["device", "pieces", "peak", "reserved", "parameters", "activations", "in flight", "sent"].map(String::from);
    let row = |((name, _), stage): (&(DeviceName, _), &lab::pipeline::StageFigures)| {
        vec![
            Cell::Text(name.to_string()),
            Cell::Text(format!("{}–{}", stage.pieces.start, stage.pieces.end.saturating_sub(1))),
            Cell::Bytes(stage.account.peak.allocated_bytes),
            Cell::Bytes(stage.account.reserved_peak),
            Cell::Bytes(stage.parameter_bytes),
            Cell::Bytes(stage.activation_bytes),
            Cell::Count(stage.in_flight as u64),
            Cell::Bytes(stage.sent_bytes),
        ]
    };
    Table {
        title: "Each device: its pieces of the network, the most it held, what it sent".into(),
        columns: columns.to_vec(),
        rows: report.devices.iter().zip(&report.result.stages).map(row).collect(),
    }
}

/// What each device's peak consisted of.
pub(crate) fn categories(report: &Report) -> Table {
    let stages = &report.result.stages;
    let present = |category: &Category| stages.iter().any(|s| s.account.peak.by_category[*category as usize] > 0);
    let row = |category: Category| {
        let cells = stages.iter().map(|s| Cell::Bytes(s.account.peak.by_category[category as usize]));
        std::iter::once(Cell::Text(category.name().replace('_', " "))).chain(cells).collect()
    };
    let total = stages.iter().map(|s| Cell::Bytes(s.account.peak.allocated_bytes));
    let names = report.devices.iter().map(|(name, _)| name.to_string());
    Table {
        title: "What each peak consisted of".into(),
        columns: std::iter::once("category".to_string()).chain(names).collect(),
        rows: Category::ALL
            .into_iter()
            .filter(present)
            .map(row)
            .chain([std::iter::once(Cell::Text("total".into())).chain(total).collect()])
            .collect(),
    }
}
