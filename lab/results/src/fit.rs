//! The largest size that fits (`vramlab-fit-1`), with the law of the peak, and the runs that verify it.

use lab_analysis::fit::{Fit, Law, Piece, Stretch, Tried, outline};
use lab_base::figures::{counted, grouped, lacking, short};
use lab_base::section::{Cell, Chart, Section, Series, Shape, Table, Tries};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cards::{CardResult, room};
use super::findings::{Findings, Settings, again, plain};
use super::on_card::OnCard;
use super::premise::{self, Premise};
use super::run::cudnn;

/// Result of a search for the largest size. Bytes unless a name says otherwise; sizes are examples or tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FitResult {
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// Premises of the answer, besides the settings.
    #[serde(default)]
    pub premises: Vec<Premise>,
    /// The network.
    pub model: String,
    /// The size that was searched: `batch` or `sequence`.
    pub of: String,
    /// The card, if one was named.
    pub card: Option<CardResult>,
    /// Memory of the card that a process may use.
    pub budget_bytes: u64,
    /// The largest size that fits; null if not even 1 does. For a network with convolutions: with the most that cuDNN may take besides.
    pub largest: Option<usize>,
    /// The largest size that fits if cuDNN takes nothing besides, which only a card tells; null for a network without convolutions.
    #[serde(default)]
    pub largest_without_cudnn: Option<usize>,
    /// Version of the cuDNN that named the workspaces of the largest size: 91900 is 9.19.0. Null if nobody did.
    #[serde(default)]
    pub cudnn_version: Option<u32>,
    /// The largest size whose lower figure fits, which has the smallest context that the card may have.
    #[serde(default)]
    pub largest_with_least_context: Option<usize>,
    /// What a process takes on the card with the largest size that fits surely, else perhaps; null if not even 1 does.
    #[serde(default)]
    pub on_card: Option<OnCard>,
    /// True if the search ended at its maximum, not at the budget.
    pub at_maximum: bool,
    /// Smaller sizes that do not fit.
    pub gaps: Vec<usize>,
    /// What the figures include, and what they do not.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reasons why the figures may not be what was asked for.
    pub warnings: Vec<String>,
    /// Requested bytes at the peak, by size.
    pub law: LawResult,
    /// Every size that was run under the budget.
    pub runs: Vec<TriedSize>,
    /// Changes to try if not even 1 fits.
    #[serde(default)]
    pub tries: Option<Tries>,
}

/// Law of the peak: requested bytes at the highest moment, by size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LawResult {
    /// True if every size in it has a formula.
    pub complete: bool,
    /// Number of dry runs.
    pub runs: usize,
    /// The law in few straight stretches; null if it has gaps.
    #[serde(default)]
    pub outline: Option<Vec<StretchResult>>,
    /// The exact law: constant + slope·n + square·n² from one size to another.
    pub pieces: Vec<Piece>,
}

/// A straight stretch of the law.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StretchResult {
    /// The first size.
    pub from: usize,
    /// The last size.
    pub to: usize,
    /// Bytes at the first size.
    pub bytes: i64,
    /// Bytes per further size.
    pub slope: i64,
    /// Largest error.
    pub off_bytes: u64,
    /// Phase, operator and module of the peak at the last size.
    #[serde(default)]
    pub highest_when: String,
}

/// A size that was run under the budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TriedSize {
    /// The size.
    pub size: usize,
    /// True if the run completed.
    pub fits: bool,
    /// Peak of allocated memory; null if memory ran out.
    pub peak_allocated_bytes: Option<u64>,
    /// Peak of reserved memory.
    pub peak_reserved_bytes: Option<u64>,
    /// How often the cache was freed to make room.
    pub retries: Option<u64>,
    /// Requested bytes at the peak by the law, for this size.
    pub law_requested_bytes: Option<u64>,
    /// Reserved memory that it would need with enough memory.
    pub needs_reserved_bytes: Option<u64>,
    /// Bytes that the run lacks.
    pub missing_bytes: Option<u64>,
    /// Size of the request that failed.
    pub out_of_memory_bytes: Option<u64>,
}

impl TriedSize {
    fn from_tried(tried: &Tried, law: &Law, budget_bytes: u64) -> Self {
        let failed = tried.out_of_memory.as_ref();
        let needs = failed.and_then(|report| report.needs).map(|needs| needs.reserved_bytes);
        Self {
            size: tried.size,
            fits: tried.fits(),
            peak_allocated_bytes: tried.allocated_bytes,
            peak_reserved_bytes: tried.reserved_bytes,
            retries: tried.retries,
            law_requested_bytes: law.at(tried.size),
            needs_reserved_bytes: needs,
            // Less is missing than what a card may take besides: 0.
            missing_bytes: needs.map(|bytes| bytes.saturating_sub(budget_bytes)).or(tried.missing_bytes()),
            out_of_memory_bytes: failed.map(|report| report.requested_bytes),
        }
    }

