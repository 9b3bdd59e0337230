//! `evaluation`: why does evaluation after training run out of memory?
//!
//! PyTorch 2.11 took the same bytes in each of these programs (measured with `vramlab rehearse`; the figures are in
//! `lab/experiments/tests/it/reported.rs`).

use lab_analysis::predict::{MAX_ROUNDED_BYTES, product_workspaces, rounded};
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_training::{OptimizerKind, OptimizerSettings, TrainStep};
use memcore::{NoGrad, Tensor};

use super::columns::Columns;
use super::default_allocator::predictable;
use super::perceptron::{CLASSES, FEATURES, Perceptron};
use super::progress::Progress;
use super::session::{Session, Variable, undisturbed};
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

/// The experiment.
pub(super) struct Evaluation;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Validation after training runs out of memory without torch.no_grad().",
        source: "semseg, issue 60 (2020)",
    },
    Claim {
        text: "Emptying the cache before validation keeps it from running out of memory.",
        source: "ultralytics, issue 20958 (2025)",
    },
    Claim {
        text: "Tensors of the training loop that are still in scope make validation run out of memory.",
        source: "acoustic-multiclass-training, pull request 85 (2023)",
    },
];

/// Training steps before the evaluation. Below it, the batches of the evaluation.
const STEPS: usize = 2;
const EVALUATIONS: usize = 3;
/// A way to write the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NoGrad,
    /// The simplest code: each batch makes a graph.
    Graph,
    /// As `Graph`, after the training's variables were deleted and its gradients freed.
    Deleted,
    /// As `Graph`, after the cache was emptied.
    Emptied,
    /// Results are appended to a list, each with its graph.
    Listed,
    /// Under `no_grad`, with four times the batch.
    Larger,
}

impl Way {
    const ALL: [Self; 6] = [Self::NoGrad, Self::Graph, Self::Deleted, Self::Emptied, Self::Listed, Self::Larger];

    fn name(self) -> &'static str {
        match self {
            Self::NoGrad => "no_grad",
            Self::Graph => "without no_grad",
            Self::Deleted => "without no_grad, training's tensors deleted",
            Self::Emptied => "without no_grad, cache emptied before",
            Self::Listed => "without no_grad, results in a list",
            Self::Larger => "no_grad, 4 times the batch",
        }
    }

    fn records(self) -> bool {
        !matches!(self, Self::NoGrad | Self::Larger)
    }

    fn batch(self, sizes: Sizes) -> usize {
        if self == Self::Larger { 4 * sizes.batch } else { sizes.batch }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    network: Perceptron,
    batch: usize,
}

/// Figures of one evaluation after training.
struct Trial {
    way: Way,
    training_peak_bytes: u64,
    /// Bytes allocated after the last batch.
    held_bytes: u64,
    peak_bytes: u64,
    reserved_bytes: u64,
    /// Predictions of `held_bytes` and `peak_bytes`, from the sizes.
    foreseen: Option<(u64, u64)>,
}

