//! `resume`: how much memory does it take to continue from a checkpoint?
//!
//! The program is PyTorch's usual one: the network on the device, its optimizer, `torch.load`, and `load_state_dict` of both. PyTorch 2.11 was
//! measured with `vramlab rehearse` (`resume_takes_what_pytorch_took` in `lab/experiments/tests/it/reported.rs` has the figures). A parameter is copied into
//! the network's own memory. A moment is taken over as it is. So is the step counter, which a string as `map_location` moves to the device too.

use lab_analysis::predict::{MAX_ROUNDED_BYTES, product_workspaces, rounded};
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::memory::Category;
use memcore::{Array, DType, Device};

use super::columns::Columns;
use super::default_allocator::predictable;
use super::perceptron::{CLASSES, FEATURES, Perceptron};
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

/// The experiment.
pub(super) struct Resume;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Training that fits from the start runs out of memory when it is resumed, since the checkpoint stays on the GPU.",
        source: "nanoGPT, issue 158 (2023)",
    },
    Claim {
        text: "checkpoint = None after load_state_dict frees what the checkpoint took.",
        source: "nanoGPT, pull request 236 (2023)",
    },
    Claim {
        text: "With map_location=\"cpu\" the whole GPU memory is available for the model.",
        source: "nanoGPT, issue 158 (2023)",
    },
];

/// Steps after the start. The last is measured.
const STEPS: usize = 3;
/// Start of the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Afresh,
    /// The checkpoint is loaded onto the device, and a variable of the script holds it.
    Held,
    /// As `Held`, with the variable cleared before the first step.
    Freed,
    /// The checkpoint is loaded into host memory.
    OnHost,
}

impl Start {
    const ALL: [Self; 4] = [Self::Afresh, Self::Held, Self::Freed, Self::OnHost];

