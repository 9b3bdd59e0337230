//! One step divided among ranks: the bytes that each stage of ZeRO leaves on a device, predicted from the sizes of the layers, and the paper's
//! own figures.

use std::ops::ControlFlow;
use std::sync::Arc;

use lab_analysis::predict::rounded;
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_models::{Architecture, ModelOptions, architecture};
use lab_training::data_parallel::{
    Accounting, DataParallelResult, DataParallelSettings, RankFigures, Sent, Stage, TABLE_1, printed, train,
};
use lab_training::{Failed, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source};
use memcore::Device;
use memcore::backend::{Backend, Meta};
use memcore::memory::Direct;

use super::super::tables::{table, text};
use super::claims::CLAIMS;
use super::network::{CLASSES, LAYERS, WIDTH, network};
use super::{JudgedClaim, Measurement, Setup, Verdict, in_bytes};

/// Sizes of a decoder of 7.5 billion parameters. Each of its tensors fills whole blocks, so that only shards are rounded.
const TOKENS: usize = 30_493;
const LENGTH: usize = 128;
const HIDDEN: usize = 4096;
const BLOCKS: usize = 36;
/// Number of devices in the row of the paper that is compared.
const RANKS: usize = 64;

/// Measurements of one stage.
pub(super) struct Divided {
    name: String,
    settings: DataParallelSettings,
    ranks: Vec<RankFigures>,
    /// True if the network has the paper's size.
    large: bool,
}

/// Runs every stage: the small network among `ranks` ranks, and the large one among the paper's number.
pub(super) fn trials(setup: &Setup<'_>, ranks: usize, batch: usize) -> Result<Vec<Divided>> {
    let small = network()?;
    let share = (batch / ranks).max(1);
    let mut trials = Vec::new();
    for stage in Stage::ALL {
        trials.push(divided(setup, &*small, false, (stage, ranks, share * ranks))?);
    }
    let large = decoder()?;
    for stage in Stage::ALL {
        trials.push(divided(setup, &*large, true, (stage, RANKS, RANKS))?);
    }
    Ok(trials)
}

fn decoder() -> Result<Box<dyn Architecture>> {
    let options = ModelOptions {
        layers: Some(BLOCKS),
        width: Some(HIDDEN),
        heads: Some(32),
        sequence: Some(LENGTH),
        vocabulary: Some(TOKENS),
        ..ModelOptions::default()
    };
    architecture("gpt", &options)
}

