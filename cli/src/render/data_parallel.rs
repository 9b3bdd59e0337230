//! A divided run for people: what a rank held and sent.

use lab::data_parallel::{DataParallelResult, DataParallelSettings, ModelStates, RankFigures};
use lab::results::DeviceInfo;
use lab::section::{Cell, Table};
use memcore::memory::Category;

use super::style::Style;
use super::{WIDTH, bytes, counted, grouped, premises, table, wrapped};
use lab::results::Premise;

/// A divided run, done.
pub(crate) struct Report {
    /// What is known of each rank's device.
    pub device: DeviceInfo,
    /// What the network is called.
    pub model: String,
    /// What it is.
    pub description: String,
    /// The settings in force.
    pub settings: DataParallelSettings,
    /// What came of it.
    pub result: DataParallelResult,
}

/// Everything about the run.
pub(crate) fn text(report: &Report, premises: &[Premise], style: Style) -> String {
    let (settings, run) = (&report.settings, &report.settings.run);
    let master = if settings.master_weights { " with float32 master weights" } else { "" };
    let lines = [
        format!("{}: {}", report.model, report.description),
        format!(
            "batch {} over {} ({} each), ZeRO-{}, {}, {}{master}, {}, seed {}",
            run.batch,
            counted(settings.ranks as u64, "rank"),
            settings.share(),
            settings.stage.number(),
            run.optimizer.kind.name(),
            run.precision.name(),
            counted(run.steps as u64, "step"),
            run.seed,
        ),
    ];
    let mut out: String = lines.iter().map(|line| format!("{}\n", wrapped(line, WIDTH, 2))).collect();
    out += &format!("{}\n", premises::line(premises));
    for table in [ranks(report), states(report), sent(report), categories(report)] {
        out += &format!("\n{}", table::titled(&table, style));
    }
    for note in notes(report) {
        out += &format!("{}\n", wrapped(&note, WIDTH, 0));
    }
    out
}

fn notes(report: &Report) -> Vec<String> {
    let Some(rank) = report.result.ranks.first() else { return Vec::new() };
    let mut notes = Vec::new();
    if report.settings.ranks > report.result.ranks.len() {
        notes.push("The ranks between hold the same: shards are padded to one size.".into());
    }
    if rank.units > 0 {
        let units = counted(rank.units as u64, "unit");
        notes.push(format!(
            "{} parameters in {units}, padded with {}; the last rank steps {} of its share.",
            grouped(rank.parameters),
            grouped(rank.padding),
            report.result.ranks.last().map_or(String::new(), |last| grouped(last.owned)),
        ));
    }
    notes.push(format!(
        "The formula has no activations, buckets, gathered units or temporaries of the step: at the peak they are {}.",
        bytes::both(rank.account.peak.allocated_bytes.saturating_sub(kept_at_peak(rank)))
    ));
    notes
}

/// What of the peak were model states.
fn kept_at_peak(rank: &RankFigures) -> u64 {
    let states = [Category::Parameter, Category::Gradient, Category::OptimizerState];
    states.iter().map(|category| rank.account.peak.by_category[*category as usize]).sum()
}

fn named<'a>(first: &str, report: &'a Report) -> impl Iterator<Item = String> + 'a {
    let names = report.result.ranks.iter().map(|rank| format!("rank {}", rank.rank));
    std::iter::once(first.to_string()).chain(names)
}

/// One row per rank.
pub(crate) fn ranks(report: &Report) -> Table {
    let row = |rank: &RankFigures| {
        vec![
            Cell::Text(rank.rank.to_string()),
            Cell::Bytes(rank.account.peak.allocated_bytes),
            Cell::Bytes(rank.account.reserved_peak),
            Cell::Bytes(rank.gathered_bytes),
            Cell::Bytes(rank.bucket_bytes),
            Cell::Count(rank.owned),
        ]
    };
    Table {
        title: "Each rank: the most it held, of that gathered and in buckets, what it steps".into(),
        columns: ["rank", "peak", "reserved", "gathered", "buckets", "parameters"].map(String::from).to_vec(),
        rows: report.result.ranks.iter().map(row).collect(),
    }
}

/// What the model takes all the time, beside the paper's formula.
pub(crate) fn states(report: &Report) -> Table {
    let formula = report.formula();
    let row = |name: &str, of: fn(&ModelStates) -> u64| {
        let ranks = report.result.ranks.iter().map(|rank| Cell::Bytes(of(&rank.states)));
        std::iter::once(Cell::Text(name.into())).chain(ranks).chain([Cell::Bytes(of(&formula))]).collect()
    };
    Table {
        title: "What the model takes all the time, by the ledger and by the ZeRO paper's formula".into(),
        columns: named("state", report).chain(["formula".to_string()]).collect(),
        rows: vec![
            row("parameters", |states| states.parameter_bytes),
            row("gradients", |states| states.gradient_bytes),
            row("optimizer states", |states| states.optimizer_bytes),
            row("total", |states| states.total()),
        ],
    }
}

/// What each rank sends in a step.
pub(crate) fn sent(report: &Report) -> Table {
    let row = |name: &str, of: fn(&RankFigures) -> u64| {
        let ranks = report.result.ranks.iter().map(|rank| Cell::Bytes(of(rank)));
        std::iter::once(Cell::Text(name.into())).chain(ranks).collect()
    };
    Table {
        title: "What each rank sends in a step, in a ring".into(),
        columns: named("collective", report).collect(),
        rows: vec![
            row("all-reduce", |rank| rank.sent.all_reduce),
            row("reduce-scatter", |rank| rank.sent.reduce_scatter),
            row("all-gather", |rank| rank.sent.all_gather),
            row("total", |rank| rank.sent.total()),
        ],
    }
}

/// What each rank's peak consisted of.
pub(crate) fn categories(report: &Report) -> Table {
    let ranks = &report.result.ranks;
    let present = |category: &Category| ranks.iter().any(|rank| rank.account.peak.by_category[*category as usize] > 0);
    let row = |category: Category| {
        let cells = ranks.iter().map(|rank| Cell::Bytes(rank.account.peak.by_category[category as usize]));
        std::iter::once(Cell::Text(category.name().replace('_', " "))).chain(cells).collect()
    };
    let total = ranks.iter().map(|rank| Cell::Bytes(rank.account.peak.allocated_bytes));
    let sum = std::iter::once(Cell::Text("total".into())).chain(total).collect();
    Table {
        title: "What each peak consisted of (workspace: buckets and what is gathered, too)".into(),
        columns: named("category", report).collect(),
        rows: Category::ALL.into_iter().filter(present).map(row).chain([sum]).collect(),
    }
}
