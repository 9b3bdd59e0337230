//! `fragmentation`: when is memory reserved but unusable?

mod orders;
mod permutations;
mod programs;
mod steps;

use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::Cell;
use lab_traces::replay::{Machine, Policy, measure};
use orders::Orders;
use programs::STAGED_BYTES;
use steps::Steps;

use super::default_allocator::predictable;
use super::policy_comparison::{
    CACHING, DIRECT, EXPANDABLE, MAX_SPLIT, PLANNED, PolicyComparison, recorded, recording_device,
};
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::tables::{table, text};
use super::{
    About, Claim, Curve, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes,
};

pub(super) struct Fragmentation;

const RESERVATION: &str = "Does decreasing batch size in PyTorch lead to increased memory reservation? (2024)";

const CLAIMS: &[Claim] = &[
    Claim { text: "PyTorch reuses memory, which can look like over-reservation.", source: RESERVATION },
    Claim { text: "A cache that does not clear between batches shows as higher memory use.", source: RESERVATION },
    Claim {
        text: "Weights that are loaded through a larger buffer pin a segment each; max_split_size_mb:20 avoids it.",
        source: "vLLM, pull request 41268 (2025)",
    },
];

/// Default lengths of the sequences.
const LENGTHS: [usize; 10] = [64, 96, 72, 128, 80, 112, 120, 88, 104, 128];
const LAYERS: u64 = 4;

struct Found {
    comparisons: Vec<PolicyComparison>,
    orders: Orders,
    steps: Vec<Steps>,
    weights: u64,
}

impl Experiment for Fragmentation {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "fragmentation",
                question: "When is memory reserved and unusable?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("batch", "examples per step of the named loops; 128"),
                    Size::many("batches", "batch sizes that are put in every order; 128 64 32 16"),
                    Size::one("repeats", "how often each of them comes; 2"),
                    Size::many("lengths", "lengths of the sequences; 64 96 72 128 80 112 120 88 104 128"),
                    Size::one("weights", "weights that are loaded through a buffer; 8"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let batch = setup.size("batch", 128);
        let batches = setup.sizes("batches", &[128, 64, 32, 16]);
        let (repeats, weights) = (setup.size("repeats", 2), setup.size("weights", 8));
        let lengths = setup.sizes("lengths", &LENGTHS);
        check_sizes(batch, &batches, repeats, weights, &lengths)?;
        let loops = programs::loops(batch);
        let pieces = loops.len() + 2 + batches.len() + orders::pieces(batches.len(), repeats) + 1;
        let mut progress = Progress::new(setup, pieces);
        let known = predictable(setup)?;
        let mut comparisons = Vec::new();
        for (name, what) in &loops {
            progress.next(name)?;
            let ran = programs::run(setup, name, what)?;
            let comparison = PolicyComparison::run(ran.trace)?;
            device_row(name, &comparison, ran.reserved.filter(|_| known), outcome);
            show(name, &comparison, outcome);
            comparisons.push(comparison);
        }
        let lengths: Vec<u64> = lengths.iter().map(|&length| length as u64).collect();
        for written in [programs::variable_lengths(LAYERS, &lengths)?, programs::staged_weights(weights as u64)?] {
            let name = written.name.clone();
            progress.next(&name)?;
            let comparison = PolicyComparison::run(written)?;
            show(&name, &comparison, outcome);
            comparisons.push(comparison);
        }
        predict_staged(outcome, weights as u64);
        let mut steps = Vec::new();
        for &batch in &batches {
            progress.next(&format!("steps of batch {batch}"))?;
            steps.push(Steps::record(setup, batch)?);
        }
        let orders = orders::search(&steps, repeats, &mut progress)?;
        progress.next("the worst order, on the device")?;
        show_orders(&orders, &steps, outcome);
        verify(setup, &orders, &steps, known, outcome)?;
        let found = Found { comparisons, orders, steps, weights: weights as u64 };
        outcome.claims = judge(&found);
        outcome.answer = answer(&found);
        Ok(())
    }
}

fn check_sizes(batch: usize, batches: &[usize], repeats: usize, weights: usize, lengths: &[usize]) -> Result<()> {
    let positive = batch > 0 && repeats > 0 && weights > 0;
    if !positive || batches.len() < 2 || batches.contains(&0) || lengths.is_empty() || lengths.contains(&0) {
        return Err(Error::usage("sizes", "batch, repeats and weights of at least 1, two batches, one length"));
    }
    let most = |what: &str, value: usize, limit: usize| match value > limit {
        true => Err(Error::usage(what, format!("at most {limit}"))),
        false => Ok(()),
    };
    most("batches × repeats", batches.len().saturating_mul(repeats), 16)?;
    most("weights", weights, 1 << 16)?;
    most("lengths", lengths.iter().copied().max().unwrap_or(0), 1 << 16)
}

