//! `contexts`: what do the processes of other ranks take on the first device?
//!
//! The rules were measured with PyTorch 2.11 under `vramlab rehearse`, with three ranks: which calls make a CUDA context on device 0, in a
//! process that works on another device and has not called `torch.cuda.set_device`. Before and after each call, the driver was asked for the
//! state of each device's primary context (`cuDevicePrimaryCtxGetState`), and PyTorch's allocator for the bytes that it has reserved there.
//! Only a card can tell the size of a context; the range here is what people report. The experiment allocates by the same rules.

use std::sync::Arc;

use lab_analysis::predict::{MAX_ROUNDED_BYTES, rounded};
use lab_base::cards::CONTEXT;
use lab_base::error::Result;
use lab_base::figures::both as bytes;
use memcore::backend::Meta;
use memcore::memory::Category;
use memcore::{Array, DType, Device};

use super::columns::Columns;
use super::perceptron::Perceptron;
use super::progress::Progress;
use super::tables::some_bytes;
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts};

/// The experiment.
pub(super) struct Contexts;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Processes that do not set their GPU each make a context on the first one.",
        source: "pytorch, issue 49481 (2020)",
    },
    Claim {
        text: "torch.load without map_location puts every rank's checkpoint on GPU 0.",
        source: "pytorch/examples, issue 969 (2022)",
    },
];

/// Tensors that a process allocates on device 0 by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Nothing,
    /// One small tensor.
    Tensor,
    /// A checkpoint of a network with Adam, saved from device 0.
    Checkpoint,
}

/// A call in the process of another rank.
struct Call {
    code: &'static str,
    /// True if the call makes a context on device 0.
    context: bool,
    leaves: Leaves,
}

const fn call(code: &'static str, context: bool, leaves: Leaves) -> Call {
    Call { code, context, leaves }
}

const CALLS: &[Call] = &[
    call("torch.ones(8, device=f\"cuda:{rank}\")", false, Leaves::Nothing),
    call("torch.cuda.device_count()", false, Leaves::Nothing),
    call("torch.cuda.manual_seed_all(0)", false, Leaves::Nothing),
    call("torch.cuda.empty_cache()", false, Leaves::Nothing),
    call("torch.cuda.memory_allocated()", false, Leaves::Nothing),
    call("torch.ones(8).pin_memory()", false, Leaves::Nothing),
    call("dist.all_reduce(tensor)", false, Leaves::Nothing),
    call("dist.barrier(), device_id given", false, Leaves::Nothing),
    call("dist.barrier()", true, Leaves::Tensor),
    call("torch.ones(8).cuda()", true, Leaves::Tensor),
    call("torch.cuda.synchronize()", true, Leaves::Nothing),
    call("torch.cuda.mem_get_info()", true, Leaves::Nothing),
    call("torch.cuda.Event().record()", true, Leaves::Nothing),
    call("torch.load(file)", true, Leaves::Checkpoint),
];

#[derive(Clone, Copy, Debug)]
struct Sizes {
    ranks: usize,
    network: Perceptron,
}

impl Sizes {
    /// Bytes of each tensor in a checkpoint that lies on a device: first the weights, then two moments for each
    /// weight.
    fn checkpoint(self) -> Vec<u64> {
        let weights = self.network.bytes();
        let states = weights.iter().flat_map(|weight| [*weight, *weight]);
        weights.iter().copied().chain(states).collect()
    }
}

/// Memory of the other ranks' processes on device 0 after a call.
struct Trial {
    call: &'static Call,
    contexts: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    predicted_bytes: Option<u64>,
}