    fn name(self) -> &'static str {
        match self {
            Self::Afresh => "from the start",
            Self::Held => "map_location=\"cuda\"",
            Self::Freed => "the same, checkpoint = None",
            Self::OnHost => "map_location=\"cpu\"",
        }
    }

    fn loads_onto_device(self) -> bool {
        matches!(self, Self::Held | Self::Freed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    network: Perceptron,
    batch: usize,
}

impl Sizes {
    /// True if every block is as large as the request.
    fn is_small(self) -> bool {
        self.network.bytes().iter().all(|bytes| *bytes <= MAX_ROUNDED_BYTES)
    }

    /// True if the peak is in the update: few examples pass through many parameters.
    fn peak_is_in_the_update(self) -> bool {
        let activations = 2 * (self.network.layers + 1) * 4 * self.batch * self.network.width.max(FEATURES);
        (activations as u64) < self.network.bytes().iter().sum()
    }
}

/// Figures of a training with one start.
struct Trial {
    start: Start,
    /// Bytes allocated when everything is loaded.
    restored_bytes: u64,
    /// Bytes allocated after the last step.
    held_bytes: u64,
    peak_bytes: u64,
    reserved_bytes: u64,
    /// Predictions from the sizes: bytes when everything is loaded, and at the peak if that is known to be in the
    /// update.
    foreseen: Option<(u64, Option<u64>)>,
}

impl Experiment for Resume {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "resume",
                question: "Does resuming from a checkpoint take more memory than starting?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("width", "neurons of each hidden layer; 512"),
                    Size::one("layers", "hidden layers; 4"),
                    Size::one("batch", "examples per step; 32"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes { network: Perceptron::asked(setup)?, batch: setup.within("batch", 32, 1..=1 << 20)? };
        let mut progress = Progress::new(setup, Start::ALL.len());
        let predictable = predictable(setup)? && sizes.is_small();
        let columns = columns();
        let mut trials = Vec::new();
        for start in Start::ALL {
            progress.next(start.name())?;
            let trial = attempt(setup, start, sizes, predictable)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        outcome.tables.push(columns.table("What training takes by how it begins", &trials));
        outcome.notes.push(
            "A checkpoint of the fused optimizer keeps its step counters on the device in any case. transformers' Trainer, Lightning and others \
             load in their own ways, which are not tested here."
                .into(),
        );
        outcome.claims = judge(&trials);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

/// A checkpoint on the device.
struct Checkpoint {
    weights: Vec<Array>,
    /// Step counter of each parameter. The optimizer owns them once it has loaded them.
    counters: Vec<Array>,
}

fn attempt(setup: &Setup<'_>, start: Start, sizes: Sizes, predictable: bool) -> Result<Trial> {
    let device = (setup.open)()?;
    let Sizes { network, batch } = sizes;
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_f32(&device, &*network.network()?, &adam, setup.seed)?;
    device.phase("load");
    let mut checkpoint = if start == Start::Afresh { None } else { Some(load(&device, &mut session, start)?) };
    let restored_bytes = device.usage().allocated_bytes();
    if start == Start::Freed
        && let Some(checkpoint) = &mut checkpoint
    {
        checkpoint.weights.clear();
    }
    let mut peak_bytes = 0;
    for step in 0..STEPS {
        peak_bytes = session.whole_step(&format!("s{step}"), batch)?.peak.allocated_bytes;
    }
    let foreseen = (predictable && undisturbed(&device)).then(|| foreseen(start, sizes, &device));
    Ok(Trial {
        start,
        restored_bytes,
        held_bytes: device.usage().allocated_bytes(),
        peak_bytes,
        reserved_bytes: device.stats().reserved_bytes.all.current,
        foreseen,
    })
}

/// Runs `torch.load`, and `load_state_dict` of the network, which copies, and of the optimizer, which takes over tensors that already lie on
/// the device.
fn load(device: &Device, session: &mut Session, start: Start) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint { weights: Vec::new(), counters: Vec::new() };
    let onto_device = start.loads_onto_device();
    let parameters = session.network.model.parameters.clone();
    for parameter in parameters.iter().filter(|_| onto_device) {
        let array = parameter.array();
        let copy = Array::empty_as(device, array.dims(), array.dtype(), Category::Temporary)?;
        copy.fill_(0.0)?;
        checkpoint.weights.push(copy);
    }
    for index in 0..parameters.len() {
        if onto_device {
            let counter = Array::empty_as(device, &[], DType::F32, Category::OptimizerState)?;
            counter.fill_(2.0)?;
            checkpoint.counters.push(counter);
        }
        if let Some(optimizer) = &mut session.update.optimizer {
            optimizer.make_state(index, 2)?;
        }
    }
    Ok(checkpoint)
}

/// Predicts the bytes held once everything is loaded, and at the peak of a step. The peak is the update, with gradients, a root for each
/// parameter, the batch, logits and loss, and the libraries' workspaces.
fn foreseen(start: Start, sizes: Sizes, device: &Device) -> (u64, Option<u64>) {
    let parameters = sizes.network.bytes();
    let model: u64 = parameters.iter().map(|bytes| rounded(*bytes)).sum();
    let counters = if start.loads_onto_device() { parameters.len() as u64 * rounded(4) } else { 0 };
    let weights = |here: bool| if here { model } else { 0 };
    let batch = sizes.batch as u64;
    let variables =
        rounded(4 * batch * FEATURES as u64) + rounded(8 * batch) + rounded(4 * batch * CLASSES as u64) + rounded(4);
    let profile = device.profile();
    let workspaces = product_workspaces(profile);
    let states = if start == Start::Afresh { 0 } else { 2 * model };
    let peak = 5 * model + weights(start == Start::Held) + counters + variables + workspaces;
    let restored = model + states + weights(start.loads_onto_device()) + counters;
    (restored, sizes.peak_is_in_the_update().then_some(peak))
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("start", "training begins", |t: &Trial| t.start.name())
        .bytes("restored_bytes", "loaded", |t| t.restored_bytes)
        .bytes("held_bytes", "after a step", |t| t.held_bytes)
        .bytes("peak_bytes", "peak of a step", |t| t.peak_bytes)
        .bytes("reserved_bytes", "reserved", |t| t.reserved_bytes)
        .predicted("restored_bytes", |t| t.foreseen.map(|(restored, _)| restored))
        .predicted("peak_bytes", |t| t.foreseen.and_then(|(_, peak)| peak))
}

/// Bytes of the peak beyond that of a fresh start.
fn more(trial: &Trial, afresh: &Trial) -> u64 {
    trial.peak_bytes.saturating_sub(afresh.peak_bytes)
}

fn answer(trials: &[Trial]) -> ShortAnswer {
    let [afresh, held, freed, on_host] = trials else { return ShortAnswer::default() };
    ShortAnswer::new(
        "Only while the checkpoint is held on the GPU",
        [
            format!(
                "Held: the peak of a step is {} instead of {}, one more copy of the weights; the optimizer's states are not there twice.",
                bytes(held.peak_bytes),
                bytes(afresh.peak_bytes)
            ),
            format!(
                "checkpoint = None: {} more than from the start; map_location=\"cpu\": {} more.",
                bytes(more(freed, afresh)),
                bytes(more(on_host, afresh))
            ),
        ],
    )
}

fn judge(trials: &[Trial]) -> Vec<JudgedClaim> {
    let [afresh, held, freed, on_host] = trials else { return Vec::new() };
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Fails };
    let exact = on_host.peak_bytes == afresh.peak_bytes && on_host.reserved_bytes <= afresh.reserved_bytes;
    let of = |claim: usize, holds: bool, number: String, condition: String| JudgedClaim {
        lead: "",
        claim: CLAIMS[claim],
        verdict: verdict(holds),
        number,
        condition,
    };
    vec![
        of(
            0,
            more(held, afresh) > 0,
            in_bytes([("peak, held", held.peak_bytes), ("from the start", afresh.peak_bytes)]),
            format!(
                "a held checkpoint adds {} to the peak of each step: load_state_dict copies the weights and takes over the optimizer's states, so \
                 that only the weights are there twice; when all is loaded, {} are allocated where a start has {}",
                bytes(more(held, afresh)),
                bytes(held.restored_bytes),
                bytes(afresh.restored_bytes)
            ),
        ),
        of(
            1,
            more(freed, afresh) < more(held, afresh),
            in_bytes([("peak, None", freed.peak_bytes), ("from the start", afresh.peak_bytes)]),
            format!(
                "{} more than from the start are left of {}: the step counters, which are on the device now, a block for each parameter; every \
                 variable that holds a part of the checkpoint has to go (state_dict too), and what was reserved while it was loaded stays reserved \
                 ({} and {})",
                bytes(more(freed, afresh)),
                bytes(more(held, afresh)),
                bytes(freed.reserved_bytes),
                bytes(afresh.reserved_bytes)
            ),
        ),
        of(
            2,
            exact,
            in_bytes([("peak, cpu", on_host.peak_bytes), ("from the start", afresh.peak_bytes)]),
            format!(
                "{} more at the peak than from the start, and {} reserved instead of {}",
                bytes(more(on_host, afresh)),
                bytes(on_host.reserved_bytes),
                bytes(afresh.reserved_bytes)
            ),
        ),
    ]
}
