//! The fastest way to train on a card (`vramlab-plan-1`).

use lab_base::figures::{counted, short};
use lab_base::section::{Cell, Section, Table, Tries, Try};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cards::CardResult;
use super::findings::{Findings, Settings, again, file_name, plain};
use super::on_card::OnCard;
use super::plan_hand_over::HandedOver;
use super::premise::{self, Premise};

/// The fastest way to make a step of so many examples on a card. Every plan was run dry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrainingPlan {
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// Premises of the answer, besides the settings.
    #[serde(default)]
    pub premises: Vec<Premise>,
    /// The network.
    pub model: String,
    /// The card, if one was named.
    pub card: Option<CardResult>,
    /// Name of the card whose speeds the estimates of time use.
    pub speeds_of: String,
    /// Memory of the card that a process may use.
    pub budget_bytes: u64,
    /// Examples of a step, on all cards together.
    pub global_batch: usize,
    /// Cards that divide a step's batch.
    pub cards: usize,
    /// Machines on which these cards are.
    #[serde(default)]
    pub machines: usize,
    /// The fastest plan that fits; null if none does.
    pub best: Option<PlannedResult>,
    /// The fastest plan for each amount of memory: each next one takes less memory and more time.
    pub front: Vec<PlannedResult>,
    /// The next faster plan, which needs more memory than there is; null if there is none.
    pub faster: Option<PlannedResult>,
    /// The fastest plan that a GiB more would allow; null if none is faster.
    #[serde(default)]
    pub with_more: Option<PlannedResult>,
    /// Estimated seconds of the fastest step without a limit of memory.
    pub unlimited_seconds: f64,
    /// The best as files for other programs; null unless `--hand-over` names a folder.
    #[serde(default)]
    pub hand_over: Option<HandedOver>,
    /// Number of dry runs.
    pub tried: usize,
    /// Number of choices of techniques that were not divided: even whole they are slower than the best.
    pub left_out: usize,
    /// Number of choices of techniques whose parameters, gradients and states alone exceed the card.
    #[serde(default)]
    pub too_large: usize,
    /// Changes of the training's results that the search was allowed to make: `numbers`, `optimizer`, `adapters`.
    pub allowed: Vec<String>,
    /// What the figures include, and what they do not.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reasons why the figures may not be what was asked for.
    pub warnings: Vec<String>,
}

/// A row of the front takes at most this share of the memory of the row above.
const LESS: f64 = 0.9;

/// A plan, run dry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedResult {
    /// Examples of a micro-batch, on each card.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Estimated seconds of a step.
    pub seconds: f64,
    /// True if it surely fits, false if it surely does not, null if that is in doubt.
    pub fits: Option<bool>,
    /// What its process takes on the card.
    #[serde(flatten)]
    pub on_card: OnCard,
    /// Its changes, with the figures of their dry run and the command that repeats it.
    pub changes: Try,
}

impl PlannedResult {
    /// `micro-batch 4 × 16, checkpointing`
    pub fn in_words(&self) -> String {
        let size = match self.accumulate {
            1 => format!("the whole batch of {} at once", self.micro_batch),
            times => format!("micro-batch {} × {times}", self.micro_batch),
        };
        let techniques = self.techniques();
        if techniques.is_empty() { size } else { format!("{size}, {techniques}") }
    }

    /// Its changes but the division into micro-batches.
    fn techniques(&self) -> String {
        let parts =
            self.changes.change.split(" + ").filter(|part| !part.starts_with("accumulation ") && !part.is_empty());
        parts.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.changes.reserved_bytes.unwrap_or(0)
    }

    fn row(&self, fastest: f64) -> Vec<Cell> {
        let techniques = self.techniques();
        let fits = match self.fits {
            Some(true) => "yes",
            Some(false) => "no",
            None => "perhaps",
        };
        vec![
            Cell::Text(format!("{} × {}", self.micro_batch, self.accumulate)),
            Cell::Text(if techniques.is_empty() { "none".into() } else { techniques }),
            Cell::Text(times(self.seconds, fastest)),
            Cell::bytes(self.changes.peak_bytes),
            Cell::bytes(self.changes.reserved_bytes),
            Cell::Text(fits.into()),
        ]
    }
}

/// `1.31 ×`: so many times as long.
fn times(seconds: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.2} ×", seconds / other) } else { "1.00 ×".into() }
}

/// `1.83 s`, `240 ms`.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 9.95 => format!("{s:.0} s"),
        s if s >= 0.95 => format!("{s:.1} s"),
        s if s >= 0.00995 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// The memory that "one more GiB" is.
const GIB: u64 = 1 << 30;

impl TrainingPlan {
    fn answer(&self) -> String {
        let has = self.card.as_ref().map_or_else(
            || short(self.budget_bytes),
            |card| format!("the {}'s {}", card.title, short(self.budget_bytes)),
        );
        match &self.best {
            Some(best) => format!(
                "Yes: about {} a step (estimate), {} of {has}: {}",
                duration(best.seconds),
                short(best.reserved_bytes()),
                best.in_words()
            ),
            None => {
                let least = self.front.last().map_or_else(String::new, |one| {
                    format!(": the least is {}, with {}", short(one.reserved_bytes()), one.in_words())
                });
                format!("No plan surely fits into {has}{least}")
            }
        }
    }