    fn row(&self) -> Vec<Cell> {
        let end = match self.missing_bytes {
            _ if self.fits => "fits".to_string(),
            Some(0) => "perhaps".to_string(),
            missing => lacking(missing),
        };
        let figures = [self.law_requested_bytes, self.peak_allocated_bytes, self.peak_reserved_bytes].map(Cell::bytes);
        [Cell::Text(self.size.to_string()), Cell::Text(end)].into_iter().chain(figures).collect()
    }
}

impl From<&Stretch> for StretchResult {
    fn from(stretch: &Stretch) -> Self {
        let Stretch { from, to, bytes, slope, off_bytes, ref last } = *stretch;
        Self { from, to, bytes, slope, off_bytes, highest_when: highest_when(last) }
    }
}

impl From<&Law> for LawResult {
    fn from(law: &Law) -> Self {
        let stretches = outline(law).map(|stretches| stretches.iter().map(StretchResult::from).collect());
        Self { complete: law.complete, runs: law.runs, outline: stretches, pieces: law.pieces.clone() }
    }
}

fn highest_when(piece: &Piece) -> String {
    let scope = if piece.scope.is_empty() { String::new() } else { format!(" in {}", piece.scope) };
    format!("{}: {}{scope}", piece.phase, piece.op)
}

fn range(from: usize, to: usize) -> Cell {
    Cell::Text(if from == to { from.to_string() } else { format!("{from}–{to}") })
}

fn sizes(from: usize, to: usize) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

/// Number of runs shown around the answer.
const AROUND: usize = 4;
/// Number of points in the law's line.
const POINTS: usize = 160;

impl LawResult {
    /// Requested bytes at the peak for a size; `None` outside of the law and in its gaps.
    fn at(&self, size: usize) -> Option<f64> {
        let piece = self.pieces.iter().find(|piece| (piece.from..=piece.to).contains(&size))?;
        let n = size as f64;
        Some(piece.constant as f64 + piece.slope as f64 * n + piece.square as f64 * n * n)
    }

    /// Points of the law's line: at all borders, and between them.
    fn line(&self) -> Vec<(f64, f64)> {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else { return Vec::new() };
        let step = ((last.to - first.from) / POINTS).max(1);
        let mut sizes: Vec<usize> = self.pieces.iter().flat_map(|piece| [piece.from, piece.to]).collect();
        sizes.extend((first.from..=last.to).step_by(step));
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().filter_map(|size| Some((size as f64, self.at(size)?))).collect()
    }
}

impl FitResult {
    /// Makes the result from runs and the law; all other fields are empty.
    pub fn new(of: &str, budget_bytes: u64, fit: &Fit, law: &Law) -> Self {
        Self {
            settings: Settings::new(),
            premises: Vec::new(),
            model: String::new(),
            of: of.into(),
            card: None,
            budget_bytes,
            largest: fit.largest,
            largest_without_cudnn: None,
            cudnn_version: None,
            largest_with_least_context: fit.largest,
            on_card: None,
            at_maximum: fit.at_maximum,
            gaps: fit.gaps(),
            notes: Vec::new(),
            warnings: Vec::new(),
            law: law.into(),
            tries: None,
            runs: fit.tried.iter().map(|tried| TriedSize::from_tried(tried, law, budget_bytes)).collect(),
        }
    }

    /// The largest size that fits, perhaps only if cuDNN takes nothing besides.
    pub fn at_best(&self) -> Option<usize> {
        self.largest_without_cudnn.or(self.largest)
    }

    /// Bytes that a run of size 1 lacks; `None` if that is not known.
    pub fn missing_bytes(&self) -> Option<u64> {
        self.runs.iter().find(|run| run.size == 1)?.missing_bytes
    }

