//! Further results of a dry run: whether it fits, and what would change that.

use lab_analysis::peaks::LocalPeak;
use lab_base::figures::{lacking, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::super::cards::{CardResult, on_a_desktop, on_windows, room};
use super::super::on_card::OnCard;
use super::super::premise::{self, Premise};
use super::checkpoints::Checkpoints;
use super::convolutions::ConvolutionBound;
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
    /// True if the upper figure fits, false if the lower one does not; null between the two, and without a limit.
    pub fits: Option<bool>,
    /// Three figures, with their parts.
    #[serde(flatten)]
    pub on_card: OnCard,
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
    /// The blocks that `--checkpoint-budget` chose; null without it.
    #[serde(default)]
    pub checkpoints: Option<Checkpoints>,
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
    /// True if the lower figure fits, which has the smallest context that the card may have.
    pub fits_with_least_context: Option<bool>,
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
    /// True if the upper figure fits; null, too, if only that one does not.
    pub fits: Option<bool>,
    /// Bytes that the run lacks.
    pub missing_bytes: Option<u64>,
    /// True if the lower figure fits, which has the smallest context that the card may have.
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
            None if self.fits.is_none() => "perhaps".into(),
            None => "yes".into(),
            Some(missing) if self.fits_with_least_context == Some(true) => {
                format!("perhaps: {} more are expected", short(missing))
            }
            missing => lacking(missing),
        }
    }
}

impl Prediction {
    /// Says whether it fits, with the memory needed and available.
    pub(super) fn verdict(&self) -> String {
        let needed = self.on_card.needed();
        let Some(there) = self.there() else {
            let [peak, reserved] = [self.needs.allocated_bytes, self.needs.reserved_bytes].map(short);
            let with = self.expected().map(|bytes| format!(", {} with cuDNN", short(bytes))).unwrap_or_default();
            return format!("{reserved} reserved{with}, {peak} allocated at the peak");
        };
        let has = match &self.card {
            Some(card) => format!("the {} has {}", card.title, short(there)),
            None => format!("{} available", short(there)),
        };
        match self.fits {
            Some(true) => {
                let left = there.saturating_sub(self.on_card.expected_bytes);
                let share = 100.0 * left as f64 / there.max(1) as f64;
                format!("Yes: {needed}, {has}, {} ({share:.1} %) left", short(left))
            }
            Some(false) => format!("No: {needed}, {has}"),
            None => format!("Perhaps: {needed}, {has}"),
        }
    }

    /// Memory of the card, or the size that stands for it; `None` without a limit.
    fn there(&self) -> Option<u64> {
        let budget = self.budget_bytes?;
        // A fraction or a limit below the card's own.
        let beside = self.on_card.beside();
        let limited = |card: &CardResult| budget.saturating_add(beside).min(card.total_bytes);
        Some(self.card.as_ref().map_or(budget, limited))
    }

    /// Gives the reason: what is missing and why, or how much is left; then what holds most at the peak.
    pub(super) fn why(&self, peak: Option<&PeakResult>) -> Vec<Section> {
        let text = match (self.budget_bytes, self.fits) {
            (None, _) => String::new(),
            (Some(budget), Some(true)) => self.how_tight(budget),
            (Some(budget), Some(false)) => self.what_lacks(budget),
            (Some(budget), None) => self.what_settles_it(budget),
        };
        let others = self.card.as_ref().and_then(|card| match self.fits {
            Some(true) => on_a_desktop(&card.title, card.total_bytes.saturating_sub(self.on_card.upper_bytes)),
            _ => on_windows(&card.title).map(String::from),
        });
        let text = [text, others.unwrap_or_default()].join(" ").trim().to_string();
        let held = self.needs_peak.as_ref().or(peak).map(PeakResult::held_in_words);
        let parts = [text, held.unwrap_or_default()].into_iter().filter(|part| !part.is_empty());
        parts.map(Section::Note).collect()
    }

    /// Reserved memory with what cuDNN named, if it was asked.
    fn expected(&self) -> Option<u64> {
        self.with_cudnn.and_then(|bound| bound.expected_bytes)
    }

    /// Says that the cache is given back, if the run fits only so.
    fn gives_back(&self) -> Option<String> {
        let reserved = self.needs.reserved_here_bytes?;
        (self.needs.reserved_bytes > reserved).then(|| {
            let more = short(self.needs.reserved_bytes);
            format!("On a larger card PyTorch would reserve {more}, because it keeps freed memory as a cache. Here it empties that cache when it needs room.")
        })
    }

    fn how_tight(&self, budget: u64) -> String {
        let mut sentences = Vec::new();
        let said = |bound: &&ConvolutionBound| bound.cudnn_version.is_some();
        sentences.extend(self.with_cudnn.as_ref().filter(said).map(ConvolutionBound::in_words));
        sentences.extend(self.gives_back());
        let left = self.there().unwrap_or(budget).saturating_sub(self.on_card.expected_bytes);
        if (left as f64) < TIGHT * budget as f64 {
            sentences.push("Little is left: a display or another process may take it.".to_string());
        }
        sentences.join(" ")
    }

    /// Says between which figures the card decides, and what tells more.
    fn what_settles_it(&self, budget: u64) -> String {
        let mut sentences = Vec::new();
        if self.needs.reserved_here_bytes.is_none() {
            sentences.push(self.what_lacks(budget));
        }
        if self.needs.missing_bytes.is_some() && self.needs.fits_with_least_context == Some(true) {
            let how = "With the smallest CUDA context that this card may have it fits, because PyTorch empties its cache there.";
            sentences.push(how.into());
        }
        sentences.extend(self.with_cudnn.as_ref().map(ConvolutionBound::in_words));
        sentences.extend(self.gives_back());
        sentences
            .push(self.on_card.what_settles_it(self.card.as_ref().is_some_and(|card| card.context_source.is_some())));
        sentences.join(" ")
    }

    fn what_lacks(&self, budget: u64) -> String {
        let needs = &self.needs;
        let missing = short(needs.missing_bytes.unwrap_or(0));
        if needs.allocated_bytes > budget {
            return format!(
                "The card is full: {missing} are missing. The tensors alone need more than it has, so no allocator setting helps."
            );
        }
        if needs.reserved_here_bytes.is_some() {
            return format!("With the workspaces that cuDNN named {missing} are missing.");
        }
        let effect = match &self.with_expandable_segments {
            Some(other) => match other.reserved_here_bytes {
                Some(reserved) => format!(" With expandable_segments:True it fits and needs {}.", short(reserved)),
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
    }

    /// Returns the premises, and the parts of what a process takes on the card.
    pub(super) fn premises(&self, premises: &[Premise]) -> String {
        let line = premise::line(premises);
        let parts = if self.card.is_some() { self.on_card.in_words() } else { String::new() };
        format!("{line} {parts}").trim().to_string()
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
