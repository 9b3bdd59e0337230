//! `batch-size`: does a smaller batch reserve more?

mod found;
mod law;
mod runs;
mod show;
mod verdicts;

use found::Found;
use lab_base::error::{Error, Result};
use law::Law;
use runs::Plan;

use super::default_allocator::predictable;
use super::progress::Progress;
use super::{About, Claim, Experiment, Outcome, Setup, Size};

pub(super) struct BatchSize;

const RESERVATION: &str = "Does decreasing batch size in PyTorch lead to increased memory reservation? (2024)";

const CLAIMS: &[Claim] = &[
    Claim { text: "A smaller batch often reserves more GPU memory.", source: RESERVATION },
    Claim { text: "Smaller batches mean more pieces of graph and more cache.", source: RESERVATION },
    Claim {
        text: "Memory is linear in the batch.",
        source: "The Hidden Relationship: Batch Size and GPU Memory; How does changing network parameters affect GPU \
                 memory usage in PyTorch? (2025)",
    },
];

/// Largest batch up to which every batch has a dry run of its own. Larger batches have one only if requested.
const MAX_POINTS: usize = 1024;

impl Experiment for BatchSize {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "batch-size",
                question: "Does a smaller batch reserve more?",
                claims: CLAIMS,
                sizes: &[
                    Size::many("batch", "batch sizes, the first two also in mixed orders; 128 32"),
                    Size::one("steps", "steps with each batch; 3"),
                    Size::one("examples", "examples of an epoch; the largest batch"),
                    Size::one(
                        "largest",
                        "the law of the peak is computed up to this batch; the largest, from 256 to 1024",
                    ),
                ],
                takes_model: true,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let batches = setup.sizes("batch", &[128, 32]);
        let steps = setup.size("steps", 3);
        let (least, most) = (batches.iter().min().copied().unwrap_or(0), batches.iter().max().copied().unwrap_or(0));
        let (largest, examples) = (setup.size("largest", most.clamp(256, MAX_POINTS)), setup.size("examples", most));
        if least == 0 || least == most || [steps, largest, examples].contains(&0) {
            return Err(Error::usage("batch, steps, largest, examples", "each at least 1, and two different batches"));
        }
        let mut found = Found::default();
        let measured = measure(setup, &batches, steps, examples, largest, &mut found);
        show::fill(&found, outcome);
        measured?;
        outcome.claims = verdicts::judge(CLAIMS, &found);
        outcome.answer = verdicts::answer(&found);
        Ok(())
    }
}

/// Runs everything.
fn measure(
    setup: &Setup<'_>,
    batches: &[usize],
    steps: usize,
    examples: usize,
    largest: usize,
    found: &mut Found,
) -> Result<()> {
    let orders: Vec<Vec<usize>> = match *batches {
        [a, b, ..] => vec![vec![a, b], vec![b, a], vec![a, b, a, b]],
        _ => Vec::new(),
    };
    let mut progress = Progress::new(setup, 2 * batches.len() + orders.len() + 2);
    for &batch in batches {
        progress.next(&format!("batch {batch} on a fresh device"))?;
        found.fresh.push(runs::run(setup, &Plan::fresh(batch, steps))?);
    }
    for order in &orders {
        let plan = Plan::stages(order, steps);
        progress.next(&format!("{} on one device", plan.name))?;
        found.orders.push(runs::run(setup, &plan)?);
    }
    if let [a, b, ..] = *batches {
        progress.next("one model, the last batch of each epoch smaller")?;
        found.changing = Some(runs::run(setup, &Plan::changing(a.max(b), a.min(b), steps))?);
    }
    for &batch in batches {
        progress.next(&format!("an epoch of {examples} examples in batches of {batch}"))?;
        found.epochs.push(runs::run(setup, &Plan::epoch(batch, examples))?);
    }
    progress.next("the law of the peak")?;
    if predictable(setup)? {
        found.law = Some(Law::from_run(&(setup.open)()?, largest)?);
    }
    Ok(())
}
