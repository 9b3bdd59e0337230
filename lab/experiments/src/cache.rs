//! `cache`: what does the allocator's cache gain, and what does it cost?

use std::sync::Arc;
use std::time::Instant;

use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::Cell;
use lab_models::{ModelOptions, architecture};
use lab_traces::replay::{Machine, Operation, Policy, Settings, Trace, measure};
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::Device;
use memcore::backend::Meta;

use super::default_allocator::predictable;
use super::policy_comparison::{CACHING, DIRECT, EXPANDABLE, PLANNED, PolicyComparison, recorded, recording_device};
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::tables::{table, text};
use super::timing::Times;
use super::{
    About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts,
};

pub(super) struct Cache;

const RESERVATION: &str = "Does decreasing batch size in PyTorch lead to increased memory reservation? (2024)";

const CLAIMS: &[Claim] = &[
    Claim { text: "PyTorch reuses memory to enhance speed.", source: RESERVATION },
    Claim { text: "Reused memory can look like over-reservation.", source: RESERVATION },
    Claim { text: "With very complex operations the cache is more prone to this.", source: RESERVATION },
    Claim {
        text: "Memory is allocated once for most operations, not for each batch.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025)",
    },
];

/// Number of segments whose driver calls are timed.
const TRIALS: usize = 32;
const TRIAL_BYTES: u64 = 20 << 20;

/// Figures of one batch size: the program, its memory under every policy, and the ends of its steps.
struct Run {
    batch: usize,
    comparison: PolicyComparison,
    /// Number of operations of the whole run until the end of each step.
    ends: Vec<usize>,
    /// Driver calls in the last step: with the cache kept, and with the cache emptied after each step.
    steady: (u64, u64),
    /// Most reserved bytes if the cache is emptied after each step.
    emptied: u64,
}

impl Experiment for Cache {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "cache",
                question: "What is the cache worth, and what does it cost?",
                claims: CLAIMS,
                sizes: &[
                    Size::many("batch", "batch sizes, each on a fresh device; 128 32 100"),
                    Size::one("steps", "steps with each, at least 3; 4"),
                ],
                takes_model: true,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (batches, steps) = (setup.sizes("batch", &[128, 32, 100]), setup.size("steps", 4));
        if batches.is_empty() || batches.contains(&0) || steps < 3 {
            return Err(Error::usage("batch, steps", "batches of at least 1 example, at least 3 steps"));
        }
        let mut progress = Progress::new(setup, batches.len() + 2);
        let known = predictable(setup)?;
        let mut runs = Vec::new();
        for &batch in &batches {
            progress.next(&format!("batch {batch}"))?;
            let run = follow(setup, batch, steps, known, outcome)?;
            show(&run, outcome);
            runs.push(run);
        }
        progress.next("a decoder")?;
        let complex = decoder(setup)?;
        outcome.rows.extend(complex.rows(DECODER));
        outcome.tables.push(complex.table(DECODER));
        progress.next("the driver")?;
        let driver = driver_time(&(setup.open)()?)?;
        let mut m = Measurement::with_setting([("driver", "takes 20 MiB and gives them back".into())]);
        driver.measure(&mut m, "pair_us");
        outcome.rows.push(m);
        outcome.claims = judge(&runs, &driver);
        outcome.answer = answer(&runs);
        outcome.claims.extend([complexity(&runs, &complex), once(&runs)]);
        Ok(())
    }
}

/// Trains on the device, records its operations, and replays them under every policy.
fn follow(setup: &Setup<'_>, batch: usize, steps: usize, known: bool, outcome: &mut Outcome) -> Result<Run> {
    let device = recording_device(setup)?;
    let mut session = Session::asked(&device, setup)?;
    let (mut reserved, mut ends) = (0, Vec::new());
    for step in 0..steps {
        reserved = reserved.max(session.whole_step(&format!("s{step}"), batch)?.reserved_peak);
        let history = device.with_ledger(|ledger| ledger.history().to_vec());
        ends.push(Trace::of_history("until here", &history)?.operations().len());
    }
    let name = format!("batch {batch}");
    let comparison = PolicyComparison::run(recorded(&device, &name)?)?;
    if known && undisturbed(&device) {
        let mut m =
            Measurement::with_setting([("program", name.clone().into()), ("policy", "the device's own".into())]);
        m.measure("reserved_bytes", reserved);
        m.measure("replayed_bytes", comparison.reserved(CACHING));
        outcome.push_compared(m, &[("reserved_bytes", "replayed_bytes")]);
    }
    let config = Policy::by_name(CACHING, &Default::default())?;
    let calls = |operations: &[Operation]| -> Result<(u64, u64)> {
        let trace = Trace::new("part", Settings::default(), operations.to_vec())?;
        let figures = measure(&trace, &config, &Machine::default())?;
        Ok((figures.driver.total(), figures.peak_reserved))
    };
    let (operations, last) = (comparison.trace.operations(), ends[ends.len() - 2]);
    let with_emptying = emptied_after(operations, &ends);
    let kept = calls(operations)?.0 - calls(&operations[..last])?.0;
    let (all, emptied) = calls(&with_emptying)?;
    let before = calls(&with_emptying[..last + ends.len() - 1])?.0;
    Ok(Run { batch, comparison, ends, steady: (kept, all - before), emptied })
}

