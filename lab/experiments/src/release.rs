//! `release`: how much memory do deleting and clearing give back?

use std::time::Instant;

use lab_analysis::predict::{Held, Network};
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::Cell;
use memcore::Device;

use super::columns::Columns;
use super::progress::Progress;
use super::session::{Sample, Session, Variable};
use super::tables::{curve, table, text};
use super::timing::{ROUNDS, Times, turns};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct Release;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Deleting the outputs and emptying the cache in each step mitigates over-reservation.",
        source: "Does decreasing batch size in PyTorch lead to increased memory reservation? (2024)",
    },
    Claim {
        text: "Memory is managed by deleting large tensors as soon as they are not needed.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025)",
    },
];

/// Steps before the first deletion.
const STEPS: usize = 2;

/// An action of a script.
#[derive(Clone, Copy)]
enum Action {
    Delete(Variable, &'static str),
    EmptyCache,
    /// Detaches the loss: it stays, without its history.
    DetachLoss,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Delete(_, name) => name,
            Action::EmptyCache => "empty_cache()",
            Action::DetachLoss => "loss = loss.detach()",
        }
    }
}

use Action::{Delete, DetachLoss, EmptyCache};

const OUTPUT: Action = Delete(Variable::Output, "del outputs");
const LOSS: Action = Delete(Variable::Loss, "del loss");
const BATCH: Action = Delete(Variable::Batch, "del inputs, targets");
const GRADIENTS: Action = Delete(Variable::Gradients, "zero_grad()");
const STATE: Action = Delete(Variable::OptimizerState, "del optimizer");
const PARAMETERS: Action = Delete(Variable::Parameters, "del model");
const WORKSPACES: Action = Delete(Variable::Workspaces, "release workspaces");

/// Named orders of the actions.
const SEQUENCES: &[(&str, &[Action])] = &[
    ("delete, then empty", &[OUTPUT, LOSS, BATCH, GRADIENTS, STATE, PARAMETERS, EmptyCache, WORKSPACES, EmptyCache]),
    ("empty, then delete", &[EmptyCache, OUTPUT, LOSS, BATCH, GRADIENTS, STATE, PARAMETERS, WORKSPACES, EmptyCache]),
    (
        "all but the loss",
        &[DetachLoss, OUTPUT, BATCH, GRADIENTS, STATE, PARAMETERS, WORKSPACES, EmptyCache, LOSS, EmptyCache],
    ),
];

/// Measurements of one order.
struct Sequence {
    name: &'static str,
    /// Samples; the first one is after training.
    moments: Vec<Sample>,
    /// Predicted requested bytes held at each sample.
    predicted: Vec<u64>,
}

/// Figures of steps with and without emptying the cache between them.
struct CachePolicy {
    empties: bool,
    /// Bytes reserved between the steps. Below it, the most reserved during a step.
    between: u64,
    at_most: u64,
    /// Number of segments taken from the driver per step.
    driver_calls: u64,
    /// Times of whole steps, taken in turns with the other policy.
    times: Times,
}

impl Experiment for Release {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "release",
                question: "What does deleting and clearing give back?",
                claims: CLAIMS,
                sizes: &[Size::one("batch", "examples per step; 32")],
                takes_model: true,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let batch = setup.size("batch", 32);
        if batch == 0 {
            return Err(Error::usage("batch", "must be at least 1"));
        }
        let mut progress = Progress::new(setup, SEQUENCES.len() + 2);
        let (mut sequences, mut policies) = (Vec::new(), Vec::new());
        for (name, actions) in SEQUENCES {
            progress.next(name)?;
            let sequence = act(name, actions, setup, batch)?;
            show_sequence(&sequence, outcome);
            sequences.push(sequence);
        }
        let mut scripts = Vec::new();
        for empties in [false, true] {
            progress.next(if empties { "steps, cache emptied after each" } else { "steps, cache kept" })?;
            scripts.push(Script::new(empties, setup, batch)?);
        }
        for round in 0..ROUNDS {
            turns(round, scripts.len()).try_for_each(|i| scripts[i].step(round))?;
        }
        for script in scripts {
            policies.push(script.end()?);
        }
        show_policies(&policies, outcome);
        notes(&sequences, outcome);
        outcome.claims = judge(&sequences, &policies);
        outcome.answer = answer(&sequences, &policies);
        Ok(())
    }
}

/// Trains a model for some steps.
fn trained(device: &Device, setup: &Setup<'_>, batch: usize) -> Result<Session> {
    let mut session = Session::asked(device, setup)?;
    for i in 0..STEPS {
        session.whole_step(&format!("s{i}"), batch)?;
    }
    Ok(session)
}

/// Subtracts the bytes that a deletion frees.
fn delete(held: &mut Held, variable: Variable) {
    *match variable {
        Variable::Output => &mut held.output,
        Variable::Loss => &mut held.loss,
        Variable::Batch => &mut held.batch,
        Variable::Gradients => &mut held.gradients,
        Variable::OptimizerState => &mut held.optimizer,
        Variable::Parameters => &mut held.parameters,
        Variable::Workspaces => &mut held.workspaces,
    } = 0;
}

