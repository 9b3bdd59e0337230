//! `checkpointing`: what does recomputation save, and what does it cost?

mod in_vain;
mod networks;

use std::time::Instant;

pub(super) use in_vain::InVain;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_models::Recompute;
use lab_training::{OptimizerKind, OptimizerSettings, TrainStep};
use memcore::Device;
use memcore::memory::{Category, PeakComposition};
use networks::{Kind, Network};

use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::tables::{table, text};
use super::timing::{ROUNDS, Times, turns};
use super::{
    About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts,
};

pub(super) struct Checkpointing;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Recalculating parts of the graph in backward reduces memory.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025); The Hidden Relationship: Batch Size and GPU Memory",
    },
    Claim {
        text: "It trades computation speed for memory.",
        source: "How does changing network parameters affect GPU memory usage in PyTorch? (2025)",
    },
];

/// Steps of each run. The last is measured.
const STEPS: usize = 2;

/// Figures of a network's last step under one way of recomputing.
struct Trial {
    network: Network,
    recompute: Recompute,
    /// Bytes that the graph keeps when the loss exists.
    kept_bytes: u64,
    peak: PeakComposition,
    peak_phase: String,
    forward: Work,
    backward: Work,
    /// Times of whole steps, taken in turns with the other trials of the same network.
    times: Times,
    /// The bits of every gradient.
    gradients: Option<Vec<u64>>,
    calm: bool,
    foreseen_peak_bytes: Option<u64>,
}

/// Work that the device was told to do.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    launches: u64,
    flops: u64,
}

impl Work {
    fn so_far(device: &Device) -> Self {
        let counters = device.counters();
        Self { launches: counters.launches, flops: counters.flops }
    }

    fn since(device: &Device, before: Self) -> Self {
        let now = Self::so_far(device);
        Self { launches: now.launches - before.launches, flops: now.flops - before.flops }
    }
}

