//! Further results of a dry run: whether it fits, and what would change that.

use lab_analysis::peaks::LocalPeak;
use lab_base::figures::{lacking, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::super::cards::{CardResult, room};
use super::super::premise::{self, Premise};
use super::figures::PeakResult;

/// Name of the run without any change.
pub const AS_IT_IS: &str = "as it is";

/// With less than this share of the budget left, "it fits" deserves a warning.
pub const TIGHT: f64 = 0.05;

/// Whether a run fits, and what would change it. Fields that concern a limit are null without one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The card, if one was named.
    pub card: Option<CardResult>,
    /// Memory that a process may use.
    pub budget_bytes: Option<u64>,
    /// True if it fits; null, too, if only the convolutions' upper figure does not.
    pub fits: Option<bool>,
    /// Upper figure of a network with convolutions; null without them.
    #[serde(default)]
    pub with_cudnn: Option<ConvolutionBound>,
    /// Memory that it needs.
    pub needs: NeedsResult,
    /// Memory held at its peak, with enough memory; null if the run itself completed.
    #[serde(default)]
    pub needs_peak: Option<PeakResult>,
    /// Memory that it would need with expandable segments, if memory is fragmented.
    #[serde(default)]
    pub with_expandable_segments: Option<NeedsResult>,
    /// What the figures include, and what they do not.
    pub notes: Vec<String>,
    /// The peak and the next local peaks; null if the events were not kept.
    #[serde(rename = "summits")]
    pub local_peaks: Option<Vec<LocalPeak>>,
    /// Memory that it would need with each technique.
    pub techniques: Vec<TechniqueResult>,
}

/// Memory of a run, with enough memory and within a limit. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeedsResult {
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory, with enough memory.
    pub reserved_bytes: u64,
    /// Peak of memory reserved within the limit; null if the run does not complete.
    #[serde(default)]
    pub reserved_here_bytes: Option<u64>,
    /// Bytes that the run lacks.
    pub missing_bytes: Option<u64>,
    /// True if it would complete with the smallest context that the card may have.
    pub fits_with_least_context: Option<bool>,
}

/// Where the workspaces of a prediction are from, the surest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSource {
    /// A card with as many multiprocessors was measured.
    Measured,
    /// cuDNN named them without a card. Of 9,013 on an H200 all were those of the card.
    Asked,
    /// cuDNN named them, and a card may take more for some.
    AskedInARange,
    /// Nobody named them; they are only bounded.
    #[default]
    Bounded,
}

/// What convolutions take besides on a card, where cuDNN computes them: workspaces and a part of the context. Either cuDNN named its
/// workspaces, or they are only bounded. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvolutionBound {
    /// Most that a plan's workspace may take; what cuDNN named, if it did.
    pub workspace_bytes: u64,
    /// Memory that cuDNN takes in the context when it is first used.
    pub context_bytes: u64,
    /// Reserved memory with both, and with what lies free between them.
    pub upper_bytes: u64,
    /// Reserved memory with the workspaces that cuDNN named, and its part of the context; null if it was not asked.
    #[serde(default)]
    pub expected_bytes: Option<u64>,
    /// The cuDNN that named them, as it counts: 91900 is 9.19.0.
    #[serde(default)]
    pub cudnn_version: Option<u32>,
    /// Where the workspaces are from.
    #[serde(default)]
    pub source: WorkspaceSource,
}

/// The name of a version of cuDNN as it counts them: 91900 is cuDNN 9.19.
pub(crate) fn cudnn(version: u32) -> String {
    format!("cuDNN {}.{}", version / 10_000, version / 100 % 100)
}

impl ConvolutionBound {
    /// What cuDNN takes in the context: the least by which convolutional networks that others measured on an A100 were above what
    /// was predicted for them.
    pub const CONTEXT_BYTES: u64 = 290 << 20;

    /// Hundredths by which a card may reserve more than a run in which each convolution takes its operands and its result once more. Of ten networks that
    /// others measured on an A100 the worst was 19 % above; plans of other sizes leave other pieces free.
    const SPREAD: u64 = 30;

    /// The bound of a run that reserves so much if each convolution takes its operands and its result once more.
    pub fn of_run(workspace_bytes: u64, reserved_bytes: u64) -> Self {
        let upper_bytes = Self::with_spread(reserved_bytes, Self::SPREAD);
        let (expected_bytes, cudnn_version, source) = (None, None, WorkspaceSource::Bounded);
        Self { workspace_bytes, context_bytes: Self::CONTEXT_BYTES, upper_bytes, expected_bytes, cudnn_version, source }
    }

