//! Order of a step's phases: real scripts differ in it, and so does their memory.

use lab_base::error::{Error, Result};
use serde::Serialize;

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Moves the batch to the device.
    Input,
    /// Frees or zeroes the gradients.
    ZeroGrad,
    /// Runs the network.
    Forward,
    /// Computes the loss.
    Loss,
    /// Leaves the autocast region and frees its cached casts. If an order does not name this phase, the region ends with the loss.
    ExitAutocast,
    /// Computes the gradients.
    Backward,
    /// Updates the parameters.
    Step,
    /// Updates the loss scaler. If an order does not name this phase, the scaler is updated right after the step.
    Update,
    /// Frees the network's result.
    Del,
    /// Runs the network once more, without recording a graph.
    ForwardNoGrad,
    /// Empties the lists that layers append to.
    Clear,
    /// Gives cached memory back to the driver.
    EmptyCache,
    /// Resets the peaks: `reset_peak_memory_stats()`.
    ResetPeak,
    /// Moves all batches of a step to the device: the loop of the library's own `Trainer`. This phase and all that follow belong to loops with an
    /// order of their own.
    Inputs,
    /// Adds the loss to the earlier ones, after the backward pass and under its name.
    AddLoss,
    /// Clips the gradients, in a phase of its own.
    Clip,
    /// Runs all forward and backward passes of a batch over several devices.
    Passes,
    /// Adds up the gradients of parameters that several devices have.
    AllReduce,
}

impl Phase {
    /// The phases that an order can name.
    const ALL: [Phase; 13] = [
        Phase::Input,
        Phase::ZeroGrad,
        Phase::Forward,
        Phase::Loss,
        Phase::ExitAutocast,
        Phase::Backward,
        Phase::Step,
        Phase::Update,
        Phase::Del,
        Phase::ForwardNoGrad,
        Phase::Clear,
        Phase::EmptyCache,
        Phase::ResetPeak,
    ];

    /// The phases of most scripts, in their order.
    pub const USUAL: [Phase; 6] =
        [Phase::Input, Phase::ZeroGrad, Phase::Forward, Phase::Loss, Phase::Backward, Phase::Step];

    /// Phases that each need the one before.
    const CHAIN: [Phase; 6] = [Phase::Input, Phase::Forward, Phase::Loss, Phase::Backward, Phase::Step, Phase::Update];

    /// Name of the phase in the labels of rows.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Input => "input",
            Phase::ZeroGrad => "zero_grad",
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::ExitAutocast => "exit_autocast",
            Phase::Backward => "backward",
            Phase::Step => "step",
            Phase::Update => "update",
            Phase::Del => "del",
            Phase::ForwardNoGrad => "forward_no_grad",
            Phase::Clear => "clear",
            Phase::EmptyCache => "empty_cache",
            Phase::ResetPeak => "reset_peak",
            Phase::Inputs => "input",
            Phase::AddLoss => "backward",
            Phase::Clip => "clip",
            Phase::Passes => "passes",
            Phase::AllReduce => "all_reduce",
        }
    }

    /// Returns the phase with this name.
    fn parse(name: &str) -> Result<Self> {
        Phase::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Phase::ALL.iter().map(|p| p.name()).collect();
            Error::usage("schedule", format!("unknown phase {name:?}; known: {}", known.join(", ")))
        })
    }
}

/// A row of a step: the phase that it follows, and its label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowAfter {
    /// The phase.
    pub phase: Phase,
    /// The label, without the step's number.
    pub label: String,
}

/// Order of the phases, and labels of the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// Each phase at most once. Input, forward, loss, backward, step and update stand in this order, each only with all those before it; a schedule
    /// may end with any of them. `zero_grad` stands anywhere but between backward and step.
    ///
    /// With accumulation, the phases from `input` to `backward` run for each micro-batch (`zero_grad` among them only for the first one); those
    /// before and after run once.
    pub order: Vec<Phase>,
    /// Phases that are followed by a row.
    pub rows: Vec<RowAfter>,
    /// Prefix of a step's number in a label: `s` (or `e` for scripts that count epochs of one batch). If it is empty, labels have no number.
    pub prefix: String,
    /// True if the model is made in float32 and then cast to its type, with a row before and after: `model.to(dtype)`.
    pub cast: bool,
    /// True if input and target are one variable (`batch = next(loader)`): the old ones are freed only after both new ones exist.
    pub one_batch: bool,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::in_order(Phase::USUAL.to_vec(), "s")
    }
}

/// When a phase runs in a step of several micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// In every micro-batch.
    Every,
    /// Before the first one.
    First,
    /// After the last one.
    Last,
}

impl Schedule {
    /// Returns a schedule with these phases in this order, and a row after each.
    pub fn in_order(order: Vec<Phase>, prefix: impl Into<String>) -> Self {
        let rows =
            order.iter().filter(|phase| !matches!(phase, Phase::ExitAutocast | Phase::AddLoss | Phase::AllReduce));
        let rows = rows.map(|&phase| RowAfter { phase, label: phase.name().into() }).collect();
        Self { order, rows, prefix: prefix.into(), cast: false, one_batch: false }
    }

    /// Returns the usual schedule of a program that frees the network's result as soon as the loss exists: `loss = model(**b).loss`. No row is taken
    /// between the two.
    pub fn keeping_the_loss() -> Self {
        let mut schedule = Self::default();
        let behind = schedule.order.iter().position(|phase| *phase == Phase::Loss).map_or(0, |loss| loss + 1);
        schedule.order.insert(behind, Phase::Del);
        schedule
    }

