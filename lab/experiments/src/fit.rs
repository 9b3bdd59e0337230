//! `fit`: what is the largest batch that fits?

use std::ops::ControlFlow;
use std::sync::Arc;

use lab_analysis::fit::{self, Law, Room};
use lab_analysis::predict::product_workspaces;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::backend::{Backend, Limited, Meta};
use memcore::memory::{Category, OutOfMemory};
use memcore::{Deviations, Device, Profile};

use super::progress::Progress;
use super::tables::{table, text};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct Fit;

const SOURCE: &str = "How does changing network parameters affect GPU memory usage in PyTorch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "Start with a small batch and increase it while watching nvidia-smi.", source: SOURCE },
    Claim { text: "Raising the batch runs out of memory when activations fill it.", source: SOURCE },
];

/// Steps of each run. After the second, no figure changes any more.
const STEPS: usize = 3;
const MAX_EXAMPLES: usize = 1 << 20;

/// Result of a run of the first article's network.
struct Trial {
    batch: usize,
    /// Peaks of allocated, requested and reserved bytes; `None` if the run did not end.
    taken: Option<[u64; 3]>,
    out_of_memory: Option<Box<OutOfMemory>>,
    /// Deviations of a complete run from PyTorch.
    deviations: Deviations,
}

impl Experiment for Fit {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "fit",
                question: "What is the largest batch that fits?",
                claims: CLAIMS,
                sizes: &[Size::one(
                    "memory_mib",
                    "memory of the device beside the workspaces of its libraries, in MiB; 64",
                )],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let memory = setup.size("memory_mib", 64) as u64;
        if !(4..=1 << 20).contains(&memory) {
            return Err(Error::usage("memory_mib", "between 4 and 1048576"));
        }
        // Uses PyTorch's temporaries on every backend, so that a dry run predicts a run on a device.
        let profile = Profile::torch_2_11(90);
        let workspaces = product_workspaces(&profile);
        let budget = workspaces + (memory << 20);
        let mut progress = Progress::new(setup, 3);
        progress.next("solving, on no device")?;
        let dry = |batch: usize, room: Room| match room {
            Room::Endless => one(Arc::new(Meta::default()), &profile, batch, setup.seed, true),
            Room::Budget => one(Arc::new(Limited::new(Meta::default(), budget)), &profile, batch, setup.seed, false),
        };
        let found = fit::largest(&dry, budget, MAX_EXAMPLES)?;
        let Some(largest) = found.largest else {
            return Err(Error::usage("memory_mib", format!("{memory} MiB are too little for a single example")));
        };
        let law = Law::from_run(&dry, 1, largest + 1)?;
        let backend = (setup.open)()?.shared_backend();
        let mut trials = Vec::new();
        for batch in [largest, largest + 1] {
            progress.next(&format!("batch {batch} on a device of that size"))?;
            let trial = attempt(&backend, &profile, budget, batch, setup.seed)?;
            outcome.push_compared(measurement(&trial, &found, &law), &DRY);
            trials.push(trial);
        }
        outcome.tables.push(pieces(&law));
        outcome.claims = judge(&trials, &found, &law, budget);
        outcome.answer = answer(&trials, budget);
        let deviations = trials.iter().fold(Deviations::default(), |all, trial| all.union(trial.deviations));
        outcome.notes.extend(deviations.iter().map(|deviation| format!("In these figures {deviation}.")));
        Ok(())
    }
}

