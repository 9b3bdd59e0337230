//! `steady-state`: does memory grow from batch to batch?

use lab_analysis::predict::Network;
use lab_base::error::{Error, Result};
use lab_base::figures::both;
use lab_base::section::Cell;
use memcore::memory::{Category, CategoryBytes};

use super::progress::Progress;
use super::session::{Sample, Session};
use super::tables::{curve, some_bytes, table, text};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct SteadyState;

const SOURCE: &str = "Does PyTorch GPU memory usage increase per batch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "Memory does not inherently grow from batch to batch.", source: SOURCE },
    Claim { text: "It rises at the beginning and is then flat.", source: SOURCE },
];

/// A network, with its build function and its closed form.
struct Case<'a> {
    name: &'a str,
    /// Closed form of the network. Another network than the experiment's own has none.
    network: Option<Network>,
    build: fn(&memcore::Device, &Setup<'_>) -> Result<Session>,
}

/// The articles' networks.
const CASES: [Case<'static>; 2] = [
    Case { name: "linear", network: Some(Network::LINEAR), build: |device, setup| Session::linear(device, setup.seed) },
    Case {
        name: "simple-cnn",
        network: Some(Network::SIMPLE_CNN),
        build: |device, setup| Session::simple_cnn(device, setup.seed),
    },
];

/// Examples per step, unless set.
const BATCH: usize = 32;

/// Figures of one network's run.
struct Run {
    name: String,
    /// All samples, the row `model` first.
    moments: Vec<Sample>,
    /// Number of samples per step.
    phases: usize,
    /// Peak of each step.
    peaks: Vec<u64>,
    /// Predicted bytes that are requested and held after each step.
    predicted: Option<u64>,
}

/// The repetition of steps.
#[derive(Clone, Copy)]
struct Rhythm {
    /// Index of the first step that is repeated.
    from: usize,
    /// Number of steps after which it repeats.
    period: usize,
}

/// Periods that are tried: every step is like the one before, or like the one before that. Which free block serves a
/// request may alternate.
const LENGTHS: [usize; 2] = [1, 2];

/// Number of steps that is enough to judge: two to begin with, and every second one seen twice.
const ENOUGH: usize = 6;

impl Experiment for SteadyState {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "steady-state",
                question: "Does memory grow from batch to batch?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("steps", "steps of each network, at least 4; 6"),
                    Size::one("batch", "examples per step; 32"),
                ],
                takes_model: true,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let steps = setup.size("steps", 6);
        if steps < 4 || setup.size("batch", 1) == 0 {
            return Err(Error::usage("steps, batch", "at least 4 steps of at least 1 example"));
        }
        let cases = match setup.model {
            Some(name) => vec![Case { name, network: None, build: Session::asked }],
            None => CASES.into(),
        };
        let mut progress = Progress::new(setup, cases.len() * steps);
        let mut runs = Vec::new();
        for case in &cases {
            let (run, whole) = follow(case, setup, steps, &mut progress)?;
            show(&run, outcome);
            runs.push(run);
            whole?;
        }
        outcome.claims = judge(&runs);
        outcome.answer = answer(&runs, outcome.claims[0].verdict);
        Ok(())
    }
}

fn follow(case: &Case<'_>, setup: &Setup<'_>, steps: usize, progress: &mut Progress<'_>) -> Result<(Run, Result<()>)> {
    let device = (setup.open)()?;
    let batch = setup.size("batch", BATCH);
    let mut session = (case.build)(&device, setup)?;
    let (mut moments, mut peaks, mut whole) = (vec![session.moment("model")], Vec::new(), Ok(()));
    for i in 0..steps {
        whole = progress.next(&format!("{}, step {i}", case.name));
        if whole.is_err() {
            break;
        }
        let step = session.whole_step(&format!("s{i}"), batch)?;
        moments.extend(step.moments);
        peaks.push(step.peak.allocated_bytes);
    }
    let predicted = case.network.and_then(|network| network.held(batch, device.profile())).map(|held| held.total());
    Ok((Run { name: case.name.into(), moments, phases: 6, peaks, predicted }, whole))
}