fn act(name: &'static str, actions: &[Action], setup: &Setup<'_>, batch: usize) -> Result<Sequence> {
    let device = (setup.open)()?;
    let mut session = trained(&device, setup, batch)?;
    let mut held = Network::SIMPLE_CNN.held(batch, device.profile()).filter(|_| setup.model.is_none());
    let mut moments = vec![session.moment("trained")];
    let mut predicted: Vec<u64> = held.iter().map(Held::total).collect();
    for action in actions {
        match *action {
            Delete(variable, _) => {
                session.delete(variable)?;
                held.iter_mut().for_each(|held| delete(held, variable));
            }
            EmptyCache => {
                device.empty_cache();
            }
            // The value stays in place: nothing is allocated and nothing is freed.
            DetachLoss => session.loss = session.loss.take().map(|loss| loss.detach()),
        }
        moments.push(session.moment(action.name()));
        predicted.extend(held.iter().map(Held::total));
    }
    Ok(Sequence { name, moments, predicted })
}

/// A script that deletes its result after each step, and may empty the cache.
struct Script {
    empties: bool,
    batch: usize,
    session: Session,
    times: Times,
    at_most: u64,
    /// Number of segments taken from the driver in the last step.
    taken: u64,
}

impl Script {
    fn new(empties: bool, setup: &Setup<'_>, batch: usize) -> Result<Self> {
        let session = trained(&(setup.open)()?, setup, batch)?;
        Ok(Self { empties, batch, session, times: Times::default(), at_most: 0, taken: 0 })
    }

    fn tidy(&mut self) -> Result<()> {
        self.session.delete(Variable::Output)?;
        if self.empties {
            self.session.network.device.empty_cache();
        }
        Ok(())
    }

    /// Deletes the result of the step before, then takes a step and records its time.
    fn step(&mut self, number: usize) -> Result<()> {
        self.tidy()?;
        let device = self.session.network.device.clone();
        let before = device.stats().segment.all.allocated;
        let start = Instant::now();
        let step = self.session.whole_step(&format!("t{number}"), self.batch)?;
        if device.computes() {
            self.times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        self.taken = device.stats().segment.all.allocated - before;
        self.at_most = self.at_most.max(step.reserved_peak);
        Ok(())
    }

    fn end(mut self) -> Result<CachePolicy> {
        self.tidy()?;
        let Self { empties, session, times, at_most, taken, .. } = self;
        let between = session.network.device.stats().reserved_bytes.all.current;
        Ok(CachePolicy { empties, between, at_most, driver_calls: taken, times })
    }
}

fn show_sequence(sequence: &Sequence, outcome: &mut Outcome) {
    let mut rows = Vec::new();
    let mut before = (0, 0);
    for (i, moment) in sequence.moments.iter().enumerate() {
        let (allocated, reserved) = (moment.row.allocated, moment.row.reserved);
        let mut m = Measurement::with_setting([
            ("order", sequence.name.into()),
            ("place", i.into()),
            ("action", moment.row.label.clone().into()),
        ]);
        m.measure("allocated_bytes", allocated);
        m.measure("reserved_bytes", reserved);
        m.measure("requested_bytes", moment.row.requested);
        if let Some(bytes) = sequence.predicted.get(i) {
            m.predict("requested_bytes", *bytes);
        }
        outcome.rows.push(m);
        let change = |now: u64, before: u64| match (i, now as i64 - before as i64) {
            (0, _) | (_, 0) => text("-"),
            (_, by) => Cell::Difference(by),
        };
        rows.push(vec![
            text(moment.row.label.clone()),
            Cell::Bytes(allocated),
            change(allocated, before.0),
            Cell::Bytes(reserved),
            change(reserved, before.1),
        ]);
        before = (allocated, reserved);
    }
    let columns = ["action", "allocated", "to the pool", "reserved", "to the device"];
    outcome.tables.push(table(sequence.name, &columns, rows));
    outcome.curves.push(curve(sequence.name, &sequence.moments));
}

fn policy_name(empties: bool) -> &'static str {
    if empties { "del outputs; empty_cache()" } else { "del outputs" }
}

fn show_policies(policies: &[CachePolicy], outcome: &mut Outcome) {
    let columns = Columns::new()
        .words("after each step", "after each step", |policy: &CachePolicy| policy_name(policy.empties))
        .bytes("reserved_between_steps_bytes", "between", |policy| policy.between)
        .bytes("reserved_at_most_bytes", "at most", |policy| policy.at_most)
        .count("segments_taken_per_step", "segments", |policy| policy.driver_calls)
        .row(|policy, m| policy.times.measure(m, "step_us"))
        .cell("step (range)", |policy| text(policy.times.words()));
    outcome.rows.extend(policies.iter().map(|policy| columns.measurement(policy)));
    let title =
        "Reserved between and during steps, segments taken from the driver in each step, the middle of several steps";
    outcome.tables.push(columns.table(title, policies));
}

