//! The run that a handed-over file gives when this program reads it, beside the plan.

use lab_base::error::Result;
use lab_base::figures::short;
use lab_imports::hf_args::{Around, HfArgs};
use lab_models::TUNING_FIELDS;
use serde_json::{Map, Value};

use super::plan::HandedPlan;
use crate::run::dry_runner::DryRunner;
use crate::run::session::Session;
use crate::run::spec::RunSpec;

/// Fields that a file may say beside [`TUNING_FIELDS`]. What it does not say of them is not in the run that it gives.
const SAYS: &[&str] = &[
    "batch",
    "accumulate",
    "sequence",
    "lr",
    "weight-decay",
    "clip-grad-norm",
    "optimizer",
    "optimizer-impl",
    "step-in-backward",
    "precision",
    "checkpoint",
    "attention",
    "loss",
    "loop",
    "keep",
    "zero-grad",
];

/// Fields that a trainer decides by itself.
const OF_TRAINERS: &[&str] = &["loop", "keep", "clip-grad-norm"];

/// Fields without an effect on memory.
const WITHOUT_WEIGHT: &[&str] = &["lr", "weight-decay"];

/// What came of reading a file.
pub(super) enum Back {
    /// It says the plan, but for what a trainer decides by itself; with the peaks of allocated and reserved memory of its own dry run.
    Says { differs: Vec<String>, figures: (u64, u64) },
    /// It does not, and why.
    Cannot(String),
}

/// Compares runs that files give with a plan.
pub(super) struct ReadBack<'a> {
    pub(super) runner: &'a DryRunner<'a>,
    pub(super) plan: &'a HandedPlan<'a>,
    /// Whether a run that does not surely fit is refused.
    pub(super) must_fit: bool,
}

impl ReadBack<'_> {
    /// What stands beside the file when it is read.
    pub(super) fn around(&self) -> Around<'_> {
        let spec = self.plan.spec;
        Around {
            config: Some(self.plan.configuration),
            release: Some(spec.model.release()),
            script: None,
            plain: spec.parallel.ranks.data_parallel.is_some() || self.plan.run.quantized.is_some(),
        }
    }

    /// Compares the run; the fields in `beside` are said elsewhere.
    ///
    /// # Errors
    /// Those of dry runs.
    pub(super) fn compared(&self, read: &HfArgs, beside: &[&str]) -> Result<Back> {
        if let Some(refused) = read.refusals.first() {
            return Ok(Back::Cannot(format!("vramlab does not count {}", refused.argument)));
        }
        let run = match self.run(&read.fields, beside) {
            Ok(run) => run,
            Err(error) if error.is_usage() => return Ok(Back::Cannot(error.to_string())),
            Err(error) => return Err(error),
        };
        let (said, planned) = match self.runner.session(&run) {
            Ok(session) => (in_full(&session), in_full(&self.runner.session(self.plan.spec)?)),
            Err(error) if error.is_usage() => return Ok(Back::Cannot(error.to_string())),
            Err(error) => return Err(error),
        };
        let differing: Vec<&String> = planned
            .keys()
            .filter(|name| said.get(*name) != planned.get(*name) && !WITHOUT_WEIGHT.contains(&name.as_str()))
            .collect();
        let word = |fields: &Map<String, Value>, name: &str| match fields.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "none".into(),
            Some(value) => value.to_string(),
        };
        let may_differ =
            |name: &str| OF_TRAINERS.contains(&name) || name == "precision" && is_under_autocast(&said, &planned);
        if let Some(name) = differing.iter().find(|name| !may_differ(name)) {
            return Ok(Back::Cannot(format!("it cannot say {name} = {}", word(&planned, name))));
        }
        // The Trainer keeps nothing of a result.
        let is_trainers = said.get("loop").and_then(Value::as_str) == Some("trainer");
        let shown = differing.iter().filter(|name| !is_trainers || name.as_str() != "keep");
        let differs = shown.map(|name| format!("{name} {}", word(&said, name))).collect();
        let figures = self.runner.figures_of_change(&run)?;
        let reserved = figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes);
        match figures.fits_surely() {
            fits if fits == Some(true) || !self.must_fit => {
                Ok(Back::Says { differs, figures: (figures.allocated_bytes, reserved) })
            }
            _ => Ok(Back::Cannot(format!("run by its trainer the plan does not surely fit: {}", short(reserved)))),
        }
    }

    /// The plan, with what the file says in place of what it may say.
    fn run(&self, fields: &Map<String, Value>, beside: &[&str]) -> Result<RunSpec> {
        let ranks = self.plan.ranks() as u64;
        let cleared = |name: &&&str| !beside.contains(*name);
        let unset = RunSpec::default().fields();
        let unsaid = |name: &str| unset.get(name).cloned().unwrap_or_default();
        let mut all: Map<String, Value> =
            SAYS.iter().chain(&TUNING_FIELDS).filter(cleared).map(|name| ((*name).to_string(), unsaid(name))).collect();
        for (name, value) in fields.iter().filter(|(name, _)| !beside.contains(&name.as_str())) {
            let value = match (name.as_str(), value.as_u64()) {
                ("batch", Some(each)) => each.saturating_mul(ranks).into(),
                _ => value.clone(),
            };
            all.insert(name.clone(), value);
        }
        self.plan.spec.with(all.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

/// Every field of a run with the value in force, defaults of networks of transformers among them.
fn in_full(session: &Session) -> Map<String, Value> {
    let mut fields = session.in_force.fields();
    for (name, usual) in [("attention", "sdpa"), ("loop", "plain"), ("keep", "output"), ("zero-grad", "none")] {
        let value = fields.entry(name).or_insert(Value::Null);
        if value.is_null() {
            *value = usual.into();
        }
    }
    if let Some(lora) = &session.run.lora {
        fields.insert("lora-target".into(), lora.target.to_string().into());
        fields.insert("lora-dropout".into(), lora.dropout.into());
    }
    fields
}

/// True if the file means autocast to bfloat16 over the plan's weights in bfloat16, as trainers do with `bf16=True`.
fn is_under_autocast(said: &Map<String, Value>, planned: &Map<String, Value>) -> bool {
    let precision = |fields: &Map<String, Value>| fields.get("precision").and_then(Value::as_str).map(String::from);
    precision(said).as_deref() == Some("bf16-autocast-bf16") && precision(planned).as_deref() == Some("bf16")
}
