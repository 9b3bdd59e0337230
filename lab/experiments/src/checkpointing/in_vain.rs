//! `checkpointing-in-vain`: checkpointing is on and saves nothing. Why?
//!
//! PyTorch 2.11 took the same bytes for the linear layers in each of the three ways (measured with `vramlab rehearse`; the figures are in
//! `lab/experiments/tests/it/reported.rs`). Its reentrant kind runs a block under `no_grad` if no input requires a gradient, and leaves no node. The experiment does
//! the same.

use lab_analysis::predict::{MAX_ROUNDED_BYTES, rounded};
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_models::Recompute;
use lab_training::{OptimizerKind, OptimizerSettings, TrainStep};
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::nn::{Checkpoint, Init, Linear, Module, Parameter, Sequential};
use memcore::optim::{Optimizer, Sgd, SgdOptions};
use memcore::{Array, DType, Device, NoGrad, Tensor, ops};

use super::super::columns::Columns;
use super::super::default_allocator::predictable;
use super::super::progress::Progress;
use super::super::session::{Session, undisturbed};
use super::super::tables::text;
use super::super::{
    About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts,
};
use super::networks::{Kind, Network};

/// The experiment.
pub(in super::super) struct InVain;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "gradient_checkpointing has no effect: 6.4 GB with it and without.",
        source: "DeepSpeedExamples, issue 332 (2023)",
    },
    Claim {
        text: "checkpoint around each linear layer does not reduce the peak.",
        source: "pytorch, issue 78731 (2022)",
    },
    Claim {
        text: "Checkpointing after frozen embeddings disables all gradients.",
        source: "transformers, issue 21381 (2023)",
    },
];

const STEPS: usize = 2;
/// Tokens of an example: few activations, and many activations.
const TOKENS: [usize; 2] = [4, 64];
/// Linear layers, the last of which is not checkpointed, and examples: as many as in the thread.
const LAYERS: usize = 8;
const EXAMPLES: usize = 137;
/// The parts that are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    EachBlock,
    /// The whole network as one block.
    Whole,
    /// Each block, by the reentrant kind, and no input requires a gradient.
    Reentrant,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::EachBlock => "each block",
            Self::Whole => "all as one block",
            Self::Reentrant => "reentrant, inputs without gradient",
        }
    }
}

/// Figures of one program in one way.
struct Trial {
    program: String,
    way: Way,
    /// Bytes that the graph keeps when the loss exists.
    kept_bytes: u64,
    peak_bytes: u64,
    /// Number of parameters with a gradient, and of all parameters.
    gradients: (u64, u64),
    foreseen_kept_bytes: Option<u64>,
    foreseen_gradients: Option<u64>,
}

