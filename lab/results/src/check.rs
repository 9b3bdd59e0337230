//! Runs compared with their locked memory (`vramlab-check-1`).

use lab_analysis::lock::{Change, Comparison, Locked, Part, SCHEMA, Verdict};
use lab_base::figures::{counted, signed};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::findings::Findings;
use super::premise::{self, Premise};

/// The most origins of growth that a table names.
const TOP: usize = 10;
/// Rows of a short answer, and number of runs that it describes in detail.
const BRIEF: usize = 2;
/// The most runs that it has a line for.
const MAX_LINES: usize = 8;

/// The most origins of growth that a message names.
const NAMED: usize = 3;

/// Result of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckResult {
    /// The lock file.
    pub baseline: String,
    /// Schema name of the lock file.
    pub lock_schema: String,
    /// Allowed growth, as typed.
    pub tolerance: String,
    /// True if changed events and less memory fail too.
    pub strict: bool,
    /// True if the file was written.
    pub updated: bool,
    /// The worst of the verdicts; null if nothing was compared.
    pub verdict: Option<Verdict>,
    /// True if every run passes.
    pub passed: bool,
    /// The runs.
    pub runs: Vec<CheckedRun>,
}

/// A run of the file, and its memory now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckedRun {
    /// Its name.
    pub name: String,
    /// The network.
    pub model: String,
    /// Premises of its figures, with their sources.
    pub premises: Vec<Premise>,
    /// Verdict; null if the run was not in the file.
    pub verdict: Option<Verdict>,
    /// Why it does not pass.
    pub failure: Option<String>,
    /// Comparison with the locked memory.
    pub comparison: Option<Comparison>,
    /// Reasons why its figures may not be what was asked for.
    pub warnings: Vec<String>,
    /// The run as it is now.
    pub now: Locked,
}

impl CheckResult {
    /// Result for these runs; each of them is judged.
    pub fn new(baseline: String, tolerance: String, strict: bool, updated: bool, mut runs: Vec<CheckedRun>) -> Self {
        for run in &mut runs {
            run.verdict = run.comparison.as_ref().map(|comparison| comparison.verdict);
            run.failure = run.failure(strict);
        }
        Self {
            baseline,
            lock_schema: SCHEMA.into(),
            tolerance,
            strict,
            updated,
            verdict: runs.iter().filter_map(|run| run.verdict).max(),
            passed: runs.iter().all(|run| run.failure.is_none()),
            runs,
        }
    }

    fn rows(&self) -> Table {
        let columns = ["run", "figure", "baseline", "now", "change"];
        Table::new("Memory, beside the lock file's", &columns, self.runs.iter().flat_map(CheckedRun::rows).collect())
    }
}

impl CheckedRun {
    /// Why the run does not pass.
    fn failure(&self, strict: bool) -> Option<String> {
        let (comparison, name) = (self.comparison.as_ref()?, &self.name);
        match comparison.verdict {
            Verdict::Same => None,
            Verdict::Grew => Some(format!("{name}: memory grew: {}", self.growth(comparison))),
            Verdict::Changed | Verdict::Shrank if !strict => None,
            Verdict::Changed => Some(format!("{name}: the list of events changed (--strict)")),
            Verdict::Shrank => Some(format!("{name}: memory shrank (--strict); --update writes the file anew")),
        }
    }

    fn growth(&self, comparison: &Comparison) -> String {
        let part = |part: &Part| {
            let (change, category) = (&part.change, part.category.replace('_', " "));
            format!("{} ({category}, {})", change.name, signed(change.difference()))
        };
        let parts: Vec<String> = comparison.grown().iter().take(NAMED).map(part).collect();
        let who = match parts.is_empty() {
            false => format!("most in {}", parts.join(", ")),
            true => format!("the peak is reached by {}", self.now.memory.peak.maker()),
        };
        format!("{}; {who}", grown_figures(comparison))
    }