impl Experiment for Checkpointing {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "checkpointing",
                question: "What does recomputation save, and what does it cost?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("blocks", "blocks of the decoder; 9"),
                    Size::one("batch", "examples per step of the decoder; 8"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (blocks, batch) = (setup.size("blocks", 9), setup.size("batch", 8));
        if blocks < 2 || batch == 0 {
            return Err(Error::usage("blocks, batch", "at least two blocks and one example"));
        }
        let every_other = Recompute::These((0..blocks).step_by(2).collect());
        let [decoder, perceptron, wide] = networks(blocks, batch);
        let runs: Vec<(Network, Recompute)> = [Recompute::None, Recompute::Blocks, Recompute::Sqrt, every_other]
            .map(|recompute| (decoder, recompute))
            .into_iter()
            .chain([Recompute::None, Recompute::Blocks].map(|recompute| (perceptron, recompute)))
            .chain([Recompute::None, Recompute::Blocks].map(|recompute| (wide, recompute)))
            .collect();
        let mut progress = Progress::new(setup, runs.len());
        let predictable = predictable(setup)?;
        let mut trials: Vec<Trial> = Vec::new();
        for network in networks(blocks, batch) {
            // All trials of a network stay alive, so that their steps can be timed in turns.
            let (first, mut sessions) = (trials.len(), Vec::new());
            for (network, recompute) in runs.iter().filter(|(of, _)| *of == network) {
                progress.next(&format!("{}, checkpoint {recompute}", network.name))?;
                let (trial, session) = attempt(setup, predictable, *network, recompute.clone())?;
                let plain = trials.iter().find(|t| t.network == *network);
                outcome.rows.push(trial.measurement(plain, predictable));
                trials.push(trial);
                sessions.push(session);
            }
            time(&mut sessions, &mut trials[first..])?;
            let timed = outcome.rows[first..].iter_mut().zip(&trials[first..]);
            timed.for_each(|(row, trial)| trial.times.measure(row, "step_us"));
        }
        outcome.tables.push(shown(&trials));
        outcome.notes.push(of_gradients(&trials));
        outcome.claims = judge(&trials);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

/// Three networks: the first has mostly activations, the second has blocks that keep no more than their inputs, the third has its
/// peak elsewhere.
fn networks(blocks: usize, batch: usize) -> [Network; 3] {
    let decoder = Kind::Decoder { sequence: 64, vocabulary: 512, heads: 4 };
    let few = Kind::Decoder { sequence: 8, vocabulary: 512, heads: 4 };
    let (sgd, adam) = (OptimizerKind::Sgd, OptimizerKind::Adam);
    [
        Network { name: "decoder", kind: decoder, blocks, width: 64, batch, optimizer: sgd },
        Network {
            name: "perceptron",
            kind: Kind::Perceptron { classes: 10 },
            blocks: 8,
            width: 256,
            batch: 256,
            optimizer: sgd,
        },
        Network { name: "decoder, 8 tokens, Adam", kind: few, blocks: 2, width: 128, batch: 1, optimizer: adam },
    ]
}

/// Times one step of each session in turn, several times.
fn time(sessions: &mut [Session], trials: &mut [Trial]) -> Result<()> {
    if sessions.iter().any(|session| !session.network.device.computes()) {
        return Ok(());
    }
    for round in 0..ROUNDS {
        for i in turns(round, sessions.len()) {
            let (session, trial) = (&mut sessions[i], &mut trials[i]);
            let start = Instant::now();
            session.whole_step("timed", trial.network.batch)?;
            trial.times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(())
}

fn attempt(setup: &Setup<'_>, predictable: bool, network: Network, recompute: Recompute) -> Result<(Trial, Session)> {
    let device = (setup.open)()?;
    let optimizer = OptimizerSettings::new(network.optimizer, 1e-3);
    let mut session = Session::in_f32(&device, &*network.architecture(&recompute)?, &optimizer, setup.seed)?;
    let mut kept_bytes = 0;
    let (mut forward, mut backward) = (Work::default(), Work::default());
    for _ in 0..STEPS {
        device.reset_peak_stats();
        session.load_batch(network.batch, 0)?;
        session.zero_grad()?;
        device.phase("forward");
        let before = Work::so_far(&device);
        session.forward()?;
        forward = Work::since(&device, before);
        device.phase("loss");
        session.loss()?;
        kept_bytes = session.moment("loss").by_category[Category::Activation as usize];
        device.phase("backward");
        let before = Work::so_far(&device);
        session.backward()?;
        backward = Work::since(&device, before);
        device.phase("step");
        session.step()?;
        device.synchronize()?;
    }
    let peak = device.usage().at_peak();
    let foreseen_peak_bytes = match predictable && peak_is_in_the_update(&network) {
        true => network.foreseen_update_bytes(&recompute, &session.network.model.parameters, device.profile()),
        false => None,
    };
    let trial = Trial {
        network,
        recompute,
        kept_bytes,
        peak_phase: device.with_ledger(|ledger| ledger.phase_name(peak.origin.phase).to_string()),
        peak,
        forward,
        backward,
        times: Times::default(),
        gradients: if device.computes() { Some(gradient_bits(&session)?) } else { None },
        calm: undisturbed(&device),
        foreseen_peak_bytes,
    };
    Ok((trial, session))
}

/// True if the peak is in the update, judged by the sizes: few examples pass through many parameters.
fn peak_is_in_the_update(network: &Network) -> bool {
    network.optimizer == OptimizerKind::Adam
}

fn gradient_bits(session: &Session) -> Result<Vec<u64>> {
    let mut bits = Vec::new();
    for gradient in session.network.model.parameters.iter().filter_map(memcore::nn::Parameter::grad) {
        bits.extend(gradient.to_f64()?.into_iter().map(f64::to_bits));
    }
    Ok(bits)
}

impl Trial {
    fn again(&self, plain: &Self) -> Work {
        Work {
            launches: self.backward.launches.saturating_sub(plain.backward.launches),
            flops: self.backward.flops.saturating_sub(plain.backward.flops),
        }
    }

    /// Number of gradient values that differ from those of `plain`.
    fn differing(&self, plain: &Self) -> Option<u64> {
        let (Some(ours), Some(theirs)) = (&self.gradients, &plain.gradients) else { return None };
        let apart = ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
        Some((apart + ours.len().abs_diff(theirs.len())) as u64)
    }

    fn measurement(&self, plain: Option<&Self>, predictable: bool) -> Measurement {
        let mut m = Measurement::with_setting([
            ("network", self.network.name.into()),
            ("checkpoint", self.recompute.to_string().into()),
        ]);
        m.measure("activation_bytes", self.kept_bytes);
        m.measure("peak_bytes", self.peak.allocated_bytes);
        if predictable && self.calm {
            if let Some(kept) = self.network.foreseen_kept_bytes(&self.recompute) {
                m.predict("activation_bytes", kept);
            }
            if let Some(peak) = self.foreseen_peak_bytes {
                m.predict("peak_bytes", peak);
            }
        }
        if let Some(plain) = plain {
            let again = self.again(plain);
            m.measure("kernels_again", again.launches);
            m.predict("kernels_again", self.network.foreseen_kernels(&self.recompute));
            m.measure("flops_again", again.flops);
            match self.differing(plain) {
                Some(values) => {
                    m.measure("gradient_values_that_differ", values);
                    m.predict("gradient_values_that_differ", 0);
                }
                None => m.unknown("gradient_values_that_differ"),
            }
        }
        m.unknown("step_us");
        m
    }
}

fn plain_of<'a>(trials: &'a [Trial], trial: &Trial) -> Option<&'a Trial> {
    trials.iter().find(|t| t.network == trial.network && t.recompute == Recompute::None)
}

fn shown(trials: &[Trial]) -> Table {
    let row = |t: &Trial| {
        let again = plain_of(trials, t).map_or(Work::default(), |plain| t.again(plain));
        vec![
            text(t.network.name),
            text(t.recompute.to_string()),
            Cell::Bytes(t.kept_bytes),
            Cell::Bytes(t.peak.allocated_bytes),
            text(&t.peak_phase),
            Cell::Count(again.launches),
            text(percent(again.flops, t.forward.flops)),
            text(t.times.words()),
        ]
    };
    let columns = [
        "network",
        "checkpoint",
        "kept by the graph",
        "peak of the step",
        "in",
        "calls again",
        "of forward",
        "step (range)",
    ];
    table("What is kept, and what is computed again", &columns, trials.iter().map(row).collect())
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn of_gradients(trials: &[Trial]) -> String {
    let differing: Option<Vec<u64>> =
        trials.iter().map(|t| plain_of(trials, t).and_then(|plain| t.differing(plain))).collect();
    match differing {
        Some(differing) => format!(
            "Gradients: {} values differ from those of the plain network in {} runs; the generator of random numbers is set back for a \
             recomputation, and every sum has one order.",
            differing.iter().sum::<u64>(),
            differing.len()
        ),
        None => "Gradients and times: this device computes nothing, so they are null; run it on one that does.".into(),
    }
}

/// States the decoder's peak and the recomputed work, and the networks that gain nothing.
fn answer(trials: &[Trial]) -> ShortAnswer {
    let pairs = trials.iter().filter(|trial| trial.recompute == Recompute::Blocks);
    let pairs: Vec<(&Trial, &Trial)> = pairs.filter_map(|t| Some((plain_of(trials, t)?, t))).collect();
    // Workspaces of libraries are the same with and without it, and most of a small network's peak.
    let of_network = |trial: &Trial| {
        let workspaces = trial.peak.by_category[Category::Workspace as usize];
        trial.peak.allocated_bytes.saturating_sub(workspaces)
    };
    let saved = |(plain, again): &(&Trial, &Trial)| {
        let [plain, again] = [plain, again].map(|trial| of_network(trial) as f64);
        100.0 * (1.0 - again / plain.max(1.0))
    };
    let each = pairs.iter().map(|pair| {
        let (plain, again) = pair;
        format!(
            "{}, by blocks: peak without workspaces {} → {} ({:+.0} %), {} of the forward pass computed again.",
            plain.network.name,
            bytes(of_network(plain)),
            bytes(of_network(again)),
            -saved(pair),
            percent(again.again(plain).flops, plain.forward.flops)
        )
    });
    let most = pairs.iter().map(saved).fold(0.0, f64::max);
    ShortAnswer {
        word: format!("Up to {most:.0} % of the peak without workspaces, for a part of the forward pass"),
        figures: each.collect(),
    }
}

fn judge(trials: &[Trial]) -> Vec<JudgedClaim> {
    let [plain, blocks, sqrt, others, perceptron, perceptron_again, wide, wide_again] = trials else {
        return Vec::new();
    };
    let saves = [blocks, sqrt, others].iter().all(|t| t.peak.allocated_bytes < plain.peak.allocated_bytes);
    // The verdict rests on counts of recomputed work. The times only show what it cost on this machine.
    let costs = [blocks, sqrt, others].iter().all(|t| t.again(plain).flops > 0);
    let against = |t: &Trial, plain: &Trial| {
        let (again, time) = (t.again(plain), t.times.beside(&plain.times));
        format!(
            "{} kernels or {} of the forward pass, {time}",
            again.launches,
            percent(again.flops, plain.forward.flops)
        )
    };
    vec![
        JudgedClaim {
            lead: "where blocks keep much",
            claim: CLAIMS[0],
            verdict: if saves { Verdict::Depends } else { Verdict::Fails },
            number: in_bytes([("peak, whole", plain.peak.allocated_bytes), ("by blocks", blocks.peak.allocated_bytes)]),
            condition: format!(
                "a decoder's graph keeps {} whole, {} by blocks, {} in segments of √n, and its step peaks at {}, {}, {}. It does not help \
                 where a block keeps little besides its input (linear layers with ReLU: {} and {}, peak {} and {}), nor where the peak is in \
                 the update ({} and {}, reached in {}); there it may cost, since a library's workspace is made for the thread of backward too",
                bytes(plain.kept_bytes),
                bytes(blocks.kept_bytes),
                bytes(sqrt.kept_bytes),
                bytes(plain.peak.allocated_bytes),
                bytes(blocks.peak.allocated_bytes),
                bytes(sqrt.peak.allocated_bytes),
                bytes(perceptron.kept_bytes),
                bytes(perceptron_again.kept_bytes),
                bytes(perceptron.peak.allocated_bytes),
                bytes(perceptron_again.peak.allocated_bytes),
                bytes(wide.peak.allocated_bytes),
                bytes(wide_again.peak.allocated_bytes),
                wide_again.peak_phase,
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if costs { Verdict::Holds } else { Verdict::Fails },
            number: in_counts([("kernels again", Some(blocks.again(plain).launches))]),
            condition: format!(
                "by count of operations. Computed again by blocks: {}; in segments of √n: {}; every other block: {}. Each block at most once, and never the values \
                 after the last one that it saves",
                against(blocks, plain),
                against(sqrt, plain),
                against(others, plain)
            ),
        },
    ]
}
