//! Tables and curves of a run's memory.

use lab_base::section::{Cell, Chart, Section, Series, Shape, Table};
use lab_training::record::Row;

use super::figures::{ByCategory, PeakResult, RingBytes};
use super::train::TrainResult;

/// Rows shown from the start of a run, and from its end.
const HEAD: usize = 13;
const TAIL: usize = 7;

/// Categories of a short answer.
const PARTS: usize = 4;

/// Rows of the whole table that are shown; --json has all.
const MAX_ROWS: usize = 400;

impl TrainResult {
    /// Table with a row per phase; `None` for a run over several devices.
    pub(super) fn rows_table(&self) -> Option<Table> {
        let until = if self.out_of_memory.is_some() { ", until memory ran out" } else { "" };
        let alone = self.devices.is_empty() && self.ranks.is_empty();
        alone.then(|| shortened(phases(&format!("Memory by phase{until}"), &self.steps), self.rows_left_out))
    }

    /// Table of the peak by category, beside the memory after the last step.
    pub(super) fn composition(&self) -> Option<Table> {
        let peak = self.peak.as_ref()?;
        let empty = ByCategory::new();
        let now = self.by_category.as_ref().filter(|_| self.out_of_memory.is_none()).unwrap_or(&empty);
        let share = |part: u64| Cell::percent(part as f64 / peak.bytes.max(1) as f64);
        let row = |name: &str, at_peak: u64, now: u64| {
            vec![Cell::Text(name.replace('_', " ")), Cell::Bytes(at_peak), share(at_peak), Cell::Bytes(now)]
        };
        let held = |name: &str| now.get(name).copied().unwrap_or(0);
        let mut names: Vec<(&String, u64)> = peak.by_category.iter().map(|(name, bytes)| (name, *bytes)).collect();
        names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let there = names.into_iter().filter(|(name, bytes)| *bytes > 0 || held(name) > 0);
        let mut rows: Vec<Vec<Cell>> = there.map(|(name, bytes)| row(name, bytes, held(name))).collect();
        rows.push(row("total", peak.by_category.values().sum(), now.values().sum()));
        let columns = ["category", "at the peak", "share", "after the last step"];
        Some(Table::new("What the peak consisted of", &columns, rows))
    }

    /// Sections on the largest categories of the peak; then memory by phase, and the whole peak.
    pub(super) fn figures(&self) -> impl Iterator<Item = Section> {
        let short = self.composition().map(|table| Section::List(largest(table)));
        short.into_iter().chain([Section::Rest(self.tables().collect())])
    }

    /// Tables of memory by phase, and of the peak by category.
    fn tables(&self) -> impl Iterator<Item = Section> {
        [self.rows_table(), self.composition()].into_iter().flatten().map(Section::Table)
    }

    /// Details, for few readers.
    pub(super) fn details(&self) -> Vec<Section> {
        let tables = [self.peak.as_ref().map(modules), self.bridge()].into_iter().flatten().map(Section::Table);
        let figures = self.prediction.is_some().then(|| self.tables());
        let mut sections: Vec<Section> = figures.into_iter().flatten().chain(tables).collect();
        if self.rings.is_some_and(|rings| rings.driver.is_none()) && !self.on_host() {
            sections.push(Section::Note("The driver does not say what is in use on the device.".into()));
        }
        if self.steps.len() > HEAD + TAIL + 1 {
            let shown = &self.steps[..self.steps.len().min(MAX_ROWS)];
            sections.push(Section::Table(phases("Memory by phase, row by row", shown)));
            if self.steps.len() > MAX_ROWS {
                sections.push(Section::Note(format!("The first {MAX_ROWS}; --json has all.")));
            }
        }
        sections
    }