impl Experiment for Contexts {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "contexts",
                question: "What do the processes of other ranks take on GPU 0?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("ranks", "processes, one for each GPU; 8"),
                    Size::one("width", "neurons of each hidden layer of the network in the checkpoint; 512"),
                    Size::one("layers", "its hidden layers; 4"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes { ranks: setup.within("ranks", 8, 2..=64)?, network: Perceptron::asked(setup)? };
        let mut progress = Progress::new(setup, CALLS.len());
        let columns = columns();
        let mut trials = Vec::new();
        for call in CALLS {
            progress.next(call.code)?;
            let trial = attempt(setup, call, sizes)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        outcome.tables.push(columns.table("What they take on GPU 0", &trials));
        outcome.notes.push(format!(
            "After torch.cuda.set_device(rank) none of these makes a context elsewhere, and with CUDA_VISIBLE_DEVICES none can. Which calls make one \
             is PyTorch 2.11's; a context takes {} to {} by what people report, more where a process loads more kernels.",
            bytes(CONTEXT.least_bytes()),
            bytes(CONTEXT.most_bytes())
        ));
        outcome.claims = judge(&trials, sizes);
        outcome.answer = answer(&trials, sizes);
        Ok(())
    }
}

/// Makes the call in the process of every other rank. Each process has an allocator of its own, so that a cached
/// block serves no other process.
fn attempt(setup: &Setup<'_>, call: &'static Call, sizes: Sizes) -> Result<Trial> {
    let profile = (setup.open)()?.profile().clone();
    let others = sizes.ranks as u64 - 1;
    let device = Device::builder(Arc::new(Meta::default())).profile(profile).build();
    let tensors = match call.leaves {
        Leaves::Nothing => Vec::new(),
        Leaves::Tensor => vec![32],
        Leaves::Checkpoint => sizes.checkpoint(),
    };
    let mut held = Vec::new();
    for bytes in &tensors {
        held.push(Array::empty_as(&device, &[*bytes as usize], DType::U8, Category::Temporary)?);
    }
    let stats = device.stats();
    drop(held);
    let small = tensors.iter().all(|bytes| *bytes <= MAX_ROUNDED_BYTES);
    Ok(Trial {
        call,
        contexts: if call.context { others } else { 0 },
        allocated_bytes: others * stats.allocated_bytes.all.current,
        reserved_bytes: others * stats.reserved_bytes.all.current,
        predicted_bytes: (small && !tensors.is_empty())
            .then(|| others * tensors.iter().map(|bytes| rounded(*bytes)).sum::<u64>()),
    })
}

impl Trial {
    /// Least and most bytes that the other ranks take on device 0: contexts and segments.
    fn range(&self) -> (u64, u64) {
        let with = |context: u64| self.contexts * context + self.reserved_bytes;
        (with(CONTEXT.least_bytes()), with(CONTEXT.most_bytes()))
    }
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("call", "in the processes of the other ranks", |t: &Trial| t.call.code)
        .count("contexts_of_others", "contexts", |t| t.contexts)
        .measured("allocated_bytes", |t| t.allocated_bytes)
        .predicted("allocated_bytes", |t| t.predicted_bytes)
        .few("reserved_bytes", "reserved", |t| t.reserved_bytes)
        .cell("at least", |t| some_bytes(t.range().0))
        .cell("at most", |t| some_bytes(t.range().1))
}

/// Returns the number of calls that make a context, and of all calls.
fn makers(trials: &[Trial]) -> (u64, u64) {
    (trials.iter().filter(|trial| trial.contexts > 0).count() as u64, trials.len() as u64)
}

fn checkpoint(trials: &[Trial]) -> Option<&Trial> {
    trials.iter().find(|trial| trial.call.leaves == Leaves::Checkpoint)
}

fn answer(trials: &[Trial], sizes: Sizes) -> ShortAnswer {
    let Some(load) = checkpoint(trials) else { return ShortAnswer::default() };
    let (making, all) = makers(trials);
    let others = sizes.ranks as u64 - 1;
    ShortAnswer::new(
        "A context each, after certain calls without set_device",
        [
            format!(
                "{making} of {all} calls make one; {others} contexts take {} to {} on GPU 0.",
                bytes(others * CONTEXT.least_bytes()),
                bytes(others * CONTEXT.most_bytes())
            ),
            format!(
                "torch.load without map_location reserves {} there besides, for {others} ranks; torch.cuda.set_device(rank) first: nothing.",
                bytes(load.reserved_bytes)
            ),
        ],
    )
}

fn judge(trials: &[Trial], sizes: Sizes) -> Vec<JudgedClaim> {
    let Some(load) = checkpoint(trials) else { return Vec::new() };
    let (making, all) = makers(trials);
    let listed = |made: bool| {
        let those = trials.iter().filter(|trial| (trial.contexts > 0) == made);
        those.map(|trial| trial.call.code).collect::<Vec<_>>().join(", ")
    };
    let others = sizes.ranks as u64 - 1;
    vec![
        JudgedClaim {
            lead: "after some calls, not others",
            claim: CLAIMS[0],
            verdict: match making {
                0 => Verdict::Fails,
                _ if making == all => Verdict::Holds,
                _ => Verdict::Depends,
            },
            number: in_counts([("calls that make one", Some(making)), ("of", Some(all))]),
            condition: format!(
                "with PyTorch 2.11 {} do, {} do not; {others} contexts take {} to {} on GPU 0",
                listed(true),
                listed(false),
                bytes(others * CONTEXT.least_bytes()),
                bytes(others * CONTEXT.most_bytes())
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if load.reserved_bytes > 0 { Verdict::Holds } else { Verdict::Fails },
            number: in_bytes([("reserved on GPU 0 by others", load.reserved_bytes)]),
            condition: format!(
                "where it was saved from GPU 0: {} ranks reserve {} there, {} each, and make a context; deleting it and torch.cuda.empty_cache() give \
                 the memory back, but not the context",
                others,
                bytes(load.reserved_bytes),
                bytes(load.reserved_bytes / others.max(1))
            ),
        },
    ]
}
