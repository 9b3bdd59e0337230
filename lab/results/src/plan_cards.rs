//! The fastest plan on each of several cards (`vramlab-plan-cards-1`).

use lab_base::figures::{counted, number, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::findings::{Findings, Settings, again, file_name, plain};
use super::plan::{PlannedResult, duration};
use super::premise::{self, Premise};

/// Steps of which a price is said.
const STEPS: f64 = 1000.0;

/// The fastest plan on each of several cards, the cheapest or the smallest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CardPlans {
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// Premises of the answer, besides the settings.
    #[serde(default)]
    pub premises: Vec<Premise>,
    /// Examples of a step, on all cards together.
    pub global_batch: usize,
    /// Cards that divide a step's batch.
    pub cards: usize,
    /// The plans: first those that fit, by their price if prices are known, else by the cards' memory.
    pub plans: Vec<CardPlan>,
    /// What the figures include, and what they do not.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reasons why the figures may not be what was asked for.
    pub warnings: Vec<String>,
}

/// The fastest plan on a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CardPlan {
    /// The card's name on the command line.
    pub card: String,
    /// The maker's name for it.
    pub title: String,
    /// Memory of it that a process may use.
    pub budget_bytes: u64,
    /// The fastest plan that fits; null if none does.
    pub best: Option<PlannedResult>,
    /// Price of all cards for an hour, in the currency of the file of prices; null if it is not known.
    pub price_per_hour: Option<f64>,
    /// Price of a thousand steps.
    pub price_of_1000_steps: Option<f64>,
}

impl CardPlan {
    /// A plan on a card with this price of one card for an hour.
    pub fn new(
        (card, title): (&str, &str),
        budget_bytes: u64,
        best: Option<PlannedResult>,
        (price, cards): (Option<f64>, usize),
    ) -> Self {
        let price_per_hour = price.map(|price| price * cards as f64);
        let price_of_1000_steps =
            best.as_ref().zip(price_per_hour).map(|(best, price)| price * best.seconds * STEPS / 3600.0);
        Self { card: card.into(), title: title.into(), budget_bytes, best, price_per_hour, price_of_1000_steps }
    }

    /// Its place: plans that fit first, of them those with a price, the cheapest first; then by memory.
    fn place(&self) -> (bool, bool, f64, u64) {
        let price = self.price_of_1000_steps;
        (self.best.is_none(), price.is_none(), price.unwrap_or(0.0), self.budget_bytes)
    }

    fn row(&self, with_prices: bool) -> Vec<Cell> {
        let unknown = || Cell::Text("–".into());
        let title = self.title.strip_prefix("GeForce ").unwrap_or(&self.title);
        let mut row = vec![Cell::Text(title.into()), Cell::Bytes(self.budget_bytes)];
        match &self.best {
            Some(best) => row.extend([
                Cell::Text(duration(best.seconds)),
                Cell::Bytes(best.reserved_bytes()),
                Cell::Text(best.in_words()),
            ]),
            None => row.extend([unknown(), unknown(), Cell::Text("none surely fits".into())]),
        }
        if with_prices {
            row.insert(2, self.price_of_1000_steps.map_or_else(unknown, |price| Cell::Text(number(price))));
        }
        row
    }
}

/// Number of cards up to which all have a row.
const FEW: usize = 8;

impl CardPlans {
    /// Puts the plans in order.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.plans.sort_by(|a, b| a.place().partial_cmp(&b.place()).unwrap_or(std::cmp::Ordering::Equal));
        self
    }

    fn has_prices(&self) -> bool {
        self.plans.iter().any(|plan| plan.price_per_hour.is_some())
    }

    fn answer(&self) -> String {
        let fitting = self.plans.iter().filter(|plan| plan.best.is_some()).count();
        let of = counted(self.plans.len() as u64, "card");
        let Some((first, best)) = self.plans.first().and_then(|plan| Some((plan, plan.best.as_ref()?))) else {
            return format!("No plan surely fits any of {of}");
        };
        let (which, price) = match first.price_of_1000_steps {
            Some(price) => ("cheapest is", format!(", {} for 1,000 steps", number(price))),
            None => ("one with the least memory for PyTorch is", String::new()),
        };
        let (time, reserved) = (duration(best.seconds), short(best.reserved_bytes()));
        format!(
            "Yes, on {fitting} of {of}: the {which} the {}, about {time} a step (estimate), {reserved}{price}",
            first.title
        )
    }

    fn by_card(&self) -> Table {
        let with_prices = self.has_prices();
        let mut columns = vec!["card", "for PyTorch", "a step", "reserved", "plan"];
        if with_prices {
            columns.insert(2, "1,000 steps");
        }
        let shown = self.plans.iter().filter(|plan| plan.best.is_some() || self.plans.len() <= FEW);
        Table::new("The fastest plan on each card", &columns, shown.map(|plan| plan.row(with_prices)).collect())
    }

    /// Names the cards on which no plan surely fits, where there are many.
    fn too_small(&self) -> Option<Section> {
        let titles: Vec<&str> =
            self.plans.iter().filter(|plan| plan.best.is_none()).map(|plan| plan.title.as_str()).collect();
        let many = !titles.is_empty() && self.plans.len() > FEW;
        many.then(|| Section::Note(format!("No plan surely fits on {} others: {}.", titles.len(), titles.join(", "))))
    }
}

impl Findings for CardPlans {
    const SCHEMA: &'static str = "vramlab-plan-cards-1";

    fn title(&self) -> String {
        let setting =
            |name: &str| self.settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default();
        let names = ["model", "model-file"].map(setting);
        let model = names.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        format!("{}: {}, {} examples a step", self.answer(), file_name(&model), self.global_batch)
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        sections.push(Section::Table(self.by_card()));
        sections.extend(self.too_small());
        sections.push(Section::Note(
            "Each plan was run dry. Times are estimates from the cards' data sheets, of which programs reach a part: compare them with each other.".into(),
        ));
        sections.extend(premise::section(&self.premises));
        sections.extend(self.notes.iter().cloned().map(Section::Note));
        sections.push(again(&["plan"], &self.settings));
        sections
    }
}
