//! Holders of memory at a moment of a trace, by line of the program.

use lab_base::figures::{percent, short};
use lab_base::section::{Cell, Table};
use lab_traces::snapshot::{Snapshot, StackId};
use lab_traces::stacks::{Guesses, HeldRow, Life, Line, Role, callers, held_at, kept_in_vain};
use serde::{Deserialize, Serialize};

/// A moment, and the holders of memory then. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MomentResult {
    /// Kind of moment: `out_of_memory`, `peak`, `end` (of a snapshot without a trace).
    pub what: String,
    /// Entry of the trace; null if the moment was before the first.
    pub entry: Option<usize>,
    /// Part of the program that was running, as stacks suggest.
    pub phase: Option<String>,
    /// Step of training, from 1 on; null if steps are not known.
    pub step: Option<usize>,
    /// The program's own ranges that were open then, the outermost first.
    #[serde(default)]
    pub ranges: Vec<String>,
    /// Bytes held.
    pub requested_bytes: u64,
    /// Lines that held most.
    pub by_line: Vec<LineResult>,
    /// Number of lines.
    pub lines: usize,
    /// Bytes held, by category.
    pub by_category: Vec<CategoryResult>,
    /// Bytes that a forward pass kept for a backward pass which does not come: an evaluation without `no_grad`.
    #[serde(default)]
    pub kept_in_vain: u64,
}

/// Memory that a line of the program held for one purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineResult {
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Number of allocations.
    pub count: u64,
    /// File and line of the program; null if the stack has none (the backward pass).
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// The same in a few words, with the library's line that it called; without a line, what else is known: a node of the backward pass, an operator.
    pub name: String,
    /// The innermost line outside of PyTorch, if it is a library's; null otherwise.
    pub inside: Option<String>,
    /// PyTorch's operators or functions there, those with the most bytes first.
    pub operators: Vec<OperatorBytes>,
    /// Category: `parameter`, `gradient`, `optimizer`, `activation` (saved for the backward pass), `input`, `temporary`, `other`.
    pub category: String,
    /// True if the category is a guess from stacks and lifetimes.
    pub guessed: bool,
    /// True if it was allocated before the recording began.
    pub before: bool,
    /// Lines that led there, the innermost first; PyTorch's and the interpreter's are left out.
    pub callers: Vec<String>,
}

/// Bytes that an operator requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorBytes {
    /// Its name.
    pub operator: String,
    /// Bytes requested.
    pub requested_bytes: u64,
}

/// Memory held for one purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CategoryResult {
    /// Category.
    pub category: String,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// True if the category is a guess.
    pub guessed: bool,
}

/// Characters of a line with the operators that a cell names.
const WIDTH: usize = 60;

impl MomentResult {
    /// Makes the moment after an entry, without the lines that `wanted` refuses.
    pub fn new(
        snapshot: &Snapshot,
        guesses: &Guesses,
        what: &str,
        entry: Option<usize>,
        top: usize,
        wanted: &dyn Fn(StackId) -> bool,
    ) -> Self {
        let known = guesses.lives.iter().zip(guesses.roles.iter().copied());
        let live = known.filter(|(life, _): &(&Life, Role)| life.lives_after(entry));
        let live = live.map(|(life, role)| (life, role, life.made.and_then(|made| guesses.phase(made))));
        let rows = held_at(snapshot, live, wanted);
        let sum = |rows: &mut dyn Iterator<Item = &HeldRow>| lab_traces::snapshot::total(rows.map(|row| row.bytes));
        let told = guesses.roles_are_told;
        let of_role = |role: &Role| {
            let requested_bytes = sum(&mut rows.iter().filter(|row| row.role == *role));
            let guessed = !told && *role != Role::Other;
            CategoryResult { category: role.name().into(), requested_bytes, guessed }
        };
        let by_category = Role::ALL.iter().map(of_role).filter(|found| found.requested_bytes > 0).collect();
        let line = |row: &HeldRow| LineResult::from_row(snapshot, row, told);
        let step = entry.filter(|_| !guesses.step_ends.is_empty()).map(|entry| guesses.steps_before(entry) + 1);
        Self {
            what: what.into(),
            entry,
            phase: entry.and_then(|entry| guesses.phase(entry)).map(|phase| phase.in_words().into()),
            step,
            ranges: Vec::new(),
            requested_bytes: sum(&mut rows.iter()),
            by_line: rows.iter().take(top).map(line).collect(),
            lines: rows.len(),
            by_category,
            kept_in_vain: entry.map_or(0, |entry| kept_in_vain(guesses, entry)),
        }
    }

