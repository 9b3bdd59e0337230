//! The cards that have a name (`vramlab-cards-1`).

use lab_base::bands::Range;
use lab_base::beside::{ALL_MODULES, CUDNN, DESKTOP, NCCL, NCCL_FURTHER, NCCL_PEER, OTHERS};
use lab_base::cards::{ALL, CONTEXT, Card, Context, slices};
use lab_base::figures::{both, counted, short};
use lab_base::section::{Bars, Cell, Section, Table};
use lab_base::sightings::{SEEN, Sighting};
use serde::{Deserialize, Serialize};

use super::findings::Findings;

/// Every card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cards {
    /// Cards, in the order of their makers' names.
    pub cards: Vec<CardResult>,
    /// MIG slices of cards.
    #[serde(default)]
    pub slices: Vec<CardResult>,
    /// Contexts that were measured, by release.
    #[serde(default)]
    pub contexts: Vec<MeasuredContext>,
}

/// What a process took on a card besides what PyTorch reserved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredContext {
    /// The maker's name of the card.
    pub card: String,
    /// PyTorch, as its wheel names itself; null if the source does not say it.
    pub torch: Option<String>,
    /// CUDA.
    pub cuda: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// The least that was seen.
    pub least_bytes: u64,
    /// The most.
    pub most_bytes: u64,
    /// What the process had done.
    pub when: String,
    /// Where it was seen.
    pub source: String,
}

impl From<&Sighting> for MeasuredContext {
    fn from(seen: &Sighting) -> Self {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Self {
            card: seen.card.into(),
            torch: said(seen.torch),
            cuda: said(seen.cuda),
            driver: said(seen.driver),
            least_bytes: u64::from(seen.least_mib) << 20,
            most_bytes: u64::from(seen.most_mib) << 20,
            when: seen.when.into(),
            source: seen.source.into(),
        }
    }
}

/// A card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CardResult {
    /// Name on the command line.
    pub name: String,
    /// The maker's name.
    pub title: String,
    /// Total memory that the driver reports.
    pub total_bytes: u64,
    /// Source of the total.
    pub total_source: String,
    /// Smallest context: memory that a process takes besides what PyTorch reserved.
    pub least_context_bytes: u64,
    /// Expected context.
    #[serde(default)]
    pub usual_context_bytes: u64,
    /// Largest context; whether something fits is decided with it.
    pub context_bytes: u64,
    /// Where the context was seen; null if only on other cards.
    pub context_source: Option<String>,
    /// Compute capability, times ten.
    pub compute_capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u16,
    /// Its memory profile; null if no recorded release has kernels for it.
    pub profile: Option<String>,
}

impl From<&Card> for CardResult {
    fn from(card: &Card) -> Self {
        Self {
            name: card.name.into(),
            title: card.title.into(),
            total_bytes: card.total_bytes(),
            total_source: card.total_source.into(),
            least_context_bytes: card.context.least_bytes(),
            usual_context_bytes: card.context.usual_bytes(),
            context_bytes: card.context.most_bytes(),
            context_source: card.context.source.map(String::from),
            compute_capability: card.sm,
            multiprocessors: card.multiprocessors,
            profile: card.profile().map(String::from),
        }
    }
}

/// Memory available to tensors, in words: on the card, or of this many bytes.
pub fn room(card: Option<&CardResult>, budget_bytes: u64) -> String {
    let Some(card) = card else {
        let context = CONTEXT.range();
        return format!(
            "{} (all of it for tensors; on a card, a CUDA context takes {context} more)",
            short(budget_bytes)
        );
    };
    let known = if card.context_source.is_some() { "" } else { " by the number of its multiprocessors" };
    let mut text = format!(
        "{} ({}, of which {} are left for tensors: a CUDA context takes {}{known}, and the largest counts",
        card.title,
        short(card.total_bytes),
        both(budget_bytes),
        card.context()
    );
    let older = Card::named(&card.name).filter(|card| card.has_older_profile()).and_then(|card| card.profile());
    if let Some(profile) = older {
        text += &format!("; as {profile}, the newest recorded release with kernels for it");
    }
    text + ")"
}

impl CardResult {
    /// Range of the context, from the smallest to the largest.
    fn context(&self) -> String {
        format!("{} to {} MiB", self.least_context_bytes >> 20, self.context_bytes >> 20)
    }

    fn row(&self) -> Vec<Cell> {
        let title = self.title.strip_prefix("GeForce ").unwrap_or(&self.title);
        let [name, title] = [self.name.as_str(), title].map(|text| Cell::Text(text.into()));
        let mark = if self.context_source.is_some() { "" } else { "~ " };
        let context = Cell::Text(format!("{mark}{}", self.context()));
        let profile = self.profile.clone().unwrap_or_else(|| "none recorded".into());
        vec![name, title, Cell::Bytes(self.total_bytes), context, Cell::Text(profile)]
    }

    fn sources(&self) -> Section {
        let context = self.context_source.as_deref().unwrap_or("not known");
        Section::Note(format!("{}: total: {}; context: {context}", self.name, self.total_source))
    }
}

