//! Tables of what each of several devices, or ranks, held and sent.

use lab_base::figures::{both, grouped};
use lab_base::section::{Cell, Section, Table};

use super::figures::PeakResult;
use super::split::{DataParallelFigures, RankResult, StageResult};
use super::train::TrainResult;

/// A figure of a rank, with its name.
type RankRow = (&'static str, fn(&RankResult) -> u64);

impl TrainResult {
    /// Sections on what each of several devices, or ranks, held and sent.
    pub(super) fn several(&self) -> Vec<Section> {
        let (mut sections, mut rest) = match &self.data_parallel {
            Some(divided) => (
                vec![Section::Note(self.divided(divided)), Section::List(self.ranks_table())],
                vec![Section::Table(self.states(divided)), Section::Table(self.sent())],
            ),
            None if self.devices.is_empty() => return Vec::new(),
            None => {
                // A terminal has no room for all columns.
                let all = self.devices_table();
                let took = picked(&all, "What each device took, and sent", &[0, 1, 2, 3, 7]);
                let held = picked(&all, "What it held of the network", &[0, 4, 5, 6]);
                let notes = [self.modules(), Some(self.moved())].into_iter().flatten().map(Section::Note);
                (std::iter::once(Section::List(took)).chain(notes).collect(), vec![Section::Table(held)])
            }
        };
        rest.push(Section::Table(self.compositions()));
        if self.devices.is_empty() {
            rest.extend(self.notes_on_ranks().into_iter().map(Section::Note));
        }
        sections.push(Section::Rest(rest));
        sections
    }

    /// The table for CSV.
    pub(super) fn table_of_split(&self) -> Option<Table> {
        if self.data_parallel.is_some() {
            return Some(self.ranks_table());
        }
        (!self.devices.is_empty()).then(|| self.devices_table())
    }

    /// The modules on each device, where they have names.
    fn modules(&self) -> Option<String> {
        let one = |stage: &StageResult| Some(format!("{}: {}", stage.name, stage.modules.as_ref()?));
        let all: Option<Vec<String>> = self.devices.iter().map(one).collect();
        all.map(|all| format!("{}.", all.join("; ")))
    }

    fn moved(&self) -> String {
        let moved: u64 = self.devices.iter().map(|stage| stage.sent_bytes).sum();
        format!("The devices sent each other {}, gradients included.", both(moved))
    }

    fn devices_table(&self) -> Table {
        let columns = ["device", "pieces", "peak", "reserved", "parameters", "activations", "in flight", "sent"];
        let row = |stage: &StageResult| {
            let [start, end] = stage.pieces;
            vec![
                Cell::Text(stage.name.clone()),
                Cell::Text(format!("{start}–{}", end.saturating_sub(1))),
                Cell::Bytes(stage.account.peak.bytes),
                Cell::Bytes(stage.account.peak.reserved_bytes),
                Cell::Bytes(stage.parameter_bytes),
                Cell::Bytes(stage.activation_bytes),
                Cell::Count(stage.in_flight as u64),
                Cell::Bytes(stage.sent_bytes),
            ]
        };
        let title = "Each device: its pieces of the network, the most it held, what it sent";
        Table::new(title, &columns, self.devices.iter().map(row).collect())
    }

    fn ranks_table(&self) -> Table {
        let row = |rank: &RankResult| {
            vec![
                Cell::Text(rank.rank.to_string()),
                Cell::Bytes(rank.account.peak.bytes),
                Cell::Bytes(rank.account.peak.reserved_bytes),
                Cell::Bytes(rank.gathered_bytes),
                Cell::Bytes(rank.bucket_bytes),
                Cell::Count(rank.parameters_owned),
            ]
        };
        let title = "Each rank: its peak, the bytes gathered and in buckets, the parameters that it updates";
        let columns = ["rank", "peak", "reserved", "gathered", "buckets", "parameters"];
        Table::new(title, &columns, self.ranks.iter().map(row).collect())
    }

    /// Table with a column for each rank.
    fn by_rank(&self, title: &str, first: &str, rows: &[RankRow]) -> Table {
        let names: Vec<String> = self.ranks.iter().map(|rank| format!("rank {}", rank.rank)).collect();
        let columns: Vec<&str> = std::iter::once(first).chain(names.iter().map(String::as_str)).collect();
        let row = |(name, of): &RankRow| {
            let cells = self.ranks.iter().map(|rank| Cell::Bytes(of(rank)));
            std::iter::once(Cell::Text((*name).into())).chain(cells).collect()
        };
        Table::new(title, &columns, rows.iter().map(row).collect())
    }

    /// Table of the model states, beside the paper's formula.
    fn states(&self, divided: &DataParallelFigures) -> Table {
        let rows: [RankRow; 4] = [
            ("parameters", |rank| rank.model_states.parameter_bytes),
            ("gradients", |rank| rank.model_states.gradient_bytes),
            ("optimizer states", |rank| rank.model_states.optimizer_bytes),
            ("total", |rank| rank.model_states.total_bytes),
        ];
        let title = "What the model takes all the time, by the ledger and by the ZeRO paper's formula";
        let mut table = self.by_rank(title, "state", &rows);
        let formula = divided.formula;
        let parts = [formula.parameter_bytes, formula.gradient_bytes, formula.optimizer_bytes, formula.total_bytes];
        table.columns.push("formula".into());
        table.rows.iter_mut().zip(parts).for_each(|(row, bytes)| row.push(Cell::Bytes(bytes)));
        table
    }

    fn sent(&self) -> Table {
        let rows: [RankRow; 4] = [
            ("all-reduce", |rank| rank.sent_bytes_per_step.all_reduce),
            ("reduce-scatter", |rank| rank.sent_bytes_per_step.reduce_scatter),
            ("all-gather", |rank| rank.sent_bytes_per_step.all_gather),
            ("total", |rank| rank.sent_bytes_per_step.total),
        ];
        self.by_rank("What each rank sends in a step, in a ring", "collective", &rows)
    }

    /// Table of what each device's or rank's peak consisted of.
    fn compositions(&self) -> Table {
        let stages = self.devices.iter().map(|stage| (stage.name.clone(), &stage.account.peak));
        let ranks = self.ranks.iter().map(|rank| (format!("rank {}", rank.rank), &rank.account.peak));
        let (names, peaks): (Vec<String>, Vec<&PeakResult>) = stages.chain(ranks).unzip();
        let columns: Vec<&str> = std::iter::once("category").chain(names.iter().map(String::as_str)).collect();
        let held = |peak: &PeakResult, category: &str| peak.by_category.get(category).copied().unwrap_or(0);
        let categories =
            peaks.first().map(|peak| peak.by_category.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let there = categories.into_iter().filter(|category| peaks.iter().any(|peak| held(peak, category) > 0));
        let row = |name: String, of: &dyn Fn(&PeakResult) -> u64| -> Vec<Cell> {
            std::iter::once(Cell::Text(name)).chain(peaks.iter().map(|peak| Cell::Bytes(of(peak)))).collect()
        };
        let mut rows: Vec<Vec<Cell>> =
            there.map(|category| row(category.replace('_', " "), &|peak| held(peak, &category))).collect();
        rows.push(row("total".into(), &|peak| peak.bytes));
        let buckets = if self.ranks.is_empty() { "" } else { " (workspace: buckets and what is gathered, too)" };
        Table::new(format!("What each peak consisted of{buckets}"), &columns, rows)
    }

    fn divided(&self, divided: &DataParallelFigures) -> String {
        let master = if divided.master_weights { ", float32 master weights" } else { "" };
        let (ranks, each, stage) = (divided.ranks, divided.examples_per_rank, divided.stage);
        format!("{ranks} ranks train with {each} examples each, under ZeRO-{stage}{master}.")
    }

    fn notes_on_ranks(&self) -> Vec<String> {
        let (Some(divided), Some(rank)) = (&self.data_parallel, self.ranks.first()) else { return Vec::new() };
        let mut notes = Vec::new();
        if divided.ranks > self.ranks.len() {
            notes.push("The other ranks hold the same, because shards are padded to one size.".into());
        }
        if rank.units > 0 {
            notes.push(format!(
                "{} parameters in {} units, padded with {}; the last rank updates {} of its share.",
                grouped(self.parameters.unwrap_or(0), ' '),
                rank.units,
                grouped(rank.padding, ' '),
                self.ranks.last().map_or(String::new(), |last| grouped(last.parameters_owned, ' ')),
            ));
        }
        let states = ["parameter", "gradient", "optimizer_state"];
        let kept: u64 = states.iter().filter_map(|name| rank.account.peak.by_category.get(*name)).sum();
        notes.push(format!(
            "The formula has no activations, buckets, gathered units or temporaries of the step: at the peak they are {}.",
            both(rank.account.peak.bytes.saturating_sub(kept))
        ));
        notes
    }
}

fn picked(table: &Table, title: &str, columns: &[usize]) -> Table {
    let names = columns.iter().filter_map(|i| table.columns.get(*i).cloned());
    let row = |row: &Vec<Cell>| columns.iter().filter_map(|i| row.get(*i).cloned()).collect();
    Table { title: title.into(), columns: names.collect(), rows: table.rows.iter().map(row).collect() }
}