    /// Bytes that such a run may reserve where there are so many: the rest is for cuDNN's part of the context and for what lies free.
    pub fn rest(budget_bytes: u64) -> u64 {
        Self::without_spread(budget_bytes, Self::SPREAD)
    }

    /// Hundredths by which a card may reserve more than a run with the workspaces that cuDNN named. Of ten networks that others measured on an A100, with
    /// another release of cuDNN, the worst was 12 % above.
    const NAMED_SPREAD: u64 = 12;

    /// The figures of a run with workspaces that cuDNN of a version named: it reserves `expected` bytes, and `most` with all that a card may take for them.
    pub fn of_named(
        cudnn_version: u32,
        source: WorkspaceSource,
        workspace_bytes: u64,
        [expected, most]: [u64; 2],
    ) -> Self {
        let context_bytes = Self::CONTEXT_BYTES;
        let upper_bytes = Self::with_spread(most, Self::NAMED_SPREAD);
        let expected_bytes = Some(expected.saturating_add(context_bytes));
        let cudnn_version = Some(cudnn_version);
        Self { workspace_bytes, context_bytes, upper_bytes, expected_bytes, cudnn_version, source }
    }

    /// Bytes that a run with named workspaces may reserve where there are so many.
    pub fn rest_of_named(budget_bytes: u64) -> u64 {
        Self::without_spread(budget_bytes, Self::NAMED_SPREAD)
    }

    /// What a card may reserve where a run reserves so much, some hundredths more, and cuDNN's part of the context.
    fn with_spread(reserved_bytes: u64, hundredths: u64) -> u64 {
        (reserved_bytes / 100).saturating_mul(100 + hundredths).saturating_add(Self::CONTEXT_BYTES)
    }

    /// The most that a run may reserve for a card to reserve no more than there is.
    fn without_spread(budget_bytes: u64, hundredths: u64) -> u64 {
        budget_bytes.saturating_sub(Self::CONTEXT_BYTES) / (100 + hundredths) * 100
    }
}

/// A technique, and the memory of the run with it; null, with the reason, if the network cannot have it. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TechniqueResult {
    /// Name of the technique.
    pub name: String,
    /// Peak of allocated memory.
    pub peak_bytes: Option<u64>,
    /// Peak of reserved memory, with enough memory.
    pub reserved_bytes: Option<u64>,
    /// Peak of memory reserved within the limit.
    pub reserved_here_bytes: Option<u64>,
    /// True if the run fits; null, too, if only the convolutions' upper figure does not.
    pub fits: Option<bool>,
    /// Bytes that the run lacks.
    pub missing_bytes: Option<u64>,
    /// True if it would fit with the smallest context that the card may have.
    #[serde(default)]
    pub fits_with_least_context: Option<bool>,
    /// Why this network cannot have it.
    pub reason: Option<String>,
    /// Its deviations from PyTorch.
    pub warnings: Vec<String>,
}

impl TechniqueResult {
    /// Reserved bytes within the limit; with enough memory if the run does not complete within it.
    fn here(&self) -> Option<u64> {
        self.reserved_here_bytes.or(self.reserved_bytes)
    }

    fn fits_in_short(&self) -> String {
        match self.missing_bytes {
            None if self.fits.is_none() => "perhaps, with cuDNN".into(),
            None => "yes".into(),
            Some(missing) if self.fits_with_least_context == Some(true) => {
                format!("perhaps: {} more, or a smaller context", short(missing))
            }
            missing => lacking(missing),
        }
    }
}

impl Prediction {
    /// Says whether it fits, with the memory needed and available.
    pub(super) fn verdict(&self) -> String {
        let needs = &self.needs;
        let Some(budget) = self.budget_bytes else {
            let [peak, reserved] = [needs.allocated_bytes, needs.reserved_bytes].map(short);
            let with = self.expected().map(|bytes| format!(", {} with cuDNN", short(bytes))).unwrap_or_default();
            return format!("{reserved} reserved{with}, {peak} allocated at the peak");
        };
        let has = self
            .card
            .as_ref()
            .map_or(format!("{} available", short(budget)), |card| format!("the {} has {}", card.title, short(budget)));
        match needs.reserved_here_bytes {
            Some(reserved) if self.upper().is_some_and(|upper| upper > budget) => {
                let [reserved, upper] = [self.expected().unwrap_or(reserved), self.upper().unwrap_or(0)].map(short);
                format!("Perhaps: {reserved} needed, up to {upper} with cuDNN, {has}")
            }
            Some(reserved) => {
                let expected = self.expected();
                let reserved = expected.unwrap_or(reserved);
                let left = budget.saturating_sub(reserved);
                let share = 100.0 * left as f64 / budget.max(1) as f64;
                let [reserved, left] = [reserved, left].map(short);
                let with = if expected.is_some() { " with cuDNN" } else { "" };
                format!("Yes: {reserved} needed{with}, {has}, {left} ({share:.1} %) left")
            }
            None => {
                let perhaps = if needs.fits_with_least_context == Some(true) { "Perhaps not" } else { "No" };
                format!("{perhaps}: {} needed, {has}", short(needs.reserved_bytes))
            }
        }
    }

