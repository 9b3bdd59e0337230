//! `accumulation`: does accumulation buy a large batch for free?

mod learning;

use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_models::Architecture;
use lab_training::{OptimizerKind, OptimizerSettings, TrainStep, loss};
use memcore::memory::Category;
use memcore::{Tensor, ops};

use super::columns::Columns;
use super::default_allocator::predictable;
use super::perceptron::perceptron;
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::tables::text;
use super::{
    About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts,
};

pub(super) struct Accumulation;

const SOURCE: &str = "The Hidden Relationship: Batch Size and GPU Memory";

const CLAIMS: &[Claim] = &[
    Claim { text: "Accumulating over small batches gives the gradients of the large batch.", source: SOURCE },
    Claim { text: "It takes the memory of the small batch.", source: SOURCE },
    Claim { text: "Larger batches give more stable gradient estimates.", source: SOURCE },
    Claim { text: "Reducing the batch may affect training dynamics.", source: SOURCE },
];

const LAYERS: usize = 4;
const WIDTH: usize = 256;
const CLASSES: usize = 10;

/// A step of `pieces` micro-batches of `micro` examples.
struct Trial {
    micro: usize,
    pieces: usize,
    /// Activations, measured when the loss of the last micro-batch exists.
    activation_bytes: u64,
    gradient_bytes: u64,
    peak_bytes: u64,
    parameter_bytes: Vec<u64>,
    calm: bool,
}

impl Experiment for Accumulation {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "accumulation",
                question: "Does accumulation buy a large batch for free?",
                claims: CLAIMS,
                sizes: &[Size::one("batch", "examples per step; 512"), Size::one("pieces", "micro-batches; 8")],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (batch, pieces) = (setup.size("batch", 512), setup.size("pieces", 8));
        if batch == 0 || pieces < 2 || !batch.is_multiple_of(pieces) {
            return Err(Error::usage("batch, pieces", "at least two pieces, which divide the batch"));
        }
        let mut progress = Progress::new(setup, 5);
        let predictable = predictable(setup)?;
        let micro = batch / pieces;
        let (columns, mut trials) = (columns(predictable), Vec::new());
        for (micro, pieces) in [(batch, 1), (micro, pieces), (micro, 1)] {
            progress.next(&format!("{pieces} × {micro}"))?;
            let trial = attempt(setup, micro, pieces)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        progress.next("the gradients of both")?;
        let difference = gradient_difference(setup, batch, pieces)?;
        let mut m = Measurement::with_setting([("micro_batch", micro.into()), ("pieces", pieces.into())]);
        match difference.map(billionths) {
            Some(share) => m.measure("gradient_difference_ppb", share),
            None => m.unknown("gradient_difference_ppb"),
        }
        outcome.rows.push(m);
        outcome.tables.push(columns.table("One optimizer step", &trials));
        progress.next("what is learnt with each batch")?;
        let learnt = learning::learn(setup, &*network()?, batch, pieces)?;
        outcome.rows.extend(learning::rows(batch, pieces, learnt.as_ref()));
        outcome.claims = judge(&trials, difference);
        outcome.answer = answer(&trials);
        outcome.claims.extend(learning::judge([CLAIMS[2], CLAIMS[3]], batch, pieces, learnt.as_ref()));
        Ok(())
    }
}

fn billionths(share: f64) -> u64 {
    (share * 1e9).round() as u64
}

fn network() -> Result<Box<dyn Architecture>> {
    perceptron(LAYERS, WIDTH, WIDTH, CLASSES)
}

fn session(setup: &Setup<'_>) -> Result<Session> {
    let sgd = OptimizerSettings::new(OptimizerKind::Sgd, 1e-3);
    Session::in_f32(&(setup.open)()?, &*network()?, &sgd, setup.seed)
}

/// Takes two steps and measures the second.
fn attempt(setup: &Setup<'_>, micro: usize, pieces: usize) -> Result<Trial> {
    let mut session = session(setup)?;
    let mut activation_bytes = 0;
    for _ in 0..2 {
        session.network.device.reset_peak_stats();
        session.zero_grad()?;
        for _ in 0..pieces {
            session.load_batch(micro, 0)?;
            session.forward()?;
            session.loss()?;
            if pieces > 1 {
                session.loss = session.loss.as_ref().map(|loss| ops::div_scalar(loss, pieces as f64)).transpose()?;
            }
            activation_bytes = session.moment("loss").by_category[Category::Activation as usize];
            session.backward()?;
        }
        session.step()?;
    }
    let after = session.moment("step");
    Ok(Trial {
        micro,
        pieces,
        activation_bytes,
        gradient_bytes: after.by_category[Category::Gradient as usize],
        peak_bytes: session.network.device.usage().at_peak().allocated_bytes,
        parameter_bytes: session.network.model.parameters.iter().map(|p| 4 * p.array().numel() as u64).collect(),
        calm: undisturbed(&session.network.device),
    })
}

