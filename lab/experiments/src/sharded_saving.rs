//! `sharded-saving`: how much memory does it take to save a model that is divided among ranks?
//!
//! A rank trains on a device that computes nothing, with the model divided as ZeRO's stage 3 and FSDP do. Then its state is gathered as PyTorch
//! 2.11 gathers it (`get_model_state_dict` and `get_optimizer_state_dict` of `torch.distributed.checkpoint` after `fully_shard`): tensor by
//! tensor, each padded to equal shards of its first dimension, on **every** rank. With `cpu_offload` each tensor is copied to the host before the
//! next one is gathered. Measured with `vramlab rehearse` on four ranks; the figures are in `lab/experiments/tests/it/reported.rs`.

use std::sync::Arc;

use lab_analysis::predict::{MAX_ROUNDED_BYTES, rounded};
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_training::data_parallel::{DataParallelSettings, Rank, Stage};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::backend::Meta;
use memcore::memory::Category;
use memcore::{Array, DType, Device};

use super::columns::Columns;
use super::perceptron::Perceptron;
use super::progress::Progress;
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

/// The experiment.
pub(super) struct ShardedSaving;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Saving with FSDP gathers all of the state on the device of rank 0, which can run out of memory.",
        source: "accelerate, pull request 1181 (2023)",
    },
    Claim {
        text: "With CPU offload and on rank 0 alone, the full state can be saved of larger models.",
        source: "pytorch, pull request 75908 (2022)",
    },
];

const STEPS: usize = 2;
/// A way to save the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each rank writes its own shards.
    Sharded,
    /// The weights are gathered.
    Weights,
    /// The weights and the optimizer's two moments are gathered.
    Everything,
    /// As `Everything`, with each tensor copied to the host before the next is gathered.
    Offloaded,
}

impl Way {
    const ALL: [Self; 4] = [Self::Sharded, Self::Weights, Self::Everything, Self::Offloaded];