impl Run {
    /// Returns the samples of a step.
    fn step(&self, i: usize) -> &[Sample] {
        self.moments.get(1 + i * self.phases..1 + (i + 1) * self.phases).unwrap_or(&[])
    }

    fn steps(&self) -> usize {
        self.peaks.len()
    }

    /// Returns all figures of a step, without its label.
    fn figures(&self, i: usize) -> Vec<(u64, u64, u64, CategoryBytes)> {
        let figures = |m: &Sample| (m.row.allocated, m.row.reserved, m.row.phase_peak_allocated, m.by_category);
        self.step(i).iter().map(figures).collect()
    }

    /// Returns how the steps repeat at the end, if they do. The period is seen at least twice, so that a step is never
    /// compared with itself alone.
    fn rhythm(&self) -> Option<Rhythm> {
        let steps = self.steps();
        let figures: Vec<_> = (0..steps).map(|i| self.figures(i)).collect();
        let from = |period: usize| {
            let again = |i: &usize| figures[*i] == figures[i + period];
            (0..steps.saturating_sub(period)).rev().take_while(again).last()
        };
        let rhythm = |period: usize| from(period).map(|from| Rhythm { from, period });
        LENGTHS.into_iter().filter_map(rhythm).find(|rhythm| rhythm.from + 2 * rhythm.period <= steps)
    }

    /// True if the steps repeat from the first half on.
    fn is_steady(&self) -> bool {
        self.rhythm().is_some_and(|rhythm| rhythm.from <= self.steps() / 2)
    }

    /// True if more is allocated at the end than after step 1.
    fn leaks(&self) -> bool {
        self.allocated_after(self.steps() - 1) > self.allocated_after(1)
    }

    /// True if the run is not steady, and a peak or a reservation of the second half of the steps is above all of the
    /// first half.
    fn rises(&self) -> bool {
        let half = self.steps() / 2;
        let reserved = |i: usize| self.step(i).iter().map(|m| m.row.reserved).max().unwrap_or(0);
        let above = |of: &dyn Fn(usize) -> u64| (half..self.steps()).map(of).max() > (0..half).map(of).max();
        !self.is_steady() && (above(&|i| self.peaks[i]) || above(&reserved))
    }

    /// States in words how the steps repeat.
    fn repeats(&self) -> String {
        let last = self.steps() - 1;
        match self.rhythm() {
            None if self.steps() < ENOUGH => {
                format!("its {} steps do not repeat, and only {ENOUGH} show what every second step does", self.steps())
            }
            None => format!("its {} steps do not repeat", self.steps()),
            Some(Rhythm { from, period: 1 }) => {
                format!("steps {from} to {last} are equal in every figure of every phase")
            }
            Some(Rhythm { from, period }) => format!(
                "from step {from} to {last} every second step is equal in every figure of every phase, since a request is served by another \
                 free block in every other step: {}",
                match (self.peaks[last + 1 - period], self.peaks[last]) {
                    (one, other) if one == other => format!("the peak is {one} in each"),
                    (one, other) => format!("the peak is {one} and {other} in turn"),
                }
            ),
        }
    }

    fn allocated_after(&self, step: usize) -> u64 {
        self.step(step).last().map_or(0, |m| m.row.allocated)
    }
}