    /// Gives the reason: what is missing and why, or how much is left; then what holds most at the peak.
    pub(super) fn why(&self, peak: Option<&PeakResult>) -> Vec<Section> {
        let needs = &self.needs;
        let mut text = String::new();
        if let Some(budget) = self.budget_bytes {
            match needs.reserved_here_bytes {
                Some(reserved) => text += &self.how_tight(budget, reserved),
                None => text += &self.what_lacks(budget),
            }
        }
        let held = self.needs_peak.as_ref().or(peak).map(PeakResult::held_in_words);
        let parts = [text, held.unwrap_or_default()].into_iter().filter(|part| !part.is_empty());
        parts.map(Section::Note).collect()
    }

    /// Upper figure of reserved memory, if it has one.
    fn upper(&self) -> Option<u64> {
        self.with_cudnn.map(|bound| bound.upper_bytes)
    }

    /// Reserved memory with what cuDNN named, if it was asked.
    fn expected(&self) -> Option<u64> {
        self.with_cudnn.and_then(|bound| bound.expected_bytes)
    }

    /// Says what the upper figure consists of.
    fn how_much_more(bound: &ConvolutionBound) -> String {
        if let Some(version) = bound.cudnn_version {
            let named = match bound.source {
                WorkspaceSource::Measured => format!("An H200 took these workspaces with {}", cudnn(version)),
                _ => format!("{} named the workspaces", cudnn(version)),
            };
            return format!(
                "{named}: up to {} for a convolution. {} more are in the context, and a card may take an eighth more.",
                short(bound.workspace_bytes),
                short(bound.context_bytes)
            );
        }
        format!(
            "cuDNN needs memory that only a card tells: up to {} for the workspace of a convolution, pieces that its workspaces leave free, and {} in the context. With `--cudnn ask` the cuDNN of your PyTorch names them.",
            short(bound.workspace_bytes),
            short(bound.context_bytes)
        )
    }

    fn how_tight(&self, budget: u64, reserved: u64) -> String {
        let mut sentences = Vec::new();
        let said = |bound: &&ConvolutionBound| bound.upper_bytes > budget || bound.cudnn_version.is_some();
        sentences.extend(self.with_cudnn.as_ref().filter(said).map(Self::how_much_more));
        if self.needs.reserved_bytes > reserved {
            let more = short(self.needs.reserved_bytes);
            sentences.push(format!(
                "With more memory PyTorch would keep {more}: the difference is cache, which it gives back when memory runs short."
            ));
        }
        if (budget.saturating_sub(self.expected().unwrap_or(reserved)) as f64) < TIGHT * budget as f64 {
            sentences.push("Little is left: a display, NCCL's buffers or another driver may need as much.".to_string());
        }
        sentences.join(" ")
    }

    fn what_lacks(&self, budget: u64) -> String {
        let needs = &self.needs;
        let mut text = if needs.allocated_bytes > budget {
            let missing = short(needs.missing_bytes.unwrap_or(0));
            format!(
                "The card is full: {missing} are missing. The tensors alone need more than it has, so no allocator setting helps."
            )
        } else {
            let effect = match &self.with_expandable_segments {
                Some(other) => match other.reserved_here_bytes {
                    Some(reserved) => {
                        format!(" With expandable_segments:True it fits and needs {}.", short(reserved))
                    }
                    None => format!(
                        " With expandable_segments:True {} are still missing.",
                        short(other.missing_bytes.unwrap_or(0))
                    ),
                },
                None => String::new(),
            };
            format!(
                "Memory is fragmented: the tensors would fit ({}), but not into the pieces that are free.{effect}",
                short(needs.allocated_bytes)
            )
        };
        if needs.fits_with_least_context == Some(true) {
            text += " With the smallest CUDA context that is known it would fit. Only the card itself can tell.";
        }
        text
    }