/// Name in tables and rows of a network with many operations.
const DECODER: &str = "a decoder of 4 blocks";

/// Takes two steps of a decoder with eager attention, on a device that computes nothing: only the list of allocations
/// is needed.
fn decoder(setup: &Setup<'_>) -> Result<PolicyComparison> {
    let profile = (setup.open)()?.profile().clone();
    let device = Device::builder(Arc::new(Meta::default())).profile(profile).history(true).build();
    let options = ModelOptions {
        layers: Some(4),
        width: Some(256),
        heads: Some(4),
        sequence: Some(128),
        vocabulary: Some(1024),
        ..ModelOptions::default()
    };
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_f32(&device, &*architecture("gpt", &options)?, &adam, setup.seed)?;
    for step in 0..2 {
        session.whole_step(&format!("s{step}"), 8)?;
    }
    PolicyComparison::run(recorded(&device, DECODER)?)
}

/// Returns the same program, with the cache emptied at the end of each step.
fn emptied_after(operations: &[Operation], ends: &[usize]) -> Vec<Operation> {
    let mut out = Vec::with_capacity(operations.len() + ends.len());
    let mut from = 0;
    for &end in ends {
        out.extend_from_slice(&operations[from..end]);
        out.push(Operation::EmptyCache);
        from = end;
    }
    out.extend_from_slice(&operations[from..]);
    out
}

fn show(run: &Run, outcome: &mut Outcome) {
    let name = format!("batch {}", run.batch);
    outcome.rows.extend(run.comparison.rows(&name));
    for (policy, calls, predicted) in
        [("caching, last step", run.steady.0, Some(0)), ("emptied after each step, last step", run.steady.1, None)]
    {
        let mut m = Measurement::with_setting([("program", name.clone().into()), ("policy", policy.into())]);
        m.measure("driver_calls", calls);
        // The step before has left everything that a step needs.
        predicted.into_iter().for_each(|calls| m.predict("driver_calls", calls));
        outcome.rows.push(m);
    }
    outcome.tables.push(run.comparison.table(&format!("{name}, {} steps", run.ends.len())));
    let step = (run.comparison.trace.operations().len() - run.ends[run.ends.len() - 2]) as u64;
    let row = |policy: &str, calls: u64, reserved: u64| vec![text(policy), Cell::Count(calls), Cell::Bytes(reserved)];
    let reserved = |policy: &str| run.comparison.reserved(policy);
    let title = format!("{name}: calls of the driver in the last step, of {step} allocations and frees");
    outcome.tables.push(table(
        title,
        &["cache", "driver calls", "reserved"],
        vec![
            row("kept", run.steady.0, reserved(CACHING)),
            row("emptied after each step", run.steady.1, run.emptied),
            row("none", step, reserved(DIRECT)),
        ],
    ));
}