/// Returns why a category's bytes changed in a phase.
fn reason(category: Category, phase: &str, by: i64) -> &'static str {
    match (category, phase, by > 0) {
        (Category::Input, ..) => "the batch is put on the device",
        (Category::Workspace, _, true) => "a library's workspace, kept from now on",
        (Category::Gradient, _, true) => "gradients: one tensor per parameter",
        (Category::Gradient, _, false) => "zero_grad frees the gradients",
        (Category::OptimizerState, ..) => "optimizer state, made at the first step",
        (Category::Activation, _, true) => "saved for backward by the graph",
        (Category::Activation, _, false) => "backward frees what was saved",
        (Category::Temporary, "backward", true) => "no longer saved, but kept by its variable",
        (Category::Temporary, "loss", true) => "result and loss, kept by their variables",
        (Category::Temporary, _, true) => "the result, kept by its variable",
        (Category::Temporary, _, false) => "results become saved values, or are freed",
        _ => "parameters",
    }
}

fn show(run: &Run, outcome: &mut Outcome) {
    for i in 0..run.steps() {
        let mut m = Measurement::with_setting([("network", run.name.clone().into()), ("step", i.into())]);
        m.measure("peak_bytes", run.peaks[i]);
        m.measure("allocated_bytes", run.allocated_after(i));
        m.measure("reserved_bytes", run.step(i).last().map_or(0, |m| m.row.reserved));
        m.measure("requested_bytes", run.step(i).last().map_or(0, |m| m.row.requested));
        run.predicted.into_iter().for_each(|bytes| m.predict("requested_bytes", bytes));
        if i > 0 {
            let growth = run.allocated_after(i).saturating_sub(run.allocated_after(i - 1));
            m.measure("growth_bytes", growth);
            if i > 1 {
                m.predict("growth_bytes", 0);
            }
        }
        outcome.rows.push(m);
    }
    outcome.curves.push(curve(run.name.clone(), &run.moments));
    let mut rows = Vec::new();
    for (before, after) in run.moments.iter().zip(run.moments.iter().skip(1)).take(2 * run.phases) {
        let phase = after.row.label.rsplit('.').next().unwrap_or("");
        for category in Category::ALL {
            let by = after.by_category[category as usize] as i64 - before.by_category[category as usize] as i64;
            if by != 0 {
                let label = text(after.row.label.clone());
                rows.push(vec![
                    label,
                    text(category.name().replace('_', " ")),
                    Cell::Difference(by),
                    text(reason(category, phase, by)),
                ]);
            }
        }
    }
    let title = format!("{}: every change of the first two steps", run.name);
    outcome.tables.push(table(title, &["phase", "category", "change", "why"], rows));
    let row = |i: usize| {
        let last = run.step(i).last();
        let of = |category: Category| some_bytes(last.map_or(0, |m| m.by_category[category as usize]));
        vec![
            Cell::Count(i as u64),
            of(Category::Gradient),
            of(Category::OptimizerState),
            of(Category::Workspace),
            Cell::Bytes(run.allocated_after(i)),
            Cell::Bytes(run.peaks[i]),
            Cell::Bytes(last.map_or(0, |m| m.row.reserved)),
        ]
    };
    let columns = ["step", "gradients", "state", "workspaces", "allocated", "peak", "reserved"];
    let title = format!("{}: after each step", run.name);
    outcome.tables.push(table(title, &columns, (0..run.steps()).map(row).collect()));
    overlap(run, outcome);
}

/// Notes that the second step's peak exceeds the first one's by memory that did not exist then.
fn overlap(run: &Run, outcome: &mut Outcome) {
    if run.steps() < 2 {
        return;
    }
    let state = run.step(0).last().map_or(0, |m| m.by_category[Category::OptimizerState as usize]);
    let above = run.peaks[1] as i64 - run.peaks[0] as i64;
    outcome.notes.push(format!(
        "{}: the peak of step 1 is {above} bytes above that of step 0. {state} of them are optimizer state, which the first \
         update made; the other {} are there because the new batch, result and loss are made while variables still hold the \
         old ones, and because blocks are now found among those of step 0.",
        run.name,
        above - state as i64
    ));
}