    /// Returns the premises, and the card's memory for tensors.
    pub(super) fn premises(&self, premises: &[Premise]) -> String {
        let line = premise::line(premises);
        match (&self.card, self.budget_bytes) {
            (Some(card), Some(_)) => format!("{line} {}", card.less_context()).trim_start().to_string(),
            _ => line,
        }
    }

    /// Returns the available memory, in full.
    pub(super) fn in_full(&self) -> Option<String> {
        Some(format!("Into {}.", room(self.card.as_ref(), self.budget_bytes?)))
    }

    /// Returns what would change the answer, and the next moments below the peak.
    ///
    /// `said`: warnings of the run itself, which are not repeated.
    pub(super) fn sections(&self, said: &[String]) -> Vec<Section> {
        let mut sections = Vec::new();
        let found = self.local_peaks.as_deref().unwrap_or_default();
        if found.len() > 1 {
            sections.push(Section::Table(peaks(found)));
        }
        sections.push(Section::Table(self.techniques()));
        let new = |one: &'_ TechniqueResult| {
            one.warnings.iter().filter(|warning| !said.contains(warning)).cloned().collect::<Vec<_>>()
        };
        let notes =
            self.techniques.iter().flat_map(|one| new(one).into_iter().map(|warning| (warning, one.name.as_str())));
        sections.extend(grouped(notes).into_iter().map(|(note, names)| {
            let note = note.strip_prefix("warning: ").unwrap_or(&note);
            Section::Note(format!("{}: {note}", names.join("; ")))
        }));
        let refused = self.techniques.iter().filter_map(|one| Some((one.reason.clone()?, one.name.as_str())));
        let refused = grouped(refused).into_iter();
        sections
            .extend(refused.map(|(reason, names)| Section::Note(format!("not here: {} ({reason})", names.join("; ")))));
        sections
    }

    /// Table of what each technique would change.
    pub(super) fn techniques(&self) -> Table {
        let limited = self.budget_bytes.is_some();
        let known = || self.techniques.iter().filter(|one| one.peak_bytes.is_some());
        // A column of its own, if it differs from what is reserved on the card.
        let apart = known().any(|one| one.here() != one.reserved_bytes);
        // With a limit, `fits` takes the place of the change in bytes.
        let mut columns = vec!["technique", "peak"];
        columns.extend((!limited).then_some("change"));
        columns.extend(["", "reserved"]);
        columns.extend(limited.then_some("fits"));
        columns.extend(apart.then_some("reserved, with enough memory"));
        let base = known().find(|one| one.name == AS_IT_IS).and_then(|one| one.peak_bytes).unwrap_or(0);
        let row = |one: &TechniqueResult| {
            let peak = one.peak_bytes.unwrap_or(0);
            let change = peak as i64 - base as i64;
            let percent = 100.0 * change as f64 / base.max(1) as f64;
            let mut row = vec![Cell::Text(one.name.clone()), Cell::Bytes(peak)];
            row.extend((!limited).then_some(Cell::Difference(change)));
            row.extend([Cell::Text(format!("{percent:+.1} %")), Cell::bytes(one.here())]);
            row.extend(limited.then(|| Cell::Text(one.fits_in_short())));
            row.extend(apart.then(|| Cell::bytes(one.reserved_bytes)));
            row
        };
        Table::new("What each technique would change", &columns, known().map(row).collect())
    }
}

/// Table of the highest moments.
fn peaks(found: &[LocalPeak]) -> Table {
    let row = |peak: &LocalPeak| {
        let scope = if peak.scope.is_empty() { "no module" } else { &peak.scope };
        vec![
            Cell::Bytes(peak.allocated_bytes),
            Cell::Text(peak.phase.clone()),
            Cell::Text(format!("{} in {scope}", peak.op)),
            Cell::Text(format!("{} {}", short(peak.dominant_bytes), peak.dominant_category)),
        ]
    };
    let columns = ["allocated", "phase", "reached by", "mostly"];
    Table::new("The peak and the next ones below it", &columns, found.iter().map(row).collect())
}

/// Groups names by their text, in the order of the first name of each.
fn grouped<'a>(pairs: impl Iterator<Item = (String, &'a str)>) -> Vec<(String, Vec<&'a str>)> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (text, name) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => groups.push((text, vec![name])),
        }
    }
    groups
}