impl Sequence {
    fn after(&self, action: &str) -> Option<&Sample> {
        self.moments.iter().find(|moment| moment.row.label == action)
    }

    fn end(&self) -> &Sample {
        &self.moments[self.moments.len() - 1]
    }
}

fn notes(sequences: &[Sequence], outcome: &mut Outcome) {
    let [first, second, pinned] = sequences else { return };
    if let (Some(a), Some(b)) = (first.after(EmptyCache.name()), second.after(PARAMETERS.name())) {
        outcome.notes.push(format!(
            "With everything deleted, {} stay reserved when the cache is emptied last and {} when it was emptied first: \
             empty_cache gives back what is free at that moment, and only whole segments.",
            bytes(a.row.reserved),
            bytes(b.row.reserved)
        ));
        outcome.notes.push(format!(
            "What stays allocated after everything of the script is deleted are the libraries' workspaces: {}.",
            bytes(a.row.allocated)
        ));
    }
    let emptied = pinned.moments.iter().find(|m| m.row.label == EmptyCache.name());
    if let Some(m) = emptied {
        outcome.notes.push(format!(
            "One loss of {} that is still held keeps a segment: {} stay reserved after empty_cache, {} when it is gone too.",
            bytes(m.row.allocated),
            bytes(m.row.reserved),
            bytes(pinned.end().row.reserved)
        ));
    }
}

/// States what deleting gives back to the allocator, and what emptying gives back to the device.
fn answer(sequences: &[Sequence], policies: &[CachePolicy]) -> ShortAnswer {
    let Some(first) = sequences.first() else { return ShortAnswer::default() };
    let (Some(start), Some(deleted)) = (first.moments.first(), first.after(PARAMETERS.name())) else {
        return ShortAnswer::default();
    };
    let emptied = first.after(EmptyCache.name()).map_or(0, |moment| moment.row.reserved);
    let (before, after) = (&start.row, &deleted.row);
    let word = match after.reserved < before.reserved {
        true => "Deleting gives to allocator and device",
        false => "Deleting gives to the allocator alone",
    };
    let mut answer = ShortAnswer::new(
        word,
        [
            format!(
                "Everything deleted: allocated {} → {}, reserved {} → {}.",
                bytes(before.allocated),
                bytes(after.allocated),
                bytes(before.reserved),
                bytes(after.reserved)
            ),
            format!("empty_cache after that: reserved {} → {}.", bytes(after.reserved), bytes(emptied)),
        ],
    );
    if let [keeps, empties] = policies {
        answer.figures.push(format!(
            "empty_cache after each step: {} reserved between steps instead of {}, {} during one instead of {}.",
            bytes(empties.between),
            bytes(keeps.between),
            bytes(empties.at_most),
            bytes(keeps.at_most)
        ));
    }
    answer
}

fn judge(sequences: &[Sequence], policies: &[CachePolicy]) -> Vec<JudgedClaim> {
    let mut claims = Vec::new();
    if let [keeps, empties] = policies {
        let verdict = match (empties.between < keeps.between, empties.at_most < keeps.at_most) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Depends,
            (false, _) => Verdict::Fails,
        };
        let condition = format!(
            "between steps {} are reserved instead of {}, for other processes to use; during a step it is {} instead of {}, for \
             which {} segments are taken from the driver again ({} with the cache kept); {}",
            bytes(empties.between),
            bytes(keeps.between),
            bytes(empties.at_most),
            bytes(keeps.at_most),
            empties.driver_calls,
            keeps.driver_calls,
            empties.times.beside(&keeps.times)
        );
        let number = in_bytes([("reserved, kept", keeps.between), ("emptied", empties.between)]);
        claims.push(JudgedClaim {
            lead: "between steps, not during one",
            claim: CLAIMS[0],
            verdict,
            number,
            condition,
        });
    }
    if let [first, ..] = sequences
        && let (Some(start), Some(deleted)) = (first.moments.first(), first.after(PARAMETERS.name()))
    {
        let (allocated, reserved) =
            (deleted.row.allocated < start.row.allocated, deleted.row.reserved < start.row.reserved);
        let verdict = match (allocated, reserved) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Depends,
            (false, _) => Verdict::Fails,
        };
        let given = start.row.reserved.saturating_sub(deleted.row.reserved);
        let condition = format!(
            "deleting gives back to the allocator: {} allocated before, {} after; to the device it gives {}: {} reserved \
             before, {} after; empty_cache leaves {}",
            bytes(start.row.allocated),
            bytes(deleted.row.allocated),
            if given == 0 { "nothing".into() } else { bytes(given) },
            bytes(start.row.reserved),
            bytes(deleted.row.reserved),
            bytes(first.after(EmptyCache.name()).map_or(0, |m| m.row.reserved))
        );
        let number = in_bytes([("allocated", deleted.row.allocated), ("reserved", deleted.row.reserved)]);
        claims.push(JudgedClaim {
            lead: "for the allocator, not the device",
            claim: CLAIMS[1],
            verdict,
            number,
            condition,
        });
    }
    claims
}