    /// A row for each figure.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let memory = &self.now.memory;
        let all = [("allocated", memory.peak.allocated), ("reserved", memory.peak.reserved), ("held", memory.held)];
        let now = all.into_iter().chain(memory.expected.map(|bytes| ("expected", bytes)));
        let row = |name: &str, now: u64, before: Option<&Change>| {
            let difference = before.map_or_else(Cell::unknown, |change| Cell::Difference(change.difference()));
            let baseline = Cell::bytes(before.map(|change| change.baseline));
            vec![Cell::Text(self.name.clone()), Cell::Text(figure(name).into()), baseline, Cell::Bytes(now), difference]
        };
        match &self.comparison {
            Some(comparison) => {
                comparison.figures.iter().map(|change| row(&change.name, change.now, Some(change))).collect()
            }
            None => now.map(|(name, now)| row(name, now, None)).collect(),
        }
    }

    fn verdict_in_words(&self, tolerance: &str) -> String {
        let name = &self.name;
        let Some(comparison) = &self.comparison else { return format!("{name}: a new run") };
        match comparison.verdict {
            Verdict::Same => format!("{name}: as before, event by event"),
            Verdict::Shrank => format!("{name}: less than before; --update writes the file anew"),
            Verdict::Changed if comparison.figures.iter().any(|figure| figure.difference() > 0) => {
                format!("{name}: more than before, within the tolerance of {tolerance}")
            }
            Verdict::Changed => format!("{name}: other events, but not more memory; --update writes the file anew"),
            Verdict::Grew => {
                let peak = &self.now.memory.peak;
                let phase = if peak.phase.is_empty() { String::new() } else { format!(", in phase {}", peak.phase) };
                let maker = peak.maker();
                let grown = grown_figures(comparison);
                format!("{name}: memory grew (tolerance {tolerance}): {grown}. The peak is reached by {maker}{phase}")
            }
        }
    }

    fn details(comparison: &Comparison, top: usize) -> Vec<Section> {
        let mut sections = Vec::new();
        if !comparison.settings.is_empty() {
            let one = |(name, before, now): &(String, Value, Value)| format!("{name} {before} → {now}");
            let settings: Vec<String> = comparison.settings.iter().map(one).collect();
            sections.push(Section::Note(format!("other settings: {}", settings.join(", "))));
        }
        if comparison.verdict != Verdict::Grew {
            return sections;
        }
        if !comparison.phases.is_empty() {
            let one = |change: &Change| format!("{} {}", change.name, signed(change.difference()));
            let phases: Vec<String> = comparison.phases.iter().map(one).collect();
            sections.push(Section::Note(format!("peaks of the phases: {}", phases.join(", "))));
        }
        let grown = comparison.grown();
        if grown.is_empty() {
            sections.push(Section::Note("no part of the peak grew".into()));
            return sections;
        }
        let row = |part: &Part| {
            vec![
                Cell::Text(part.change.name.clone()),
                Cell::Text(part.category.replace('_', " ")),
                Cell::Bytes(part.change.baseline),
                Cell::Bytes(part.change.now),
                Cell::Difference(part.change.difference()),
            ]
        };
        let more = if grown.len() > top { format!(", the first {top} of {}", grown.len()) } else { String::new() };
        let columns = ["who", "category", "baseline", "now", "change"];
        let rows = grown.iter().take(top).map(row).collect();
        sections.push(Section::List(Table::new(format!("What grew at the peak{more}"), &columns, rows)));
        sections
    }
}

/// The figures that grew, in words: `peak allocated by +1.9 GiB, peak reserved by +2 GiB`.
fn grown_figures(comparison: &Comparison) -> String {
    let grew = comparison.figures.iter().filter(|figure| comparison.grew.contains(&figure.name));
    grew.map(|f| format!("{} by {}", figure(&f.name), signed(f.difference()))).collect::<Vec<_>>().join(", ")
}

/// Name of a lock's figure, in words.
fn figure(name: &str) -> &str {
    match name {
        "allocated" => "peak allocated",
        "reserved" => "peak reserved",
        "held" => "after the last step",
        "expected" => "reserved, with cuDNN",
        other => other,
    }
}

impl Findings for CheckResult {
    const SCHEMA: &'static str = "vramlab-check-1";

    fn title(&self) -> String {
        let runs = counted(self.runs.len() as u64, "locked run");
        let grew = self.runs.iter().filter(|run| run.verdict == Some(Verdict::Grew)).count();
        let is_new = self.runs.iter().all(|run| run.comparison.is_none());
        match (grew, self.passed) {
            _ if is_new => format!("{}: nothing to compare with yet", counted(self.runs.len() as u64, "new run")),
            (0, true) => format!("{runs}: none grew"),
            (0, false) => format!("{runs}: none grew, but not all are as before (--strict)"),
            (n, _) => format!("{n} of {runs} grew"),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        let mut rest = Vec::new();
        // Runs that do not pass come first.
        let (failed, passed): (Vec<&CheckedRun>, Vec<&CheckedRun>) =
            self.runs.iter().partition(|run| run.failure.is_some());
        for run in failed.iter().take(BRIEF) {
            let why = run.failure.clone().filter(|_| run.verdict != Some(Verdict::Grew));
            sections.push(Section::Answer(why.unwrap_or_else(|| run.verdict_in_words(&self.tolerance))));
            sections.extend(run.comparison.iter().flat_map(|comparison| CheckedRun::details(comparison, BRIEF)));
        }
        for run in failed.iter().skip(BRIEF).chain(&passed).take(MAX_LINES) {
            sections.push(Section::Note(run.verdict_in_words(&self.tolerance)));
        }
        for run in &self.runs {
            sections.extend(run.warnings.iter().cloned().map(Section::Warning));
            rest.push(Section::Heading(run.verdict_in_words(&self.tolerance)));
            rest.extend(premise::section(&run.premises));
            rest.extend(run.comparison.iter().flat_map(|comparison| CheckedRun::details(comparison, TOP)));
        }
        rest.push(Section::Table(self.rows()));
        if let [first, others @ ..] = self.runs.as_slice()
            && others.iter().all(|run| run.premises == first.premises)
        {
            sections.extend(premise::section(&first.premises));
        }
        sections.push(Section::Note("Every figure beside the lock file's: --full.".into()));
        sections.push(Section::Rest(rest));
        if self.updated {
            let written = counted(self.runs.len() as u64, "run");
            sections.push(Section::Note(format!("{}: {written} written", self.baseline)));
        }
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}