/// Trains on a fresh device.
fn one(backend: Arc<dyn Backend>, profile: &Profile, batch: usize, seed: u64, history: bool) -> Result<Device> {
    let device = Device::builder(backend).profile(profile.clone()).seed(seed).history(history).build();
    let settings = RunSettings::new(batch, STEPS, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    let network = architecture("simple-cnn", &ModelOptions::default())?;
    train(&*network, &device, &settings, Source::Synthetic { seed }, &mut |_| ControlFlow::Continue(()))?;
    Ok(device)
}

/// Trains on the real device, limited to `budget` bytes.
fn attempt(backend: &Arc<dyn Backend>, profile: &Profile, budget: u64, batch: usize, seed: u64) -> Result<Trial> {
    let limited = Arc::new(Limited::new(backend.clone(), budget));
    match one(limited, profile, batch, seed, true) {
        Ok(device) => {
            let reserved = device.stats().reserved_bytes.all.peak;
            let taken = Some([device.usage().peak_bytes(), fit::requested_peak(&device), reserved]);
            Ok(Trial { batch, taken, out_of_memory: None, deviations: device.deviations() })
        }
        Err(Error::Core(memcore::Error::OutOfMemory(report))) => {
            Ok(Trial { batch, taken: None, out_of_memory: Some(report), deviations: Deviations::default() })
        }
        Err(error) => Err(error),
    }
}

/// Names of figures: from the run on a device, and from the dry run.
const DRY: [(&str, &str); 4] = [
    ("fits", "dry_fits"),
    ("peak_bytes", "dry_peak_bytes"),
    ("requested_peak_bytes", "law_requested_peak_bytes"),
    ("reserved_bytes", "dry_reserved_bytes"),
];

/// Returns the figures of the run on a device, with those of the search and of the formula, which had no device. They are not predictions: only
/// a closed form is one.
fn measurement(trial: &Trial, found: &fit::Fit, law: &Law) -> Measurement {
    let mut m = Measurement::with_setting([("batch", trial.batch.into())]);
    let dry = found.run(trial.batch);
    let mut pair = |[here, there]: [Option<u64>; 2], (one, other): (&str, &str)| {
        here.into_iter().for_each(|value| m.measure(one, value));
        there.filter(|_| here.is_some()).into_iter().for_each(|value| m.measure(other, value));
    };
    let [allocated, requested, reserved] = trial.taken.map_or([None; 3], |taken| taken.map(Some));
    let fits = [trial.taken.is_some(), dry.is_some_and(fit::Tried::fits)].map(|fits| Some(fits.into()));
    pair(fits, DRY[0]);
    pair([allocated, dry.and_then(|dry| dry.allocated_bytes)], DRY[1]);
    pair([requested, law.at(trial.batch)], DRY[2]);
    pair([reserved, dry.and_then(|dry| dry.reserved_bytes)], DRY[3]);
    m
}

fn pieces(law: &Law) -> Table {
    let row = |piece: &fit::Piece| {
        vec![
            text(format!("{}–{}", piece.from, piece.to)),
            Cell::Difference(piece.constant),
            Cell::Difference(piece.slope),
            text(format!("{}: {}", piece.phase, piece.op)),
        ]
    };
    let columns = ["batch", "constant", "per example", "highest when"];
    table("The law: bytes asked for at the peak", &columns, law.pieces.iter().map(row).collect())
}

/// States the batch on either side of the limit.
fn answer(trials: &[Trial], budget: u64) -> ShortAnswer {
    let [fits, fails] = trials else { return ShortAnswer::default() };
    let [allocated, _, reserved] = fits.taken.unwrap_or_default();
    let short = fails.out_of_memory.as_deref().map_or_else(
        || format!("batch {} fits too", fails.batch),
        |report| format!("batch {} fails at a request of {}", fails.batch, bytes(report.requested_bytes)),
    );
    ShortAnswer::new(
        fits.batch.to_string(),
        [format!(
            "On {}: batch {} peaks at {} and reserves {}; {short}.",
            bytes(budget),
            fits.batch,
            bytes(allocated),
            bytes(reserved)
        )],
    )
}

fn judge(trials: &[Trial], found: &fit::Fit, law: &Law, budget: u64) -> Vec<JudgedClaim> {
    let (fits, fails) = (&trials[0], &trials[1]);
    let [allocated, _, reserved] = fits.taken.unwrap_or_default();
    let report = fails.out_of_memory.as_deref();
    let activations = report.map_or(0, |report| report.by_category[Category::Activation as usize]);
    let held: u64 = report.map_or(0, |report| report.by_category.iter().sum());
    let largest = report.and_then(|report| Category::ALL.into_iter().max_by_key(|c| report.by_category[*c as usize]));
    let figures = [
        in_bytes([("reserved at the largest", reserved), ("needed", allocated)]),
        in_bytes([("peak of the largest", allocated)]),
    ];
    // A run that did not end has no figures.
    let [in_reserve, peak] = if fits.taken.is_some() { figures } else { Default::default() };
    vec![
        JudgedClaim {
            lead: "works, at a run for each batch",
            claim: CLAIMS[0],
            number: in_reserve,
            verdict: if fits.taken.is_some() && report.is_some() { Verdict::Depends } else { Verdict::Fails },
            condition: format!(
                "it ends at the same batch ({}), but needs a run for each; {} runs without a device give the whole law, and {} more the border. What nvidia-smi shows is what is reserved ({} with batch {}), of which {} were ever needed at once",
                fits.batch,
                law.runs,
                found.tried.len(),
                bytes(reserved),
                fits.batch,
                bytes(allocated)
            ),
        },
        JudgedClaim {
            lead: "something else fills it here",
            claim: CLAIMS[1],
            number: peak,
            verdict: if largest == Some(Category::Activation) { Verdict::Holds } else { Verdict::Depends },
            condition: format!(
                "with batch {} on {}, {} held when it ran out; of these {} were activations; {} more were asked for",
                fails.batch,
                bytes(budget),
                bytes(held),
                bytes(activations),
                bytes(report.map_or(0, |report| report.requested_bytes))
            ),
        },
    ]
}