fn divided(
    setup: &Setup<'_>,
    network: &dyn Architecture,
    large: bool,
    (stage, ranks, batch): (Stage, usize, usize),
) -> Result<Divided> {
    let mut run = RunSettings::new(batch, 2, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    (run.seed, run.precision) = (setup.seed, Precision::Bf16);
    let settings = DataParallelSettings {
        run,
        ranks,
        stage,
        master_weights: true,
        gradient_as_bucket_view: false,
        sync_each: false,
    };
    let devices: Vec<Device> = settings.shown().iter().map(|_| exact()).collect();
    let source = Source::Synthetic { seed: setup.seed };
    let on_step = &mut |_| ControlFlow::Continue(());
    let result = train(network, &devices, &settings, &source, on_step);
    let DataParallelResult { ranks, .. } = result.map_err(|Failed { error, .. }| error)?;
    let name = if large { format!("7.5 B, ZeRO-{}", stage.number()) } else { format!("ZeRO-{}", stage.number()) };
    Ok(Divided { name, settings, ranks, large })
}

/// Opens a device that computes nothing and whose blocks are as large as the request, rounded up.
fn exact() -> Device {
    let backend: Arc<dyn Backend> = Arc::new(Meta::default());
    Device::builder(backend.clone()).allocator(Box::new(Direct::new(backend))).build()
}

/// Number of values of each tensor of a network, by piece, from its formula alone.
fn sizes(large: bool) -> Vec<Vec<u64>> {
    if !large {
        let layer = |outputs: usize| vec![(WIDTH * outputs) as u64, outputs as u64];
        return (0..LAYERS).map(|_| layer(WIDTH)).chain([layer(CLASSES)]).collect();
    }
    let (h, tokens) = (HIDDEN as u64, TOKENS as u64);
    let attention = [3 * h * h, 3 * h, h * h, h];
    let block = [h, h].into_iter().chain(attention).chain([h, h, 4 * h * h, 4 * h, 4 * h * h, h]);
    let blocks = vec![block.collect::<Vec<u64>>(); BLOCKS];
    let front = vec![tokens * h, LENGTH as u64 * h];
    [front].into_iter().chain(blocks).chain([vec![h, h, tokens * h]]).collect()
}

/// Predicts the figures of every rank, by quantity: 2 bytes for a parameter and a gradient, 4 for each of three
/// states.
fn forecast(trial: &Divided) -> Vec<(&'static str, u64)> {
    let (stage, n) = (trial.settings.stage, trial.settings.ranks as u64);
    let pieces = sizes(trial.large);
    let tensors = |size: u64| pieces.iter().flatten().map(|values| rounded(size * values)).sum::<u64>();
    let values: Vec<u64> = pieces.iter().map(|tensors| tensors.iter().sum()).collect();
    let shards: Vec<u64> = values.iter().map(|values| values.div_ceil(n)).collect();
    let divided = |size: u64| shards.iter().map(|shard| rounded(size * shard)).sum::<u64>();
    let whole = shards.iter().map(|shard| rounded(2 * n * shard)).sum::<u64>();
    let largest = shards.iter().map(|shard| 2 * n * shard).max().unwrap_or(0);
    let parameters = match stage {
        Stage::Replicated => tensors(2),
        Stage::OptimizerStates | Stage::Gradients => whole,
        Stage::Parameters => divided(2),
    };
    let gradients = if stage.divides_gradients() { divided(2) } else { tensors(2) };
    let optimizer = if stage.divides_states() { 3 * divided(4) } else { 3 * tensors(4) };
    let (all, round) = (values.iter().sum::<u64>(), (n - 1) * 2 * shards.iter().sum::<u64>());
    let mut forecast = vec![
        ("parameter_bytes", parameters),
        ("gradient_bytes", gradients),
        ("optimizer_bytes", optimizer),
        ("states_bytes", parameters + gradients + optimizer),
        ("gathered_bytes", if stage.divides_parameters() { largest } else { 0 }),
        ("bucket_bytes", if stage.divides_states() { largest } else { 2 * all }),
    ];
    match stage {
        // One bucket holds all gradients of the small network. Where the large network's buckets are cut depends on which
        // gradient comes first.
        Stage::Replicated if !trial.large => forecast.push(("sent_bytes", 2 * (n - 1) * 2 * all.div_ceil(n))),
        Stage::Replicated => {}
        Stage::OptimizerStates | Stage::Gradients => forecast.push(("sent_bytes", 2 * round)),
        Stage::Parameters => forecast.push(("sent_bytes", 3 * round)),
    }
    forecast
}

/// Returns one row per rank.
pub(super) fn measurements(trial: &Divided) -> Vec<Measurement> {
    let forecast = forecast(trial);
    let row = |rank: &RankFigures| {
        let mut m = Measurement::with_setting([("way", trial.name.as_str().into()), ("rank", rank.rank.into())]);
        m.measure("parameter_bytes", rank.states.parameter_bytes);
        m.measure("gradient_bytes", rank.states.gradient_bytes);
        m.measure("optimizer_bytes", rank.states.optimizer_bytes);
        m.measure("states_bytes", rank.states.total());
        m.measure("gathered_bytes", rank.gathered_bytes);
        m.measure("bucket_bytes", rank.bucket_bytes);
        m.measure("sent_bytes", rank.sent.total());
        m.measure("peak_bytes", rank.account.peak.allocated_bytes);
        m.measure("reserved_bytes", rank.account.reserved_peak);
        forecast.iter().for_each(|(quantity, value)| m.predict(quantity, *value));
        m
    };
    trial.ranks.iter().map(row).collect()
}

impl Divided {
    fn first(&self) -> Option<&RankFigures> {
        self.ranks.first()
    }

    fn states(&self) -> u64 {
        self.first().map_or(0, |rank| rank.states.total())
    }

    fn sent(&self) -> Sent {
        self.first().map_or_else(Sent::default, |rank| rank.sent)
    }

    fn peak(&self) -> u64 {
        self.first().map_or(0, |rank| rank.account.peak.allocated_bytes)
    }

    /// Bytes of the model states by the paper's formula.
    fn formula(&self) -> u64 {
        let parameters = self.first().map_or(0, |rank| rank.parameters);
        Accounting::MIXED_ADAM.model_states(parameters, self.settings.ranks as u64, self.settings.stage).total()
    }
}

/// Makes the table of what each stage leaves on a rank.
pub(super) fn overview(trials: &[Divided]) -> Table {
    let row = |trial: &Divided| {
        let rank = trial.first();
        vec![
            text(trial.name.as_str()),
            Cell::Bytes(trial.states()),
            Cell::Bytes(trial.formula()),
            Cell::Bytes(rank.map_or(0, |rank| rank.gathered_bytes + rank.bucket_bytes)),
            Cell::Bytes(trial.peak()),
            Cell::Bytes(trial.sent().total()),
        ]
    };
    let columns = ["way", "model states", "formula", "gathered, buckets", "peak", "sent per step"];
    let ranks = trials.iter().find(|trial| !trial.large).map_or(RANKS, |trial| trial.settings.ranks);
    let title = format!("One step divided among {ranks} ranks (7.5 B: {RANKS}), on each of them; bf16, Adam");
    table(title, &columns, trials.iter().map(row).collect())
}

/// Judges the paper's two claims.
pub(super) fn judge(trials: &[Divided]) -> [JudgedClaim; 2] {
    let large: Vec<&Divided> = trials.iter().filter(|trial| trial.large).collect();
    [states_claim(&large), sent_claim(&large)]
}

fn states_claim(large: &[&Divided]) -> JudgedClaim {
    let paper = TABLE_1.iter().find(|(ranks, _)| *ranks == RANKS as u64).map(|(_, row)| *row).unwrap_or_default();
    let printed: Vec<f64> = large.iter().skip(1).map(|trial| printed(trial.states())).collect();
    // Padding and rounding add to the formula. Nothing makes it smaller.
    let near = large.iter().all(|trial| (trial.formula()..=trial.formula() + (1 << 20)).contains(&trial.states()));
    let beside = |trial: &Divided| bytes(trial.peak().saturating_sub(trial.states()));
    let rest: Vec<String> = large.iter().map(|trial| beside(trial)).collect();
    JudgedClaim {
        lead: "states yes, peak no",
        claim: CLAIMS[1],
        verdict: if near && printed == paper { Verdict::Depends } else { Verdict::Fails },
        number: match large.iter().map(|trial| trial.states()).collect::<Vec<u64>>()[..] {
            [zero, one, two, three] => in_bytes([("states, ZeRO-0", zero), ("1", one), ("2", two), ("3", three)]),
            _ => String::new(),
        },
        condition: format!(
            "a decoder of {} parameters on {RANKS} devices: by the ledgers {:.1} GB without ZeRO, then {} GB with stages 1, 2 and 3, where the \
             paper has {}; the ledger is above the formula by at most {}, padding and rounding of shards. That holds for what is there all \
             the time. A device's peak is above it by {}: activations, buckets, in stage 3 the gathered layer ({}), and in the optimizer's step \
             the widened gradients and its temporaries",
            large.first().and_then(|trial| trial.first()).map_or(0, |rank| rank.parameters),
            large.first().map_or(0.0, |trial| trial.states() as f64 / 1e9),
            listed(&printed),
            listed(&paper),
            bytes(large.iter().map(|trial| trial.states().saturating_sub(trial.formula())).max().unwrap_or(0)),
            rest.join(", "),
            bytes(large.last().and_then(|trial| trial.first()).map_or(0, |rank| rank.gathered_bytes)),
        ),
    }
}

/// Joins numbers with commas.
fn listed(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
}

fn sent_claim(large: &[&Divided]) -> JudgedClaim {
    let sent: Vec<u64> = large.iter().map(|trial| trial.sent().total()).collect();
    let &[plain, states, gradients, parameters] = sent.as_slice() else {
        let condition = "0 stages were run".into();
        return JudgedClaim {
            lead: "",
            claim: CLAIMS[2],
            verdict: Verdict::NotTested,
            number: String::new(),
            condition,
        };
    };
    let times = |bytes: u64| bytes as f64 / plain.max(1) as f64;
    let near = |bytes: u64, expected: f64| (times(bytes) - expected).abs() < 1e-3;
    let holds = near(states, 1.0) && near(gradients, 1.0) && near(parameters, 1.5);
    JudgedClaim {
        lead: "",
        claim: CLAIMS[2],
        verdict: if holds { Verdict::Holds } else { Verdict::Fails },
        number: in_bytes([("sent, ZeRO-0", plain), ("2", gradients), ("3", parameters)]),
        condition: format!(
            "in a ring of {RANKS} each device sends {} per step; with stage 1 {:.4} times, with stage 2 {:.4} times, with stage 3 {:.4} times as \
             much (parameters gathered once forward and once backward instead of once after the step), with one micro-batch per step",
            bytes(plain),
            times(states),
            times(gradients),
            times(parameters),
        ),
    }
}