    fn name(self) -> &'static str {
        match self {
            Self::Sharded => "sharded",
            Self::Weights => "full, weights",
            Self::Everything => "full, weights and optimizer",
            Self::Offloaded => "full, cpu_offload",
        }
    }

    /// Number of gathered tensors of each parameter's size.
    fn copies(self) -> usize {
        match self {
            Self::Sharded => 0,
            Self::Weights => 1,
            Self::Everything | Self::Offloaded => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    network: Perceptron,
    ranks: usize,
}

impl Sizes {
    /// Bytes of each gathered parameter, padded to equal shards of its rows.
    fn gathered(self) -> impl Iterator<Item = u64> {
        let ranks = self.ranks;
        self.network.parameters().into_iter().map(move |(rows, row)| 4 * (rows.div_ceil(ranks) * ranks * row) as u64)
    }
}

/// Figures of a rank that saved in one way.
struct Trial {
    way: Way,
    /// Peak of a training step.
    training_peak_bytes: u64,
    /// Bytes allocated before saving.
    held_bytes: u64,
    peak_bytes: u64,
    predicted_bytes: Option<u64>,
}

impl Trial {
    fn gathered_bytes(&self) -> u64 {
        self.peak_bytes - self.held_bytes
    }
}

impl Experiment for ShardedSaving {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "sharded-saving",
                question: "What does saving a sharded model take on each device?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("ranks", "ranks that the model is divided among; 8"),
                    Size::one("width", "neurons of each hidden layer; 512"),
                    Size::one("layers", "hidden layers; 4"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes { ranks: setup.within("ranks", 8, 2..=4096)?, network: Perceptron::asked(setup)? };
        let mut progress = Progress::new(setup, Way::ALL.len());
        let columns = columns();
        let mut trials = Vec::new();
        for way in Way::ALL {
            progress.next(way.name())?;
            let trial = attempt(setup, way, sizes)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        outcome.tables.push(columns.table("What a rank's device holds while it saves", &trials));
        outcome.notes.push(format!(
            "With full_state_dict every rank gathers the whole state on its device, not rank 0 alone; with cpu_offload only rank 0 keeps it, \
             {} of its host's memory. FSDP's older state_dict gathers a unit at a time as well; its optimizer's state is not tested here.",
            bytes(3 * sizes.gathered().sum::<u64>())
        ));
        outcome.claims = judge(&trials, sizes);
        outcome.answer = answer(&trials, sizes);
        Ok(())
    }
}

fn attempt(setup: &Setup<'_>, way: Way, sizes: Sizes) -> Result<Trial> {
    // Collectives are counted but not carried out, so that a rank runs on a device that computes nothing.
    let profile = (setup.open)()?.profile().clone();
    let device = Device::builder(Arc::new(Meta::default())).profile(profile).build();
    let batch = 8 * sizes.ranks;
    let mut run = RunSettings::new(batch, STEPS, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    run.seed = setup.seed;
    let settings = DataParallelSettings {
        run,
        ranks: sizes.ranks,
        stage: Stage::Parameters,
        master_weights: false,
        gradient_as_bucket_view: false,
        sync_each: false,
    };
    let source = Source::Synthetic { seed: setup.seed };
    let mut rank = Rank::new(&*sizes.network.network()?, &device, &settings, 0, source)?;
    for step in 0..STEPS {
        device.reset_peak_stats();
        rank.step(step)?;
    }
    let usage = device.usage();
    let (training_peak_bytes, held_bytes) = (usage.at_peak().allocated_bytes, usage.allocated_bytes());
    device.phase("save");
    device.reset_peak_stats();
    let saved = gather(&device, way, sizes)?;
    let peak_bytes = device.usage().at_peak().allocated_bytes;
    drop(saved);
    drop(rank);
    Ok(Trial { way, training_peak_bytes, held_bytes, peak_bytes, predicted_bytes: foreseen(way, sizes) })
}

/// Gathers the state dictionary on the device.
fn gather(device: &Device, way: Way, sizes: Sizes) -> Result<Vec<Array>> {
    let mut state = Vec::new();
    for _ in 0..way.copies() {
        for (rows, row) in sizes.network.parameters() {
            let padded = [rows.div_ceil(sizes.ranks) * sizes.ranks, row];
            let whole = Array::empty_as(device, &padded, DType::F32, Category::Temporary)?;
            if way != Way::Offloaded {
                state.push(whole);
            }
        }
    }
    Ok(state)
}

/// Predicts the gathered bytes: all tensors at the same time, or the largest tensor.
fn foreseen(way: Way, sizes: Sizes) -> Option<u64> {
    let blocks: Vec<u64> = sizes.gathered().map(rounded).collect();
    let most = blocks.iter().copied().max().unwrap_or(0);
    (most <= MAX_ROUNDED_BYTES).then(|| match way {
        Way::Offloaded => most,
        _ => way.copies() as u64 * blocks.iter().sum::<u64>(),
    })
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("saved", "saved", |t: &Trial| t.way.name())
        .bytes("training_peak_bytes", "peak of training", |t| t.training_peak_bytes)
        .bytes("held_bytes", "held before", |t| t.held_bytes)
        .bytes("saving_peak_bytes", "peak of saving", |t| t.peak_bytes)
        .bytes("gathered_bytes", "gathered", Trial::gathered_bytes)
        .predicted("gathered_bytes", |t| t.predicted_bytes)
}

fn answer(trials: &[Trial], sizes: Sizes) -> ShortAnswer {
    let [sharded, weights, everything, offloaded] = trials else { return ShortAnswer::default() };
    ShortAnswer::new(
        "The whole model on every rank, unless it is offloaded or sharded",
        [
            format!(
                "Gathered on each of {} ranks: {} with the weights, {} with the optimizer too.",
                sizes.ranks,
                bytes(weights.gathered_bytes()),
                bytes(everything.gathered_bytes())
            ),
            format!(
                "cpu_offload: {} at once, the largest tensor; sharded: {}.",
                bytes(offloaded.gathered_bytes()),
                bytes(sharded.gathered_bytes())
            ),
            format!(
                "The peak of saving is {} where training has {}.",
                bytes(everything.peak_bytes),
                bytes(everything.training_peak_bytes)
            ),
        ],
    )
}

fn judge(trials: &[Trial], sizes: Sizes) -> Vec<JudgedClaim> {
    let [sharded, weights, everything, offloaded] = trials else { return Vec::new() };
    let exceeds = everything.peak_bytes > everything.training_peak_bytes;
    let largest = sizes.gathered().map(rounded).max().unwrap_or(0);
    let one_at_a_time = offloaded.gathered_bytes() < everything.gathered_bytes();
    vec![
        JudgedClaim {
            lead: if exceeds { "on every rank, not rank 0 alone" } else { "training takes more here" },
            claim: CLAIMS[0],
            verdict: Verdict::Depends,
            number: in_bytes([
                ("peak, training", everything.training_peak_bytes),
                ("saving all", everything.peak_bytes),
                ("sharded", sharded.peak_bytes),
            ]),
            condition: format!(
                "with full_state_dict and without cpu_offload the {} ranks gather the whole state each: {} of weights and {} with the \
                 optimizer's, on top of {} that are held; the peak is {} where a training step has {}. A sharded checkpoint gathers {}",
                sizes.ranks,
                bytes(weights.gathered_bytes()),
                bytes(everything.gathered_bytes()),
                bytes(everything.held_bytes),
                bytes(everything.peak_bytes),
                bytes(everything.training_peak_bytes),
                bytes(sharded.gathered_bytes())
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if one_at_a_time { Verdict::Holds } else { Verdict::Fails },
            number: in_bytes([
                ("gathered, offloaded", offloaded.gathered_bytes()),
                ("kept", everything.gathered_bytes()),
            ]),
            condition: format!(
                "each tensor goes to the host before the next is gathered, so that the largest one is there at once ({} of {}); rank 0's host \
                 holds the {} of weights and moments, the others none",
                bytes(largest),
                bytes(everything.gathered_bytes()),
                bytes(everything.gathered_bytes())
            ),
        },
    ]
}