    /// Says where in the program it was: `, in the forward pass (step 2), in encoder > attention`.
    pub(super) fn part(&self) -> String {
        let step = self.step.map_or(String::new(), |step| format!(" (step {step})"));
        let phase = self.phase.as_ref().map_or(String::new(), |phase| format!(", {phase}{step}"));
        match self.ranges.as_slice() {
            [] => phase,
            ranges => format!("{phase}, in {}", ranges.join(" > ")),
        }
    }

    /// True if no stack says anything.
    pub(super) fn has_no_lines(&self) -> bool {
        let says = |line: &LineResult| line.place.is_some() || line.inside.is_some() || !line.operators.is_empty();
        !self.by_line.is_empty() && !self.by_line.iter().any(says)
    }

    /// Table of the first lines.
    pub(super) fn table(&self, title: &str, top: usize) -> Table {
        let share = |bytes: u64| Cell::Text(percent(bytes as f64 / self.requested_bytes.max(1) as f64));
        let row = |bytes, count, category: String, name: String| {
            vec![Cell::Bytes(bytes), share(bytes), Cell::Count(count), Cell::Text(category), Cell::Text(name)]
        };
        let of_line = |line: &LineResult| row(line.requested_bytes, line.count, line.marked(), line.in_words());
        let mut rows: Vec<Vec<Cell>> = self.by_line.iter().take(top).map(of_line).collect();
        let rest = self.lines.saturating_sub(rows.len());
        if rest > 0 {
            let shown = lab_traces::snapshot::total(self.by_line.iter().take(top).map(|line| line.requested_bytes));
            let bytes = self.requested_bytes.saturating_sub(shown);
            let name = Cell::Text(format!("({rest} more)"));
            rows.push(vec![Cell::Bytes(bytes), share(bytes), Cell::unknown(), Cell::unknown(), name]);
        }
        Table::new(title, &["bytes", "share", "blocks", "for", "allocated at"], rows)
    }

    /// Names an evaluation that keeps a graph; `None` where none does.
    pub(super) fn in_vain(&self) -> Option<String> {
        (self.kept_in_vain > 0).then(|| {
            format!(
                "{} of it is kept by a forward pass that no backward pass follows: an evaluation without torch.no_grad() keeps what a backward pass \
                 would need.",
                short(self.kept_in_vain)
            )
        })
    }

    /// Formats the sums by purpose in a sentence.
    pub(super) fn shares(&self) -> String {
        let share = |found: &CategoryResult| {
            let mark = if found.guessed { "?" } else { "" };
            format!("{}{mark} {}", found.category, short(found.requested_bytes))
        };
        let shares: Vec<String> = self.by_category.iter().map(share).collect();
        let guessed = self.by_category.iter().any(|found| found.guessed);
        let note = if guessed { " (?: vramlab guessed it from stacks and lifetimes)" } else { "" };
        format!("In all {}: {}{note}.", short(self.requested_bytes), shares.join(", "))
    }
}

impl LineResult {
    fn from_row(snapshot: &Snapshot, row: &HeldRow, told: bool) -> Self {
        let line = |line: &Line| format!("{}:{}", line.file, line.line);
        Self {
            requested_bytes: row.bytes,
            count: row.allocations,
            place: row.place.own.as_ref().map(line),
            name: row.place.in_words(),
            inside: row.place.library.as_ref().map(line),
            operators: row
                .operators
                .iter()
                .map(|(operator, bytes)| OperatorBytes { operator: operator.clone(), requested_bytes: *bytes })
                .collect(),
            category: row.role.name().into(),
            guessed: !told && row.role != Role::Other,
            before: row.before,
            callers: callers(snapshot, row.stack)
                .iter()
                .map(|line| format!("{} {}", line.short(), line.function))
                .collect(),
        }
    }

    fn marked(&self) -> String {
        format!("{}{}", self.category, if self.guessed { "?" } else { "" })
    }

    /// Formats the line, and PyTorch's operators there.
    fn in_words(&self) -> String {
        if self.before && self.place.is_none() && self.operators.is_empty() {
            return "outside of the recording".into();
        }
        let (mut names, mut length) = (Vec::new(), self.name.chars().count() + 3);
        for found in self.operators.iter().filter(|_| self.place.is_some()) {
            length += found.operator.chars().count() + 2;
            // As many as fit, but at least one.
            if !names.is_empty() && length > WIDTH {
                break;
            }
            names.push(found.operator.as_str());
        }
        if names.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, names.join(", ")) }
    }

    /// Makes a row with the calling lines.
    pub(super) fn with_callers(&self) -> Vec<Cell> {
        let callers = if self.callers.is_empty() { self.in_words() } else { self.callers.join(" ← ") };
        vec![Cell::Bytes(self.requested_bytes), Cell::Count(self.count), Cell::Text(self.marked()), Cell::Text(callers)]
    }
}
