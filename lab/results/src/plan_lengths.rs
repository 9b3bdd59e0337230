//! Memory of a training whose examples have different lengths (`vramlab-plan-lengths-1`).

use lab_base::figures::{counted, percent, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::cards::CardResult;
use super::findings::{Findings, Settings, again, file_name, plain};
use super::premise::{self, Premise};

/// Memory of a training whose examples have different lengths. Every row was run dry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LengthsPlanResult {
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// Premises of the answer, besides the settings.
    #[serde(default)]
    pub premises: Vec<Premise>,
    /// The network.
    pub model: String,
    /// The card, if one was named.
    pub card: Option<CardResult>,
    /// Memory of the card that a process may use; null without a limit.
    pub budget_bytes: Option<u64>,
    /// Examples of a batch.
    pub batch: usize,
    /// Examples of the dataset.
    pub examples: usize,
    /// Tokens of the dataset, as the collator cuts and pads them.
    pub tokens: u64,
    /// Tokens of the example in the middle.
    pub median: usize,
    /// Tokens that 99 % of the examples do not exceed.
    pub percentile_99: usize,
    /// Tokens of the longest example.
    pub longest: usize,
    /// The longest length of the dataset to which examples can be cut so that a shuffled run surely fits; null if there is none, or without a limit.
    pub longest_that_fits: Option<usize>,
    /// Examples that are longer than that; null without a limit.
    pub too_long: Option<usize>,
    /// The batch of a shuffled epoch, counted from 1, by which the chance of a longer one is 5, 50 and 95 %. Null if an epoch does not reach the chance.
    /// The list is empty if all batches fit.
    pub too_long_by: Vec<Option<usize>>,
    /// Orders of the examples, shuffled first.
    pub orders: Vec<LengthOrder>,
    /// What the figures include, and what they do not.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reasons why the figures may not be what was asked for.
    pub warnings: Vec<String>,
}

/// Batches in one order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LengthOrder {
    /// The order in words: `shuffled`, `grouped by length (transformers)`, `as stored`, `the longest first`, `the shortest first`, `packed to 4 096`.
    pub order: String,
    /// Batches of an epoch.
    pub batches: usize,
    /// Tokens of each row of the longest batch.
    pub longest: usize,
    /// The longest batch, counted from 1, in the epoch that was drawn.
    pub longest_batch: usize,
    /// Share of an epoch's tokens that are padding, from 0 to 1.
    pub padding: f64,
    /// Peak of allocated memory.
    pub peak_bytes: u64,
    /// Peak of reserved memory within the limit; with enough memory if the run does not fit, or without a limit.
    pub reserved_bytes: u64,
    /// True if it surely fits, false if it surely does not, null if that is in doubt or there is no limit.
    pub fits: Option<bool>,
}

impl LengthsPlanResult {
    /// The order that a training has unless its script says another one.
    fn shuffled(&self) -> Option<&LengthOrder> {
        self.orders.first()
    }

    fn answer(&self) -> String {
        let Some(usual) = self.shuffled() else { return "No batch".into() };
        let longest = format!("the longest batch ({} × {} tokens)", self.batch, usual.longest);
        let needs = short(usual.reserved_bytes);
        let Some(budget) = self.budget_bytes else { return format!("{needs} reserved with {longest}") };
        let of = self.card.as_ref().map_or_else(
            || format!("of {}", short(budget)),
            |card| format!("of the {}'s {}", card.title, short(budget)),
        );
        let verdict = match usual.fits {
            Some(true) => "Yes",
            Some(false) => "No",
            None => "Perhaps",
        };
        format!("{verdict}: {longest} needs {needs} {of}")
    }

    /// How many examples are too long, and when a run meets one of them.
    fn when(&self) -> Option<String> {
        let too_long = self.too_long.filter(|count| *count > 0)?;
        let Some(fits) = self.longest_that_fits else {
            return Some("It does not surely fit even if all examples are cut to the shortest.".into());
        };
        let share = percent(too_long as f64 / self.examples as f64);
        let mut text = format!(
            "With examples cut to {fits} tokens (max_length={fits}) the run surely fits. {} of {} ({share}) {} longer.",
            too_long,
            counted(self.examples as u64, "example"),
            if too_long == 1 { "is" } else { "are" },
        );
        if let [early, Some(middle), late] = self.too_long_by[..] {
            let by = |batch: Option<usize>, share| batch.map(|batch| format!(", by batch {batch} in {share} of 20"));
            let others: Vec<String> = [by(early, 1), by(late, 19)].into_iter().flatten().collect();
            text +=
                &format!(" A shuffled epoch meets one of them by batch {middle} in 10 of 20 cases{}.", others.concat());
        }
        Some(text)
    }

    fn by_order(&self) -> Table {
        let fits = |one: &LengthOrder| match (self.budget_bytes, one.fits) {
            (None, _) => "–",
            (_, Some(true)) => "yes",
            (_, Some(false)) => "no",
            (_, None) => "perhaps",
        };
        let row = |one: &LengthOrder| {
            vec![
                Cell::Text(one.order.clone()),
                Cell::Count(one.batches as u64),
                Cell::Count(one.longest_batch as u64),
                Cell::Text(percent(one.padding)),
                Cell::Bytes(one.peak_bytes),
                Cell::Bytes(one.reserved_bytes),
                Cell::Text(fits(one).into()),
            ]
        };
        let columns = ["examples", "batches", "longest", "padding", "peak", "reserved", "fits"];
        let title = "Orders of the examples: which batch is the longest, and what an epoch takes";
        Table::new(title, &columns, self.orders.iter().map(row).collect())
    }

    fn described(&self) -> String {
        format!(
            "The {} have {} tokens in the middle, 99 % at most {}, the longest {}.",
            counted(self.examples as u64, "example"),
            self.median,
            self.percentile_99,
            self.longest
        )
    }
}

const HOW: &str = "vramlab draws an epoch in each order, and simulates at most 48 of its batches, spread evenly, the longest among them. A smaller last batch is left out.";

impl Findings for LengthsPlanResult {
    const SCHEMA: &'static str = "vramlab-plan-lengths-1";

    fn title(&self) -> String {
        let setting =
            |name: &str| self.settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default();
        let names = ["model", "model-file"].map(setting);
        let model = names.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        format!("{}: {}", self.answer(), file_name(&model))
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        sections.extend(self.when().map(Section::Note));
        sections.push(Section::Note(self.described()));
        sections.push(Section::Table(self.by_order()));
        sections.push(Section::Note(HOW.into()));
        sections.extend(premise::section(&self.premises));
        sections.extend(self.notes.iter().cloned().map(Section::Note));
        sections.push(again(&["plan"], &self.settings));
        sections
    }
}