/// Measures how long the driver takes to give a segment and take it back. Empty if the device computes nothing or has
/// too little memory.
fn driver_time(device: &Device) -> Result<Times> {
    let mut times = Times::default();
    if !device.computes() {
        return Ok(times);
    }
    let backend = device.backend();
    for _ in 0..TRIALS {
        let start = Instant::now();
        match backend.alloc_segment(TRIAL_BYTES) {
            Ok(segment) => backend.free_segment(segment),
            Err(error) if error.is_out_of_memory() => return Ok(Times::default()),
            Err(error) => return Err(error.into()),
        }
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// States the driver calls that the cache saves, and the bytes that it reserves beyond need.
fn answer(runs: &[Run]) -> ShortAnswer {
    let calls = |run: &Run, policy: &str| run.comparison.figures_of(policy).map_or(0, |figures| figures.driver.total());
    let each = runs.iter().map(|run| {
        format!(
            "Batch {}: {} driver calls instead of {}; {} reserved where {} live at once ({:+.1} %).",
            run.batch,
            calls(run, CACHING),
            calls(run, DIRECT),
            bytes(run.comparison.reserved(CACHING)),
            bytes(run.comparison.bound.bytes),
            (run.comparison.ratio(CACHING) - 1.0) * 100.0
        )
    });
    let steady = runs.iter().all(|run| run.steady.0 == 0);
    let word = if steady { "No driver call after the first steps" } else { "Fewer driver calls" };
    ShortAnswer { word: word.into(), figures: each.collect() }
}

fn judge(runs: &[Run], driver: &Times) -> Vec<JudgedClaim> {
    let calls = |run: &Run, policy: &str| run.comparison.figures_of(policy).map_or(0, |figures| figures.driver.total());
    let speed = runs.iter().map(|run| {
        format!(
            "batch {}: {} calls of the driver in {} steps instead of {}, {} in the last step",
            run.batch,
            calls(run, CACHING),
            run.ends.len(),
            calls(run, DIRECT),
            run.steady.0
        )
    });
    let driver = match driver.median() {
        Some(_) => format!("; a segment of 20 MiB takes {} from this driver and back", driver.words()),
        None => String::new(),
    };
    let saves = runs.iter().all(|run| calls(run, CACHING) < calls(run, DIRECT) && run.steady.0 == 0);
    let cost = runs.iter().map(|run| {
        format!(
            "batch {}: {} reserved where {} live at once ({:.1} % more; {:.1} % with expandable segments, {:.1} % with the whole run \
             known); emptying the cache after each step leaves {} at most, for {} calls a step",
            run.batch,
            bytes(run.comparison.reserved(CACHING)),
            bytes(run.comparison.bound.bytes),
            (run.comparison.ratio(CACHING) - 1.0) * 100.0,
            (run.comparison.ratio(EXPANDABLE) - 1.0) * 100.0,
            (run.comparison.ratio(PLANNED) - 1.0) * 100.0,
            bytes(run.emptied),
            run.steady.1
        )
    });
    let over = runs.iter().all(|run| run.comparison.reserved(CACHING) > run.comparison.bound.bytes);
    let first = &runs[0];
    let called = [("driver calls, cached", first.steady.0), ("direct", calls(first, DIRECT))];
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Depends };
    vec![
        JudgedClaim {
            lead: "not with each batch",
            claim: CLAIMS[0],
            verdict: verdict(saves),
            number: in_counts(called.map(|(label, calls)| (label, Some(calls)))),
            condition: format!("{}{driver}", speed.collect::<Vec<_>>().join("; ")),
        },
        JudgedClaim {
            lead: "not with each batch",
            claim: CLAIMS[1],
            verdict: verdict(over),
            number: reserved(&first.comparison),
            condition: cost.collect::<Vec<_>>().join("; "),
        },
    ]
}

/// Compares a program's reserved bytes with the bytes that are live at one time.
fn reserved(comparison: &PolicyComparison) -> String {
    in_bytes([("reserved", comparison.reserved(CACHING)), ("live at once", comparison.reserved(DIRECT))])
}

/// Compares what the cache reserves beyond need: a network of few operations against one of many.
fn complexity(runs: &[Run], complex: &PolicyComparison) -> JudgedClaim {
    let more = |comparison: &PolicyComparison| 100.0 * (comparison.ratio(CACHING) - 1.0);
    let above = runs.iter().filter(|run| more(complex) > more(&run.comparison)).count();
    let verdict = match above {
        0 => Verdict::Fails,
        n if n == runs.len() => Verdict::Holds,
        _ => Verdict::Depends,
    };
    let each = runs.iter().map(|run| {
        format!(
            "{:.1} % with batch {} ({} allocations)",
            more(&run.comparison),
            run.batch,
            run.comparison.trace.allocations()
        )
    });
    let condition = format!(
        "{DECODER} ({} allocations in 2 steps) reserves {} where {} live at once, {:.1} % more; the network of the other tables reserves more \
         than it needs by {}",
        complex.trace.allocations(),
        bytes(complex.reserved(CACHING)),
        bytes(complex.bound.bytes),
        more(complex),
        each.collect::<Vec<_>>().join(", ")
    );
    JudgedClaim { lead: "with some batches", claim: CLAIMS[2], verdict, number: reserved(complex), condition }
}

/// Judges who serves the requests of a step that is like the one before.
fn once(runs: &[Run]) -> JudgedClaim {
    let asked = |run: &Run| {
        let (from, to) = (run.ends[run.ends.len() - 2], run.ends[run.ends.len() - 1]);
        let last = &run.comparison.trace.operations()[from..to];
        last.iter().filter(|operation| matches!(operation, Operation::Allocate { .. })).count()
    };
    let each = runs
        .iter()
        .map(|run| format!("batch {}: {} of the driver and {} of the allocator", run.batch, run.steady.0, asked(run)));
    JudgedClaim {
        lead: "segments once, tensors each time",
        claim: CLAIMS[3],
        verdict: if runs.iter().all(|run| run.steady.0 == 0) { Verdict::Depends } else { Verdict::Fails },
        number: in_counts([("driver calls, last step", Some(runs[0].steady.0))]),
        condition: format!(
            "requests in the last step, {}: the driver gives memory in the first step alone, every tensor is allocated anew in each",
            each.collect::<Vec<_>>().join("; ")
        ),
    }
}
