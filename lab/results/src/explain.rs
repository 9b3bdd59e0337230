//! An out-of-memory message, explained (`vramlab-explain-1`).

use lab_base::figures::{short, signed};
use lab_base::section::{Cell, MOST, Section, Table, Tries, Try};
use lab_traces::explain::{Explanation, Figure, Size, Sum};
use serde::{Deserialize, Serialize};

use super::findings::Findings;

/// A message, explained.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainResult {
    /// Origin of the message's wording, and the releases that use it.
    pub wording: String,
    /// Index of the device; null if the message does not say it.
    pub device: Option<u32>,
    /// Why it failed, in a word; null if the message has too few figures.
    pub verdict: Option<String>,
    /// Why it failed, in arithmetic.
    pub reason: String,
    /// The user's innermost line in the traceback before the message; null without a traceback.
    #[serde(default)]
    pub line: Option<String>,
    /// Figures of the message, in reading order.
    pub figures: Vec<ExplainedFigure>,
    /// Relations between the figures.
    pub sums: Vec<ExplainedSum>,
    /// What to try, the most important first.
    pub advice: Vec<ExplainedAdvice>,
}

/// A figure of the message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedFigure {
    /// Name of the figure.
    pub name: String,
    /// Bytes as printed.
    pub bytes: u64,
    /// Half a unit of its last decimal.
    pub tolerance_bytes: u64,
    /// Meaning of the figure.
    pub meaning: String,
}

/// A relation between figures, worked out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedSum {
    /// The sum: `9.6 GiB allocated + 40 MiB cached = 9.64 GiB reserved`.
    pub text: String,
    /// Remainder: 0 if the figures should agree.
    pub remainder_bytes: i64,
    /// Precision of the figures.
    pub tolerance_bytes: u64,
}

/// A piece of advice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedAdvice {
    /// What to try, and why.
    pub what: String,
    /// Command that checks it.
    pub command: Option<String>,
}

impl From<&Explanation> for ExplainResult {
    fn from(explanation: &Explanation) -> Self {
        let figure = |figure: &Figure| ExplainedFigure {
            name: figure.name.into(),
            bytes: figure.size.bytes,
            tolerance_bytes: figure.size.tolerance,
            meaning: figure.meaning.clone(),
        };
        let sum = |sum: &Sum| ExplainedSum {
            text: sum.text.clone(),
            remainder_bytes: sum.remainder,
            tolerance_bytes: sum.tolerance,
        };
        let advice = explanation.advice.iter();
        let advice = advice.map(|one| ExplainedAdvice { what: one.what.clone(), command: one.command.clone() });
        Self {
            wording: explanation.origin.into(),
            device: explanation.device,
            verdict: explanation.verdict.map(|verdict| verdict.to_string()),
            reason: explanation.reason.clone(),
            line: explanation.line.clone(),
            figures: explanation.figures.iter().map(figure).collect(),
            sums: explanation.sums.iter().map(sum).collect(),
            advice: advice.collect(),
        }
    }
}

impl ExplainedFigure {
    fn row(&self) -> Vec<Cell> {
        let size = Size { bytes: self.bytes, tolerance: self.tolerance_bytes };
        [self.name.clone(), size.to_string(), self.meaning.clone()].map(Cell::Text).to_vec()
    }
}

impl ExplainedSum {
    fn in_words(&self) -> String {
        let Self { text, remainder_bytes, tolerance_bytes } = self;
        let tolerance = short(*tolerance_bytes);
        match remainder_bytes.unsigned_abs() <= *tolerance_bytes {
            true => format!("{text}: adds up (to ±{tolerance}, as the figures are rounded)"),
            false => format!("{text}: {} (±{tolerance})", signed(*remainder_bytes)),
        }
    }
}

impl Findings for ExplainResult {
    const SCHEMA: &'static str = "vramlab-explain-1";

    fn title(&self) -> String {
        let gpu = self.device.map_or("the GPU".into(), |device| format!("GPU {device}"));
        let cause = match self.verdict.as_deref() {
            Some("full") => format!("{gpu} was full"),
            Some("fragmented") => format!("free memory of {gpu} was fragmented"),
            Some("hopeless") => format!("one request was larger than {gpu}"),
            Some("refused though free") => format!("{gpu} had room, but its driver refused"),
            Some("outside the allocator") => format!("something beside PyTorch's tensors found no room on {gpu}"),
            Some("host memory") => "the computer's own memory was full, not the GPU's".into(),
            _ => "the message does not say why".into(),
        };
        format!("Out of memory: {cause}.")
    }

    fn sections(&self) -> Vec<Section> {
        let rows = self.figures.iter().map(ExplainedFigure::row).collect();
        let figures = Table::new("What each figure means", &["figure", "size", "meaning"], rows);
        let mut sections = vec![Section::Answer(self.reason.clone())];
        sections.extend(self.line.as_ref().map(|line| Section::Note(format!("It ran out at {line}."))));
        let entry = |advice: &ExplainedAdvice| Try {
            change: advice.what.clone(),
            command: advice.command.clone(),
            ..Try::default()
        };
        let entries = self.advice.iter().take(MOST).map(entry).collect();
        sections.push(Section::Try(Tries {
            entries,
            not_here: String::new(),
            ..Tries::none("Try, the most promising first (vramlab ran none of it)")
        }));
        let more = self.advice.iter().skip(MOST).flat_map(|advice| {
            std::iter::once(Section::Note(advice.what.clone())).chain(advice.command.clone().map(Section::Command))
        });
        sections
            .push(Section::Note(format!("{} wrote this message. --full explains each of its figures.", self.wording)));
        let sums = self.sums.iter().map(ExplainedSum::in_words).map(Section::Note);
        sections.push(Section::Rest(more.chain([Section::Table(figures)]).chain(sums).collect()));
        sections
    }
}