    fn unit(&self) -> &'static str {
        if self.of == "batch" { "example" } else { "token" }
    }

    /// Says of a divided run that a size is that of each card.
    fn on_each_card(&self) -> String {
        match self.settings.get("data-parallel").and_then(Value::as_u64) {
            Some(cards) if self.of == "batch" && cards > 1 => format!(" on each of {cards} cards"),
            _ => String::new(),
        }
    }

    /// The answer: what fits into which memory.
    fn answer(&self) -> String {
        let (unit, budget) = (self.unit(), short(self.budget_bytes));
        let place = match &self.card {
            Some(card) => format!("on the {} ({budget} for tensors)", card.title),
            None => format!("into {budget}"),
        };
        let Some(most) = self.at_best().max(self.largest_with_least_context) else {
            let missing =
                self.missing_bytes().map_or(String::new(), |bytes| format!(", {} more are needed", short(bytes)));
            let changes = if self.of == "batch" {
                "; with --batch 1 in place of --largest the answer has changes to try"
            } else {
                ""
            };
            return format!("No: not even one {unit} fits {place}{missing}{changes}");
        };
        let do_not = format!("{} do not", grouped(most as u64 + 1, ' '));
        let Some(largest) = self.largest else {
            return format!("Perhaps: {}{} fit {place}, {do_not}", counted(most as u64, unit), self.on_each_card());
        };
        let verb = if largest == 1 { "fits" } else { "fit" };
        let fit = format!("{}{} {verb} {place}", counted(largest as u64, unit), self.on_each_card());
        let perhaps = if most > largest { format!(", {most} perhaps") } else { String::new() };
        match self.at_maximum {
            true => format!("{fit}{perhaps}; the search ended there"),
            false => format!("{fit}{perhaps}, {do_not}"),
        }
    }

    /// Exceptions to the answer.
    fn exceptions(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if !self.gaps.is_empty() {
            let gaps: Vec<String> = self.gaps.iter().map(usize::to_string).collect();
            let fail = if self.largest_without_cudnn.is_some() { "perhaps fail" } else { "fail" };
            sentences.push(format!("But {} {fail}: reserved memory does not rise with every step.", gaps.join(", ")));
        }
        if let Some(most) = self.at_best().filter(|most| Some(*most) > self.largest) {
            sentences.push(match self.cudnn_version {
                Some(version) => format!(
                    "{} said what it needs. A card may need more, so {} may fail.",
                    cudnn(version),
                    sizes(self.largest.unwrap_or(0) + 1, most)
                ),
                None => "Only cuDNN knows how much memory its convolutions need. `--cudnn ask` asks the one of your PyTorch, without a card.".into(),
            });
        }
        sentences
    }

    /// The law near the answer, in a sentence.
    fn law_in_words(&self) -> Option<String> {
        let size = self.at_best().unwrap_or(1);
        let signed =
            |bytes: i64| if bytes < 0 { format!("-{}", short(bytes.unsigned_abs())) } else { short(bytes as u64) };
        let holds = |from: usize, to: usize| (from..=to).contains(&size);
        let others = |n: usize| match n {
            0 => String::new(),
            n => format!(" Other sizes have {}: --full.", counted(n as u64, "other formula")),
        };
        if let Some(stretches) = &self.law.outline {
            let one = stretches.iter().find(|one| holds(one.from, one.to) && one.to > one.from)?;
            let constant = one.bytes - one.slope * one.from as i64;
            let within =
                if one.off_bytes == 0 { "exactly".into() } else { format!("to within {}", short(one.off_bytes)) };
            return Some(format!(
                "From {} to {} the peak is {} + {} per {}, {within}.{}",
                one.from,
                counted(one.to as u64, self.unit()),
                signed(constant),
                signed(one.slope),
                self.unit(),
                others(stretches.len() - 1)
            ));
        }
        let one = self.law.pieces.iter().find(|one| holds(one.from, one.to) && one.to > one.from && one.square == 0)?;
        Some(format!(
            "From {} to {} the peak is {} + {} per {}, exactly.{}",
            one.from,
            counted(one.to as u64, self.unit()),
            signed(one.constant),
            signed(one.slope),
            self.unit(),
            others(self.law.pieces.len() - 1)
        ))
    }

    /// Available memory, in full.
    fn in_full(&self) -> String {
        format!("Into {}.", room(self.card.as_ref(), self.budget_bytes))
    }

    /// How to read the tables.
    fn reading(&self) -> String {
        let (law, of) = (&self.law, &self.of);
        let runs = counted(law.runs as u64, "dry run");
        let pieces = counted(law.pieces.len() as u64, "piece");
        let law = match (law.complete, &law.outline) {
            (true, Some(_)) => format!(
                "The formula gives the bytes requested at the peak, as closely as it says. --json has it exactly, for every {of}, in {pieces} ({runs})."
            ),
            (true, None) => {
                format!(
                    "The formula gives the bytes requested at the peak exactly, for every {of} in the table ({runs})."
                )
            }
            (false, _) => {
                format!("The formula has gaps: {runs} found none for the sizes between those of the table.")
            }
        };
        law + " Allocated bytes add the rounding of blocks, and reserved bytes the cache. A run fails when emptying the cache does not give enough."
    }

    /// The law in stretches, short enough to remember.
    fn in_stretches(&self, stretches: &[StretchResult]) -> Table {
        let more = format!("each {} more", self.unit());
        let row = |stretch: &StretchResult| {
            let alone = stretch.from == stretch.to;
            vec![
                range(stretch.from, stretch.to),
                Cell::signed(stretch.bytes),
                if alone { Cell::unknown() } else { Cell::signed(stretch.slope) },
                if stretch.off_bytes == 0 { Cell::Text("exact".into()) } else { Cell::Bytes(stretch.off_bytes) },
                Cell::Text(stretch.highest_when.clone()),
            ]
        };
        let columns = [&self.of, "at the first", &more, "to within", "highest when"];
        Table::new(self.title_of_law(), &columns, stretches.iter().map(row).collect())
    }

    fn title_of_law(&self) -> String {
        format!("The formula: bytes requested at the peak, by {}", self.of)
    }

    /// A table of the sizes for which each formula holds.
    fn pieces(&self) -> Table {
        let with_square = self.law.pieces.iter().any(|piece| piece.square != 0);
        let per = format!("per {}", self.unit());
        let mut columns = vec![self.of.as_str(), "constant", &per];
        columns.extend(with_square.then_some("squared"));
        columns.push("highest when");
        let row = |piece: &Piece| {
            // A single size that no neighbouring formula covers has no growth of its own.
            let grows = |bytes: i64| if piece.from == piece.to { Cell::unknown() } else { Cell::signed(bytes) };
            let mut row = vec![range(piece.from, piece.to), Cell::signed(piece.constant), grows(piece.slope)];
            row.extend(with_square.then(|| grows(piece.square)));
            row.push(Cell::Text(highest_when(piece)));
            row
        };
        Table::new(self.title_of_law(), &columns, self.law.pieces.iter().map(row).collect())
    }

    /// A table of runs under the budget, or only of those around the answer.
    fn runs(&self, all: bool) -> Table {
        let largest = self.at_best().unwrap_or(1);
        let shown = |run: &&TriedSize| all || run.size.abs_diff(largest) <= AROUND || run.size == 1;
        let columns = [&self.of, "under that limit", "formula", "allocated", "reserved"];
        let rows = self.runs.iter().filter(shown).map(TriedSize::row).collect();
        Table::new("Verified: runs on a device of that size", &columns, rows)
    }

    fn curve(&self) -> Chart {
        let measured = |of: fn(&TriedSize) -> Option<u64>| {
            self.runs.iter().filter_map(|run| Some((run.size as f64, of(run)? as f64))).collect()
        };
        let series = |name: &str, points, color, shape| Series { name: name.into(), points, color, shape };
        Chart {
            title: format!("The peak by {}: the formula, and the runs that verify it", self.of),
            x: self.of.clone(),
            labels: Vec::new(),
            series: vec![
                series("formula (requested)", self.law.line(), 0, Shape::Predicted),
                series("allocated", measured(|run| run.peak_allocated_bytes), 0, Shape::Dots),
                series("reserved", measured(|run| run.peak_reserved_bytes), 1, Shape::Dots),
            ],
            bytes: true,
            limit: Some(("what there is".into(), self.budget_bytes as f64)),
        }
    }
}