    /// How much slower the best is than without a limit, and what more memory would give.
    fn compared(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(best) = &self.best {
            found.push(match best.seconds / self.unlimited_seconds {
                ratio if ratio < 1.02 => "No plan with more memory is faster.".to_string(),
                _ => format!(
                    "This takes {} the time of the fastest step on a card with enough memory (estimate).",
                    times(best.seconds, self.unlimited_seconds)
                ),
            });
        }
        let faster_at_all = self.best.as_ref().is_some_and(|best| best.seconds >= 1.02 * self.unlimited_seconds);
        match (&self.with_more, &self.best) {
            (Some(more), Some(best)) => found.push(format!(
                "One more GiB makes it {} the time: {}.",
                times(more.seconds, best.seconds),
                more.in_words()
            )),
            (Some(more), None) => found.push(format!("With one more GiB it fits: {}.", more.in_words())),
            (None, Some(_)) if faster_at_all => found.push("One more GiB makes no step faster.".into()),
            (None, _) => {}
        }
        // A plan that exceeds the card by less than that GiB did not surely fit one more.
        let beyond = self.budget_bytes + if self.best.is_some() { GIB } else { 0 };
        if let Some(faster) = self.faster.as_ref().filter(|one| one.reserved_bytes() > beyond) {
            let time = match &self.best {
                Some(best) => format!("{} the time", times(faster.seconds, best.seconds)),
                None => duration(faster.seconds),
            };
            found.push(format!(
                "With {} more a step takes {time}: {}.",
                short(faster.reserved_bytes() - self.budget_bytes),
                faster.in_words()
            ));
        }
        found
    }

    /// The changes to make, as code.
    fn handed_over(&self) -> Option<Section> {
        let best = self.best.as_ref().filter(|best| !best.changes.change.is_empty())?;
        let entries = vec![best.changes.clone()];
        Some(Section::Try(Tries { order: "Write".into(), entries, ..Tries::default() }))
    }

    /// The front without rows that take nearly as much memory as the row above.
    fn shown(&self) -> Vec<&PlannedResult> {
        let mut shown: Vec<&PlannedResult> = Vec::new();
        for one in &self.front {
            let is_less = |last: &&PlannedResult| one.reserved_bytes() as f64 <= LESS * last.reserved_bytes() as f64;
            if shown.last().is_none_or(|last| is_less(last) || last.fits != one.fits) {
                shown.push(one);
            }
        }
        shown
    }

    fn front_table(&self) -> Table {
        let columns = ["micro-batch", "changes", "time", "peak", "reserved", "fits"];
        let rows = self.shown().into_iter().map(|one| one.row(self.unlimited_seconds)).collect();
        Table::new("Less memory takes more time: the fastest for each amount", &columns, rows)
    }

    fn how(&self) -> String {
        let mut left_out = match self.left_out {
            0 => String::new(),
            n => format!(
                " It left out {}: even with the whole batch at once they are slower.",
                counted(n as u64, "choice")
            ),
        };
        if self.too_large > 0 {
            let choices = counted(self.too_large as u64, "choice");
            left_out += &format!(" Parameters, gradients and states alone exceed the card in {choices}.");
        }
        let also = match self.allowed.is_empty() {
            true => {
                " Results of the training stay as they are but for rounding; `--allow numbers,optimizer,adapters` tries more."
            }
            false => "",
        };
        let several = match (self.cards, self.machines) {
            (1, _) => String::new(),
            (cards, machines) => format!(
                " {cards} cards on {} send each other gradients and parameters, and compute nothing meanwhile. vramlab chose among replicas and ZeRO's stages; tensor, sequence, context, expert and pipeline parallelism it does not search.",
                counted(machines as u64, "machine")
            ),
        };
        format!(
            "vramlab made {}.{left_out}{also} Times are estimates from the data sheet of the {}, of which programs reach a part: compare them with each other.{several}",
            counted(self.tried as u64, "dry run"),
            self.speeds_of,
        )
    }
}

impl Findings for TrainingPlan {
    const SCHEMA: &'static str = "vramlab-plan-1";

    fn title(&self) -> String {
        let setting =
            |name: &str| self.settings.get(name).filter(|value| !value.is_null()).map(plain).unwrap_or_default();
        let names = ["model", "model-file"].map(setting);
        let model = names.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        let tokens = self.premises.iter().find(|premise| premise.name == "tokens");
        let each = tokens.map_or_else(String::new, |tokens| format!(" × {}", tokens.value));
        let model = file_name(&model);
        format!("{}: {model}, {}{each} a step", self.answer(), self.global_batch)
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.warnings.iter().cloned().map(Section::Warning).collect();
        sections.extend(self.compared().into_iter().map(Section::Note));
        sections.extend(self.handed_over());
        sections.extend(self.hand_over.as_ref().map(|files| Section::Table(files.table())));
        sections.push(Section::Table(self.front_table()));
        sections.push(Section::Note(self.how()));
        sections.extend(premise::section(&self.premises));
        sections.extend(self.notes.iter().cloned().map(Section::Note));
        sections.push(again(&["plan"], &self.settings));
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.front_table())
    }
}

/// Settings of a plan's command: those of the run, with the batch of a whole step.
pub fn plan_settings(mut settings: Settings, global_batch: usize, allowed: &[String]) -> Settings {
    for name in ["batch", "accumulate"] {
        settings.remove(name);
    }
    settings.insert("global-batch".into(), global_batch.into());
    if !allowed.is_empty() {
        settings.insert("allow".into(), Value::String(allowed.join(",")));
    }
    settings
}