/// Adds the row of the device itself. Its reserved bytes should equal those of a replay of its own history.
fn device_row(program: &str, comparison: &PolicyComparison, reserved: Option<u64>, outcome: &mut Outcome) {
    let Some(reserved) = reserved else { return };
    let mut m = Measurement::with_setting([("program", program.into()), ("policy", "the device's own".into())]);
    m.measure("reserved_bytes", reserved);
    m.measure("replayed_bytes", comparison.reserved(CACHING));
    outcome.push_compared(m, &[("reserved_bytes", "replayed_bytes")]);
}

fn show(name: &str, comparison: &PolicyComparison, outcome: &mut Outcome) {
    outcome.rows.extend(comparison.rows(name));
    outcome.tables.push(comparison.table(&format!("{name}: the most that was reserved")));
    let drawn = [CACHING, EXPANDABLE, PLANNED];
    let series = |name: &&str| {
        let samples = comparison.figures_of(name).map_or(&[][..], |figures| &figures.samples);
        (name.to_string(), samples.iter().map(|sample| sample.reserved_bytes).collect::<Vec<u64>>())
    };
    let mut series: Vec<_> = drawn.iter().map(series).collect();
    if let Some(figures) = comparison.figures_of(CACHING) {
        let allocated = figures.samples.iter().map(|sample| sample.allocated_bytes).collect();
        series.insert(0, ("allocated".into(), allocated));
        let labels = figures.samples.iter().map(|sample| format!("operation {}", sample.operation)).collect();
        outcome.curves.push(Curve { title: format!("{name}: reserved over the operations"), series, labels });
    }
}

/// Predicts the staged weights by a closed form. A buffer of 530 MiB is a segment of its own. The kept piece goes into that
/// segment, and leaves too little for the next buffer. With the split limit the segment is kept for buffers, and each kept
/// piece is a segment of its own.
fn predict_staged(outcome: &mut Outcome, weights: u64) {
    let (buffer, kept) = STAGED_BYTES;
    for row in &mut outcome.rows {
        let setting = |key: &str| row.setting.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        if setting("program") != "staged weights" {
            continue;
        }
        match setting("policy") {
            CACHING => row.predict("reserved_bytes", weights * buffer),
            MAX_SPLIT => row.predict("reserved_bytes", buffer + weights * kept),
            PLANNED => row.predict("reserved_bytes", buffer + (weights - 1) * kept),
            _ => {}
        }
    }
}

fn named(order: &[usize], steps: &[Steps]) -> String {
    order.iter().map(|&which| steps[which].batch.to_string()).collect::<Vec<_>>().join(" ")
}

fn show_orders(orders: &Orders, steps: &[Steps], outcome: &mut Outcome) {
    let mut rows = Vec::new();
    for range in &orders.ranges {
        for (which, (reserved, order)) in [("least", &range.best), ("most", &range.worst)] {
            let ratio = *reserved as f64 / range.best.0.max(1) as f64;
            let order = named(order, steps);
            rows.push(vec![
                text(range.policy),
                text(which),
                Cell::Bytes(*reserved),
                text(format!("{ratio:.2} ×")),
                text(order),
            ]);
        }
    }
    let title = format!("The same batches in {} of {} orders", orders.tried, orders.possible);
    outcome.tables.push(table(title, &["policy", "reserved", "bytes", "ratio", "first such order"], rows));
}

/// Runs the best and the worst order of PyTorch's allocator on the device. Both were found by joining recorded steps.
fn verify(setup: &Setup<'_>, orders: &Orders, steps: &[Steps], known: bool, outcome: &mut Outcome) -> Result<()> {
    let Some(range) = orders.ranges.iter().find(|range| range.policy == CACHING) else { return Ok(()) };
    for (which, (assembled, order)) in [("least", &range.best), ("most", &range.worst)] {
        let device = recording_device(setup)?;
        let mut session = Session::simple_cnn(&device, setup.seed)?;
        let mut reserved = 0;
        for &step in order {
            reserved = reserved.max(session.whole_step("s", steps[step].batch)?.reserved_peak);
        }
        let config = Policy::Caching(Box::default());
        let again = measure(&recorded(&device, which)?, &config, &Machine::default())?;
        let mut m = Measurement::with_setting([("order", named(order, steps).into()), ("reserved", which.into())]);
        m.measure("assembled_bytes", *assembled);
        m.measure("replayed_bytes", again.peak_reserved);
        m.measure("reserved_bytes", reserved);
        let pairs = [("replayed_bytes", "assembled_bytes"), ("reserved_bytes", "assembled_bytes")];
        let comparable = if known && undisturbed(&device) { 2 } else { 1 };
        outcome.push_compared(m, &pairs[..comparable]);
    }
    Ok(())
}