impl Findings for FitResult {
    const SCHEMA: &'static str = "vramlab-fit-1";

    fn title(&self) -> String {
        let setting =
            |name: &str| self.settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default();
        let names = ["model", "model-file"].map(setting);
        let model = names.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        let what = premise::what(&model, &self.premises, &self.settings);
        format!("{}: {what}", self.answer())
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        sections.extend(self.exceptions().into_iter().map(Section::Note));
        sections.extend(self.law_in_words().map(Section::Note));
        sections.extend(self.tries.clone().map(Section::Try));
        sections.extend(premise::section(&self.premises));
        sections.extend(self.notes.iter().cloned().map(Section::Note));
        let law = self.law.outline.as_ref().map_or_else(|| self.pieces(), |stretches| self.in_stretches(stretches));
        let mut more = vec![
            Section::Note(self.in_full()),
            Section::Note(format!("The largest {} that fits: {}", self.of, self.model)),
        ];
        more.extend([law, self.runs(false)].map(Section::Table));
        more.push(Section::Note(self.reading()));
        sections.push(Section::Details { title: "The formula, and the runs that verify it".into(), sections: more });
        sections.push(Section::Drawing(self.curve()));
        let exactly = vec![Section::Table(self.pieces()), Section::Table(self.runs(true))];
        sections.push(Section::Details { title: "The formula exactly, and every run".into(), sections: exactly });
        sections.push(again(&["fit"], &self.settings));
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.pieces())
    }
}