impl Experiment for Evaluation {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "evaluation",
                question: "Why does evaluation after training run out of memory?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("width", "neurons of each hidden layer; 512"),
                    Size::one("layers", "hidden layers; 4"),
                    Size::one("batch", "examples per batch; 128"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes { network: Perceptron::asked(setup)?, batch: setup.within("batch", 128, 1..=1 << 20)? };
        let mut progress = Progress::new(setup, Way::ALL.len());
        let predictable = predictable(setup)?;
        let columns = columns();
        let mut trials = Vec::new();
        for way in Way::ALL {
            progress.next(way.name())?;
            let trial = attempt(setup, way, sizes, predictable)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        outcome.tables.push(columns.table(format!("{EVALUATIONS} batches after training"), &trials));
        outcome.notes.push(
            "model.eval() changes dropout and batch norm; it keeps no graph from being made, and frees nothing.".into(),
        );
        outcome.claims = judge(&trials);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

fn attempt(setup: &Setup<'_>, way: Way, sizes: Sizes, predictable: bool) -> Result<Trial> {
    let device = (setup.open)()?;
    let Sizes { network, batch } = sizes;
    let sgd = OptimizerSettings::new(OptimizerKind::Sgd, 1e-2);
    let mut session = Session::in_f32(&device, &*network.network()?, &sgd, setup.seed)?;
    let mut training_peak_bytes = 0;
    for step in 0..STEPS {
        training_peak_bytes = session.whole_step(&format!("s{step}"), batch)?.peak.allocated_bytes;
    }
    device.phase("evaluation");
    match way {
        Way::Deleted => {
            let training = [Variable::Batch, Variable::Output, Variable::Loss, Variable::Gradients];
            training.into_iter().try_for_each(|variable| session.delete(variable))?;
        }
        Way::Emptied => {
            device.empty_cache();
        }
        _ => {}
    }
    device.reset_peak_stats();
    let results = evaluate(&mut session, way, way.batch(sizes))?;
    device.synchronize()?;
    let foreseen = (predictable && undisturbed(&device)).then(|| foreseen(way, sizes, &session)).flatten();
    let stats = device.stats();
    drop(results);
    Ok(Trial {
        way,
        training_peak_bytes,
        held_bytes: stats.allocated_bytes.all.current,
        peak_bytes: stats.allocated_bytes.all.peak,
        reserved_bytes: stats.reserved_bytes.all.peak,
        foreseen,
    })
}

/// Evaluates a few batches, in variables that keep their values until the next values exist. Returns the script's list of
/// results.
fn evaluate(session: &mut Session, way: Way, batch: usize) -> Result<Vec<Tensor>> {
    session.network.model.training.set(false);
    let _no_grad = (!way.records()).then(NoGrad::new);
    let mut results = Vec::new();
    for number in 0..EVALUATIONS {
        session.load_batch(batch, number)?;
        session.forward()?;
        session.loss()?;
        if way == Way::Listed {
            results.extend(session.output.clone());
        }
    }
    Ok(results)
}

/// Predicts from the sizes the bytes held after the last batch and at the peak. `None` if a block may be larger than the request, or the peak may
/// be elsewhere.
fn foreseen(way: Way, sizes: Sizes, session: &Session) -> Option<(u64, u64)> {
    let of = |values: usize| rounded(4 * values as u64);
    let batch = way.batch(sizes);
    let parameters: Vec<u64> = session.network.model.parameters.iter().map(|p| 4 * p.array().numel() as u64).collect();
    let hidden = of(batch * sizes.network.width);
    // If a layer's result is only a block or two, other blocks make the peak.
    if hidden < 8 * of(1)
        || hidden > MAX_ROUNDED_BYTES
        || parameters.iter().any(|bytes| *bytes > MAX_ROUNDED_BYTES)
        || sizes.network.width < FEATURES
    {
        return None;
    }
    let model: u64 = parameters.iter().map(|bytes| rounded(*bytes)).sum();
    let gradients = if way == Way::Deleted { 0 } else { model };
    let (input, target, output) = (of(batch * FEATURES), rounded(8 * batch as u64), of(batch * CLASSES));
    let profile = session.network.device.profile();
    let workspaces = product_workspaces(profile);
    let base = model + gradients + input + target + output + of(1) + workspaces;
    if !way.records() {
        // The peak: a layer's input and its result, or the result and its ReLU.
        return Some((base, base + 2 * hidden));
    }
    let layers = sizes.network.layers as u64;
    // Result of each ReLU, log-probabilities, and the sum of the class weights.
    let graph = layers * hidden + output + of(1);
    // A listed result keeps its graph down to the batch. The loss's part of the graph is freed with the loss.
    let listed = if way == Way::Listed { layers * hidden + input + output } else { 0 };
    let before = (EVALUATIONS as u64 - 2) * listed;
    let next = input + target + (layers + 1) * hidden;
    Some((base + graph + before + listed, base + graph + before + next))
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("evaluation", "evaluation", |t: &Trial| t.way.name())
        .bytes("training_peak_bytes", "peak of training", |t| t.training_peak_bytes)
        .bytes("held_bytes", "held after it", |t| t.held_bytes)
        .bytes("peak_bytes", "peak of evaluation", |t| t.peak_bytes)
        .bytes("reserved_bytes", "reserved", |t| t.reserved_bytes)
        .predicted("held_bytes", |t| t.foreseen.map(|(held, _)| held))
        .predicted("peak_bytes", |t| t.foreseen.map(|(_, peak)| peak))
}

fn answer(trials: &[Trial]) -> ShortAnswer {
    let [no_grad, graph, deleted, _, listed, larger] = trials else { return ShortAnswer::default() };
    let word = if graph.peak_bytes > graph.training_peak_bytes {
        "Without no_grad two graphs are there at once"
    } else {
        "Here it does not: training takes more"
    };
    ShortAnswer::new(
        word,
        [
            format!(
                "The peak: {} without no_grad, {} under no_grad, {} in training.",
                bytes(graph.peak_bytes),
                bytes(no_grad.peak_bytes),
                bytes(graph.training_peak_bytes)
            ),
            format!(
                "Results in a list, each with its graph: {} after {EVALUATIONS} batches; training's tensors and gradients deleted before: {}.",
                bytes(listed.peak_bytes),
                bytes(deleted.peak_bytes)
            ),
            format!("Four times the batch under no_grad: {}.", bytes(larger.peak_bytes)),
        ],
    )
}

fn judge(trials: &[Trial]) -> Vec<JudgedClaim> {
    let [no_grad, graph, deleted, emptied, listed, _] = trials else { return Vec::new() };
    let exceeds = |t: &Trial| t.peak_bytes > t.training_peak_bytes;
    let without = JudgedClaim {
        lead: "where activations are much of the peak",
        claim: CLAIMS[0],
        verdict: match (exceeds(graph), exceeds(no_grad)) {
            (true, false) => Verdict::Holds,
            _ => Verdict::Depends,
        },
        number: in_bytes([
            ("peak, training", graph.training_peak_bytes),
            ("without no_grad", graph.peak_bytes),
            ("no_grad", no_grad.peak_bytes),
        ]),
        condition: format!(
            "the graph of the last batch stays until the variables hold the next one, so that two are there ({} at the peak where training has {}); \
             in a list they add up ({}); an optimizer whose update takes more than a graph hides it",
            bytes(graph.peak_bytes),
            bytes(graph.training_peak_bytes),
            bytes(listed.peak_bytes)
        ),
    };
    let emptying = JudgedClaim {
        lead: "",
        claim: CLAIMS[1],
        verdict: if emptied.peak_bytes < graph.peak_bytes { Verdict::Holds } else { Verdict::Fails },
        number: in_bytes([("peak, cache emptied", emptied.peak_bytes), ("kept", graph.peak_bytes)]),
        condition: format!(
            "the peak is {} with an emptied cache and {} without: what is cached is free for the next request, and the allocator empties the cache \
             itself before it fails; {} are reserved instead of {}, which is of use to other processes",
            bytes(emptied.peak_bytes),
            bytes(graph.peak_bytes),
            bytes(emptied.reserved_bytes),
            bytes(graph.reserved_bytes)
        ),
    };
    let scope = JudgedClaim {
        lead: "by the gradients, hardly by tensors",
        claim: CLAIMS[2],
        verdict: if deleted.peak_bytes < graph.peak_bytes { Verdict::Depends } else { Verdict::Fails },
        number: in_bytes([("peak, deleted", deleted.peak_bytes), ("in scope", graph.peak_bytes)]),
        condition: format!(
            "{} less with the batch, the results and the loss deleted and the gradients freed: a loss whose backward pass has run keeps no \
             activations, so most of that are the gradients, which optimizer.zero_grad() frees",
            bytes(graph.peak_bytes.saturating_sub(deleted.peak_bytes))
        ),
    };
    vec![without, emptying, scope]
}