impl Experiment for InVain {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "checkpointing-in-vain",
                question: "Checkpointing is on and saves nothing: why?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("blocks", "blocks of the decoder; 4"),
                    Size::one("batch", "examples per step of the decoder; 8"),
                    Size::one("width", "neurons of each of eight linear layers; 256"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (blocks, batch, width) = (
            setup.within("blocks", 4, 2..=1024)?,
            setup.within("batch", 8, 1..=1 << 20)?,
            setup.within("width", 256, 1..=1 << 16)?,
        );
        let mut progress = Progress::new(setup, 3 * TOKENS.len() + 3);
        let predictable = predictable(setup)?;
        let columns = columns();
        let mut trials = Vec::new();
        for tokens in TOKENS {
            for way in [Way::Plain, Way::EachBlock, Way::Whole] {
                progress.next(&format!("{tokens} tokens, {}", way.name()))?;
                let trial = decoder(setup, predictable, way, (tokens, blocks, batch))?;
                outcome.rows.push(columns.measurement(&trial));
                trials.push(trial);
            }
        }
        for way in [Way::Plain, Way::EachBlock, Way::Reentrant] {
            progress.next(&format!("linear layers, {}", way.name()))?;
            let trial = linears(setup, predictable, way, width)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        outcome.tables.push(columns.table("What checkpointing leaves", &trials));
        outcome.notes.push(
            "transformers 5.23 checkpoints in training mode alone: after model.eval() its peak is that without checkpointing, to the byte, and nothing \
             is said. With use_cache=True it says so, turns the cache off, and saves what it does without. It lets inputs require a gradient \
             itself where it uses the reentrant kind. Measured with vramlab rehearse; vramlab supports none of the three."
                .into(),
        );
        outcome.claims = judge(&trials);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

fn decoder(
    setup: &Setup<'_>,
    predictable: bool,
    way: Way,
    (tokens, blocks, batch): (usize, usize, usize),
) -> Result<Trial> {
    let device = (setup.open)()?;
    let network = Network {
        name: "decoder",
        kind: Kind::Decoder { sequence: tokens, vocabulary: 512, heads: 4 },
        blocks,
        width: 128,
        batch,
        optimizer: OptimizerKind::Adam,
    };
    let recompute = if way == Way::EachBlock { Recompute::Blocks } else { Recompute::None };
    let adam = OptimizerSettings::new(network.optimizer, 1e-3);
    let mut session = Session::in_f32(&device, &*network.architecture(&recompute)?, &adam, setup.seed)?;
    if way == Way::Whole {
        let module = std::mem::replace(&mut session.network.model.module, Box::new(Sequential::new()));
        session.network.model.module = Box::new(Checkpoint::new(Sequential::from_modules(vec![module])));
    }
    let mut kept_bytes = 0;
    for _ in 0..STEPS {
        device.reset_peak_stats();
        session.load_batch(batch, 0)?;
        session.zero_grad()?;
        session.forward()?;
        session.loss()?;
        kept_bytes = session.moment("loss").by_category[Category::Activation as usize];
        session.backward()?;
        session.step()?;
        device.synchronize()?;
    }
    let foreseen = predictable && undisturbed(&device) && way != Way::Whole;
    Ok(Trial {
        program: format!("decoder, {tokens} tokens, Adam"),
        way,
        kept_bytes,
        peak_bytes: device.usage().at_peak().allocated_bytes,
        gradients: gradients(&session.network.model.parameters),
        foreseen_kept_bytes: if foreseen { network.foreseen_kept_bytes(&recompute) } else { None },
        foreseen_gradients: None,
    })
}

/// A linear layer whose products leave no node in the graph.
struct WithoutGraph(Linear);

impl Module for WithoutGraph {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let _no_grad = NoGrad::new();
        self.0.forward(x)
    }
}

/// Trains linear layers with nothing between them, with SGD and the squared error. All layers except the last are
/// blocks.
fn linears(setup: &Setup<'_>, predictable: bool, way: Way, width: usize) -> Result<Trial> {
    let device = (setup.open)()?;
    let init = Init::new(&device, DType::F32, setup.seed);
    let mut network = Sequential::new();
    for layer in 0..LAYERS {
        let linear = Linear::new(&init.at(format!("l{layer}")), width, width, true)?;
        match way {
            _ if layer + 1 == LAYERS => network.push(linear),
            Way::EachBlock => network.push(Checkpoint::new(linear)),
            Way::Reentrant => network.push(WithoutGraph(linear)),
            _ => network.push(linear),
        }
    }
    let parameters = init.parameters();
    drop(init);
    let mut optimizer = Sgd::new(parameters.clone(), SgdOptions { lr: 0.01, ..SgdOptions::default() })?;
    let mut kept_bytes = 0;
    // Like Python's variables: each keeps its value until the next step binds it anew.
    let (mut x, mut y, mut out, mut loss) = (None, None, None, None);
    for _ in 0..STEPS {
        device.reset_peak_stats();
        let x = x.insert(random(&device, &[EXAMPLES, width])?);
        let y = y.insert(random(&device, &[EXAMPLES, width])?);
        optimizer.zero_grad(true)?;
        let out = out.insert(network.forward(x)?);
        let loss = loss.insert(ops::mse_loss(out, y, Reduction::Mean)?);
        kept_bytes = device.usage().by_category()[Category::Activation as usize];
        loss.backward(false)?;
        optimizer.step()?;
        device.synchronize()?;
    }
    let hidden = rounded(4 * (EXAMPLES * width) as u64);
    let small = hidden <= MAX_ROUNDED_BYTES && 4 * (width * width) as u64 <= MAX_ROUNDED_BYTES;
    // Kept: the inputs of all layers except the first, and the result. Without a graph: only the input of the last layer,
    // and the result.
    let kept = if way == Way::Reentrant { 2 } else { LAYERS as u64 };
    let each = 2;
    Ok(Trial {
        program: "linear layers, SGD".into(),
        way,
        kept_bytes,
        peak_bytes: device.usage().at_peak().allocated_bytes,
        gradients: gradients(&parameters),
        foreseen_kept_bytes: (predictable && small && undisturbed(&device)).then_some(kept * hidden),
        foreseen_gradients: Some(if way == Way::Reentrant { each } else { each * LAYERS as u64 }),
    })
}

fn random(device: &Device, dims: &[usize]) -> Result<Tensor> {
    let array = Array::empty_as(device, dims, DType::F32, Category::Input)?;
    array.uniform_(-1.0, 1.0)?;
    Ok(Tensor::from_array(array))
}

/// Returns the number of parameters that have a gradient, and of all parameters.
fn gradients(parameters: &[Parameter]) -> (u64, u64) {
    (parameters.iter().filter(|p| p.grad().is_some()).count() as u64, parameters.len() as u64)
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("program", "program", |t: &Trial| t.program.clone())
        .words("checkpoint", "checkpoint", |t| t.way.name())
        .bytes("activation_bytes", "kept by the graph", |t| t.kept_bytes)
        .predicted("activation_bytes", |t| t.foreseen_kept_bytes)
        .bytes("peak_bytes", "peak of the step", |t| t.peak_bytes)
        .measured("parameters_with_gradient", |t| t.gradients.0)
        .predicted("parameters_with_gradient", |t| t.foreseen_gradients)
        .cell("gradients", |t| text(format!("{} of {}", t.gradients.0, t.gradients.1)))
}

/// Percentage of the peak that the way saves, compared with `plain`.
fn saved(trial: &Trial, plain: &Trial) -> f64 {
    100.0 * (1.0 - trial.peak_bytes as f64 / plain.peak_bytes.max(1) as f64)
}

fn answer(trials: &[Trial]) -> ShortAnswer {
    let [few, few_blocks, _, many, many_blocks, many_whole, linear, linear_blocks, reentrant] = trials else {
        return ShortAnswer::default();
    };
    let peaks = |plain: &Trial, again: &Trial| format!("{} → {}", bytes(plain.peak_bytes), bytes(again.peak_bytes));
    ShortAnswer::new(
        "The peak is elsewhere, or the blocks are the wrong ones",
        [
            format!(
                "Few tokens, where the peak is in the update: {}; more tokens: {}.",
                peaks(few, few_blocks),
                peaks(many, many_blocks)
            ),
            format!("The whole network as one block, which is computed again at once: {}.", peaks(many, many_whole)),
            format!("A block around each linear layer, which keeps its input alone: {}.", peaks(linear, linear_blocks)),
            format!(
                "Reentrant, and no input requires a gradient: {}, but {} of {} parameters get a gradient.",
                peaks(linear, reentrant),
                reentrant.gradients.0,
                reentrant.gradients.1
            ),
        ],
    )
}

fn judge(trials: &[Trial]) -> Vec<JudgedClaim> {
    let [few, few_blocks, _, many, many_blocks, many_whole, linear, linear_blocks, reentrant] = trials else {
        return Vec::new();
    };
    let (little, much) = (saved(few_blocks, few), saved(many_blocks, many));
    let least = 1.0;
    vec![
        JudgedClaim {
            lead: "where activations are little of the peak",
            claim: CLAIMS[0],
            verdict: match (little < least, much < least) {
                (true, true) => Verdict::Holds,
                (false, false) => Verdict::Fails,
                _ => Verdict::Depends,
            },
            number: in_bytes([
                ("peak, few tokens", few.peak_bytes),
                ("by blocks", few_blocks.peak_bytes),
                ("more tokens", many.peak_bytes),
                ("by blocks", many_blocks.peak_bytes),
            ]),
            condition: format!(
                "{} tokens an example change the peak by {:+.1} %, since it is in the optimizer's update; {} tokens by {:+.1} %. The whole network as \
                 one block changes it by {:+.1} %: it is computed again at once, and all of its activations are there",
                TOKENS[0],
                -little,
                TOKENS[1],
                -much,
                -saved(many_whole, many)
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if linear_blocks.peak_bytes >= linear.peak_bytes { Verdict::Holds } else { Verdict::Fails },
            number: in_bytes([("peak, none", linear.peak_bytes), ("each layer", linear_blocks.peak_bytes)]),
            condition: format!(
                "the graph keeps {} with and {} without: a linear layer saves its input, which is what a checkpoint keeps too; blocks with more inside \
                 are what saves",
                bytes(linear_blocks.kept_bytes),
                bytes(linear.kept_bytes)
            ),
        },
        JudgedClaim {
            lead: "of the reentrant kind, in its blocks",
            claim: CLAIMS[2],
            verdict: match reentrant.gradients {
                (0, _) => Verdict::Holds,
                (some, all) if some < all => Verdict::Depends,
                _ => Verdict::Fails,
            },
            number: in_counts([
                ("parameters with a gradient, reentrant", Some(reentrant.gradients.0)),
                ("not", Some(linear_blocks.gradients.0)),
            ]),
            condition: format!(
                "where no input requires a gradient, the reentrant kind leaves no node for its block: {} of {} parameters get a gradient, those after \
                 the blocks, and the peak is {} instead of {}; use_reentrant=False, or enable_input_require_grads()",
                reentrant.gradients.0,
                reentrant.gradients.1,
                bytes(reentrant.peak_bytes),
                bytes(linear_blocks.peak_bytes)
            ),
        },
    ]
}