/// Returns the largest difference between the gradients of the whole batch and of its parts, as a share of the largest gradient. `None` on
/// a device that computes nothing.
fn gradient_difference(setup: &Setup<'_>, batch: usize, pieces: usize) -> Result<Option<f64>> {
    let mut whole = session(setup)?;
    if !whole.network.device.computes() {
        return Ok(None);
    }
    whole.load_batch(batch, 0)?;
    whole.forward()?;
    whole.loss()?;
    whole.backward()?;
    let mut parts = session(setup)?;
    parts.load_batch(batch, 0)?;
    let (Some(input), Some(target)) = (parts.batch.input.clone(), parts.batch.target.clone()) else { return Ok(None) };
    let micro = batch / pieces;
    for i in 0..pieces {
        let piece = |t: &Tensor| ops::narrow(t, 0, i * micro, micro);
        let output = parts.network.model.module.forward(&piece(&input)?)?;
        let loss = loss(&parts.network.model.task.loss, &output, &piece(&target)?)?;
        ops::div_scalar(&loss, pieces as f64)?.backward(false)?;
    }
    let (mut largest, mut apart) = (0.0f64, 0.0f64);
    for (a, b) in whole.network.model.parameters.iter().zip(&parts.network.model.parameters) {
        let (Some(a), Some(b)) = (a.tensor().grad(), b.tensor().grad()) else { continue };
        for (a, b) in a.to_f64()?.into_iter().zip(b.to_f64()?) {
            largest = largest.max(a.abs());
            apart = apart.max((a - b).abs());
        }
    }
    Ok(Some(apart / largest.max(f64::MIN_POSITIVE)))
}

fn columns(predictable: bool) -> Columns<'static, Trial> {
    let hidden = |t: &Trial| (4 * t.micro * WIDTH) as u64;
    // Above 1 MiB a block may be larger than the request.
    let known = move |t: &Trial| predictable && t.calm && hidden(t) <= 1 << 20;
    // Results of the ReLUs, log-probabilities, and the sum of the class weights.
    let kept =
        move |t: &Trial| LAYERS as u64 * rounded(hidden(t)) + rounded((4 * t.micro * CLASSES) as u64) + rounded(4);
    let gradients = |t: &Trial| t.parameter_bytes.iter().copied().map(rounded).sum();
    Columns::new()
        .set("micro_batch", |t: &Trial| t.micro)
        .set("pieces", |t| t.pieces)
        .cell("batches", |t| text(format!("{} × {}", t.pieces, t.micro)))
        .bytes("activation_bytes", "kept by the graph", |t| t.activation_bytes)
        .bytes("gradient_bytes", "gradients", |t| t.gradient_bytes)
        .bytes("peak_bytes", "peak of the step", |t| t.peak_bytes)
        .predicted("activation_bytes", move |t| known(t).then(|| kept(t)))
        .predicted("gradient_bytes", move |t| known(t).then(|| gradients(t)))
}

/// States the peak of the whole batch, of its parts, and of one part alone.
fn answer(trials: &[Trial]) -> ShortAnswer {
    let [whole, accumulated, small] = trials else { return ShortAnswer::default() };
    let word = match (accumulated.peak_bytes <= small.peak_bytes, accumulated.peak_bytes < whole.peak_bytes) {
        (true, _) => "Yes, in memory",
        (false, true) => "Nearly, in memory",
        (false, false) => "No",
    };
    let peak = |trial: &Trial| bytes(trial.peak_bytes);
    ShortAnswer::new(
        word,
        [format!(
            "Peak: batch {} {}, as {} × {} {}, batch {} alone {}.",
            whole.micro,
            peak(whole),
            accumulated.pieces,
            accumulated.micro,
            peak(accumulated),
            small.micro,
            peak(small)
        )],
    )
}

fn judge(trials: &[Trial], difference: Option<f64>) -> Vec<JudgedClaim> {
    let [whole, accumulated, small] = trials else { return Vec::new() };
    let (verdict, seen) = match difference {
        // Rounding: f32 sums of hundreds of terms, added in another order.
        Some(share) if share < 1e-5 => {
            (Verdict::Holds, format!("they differ by {share:.1e} of the largest one, which is rounding"))
        }
        Some(share) => (Verdict::Fails, format!("they differ by {share:.1e} of the largest one")),
        None => (Verdict::NotTested, "this device computes nothing: run it on one that does".into()),
    };
    let more = accumulated.peak_bytes.saturating_sub(small.peak_bytes);
    vec![
        JudgedClaim {
            lead: "",
            claim: CLAIMS[0],
            verdict,
            number: in_counts([("difference in 10⁻⁹", difference.map(billionths))]),
            condition: format!(
                "{} micro-batches of {}, each loss divided by {}: {seen}. Batch normalisation would see the small batches",
                accumulated.pieces, accumulated.micro, accumulated.pieces
            ),
        },
        JudgedClaim {
            lead: "plus the gradients",
            claim: CLAIMS[1],
            verdict: if more == 0 { Verdict::Holds } else { Verdict::Depends },
            number: in_bytes([("accumulated", accumulated.peak_bytes), ("small batch", small.peak_bytes)]),
            condition: format!(
                "peak {} with the whole batch of {}, {} accumulated, {} with one batch of {}: accumulating takes {} more than the small \
                 batch alone, because gradients ({}) stay through the next forward and backward pass",
                bytes(whole.peak_bytes),
                whole.micro,
                bytes(accumulated.peak_bytes),
                bytes(small.peak_bytes),
                small.micro,
                bytes(more),
                bytes(accumulated.gradient_bytes)
            ),
        },
    ]
}