/// Answers no if only the first steps add memory, which then stays.
fn answer(runs: &[Run], grows: Verdict) -> ShortAnswer {
    let word = match grows {
        Verdict::Holds => "No, after the first steps",
        Verdict::Fails => "Yes",
        _ => "Not known: too few steps",
    };
    let each = runs.iter().map(|run| {
        let last = run.steps() - 1;
        format!(
            "{}: {} allocated after step 0, {} after step 1, {} after step {last}.",
            run.name,
            both(run.allocated_after(0)),
            both(run.allocated_after(1)),
            both(run.allocated_after(last))
        )
    });
    ShortAnswer { word: word.into(), figures: each.collect() }
}

fn judge(runs: &[Run]) -> Vec<JudgedClaim> {
    let each: Vec<String> = runs
        .iter()
        .map(|run| {
            let last = run.steps() - 1;
            format!(
                "{}: {} after the model, {} after step 0, {} after step 1, {} after step {last}; {}",
                run.name,
                run.moments[0].row.allocated,
                run.allocated_after(0),
                run.allocated_after(1),
                run.allocated_after(last),
                run.repeats()
            )
        })
        .collect();
    let begins = runs.iter().all(|run| run.allocated_after(0) > run.moments[0].row.allocated);
    let leaks = runs.iter().any(Run::leaks);
    let rises = runs.iter().any(Run::rises);
    let enough = runs.iter().all(|run| run.steps() >= ENOUGH);
    let grows = match (leaks, rises, enough) {
        (true, ..) | (_, true, true) => Verdict::Fails,
        (false, true, false) => Verdict::NotTested,
        (false, false, _) => Verdict::Holds,
    };
    let flat = match (grows, runs.iter().all(Run::is_steady)) {
        (Verdict::Holds, true) if begins => Verdict::Holds,
        (Verdict::Holds, true) | (Verdict::Fails, _) => Verdict::Fails,
        // Nothing grows for certain, but the steps are too few to see one repeated twice.
        _ => Verdict::NotTested,
    };
    let each = format!("bytes allocated: {}", each.join("; "));
    let [grown, after] = runs.last().map(numbers).unwrap_or_default();
    let condition = format!("{}; {}", jumps(runs), reserved(runs));
    vec![
        JudgedClaim { lead: "", claim: CLAIMS[0], verdict: grows, number: grown, condition: each },
        JudgedClaim { lead: "", claim: CLAIMS[1], verdict: flat, number: after, condition },
    ]
}

/// Returns the bytes that the last step adds, and those allocated after the first and the last step.
fn numbers(run: &Run) -> [String; 2] {
    let last = run.steps() - 1;
    let (first, allocated) = (run.allocated_after(0), run.allocated_after(last));
    let added = allocated.saturating_sub(run.allocated_after(last - 1));
    [in_bytes([("last step adds", added)]), in_bytes([("after step 0", first), (&last.to_string(), allocated)])]
}

/// States what the rise in the first steps consists of.
fn jumps(runs: &[Run]) -> String {
    let of = |run: &Run| {
        let bytes = |category: Category| run.step(0).last().map_or(0, |m| m.by_category[category as usize]);
        format!(
            "{}: step 0 adds {} bytes, of which input {}, gradients {}, optimizer state {}, libraries' workspaces {}; step 1 \
             adds {} to the peak; {}",
            run.name,
            run.allocated_after(0) - run.moments[0].row.allocated,
            bytes(Category::Input),
            bytes(Category::Gradient),
            bytes(Category::OptimizerState),
            bytes(Category::Workspace),
            run.peaks[1] as i64 - run.peaks[0] as i64,
            run.repeats()
        )
    };
    runs.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Compares the bytes that are reserved at the end with the peak of reserved bytes.
fn reserved(runs: &[Run]) -> String {
    let of = |run: &Run| {
        let most = run.moments.iter().map(|m| m.row.reserved).max().unwrap_or(0);
        let last = run.moments.last().map_or(0, |m| m.row.reserved);
        format!("{} of {most} bytes stay reserved ({})", last, run.name)
    };
    runs.iter().map(of).collect::<Vec<_>>().join(", ")
}
