//! The order of a step's phases: real scripts differ in it, and so does their memory.

use serde::Serialize;

use crate::error::{Error, Result};

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The batch is put on the device.
    Input,
    /// Gradients are let go or zeroed.
    ZeroGrad,
    /// The network runs.
    Forward,
    /// The loss is computed.
    Loss,
    /// Gradients are computed.
    Backward,
    /// Parameters are updated.
    Step,
}

impl Phase {
    /// Every phase, in the order of most scripts.
    pub const ALL: [Phase; 6] =
        [Phase::Input, Phase::ZeroGrad, Phase::Forward, Phase::Loss, Phase::Backward, Phase::Step];

    /// As rows are labelled.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Input => "input",
            Phase::ZeroGrad => "zero_grad",
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Backward => "backward",
            Phase::Step => "step",
        }
    }
}

/// The order of the phases, and how steps are labelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// Each phase exactly once, in an order that can work: input, forward, loss, backward, step in this order, `zero_grad` anywhere but between
    /// backward and step.
    pub order: Vec<Phase>,
    /// What comes before the number of a step in a label: `s` (or `e` for scripts that count epochs of one batch).
    pub prefix: String,
    /// Input and target are one variable (`batch = next(loader)`): both new ones are there before the old ones go.
    pub one_batch: bool,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { order: Phase::ALL.to_vec(), prefix: "s".into(), one_batch: false }
    }
}

impl Schedule {
    /// A schedule from the names of its phases.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown, missing or repeated phase, or an order that cannot work.
    pub fn new(names: &[String], prefix: impl Into<String>) -> Result<Self> {
        let mut order = Vec::new();
        for name in names {
            let phase = Phase::ALL.into_iter().find(|p| p.name() == name);
            let phase = phase.ok_or_else(|| {
                let known: Vec<&str> = Phase::ALL.iter().map(|p| p.name()).collect();
                Error::usage("schedule", format!("unknown phase {name:?}; known: {}", known.join(", ")))
            })?;
            order.push(phase);
        }
        let schedule = Self { order, prefix: prefix.into(), one_batch: false };
        schedule.check()?;
        Ok(schedule)
    }

    fn check(&self) -> Result<()> {
        let at = |phase: Phase| {
            let mut places = self.order.iter().enumerate().filter(|(_, p)| **p == phase).map(|(i, _)| i);
            match (places.next(), places.next()) {
                (Some(place), None) => Ok(place),
                (None, _) => Err(Error::usage("schedule", format!("phase {} is missing", phase.name()))),
                _ => Err(Error::usage("schedule", format!("phase {} is there twice", phase.name()))),
            }
        };
        let chain = [Phase::Input, Phase::Forward, Phase::Loss, Phase::Backward, Phase::Step];
        for pair in chain.windows(2) {
            if at(pair[0])? > at(pair[1])? {
                let problem = format!("{} must come before {}", pair[0].name(), pair[1].name());
                return Err(Error::usage("schedule", problem));
            }
        }
        let zero = at(Phase::ZeroGrad)?;
        if zero > at(Phase::Backward)? && zero < at(Phase::Step)? {
            return Err(Error::usage("schedule", "zero_grad between backward and step leaves nothing to step with"));
        }
        Ok(())
    }
}