/// States how much more is reserved than is live at one time, from the worst program on.
fn answer(found: &Found) -> ShortAnswer {
    let mut by_ratio: Vec<&PolicyComparison> = found.comparisons.iter().collect();
    by_ratio.sort_by(|a, b| b.ratio(CACHING).total_cmp(&a.ratio(CACHING)));
    let each = by_ratio.iter().map(|comparison| {
        let over = |policy: &str| (comparison.ratio(policy) - 1.0) * 100.0;
        format!(
            "{}: {:+.1} % ({} for {}); expandable segments {:+.1} %.",
            comparison.trace.name,
            over(CACHING),
            bytes(comparison.reserved(CACHING)),
            bytes(comparison.bound.bytes),
            over(EXPANDABLE)
        )
    });
    ShortAnswer { word: "Where sizes change".into(), figures: each.collect() }
}

fn judge(found: &Found) -> Vec<JudgedClaim> {
    let percent = |ratio: f64| format!("{:.1} %", (ratio - 1.0) * 100.0);
    let each = |comparison: &PolicyComparison| {
        format!(
            "{}: {} reserved where {} live at once, {} above; with expandable segments {}, with the whole run known {}",
            comparison.trace.name,
            bytes(comparison.reserved(CACHING)),
            bytes(comparison.bound.bytes),
            percent(comparison.ratio(CACHING)),
            percent(comparison.ratio(EXPANDABLE)),
            percent(comparison.ratio(PLANNED))
        )
    };
    let all: Vec<String> = found.comparisons.iter().map(each).collect();
    let over = found.comparisons.iter().all(|comparison| comparison.reserved(CACHING) > comparison.bound.bytes);
    let first = &found.comparisons[0];
    vec![
        JudgedClaim {
            lead: "not for each program",
            claim: CLAIMS[0],
            verdict: if over { Verdict::Holds } else { Verdict::Depends },
            number: in_bytes([("reserved", first.reserved(CACHING)), ("live at once", first.reserved(DIRECT))]),
            condition: all.join("; "),
        },
        judge_orders(found),
        judge_staged(found),
    ]
}

fn judge_orders(found: &Found) -> JudgedClaim {
    let Found { orders, steps, .. } = found;
    let each = orders.ranges.iter().map(|range| {
        format!(
            "{}: from {} ({}) to {} ({}), {:.2} times as much; {} orders reserve more than the least",
            range.policy,
            bytes(range.best.0),
            named(&range.best.1, steps),
            bytes(range.worst.0),
            named(&range.worst.1, steps),
            range.worst.0 as f64 / range.best.0.max(1) as f64,
            range.above
        )
    });
    let matters = orders.ranges.iter().any(|range| range.worst.0 > range.best.0);
    let extremes = |range: &orders::Range| in_bytes([("reserved, best order", range.best.0), ("worst", range.worst.0)]);
    let number = orders.ranges.iter().find(|range| range.policy == CACHING).map(extremes).unwrap_or_default();
    JudgedClaim {
        lead: "on the order of the batches",
        claim: CLAIMS[1],
        verdict: if matters { Verdict::Depends } else { Verdict::Fails },
        number,
        condition: format!(
            "nothing is cleared between the steps, and what is reserved then depends on the order of the same batches; over {} \
             orders: {}",
            orders.tried,
            each.collect::<Vec<_>>().join("; ")
        ),
    }
}

fn judge_staged(found: &Found) -> JudgedClaim {
    let comparison = found.comparisons.iter().find(|comparison| comparison.trace.name == "staged weights");
    let of = |name: &str| comparison.map_or(0, |comparison| comparison.reserved(name));
    let (pinned, cured) = (of(CACHING), of(MAX_SPLIT));
    // Effect of the same limit on programs whose large blocks change in size.
    let worse = found.comparisons.iter().max_by(|a, b| a.ratio(MAX_SPLIT).total_cmp(&b.ratio(MAX_SPLIT)));
    let (name, without, with) =
        worse.map_or(("", 0, 0), |other| (&*other.trace.name, other.reserved(CACHING), other.reserved(MAX_SPLIT)));
    let holds = pinned == found.weights * STAGED_BYTES.0 && (cured < pinned || found.weights == 1);
    JudgedClaim {
        lead: "",
        claim: CLAIMS[2],
        verdict: if holds { Verdict::Holds } else { Verdict::Fails },
        number: in_bytes([("reserved", pinned), ("max_split", cured)]),
        condition: format!(
            "{} weights of {} through buffers of {} reserve {}: one segment of the buffer's size each; with the limit {}, with \
             expandable segments {}; but the limit is not free: \"{name}\" reserves {} with it and {} without",
            found.weights,
            bytes(STAGED_BYTES.1),
            bytes(STAGED_BYTES.0),
            bytes(pinned),
            bytes(cured),
            bytes(of(EXPANDABLE)),
            bytes(with),
            bytes(without)
        ),
    }
}