/// Table of what libraries and others take, with sources.
fn besides() -> Section {
    let text = |words: &str| Cell::Text(words.into());
    let counted = [CUDNN, ALL_MODULES, NCCL, NCCL_FURTHER, NCCL_PEER, DESKTOP].map(|part| {
        let range = part.range();
        let figure = format!("{} to {} MiB, {} expected", range.lower >> 20, range.upper >> 20, range.expected >> 20);
        vec![text(part.name), Cell::Text(figure), text(part.source)]
    });
    let others = OTHERS.map(|row| row.map(text).to_vec());
    Section::Table(Table::new("", &["what", "figure", "source"], counted.into_iter().chain(others).collect()))
}

/// Table of contexts by release.
fn by_release() -> Vec<Section> {
    let row = |seen: &Sighting| {
        [seen.card, &seen.release(), &seen.range(), seen.when, seen.source].map(|text| Cell::Text(text.into())).to_vec()
    };
    let columns = ["card", "release", "context", "the process", "source"];
    let reading = "Every release that vramlab knows loads modules when they are first used. On an RTX 3090 two of them differ by 8 MiB, so an answer has one range \
                   for all. PyTorch before 1.13 loaded all modules at once, as every release does with CUDA_MODULE_LOADING=EAGER. A rehearsal counts that.";
    vec![Section::Table(Table::new("", &columns, SEEN.iter().map(row).collect())), Section::Note(reading.into())]
}

/// What a desktop may take of the memory that an upper figure leaves, for a card that people use for one.
pub(super) fn on_a_desktop(title: &str, left_bytes: u64) -> Option<String> {
    let Range { lower, upper, .. } = DESKTOP.range();
    (title.contains("GeForce") && left_bytes < upper).then(|| {
        format!("A desktop on this card takes more, {} to {} MiB where it was seen.", lower >> 20, upper >> 20)
    })
}

/// What Windows does instead of running out of memory, for a card that people use there.
pub(super) fn on_windows(title: &str) -> Option<&'static str> {
    title.contains("GeForce").then_some(
        "On Windows the driver may use the system's memory instead: then it runs, often a hundred times slower.",
    )
}

impl Cards {
    /// These cards alone.
    pub fn chosen(cards: &[&Card]) -> Self {
        let all = Self::default();
        let keep = |cards_of: Vec<CardResult>| -> Vec<CardResult> {
            cards_of.into_iter().filter(|one| cards.iter().any(|card| card.name == one.name)).collect()
        };
        let contexts = all.contexts.into_iter().filter(|seen| cards.iter().any(|card| card.title == seen.card));
        Self { cards: keep(all.cards), slices: keep(all.slices), contexts: contexts.collect() }
    }

    /// True unless these are all cards.
    fn is_chosen(&self) -> bool {
        self.cards.len() < ALL.len()
    }

    /// The parts about a few cards, with the sources of their figures.
    fn chosen_sections(&self, columns: &[&str]) -> Vec<Section> {
        let every = || self.cards.iter().chain(&self.slices);
        let mut sections = vec![Section::List(Table::new("", columns, every().map(CardResult::row).collect()))];
        sections.extend(every().map(CardResult::sources));
        sections
    }
}

impl Default for Cards {
    fn default() -> Self {
        let of = |cards: &[Card]| cards.iter().map(CardResult::from).collect();
        Self { cards: of(ALL), slices: of(slices()), contexts: SEEN.iter().map(MeasuredContext::from).collect() }
    }
}

impl Findings for Cards {
    const SCHEMA: &'static str = "vramlab-cards-1";

    fn title(&self) -> String {
        let slices = if self.is_chosen() { self.slices.len() } else { 0 };
        format!("{} for --gpu", counted((self.cards.len() + slices) as u64, "card"))
    }

    fn sections(&self) -> Vec<Section> {
        let columns = ["card", "name", "total", "context", "profile"];
        if self.is_chosen() {
            return self.chosen_sections(&columns);
        }
        let bars = self.cards.iter().map(|card| (card.name.clone(), Cell::Bytes(card.total_bytes))).collect();
        let reading = format!(
            "Total: what the driver reports. Context: what a process takes besides what PyTorch reserved, as seen on that card; ~: not seen there, so {}, {}. MIG slices (h100-3g.40gb) and sources: --full.",
            Context::proportion(),
            Context::SLICE
        );
        vec![
            Section::List(Table::new("", &columns, self.cards.iter().map(CardResult::row).collect())),
            Section::Note(reading),
            Section::Details {
                title: "MIG slices".into(),
                sections: vec![Section::List(Table::new(
                    "",
                    &columns,
                    self.slices.iter().map(CardResult::row).collect(),
                ))],
            },
            Section::Details {
                title: "Where each figure is from".into(),
                sections: self.cards.iter().chain(&self.slices).map(CardResult::sources).collect(),
            },
            Section::Details { title: "Contexts by release".into(), sections: by_release() },
            Section::Details { title: "What else takes memory on a card".into(), sections: vec![besides()] },
            Section::Rest(vec![Section::Bars(Bars { title: "Memory".into(), rows: bars })]),
        ]
    }
}