    fn on_host(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.host_memory)
    }

    /// Bars of the five rings and the gaps between them: each line adds to the one above.
    fn bridge(&self) -> Option<Table> {
        let RingBytes { requested, allocated, active, reserved, driver } =
            self.rings.filter(|_| self.out_of_memory.is_none())?;
        // Measured at the same moment as the rings. If not, the gap is shown as a whole.
        let last = self.steps.iter().rev().find(|row| row.label != "end");
        let split = last.map_or(0, |row| row.inactive_split).min(reserved.saturating_sub(active));
        let mut rows = Vec::new();
        let total = |name: &str, bytes: u64| vec![Cell::Text(name.into()), Cell::Bytes(bytes)];
        let gap = |name: &str, from: u64, to: u64| {
            let difference = i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(i64::MAX);
            vec![Cell::Text(format!("  {name}")), Cell::Difference(difference)]
        };
        rows.push(total("requested", requested));
        rows.push(gap("rounding to blocks", requested, allocated));
        rows.push(total("allocated", allocated));
        rows.push(gap("freed, still in use by other streams", allocated, active));
        rows.push(total("active", active));
        rows.push(gap("free parts of segments in use", active, active + split));
        rows.push(gap("cached segments", active + split, reserved));
        rows.push(total("reserved", reserved));
        // If the device is the host, its memory in use says nothing about the run.
        if let Some(driver) = driver.filter(|_| !self.on_host()) {
            let mut below = reserved;
            let parts = self.overheads.iter().flat_map(|overheads| &overheads.parts).filter(|part| part.bytes > 0);
            for part in parts {
                rows.push(gap(&part.name, below, below.saturating_add(part.bytes)));
                below = below.saturating_add(part.bytes);
            }
            let measured = self.overheads.is_some();
            let rest = if measured { "unexplained" } else { "context, libraries, other processes" };
            rows.push(gap(rest, below, driver));
            rows.push(total("in use on the device, as its driver reports", driver));
        }
        let title = "From requested bytes to the device's memory, after the last step";
        Some(Table::new(title, &["", "bytes"], rows))
    }

    /// Chart of the losses; `None` for fewer than three.
    pub(super) fn loss_curve(&self) -> Option<Chart> {
        let losses = self.losses.iter().flatten().enumerate();
        let points: Vec<(f64, f64)> = losses.filter_map(|(i, loss)| Some((i as f64, (*loss)?))).collect();
        (points.len() > 2).then(|| Chart {
            title: "Loss at each step".into(),
            x: "step".into(),
            labels: Vec::new(),
            series: vec![Series { name: "loss".into(), points, color: 0, shape: Shape::Line }],
            bytes: false,
            limit: None,
        })
    }

    /// Chart of memory over the run; `None` for a single row.
    pub(super) fn memory_curve(&self) -> Option<Chart> {
        (self.steps.len() > 1).then(|| self.curve_of_rows())
    }

    fn curve_of_rows(&self) -> Chart {
        let series = |name: &str, of: fn(&Row) -> u64, color, shape| Series {
            name: name.into(),
            points: self.steps.iter().enumerate().map(|(i, row)| (i as f64, of(row) as f64)).collect(),
            color,
            shape,
        };
        let budget = self.prediction.as_ref().and_then(|prediction| prediction.budget_bytes);
        Chart {
            title: "Memory after each phase".into(),
            x: "phases".into(),
            labels: self.steps.iter().map(|row| row.label.clone()).collect(),
            series: vec![
                series("reserved", |row| row.reserved, 7, Shape::Steps),
                series("peak in phase", |row| row.phase_peak_allocated, 1, Shape::Steps),
                series("allocated", |row| row.allocated, 0, Shape::Area),
            ],
            bytes: true,
            limit: budget.map(|bytes| ("what there is".into(), bytes as f64)),
        }
    }
}

/// Keeps the largest rows, and the total.
fn largest(mut table: Table) -> Table {
    if table.rows.len() > PARTS + 1 {
        table.rows.drain(PARTS..table.rows.len() - 1);
        table.title = format!("{}: the most of it", table.title);
    }
    table
}

fn phases(title: &str, rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let figures = [row.allocated, row.phase_peak_allocated, row.reserved].map(Cell::Bytes);
        std::iter::once(Cell::Text(row.label.clone())).chain(figures).collect()
    };
    Table::new(title, &["phase", "allocated", "peak in phase", "reserved"], rows.iter().map(row).collect())
}

/// Keeps the first and the last steps; a row says how many are left out, here or before.
fn shortened(mut table: Table, left_out: usize) -> Table {
    let n = table.rows.len();
    if n > HEAD + TAIL + 1 {
        let rest = format!("⋮ {} rows", n - HEAD - TAIL + left_out);
        let mut gap = vec![Cell::Text(rest)];
        gap.resize(table.columns.len(), Cell::Text("⋮".into()));
        table.rows.splice(HEAD..n - TAIL, [gap]);
    }
    table
}

/// Table of the modules that held most of a peak.
fn modules(peak: &PeakResult) -> Table {
    let rows = peak.by_scope.iter().map(|held| {
        let total: u64 = held.by_category.values().sum();
        let mostly = held.by_category.iter().max_by_key(|(_, bytes)| **bytes).map_or("", |(name, _)| name);
        let scope = if held.scope.is_empty() { "(no module: loss, optimizer, batch)" } else { &held.scope };
        vec![Cell::Text(scope.into()), Cell::Bytes(total), Cell::Text(mostly.replace('_', " "))]
    });
    Table::new("Who held most of it", &["module", "at the peak", "mostly"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ring_is_the_one_above_and_the_gaps_between() {
        let rings = RingBytes { requested: 1000, allocated: 1536, active: 2048, reserved: 5000, driver: Some(9000) };
        let result = TrainResult { rings: Some(rings), ..TrainResult::default() };
        let table = result.bridge().unwrap();
        let mut total = 0;
        for row in &table.rows {
            match row[1] {
                Cell::Difference(gap) => total += gap,
                Cell::Bytes(ring) => {
                    assert!(total == 0 || total == ring as i64, "{row:?}: {total}");
                    total = ring as i64;
                }
                _ => panic!("{row:?}"),
            }
        }
        assert_eq!((table.rows.len(), total), (10, 9000));
    }
}