    /// Reads a schedule from the names of its phases, with a row after each but `exit_autocast`.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown or repeated phase, or an order that cannot work.
    pub fn new(names: &[String], prefix: impl Into<String>) -> Result<Self> {
        let order: Result<Vec<Phase>> = names.iter().map(|name| Phase::parse(name)).collect();
        let schedule = Self::in_order(order?, prefix);
        schedule.check()?;
        Ok(schedule)
    }

    /// Takes rows only after these phases; `phase=label` gives a row another name than its phase's.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown phase, or one that the order does not have.
    pub fn with_rows(mut self, names: &[String]) -> Result<Self> {
        let row = |name: &String| {
            let (phase, label) = name.split_once('=').unwrap_or((name, name));
            let phase = Phase::parse(phase)?;
            if !self.order.contains(&phase) {
                return Err(Error::usage("schedule", format!("a row after {}, which the order has not", phase.name())));
            }
            Ok(RowAfter { phase, label: label.into() })
        };
        self.rows = names.iter().map(row).collect::<Result<_>>()?;
        Ok(self)
    }

    fn position(&self, phase: Phase) -> Option<usize> {
        self.order.iter().position(|p| *p == phase)
    }

    fn check(&self) -> Result<()> {
        let wrong = |problem: String| Err(Error::usage("schedule", problem));
        for (i, phase) in self.order.iter().enumerate() {
            if self.order[..i].contains(phase) {
                return wrong(format!("phase {} is there twice", phase.name()));
            }
        }
        for pair in Phase::CHAIN.windows(2) {
            let (before, after) = (self.position(pair[0]), self.position(pair[1]));
            match (before, after) {
                (None, Some(_)) => return wrong(format!("phase {} is missing", pair[0].name())),
                (Some(before), Some(after)) if before > after => {
                    return wrong(format!("{} must come before {}", pair[0].name(), pair[1].name()));
                }
                _ => {}
            }
        }
        if self.position(Phase::Forward).is_none() {
            return wrong("phase forward is missing".into());
        }
        for (phase, needed) in
            [(Phase::Del, Phase::Forward), (Phase::ForwardNoGrad, Phase::Input), (Phase::ExitAutocast, Phase::Forward)]
        {
            if self.position(phase).is_some_and(|at| self.position(needed).is_none_or(|needed| needed > at)) {
                return wrong(format!("{} must come before {}", needed.name(), phase.name()));
            }
        }
        let between = |phase, from, to| {
            matches!((self.position(phase), self.position(from), self.position(to)),
                (Some(at), Some(from), Some(to)) if from < at && at < to)
        };
        if between(Phase::ZeroGrad, Phase::Backward, Phase::Step) {
            return wrong("zero_grad between backward and step leaves nothing to step with".into());
        }
        if between(Phase::Del, Phase::Forward, Phase::Loss) {
            return wrong("del between forward and loss leaves nothing to compute a loss of".into());
        }
        Ok(())
    }

    /// Returns when the phase at this place of the order runs.
    pub(super) fn turn(&self, place: usize) -> Turn {
        let input = self.position(Phase::Input).unwrap_or(0);
        let backward = self.position(Phase::Backward).or(self.position(Phase::Passes)).unwrap_or(self.order.len());
        match self.order[place] {
            Phase::Inputs => Turn::First,
            Phase::AddLoss => Turn::Every,
            Phase::ZeroGrad if place < backward => Turn::First,
            _ if place < input => Turn::First,
            _ if place > backward => Turn::Last,
            _ => Turn::Every,
        }
    }

    /// The phase with which each micro-batch begins.
    pub fn begins_with(&self) -> Option<Phase> {
        (0..self.order.len()).find(|place| self.turn(*place) == Turn::Every).map(|place| self.order[place])
    }

    /// Whether the order names this phase.
    pub fn names(&self, phase: Phase) -> bool {
        self.order.contains(&phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(names: &str) -> Result<Schedule> {
        Schedule::new(&names.split(' ').map(String::from).collect::<Vec<_>>(), "s")
    }

    #[test]
    fn orders_that_cannot_work_are_refused() {
        for (names, problem) in [
            ("input forward loss backward backward", "twice"),
            ("input loss forward", "forward must come before loss"),
            ("input forward backward", "loss is missing"),
            ("input zero_grad", "forward is missing"),
            ("input forward loss backward zero_grad step", "leaves nothing to step with"),
            ("input forward del loss", "leaves nothing to compute"),
            ("input walk", "unknown phase"),
            ("forward", "input is missing"),
        ] {
            let error = schedule(names).unwrap_err().to_string();
            assert!(error.contains(problem), "{names}: {error}");
        }
    }

    #[test]
    fn micro_batches_repeat_what_stands_from_input_to_backward() {
        let schedule = schedule("zero_grad input forward loss backward step empty_cache").unwrap();
        let turns: Vec<Turn> = (0..schedule.order.len()).map(|place| schedule.turn(place)).collect();
        use Turn::{Every, First, Last};
        assert_eq!(turns, [First, Every, Every, Every, Every, Last, Last]);
    }

    #[test]
    fn rows_follow_the_named_phases_only() {
        let rows = ["forward".to_string(), "update=step".to_string()];
        let schedule = schedule("input forward loss backward step update").unwrap().with_rows(&rows).unwrap();
        let labels: Vec<&str> = schedule.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["forward", "step"]);
        let error = schedule.with_rows(&["del".to_string()]).unwrap_err().to_string();
        assert!(error.contains("which the order has not"), "{error}");
    }
}
