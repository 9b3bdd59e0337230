//! The changes of a run that are tried, proposed and tabulated: the field, its words, and what to write in the script.

mod adapters;
mod change;
mod ends;
mod in_backward;

use lab_base::changes::{CHECKPOINTING, EXPANDABLE, alloc_conf};
use lab_imports::huggingface::Keep;
use lab_models::{Input, Recompute};
use lab_training::{OptimizerKind, Precision, RunSettings};
use memcore::Profile;
use memcore::optim::Implementation;

use super::choices::{AllocatorName, AttentionName, OptimizerForm, ZeroGrad};
use super::network::Network;
use super::session::Session;
use super::spec::RunSpec;
use change::size;
pub(super) use change::{Axis, Change};

/// Kind of the script, which decides the code to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    /// The user's own loop over the user's own network.
    Own,
    /// The same over a network of transformers.
    Transformers,
    /// transformers' `Trainer`.
    Trainer,
}

impl Script {
    fn of_run(spec: &RunSpec, session: &Session) -> Self {
        match &session.network {
            Network::Architecture(_) | Network::Exported(..) => Script::Own,
            Network::Pretrained(..) if spec.model.by_trainer() => Script::Trainer,
            Network::Pretrained(..) => Script::Transformers,
        }
    }
}

/// All changes that are not in force. On an axis with an order the one that saves most stands last.
pub(super) fn proposed(spec: &RunSpec, session: &Session, tensors: u64) -> Vec<Change> {
    let run = &session.run;
    let script = Script::of_run(spec, session);
    let mut changes = shorter(spec, session, script);
    changes.extend(precisions(spec, run, script));
    changes.extend(optimizers(spec, run.optimizer.kind, script));
    changes.extend(adapters::adapters(spec, session));
    changes.extend(forms(run, script));
    changes.extend(lines(spec, session, script));
    changes.extend(allocator(spec));
    changes.extend(in_backward::in_backward(spec, session));
    changes.extend(ranks(spec));
    changes.extend(splits(run, tensors, script));
    changes
}

/// Settings outside of the script.
fn allocator(spec: &RunSpec) -> Option<Change> {
    let settings = spec.allocator.alloc_conf.clone().unwrap_or_default();
    if spec.allocator.allocator == Some(AllocatorName::Direct) || settings.contains("expandable_segments") {
        return None;
    }
    let comma = if settings.is_empty() { "" } else { "," };
    let settings = format!("{settings}{comma}{EXPANDABLE}");
    let script = alloc_conf(&settings);
    Some(Change::new((Axis::Allocator, size::SETTING), "expandable_segments", script, move |spec| {
        spec.allocator.alloc_conf = Some(settings.clone());
    }))
}

/// What ranks divide besides the batch.
fn ranks(spec: &RunSpec) -> Vec<Change> {
    let ranks = &spec.parallel.ranks;
    if ranks.data_parallel.is_none_or(|ranks| ranks < 2) {
        return Vec::new();
    }
    let mut changes = Vec::new();
    if ranks.zero.is_none() && !ranks.gradient_as_bucket_view {
        let line = "DistributedDataParallel(…, gradient_as_bucket_view=True)";
        changes.push(Change::new((Axis::Buckets, size::LINE), "gradients in their buckets", line, |spec| {
            spec.parallel.ranks.gradient_as_bucket_view = true;
        }));
    }
    let stages = [
        "DeepSpeed: \"zero_optimization\": {\"stage\": 1}",
        "DeepSpeed: \"zero_optimization\": {\"stage\": 2}",
        "DeepSpeed: \"zero_optimization\": {\"stage\": 3}; FSDP2 takes more",
    ];
    for (stage, line) in (1_u8..).zip(stages).filter(|(stage, _)| *stage > ranks.zero.unwrap_or(0)) {
        let size = size::SPLIT + u32::from(stage);
        changes.push(Change::new((Axis::Zero, size), format!("ZeRO-{stage}"), line, move |spec| {
            (spec.parallel.ranks.zero, spec.parallel.ranks.gradient_as_bucket_view) = (Some(stage), false);
        }));
    }
    changes
}

/// Single lines of the script.
fn lines(spec: &RunSpec, session: &Session, script: Script) -> Vec<Change> {
    let model = &spec.model;
    let mut changes: Vec<Change> = ends::selective_checkpointing(spec, session).into_iter().collect();
    if model.checkpoint.clone().unwrap_or_default() == Recompute::None {
        let own = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)";
        let line = match (script, &session.network) {
            (Script::Own, Network::Exported(model, _)) => match model.blocks() {
                Some(blocks) => format!("{own} of {blocks}"),
                None => own.into(),
            },
            (Script::Own, _) => own.into(),
            (Script::Transformers, _) => CHECKPOINTING.script.into(),
            (Script::Trainer, _) => "gradient_checkpointing=True".into(),
        };
        changes.push(Change::new((Axis::Checkpoint, size::LINE), CHECKPOINTING.words, line, |spec| {
            (spec.model.checkpoint, spec.model.checkpoint_save) = (Some(Recompute::Blocks), None);
        }));
    }
    // Networks of transformers use fused attention by default; this program's own use eager attention.
    let written_out = model.attention.map_or(script == Script::Own, |kind| kind == AttentionName::Eager);
    if written_out {
        let line = match script {
            Script::Own => "F.scaled_dot_product_attention(q, k, v)",
            Script::Transformers | Script::Trainer => "attn_implementation=\"sdpa\"",
        };
        changes.push(Change::new((Axis::Attention, size::LINE), "fused attention", line, |spec| {
            spec.model.attention = Some(AttentionName::Sdpa);
        }));
    }
    let holds_scores = model.loss.is_none() && model.keep.unwrap_or_default() == Keep::Output;
    if script == Script::Transformers && holds_scores {
        let line = "loss = model(**batch).loss";
        changes.push(Change::new((Axis::Keep, size::LINE), "only the loss kept", line, |spec| {
            spec.model.keep = Some(Keep::Loss);
        }));
    }
    changes.extend(ends::losses(spec, session));
    changes.extend(ends::saved_on_host(spec, session));
    if !session.run.set_to_none {
        let line = "optimizer.zero_grad(set_to_none=True)";
        changes.push(Change::new((Axis::ZeroGrad, size::LINE), "gradients freed", line, |spec| {
            spec.training.zero_grad = Some(ZeroGrad::None);
        }));
    }
    changes
}

/// Some blocks computed again instead of all.
pub(super) fn checkpointed(
    spec: &RunSpec,
    session: &Session,
    numbers: &Recompute,
    (blocks, of): (usize, usize),
) -> Change {
    let words = match numbers {
        Recompute::Sqrt => "checkpointing of segments of √n blocks".into(),
        _ => format!("checkpointing of {blocks} of {of} blocks"),
    };
    let numbers = numbers.clone();
    let line = match Script::of_run(spec, session) {
        Script::Own if numbers == Recompute::Sqrt => {
            "torch.utils.checkpoint.checkpoint(segment, x, use_reentrant=False) of segments of round(n ** 0.5) blocks"
                .into()
        }
        Script::Own => format!("torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) of blocks {numbers}"),
        Script::Transformers | Script::Trainer => {
            format!("layer.gradient_checkpointing = number in ({numbers},) for each GradientCheckpointingLayer")
        }
    };
    Change::new((Axis::Checkpoint, size::LINE), words, line, move |spec| {
        (spec.model.checkpoint, spec.model.checkpoint_save) = (Some(numbers.clone()), None);
    })
}

/// Forms of the optimizer that take less, the least last.
fn forms(run: &RunSettings, script: Script) -> Vec<Change> {
    let name = class_of(run.optimizer.kind);
    let to = |form: OptimizerForm, words: String, script: String| {
        Change::new((Axis::Form, size::LINE), words, script, move |spec| spec.training.optimizer_impl = Some(form))
    };
    let fused = || {
        let line = if script == Script::Trainer {
            "optim=\"adamw_torch_fused\"".into()
        } else {
            format!("{name}(…, fused=True)")
        };
        to(OptimizerForm::Fused, format!("fused {name}"), line)
    };
    let one_by_one = || to(OptimizerForm::Loop, format!("{name}, foreach=False"), format!("{name}(…, foreach=False)"));
    match run.optimizer.implementation {
        Implementation::Foreach if run.optimizer.kind.has_fused() => vec![one_by_one(), fused()],
        Implementation::Foreach => vec![one_by_one()],
        Implementation::Loop if run.optimizer.kind.has_fused() => vec![fused()],
        Implementation::Loop | Implementation::Fused => Vec::new(),
    }
}

/// The name of the optimizer's class.
fn class_of(kind: OptimizerKind) -> &'static str {
    kind.class().rsplit_once('.').map_or(kind.class(), |(_, name)| name)
}

/// Other optimizers: first those that hold less, of them first those with one value for each parameter, then those with none; then those that hold more.
fn optimizers(spec: &RunSpec, kind: OptimizerKind, script: Script) -> Vec<Change> {
    use OptimizerKind::{Adafactor, Adagrad, Adam, AdamW, AdamW8bit, Momentum, PagedAdamW8bit, RmsProp, Sgd};
    let (less, more) = match kind {
        Sgd => (&[][..], &[Momentum, AdamW][..]),
        Adam | AdamW => (&[AdamW8bit, PagedAdamW8bit, Adafactor, Momentum, Sgd][..], &[][..]),
        Momentum | RmsProp | Adagrad => (&[Sgd][..], &[AdamW][..]),
        _ => (&[Sgd][..], &[][..]),
    };
    let to = |axis: Axis, i: usize, other: OptimizerKind| {
        let momentum = if other == Momentum { ", momentum=0.9" } else { "" };
        let line = match script {
            Script::Trainer if other == AdamW => "optim=\"adamw_torch\"".into(),
            Script::Trainer if other == AdamW8bit => "optim=\"adamw_bnb_8bit\"".into(),
            Script::Trainer if other == PagedAdamW8bit => "optim=\"paged_adamw_8bit\"".into(),
            Script::Trainer if other == Adafactor => "optim=\"adafactor\"".into(),
            Script::Trainer => "optim=\"sgd\"".into(),
            Script::Own | Script::Transformers if other == Adafactor => {
                "transformers.Adafactor(model.parameters(), lr=…, scale_parameter=False, relative_step=False)".into()
            }
            Script::Own | Script::Transformers => format!("{}(model.parameters(), lr=…{momentum})", other.class()),
        };
        let words = match (other, kind) {
            (Sgd, Momentum) => "SGD without momentum".into(),
            (Momentum, Sgd) => "SGD with momentum".into(),
            (Momentum, _) => format!("SGD with momentum for {}", class_of(kind)),
            _ => format!("{} for {}", class_of(other), class_of(kind)),
        };
        Change::new((axis, size::OPTIMIZER + i as u32), words, line, move |spec| {
            let training = &mut spec.training;
            training.optimizer = Some(other);
            (training.optimizer_impl, training.capturable) = (None, false);
            (training.amsgrad, training.nesterov) = (false, false);
        })
    };
    // A library's optimizer is known, and no device here computes it.
    let works = |other: &OptimizerKind| spec.device.backend.is_none() || other.is_computed();
    let less = less.iter().filter(|other| works(other));
    let smaller = less.enumerate().map(|(i, other)| to(Axis::Optimizer, i, *other));
    smaller.chain(more.iter().enumerate().map(|(i, other)| to(Axis::LargerOptimizer, i, *other))).collect()
}

/// The lowest compute capability with instructions for bfloat16.
const BF16_SM: u32 = 80;

/// 16-bit products; then 16-bit weights, too, if the card computes them without a loss scaler.
fn precisions(spec: &RunSpec, run: &RunSettings, script: Script) -> Vec<Change> {
    let sm = Profile::named(&spec.like()).and_then(|profile| profile.compute_capability);
    let old = sm.is_some_and(|sm| sm < BF16_SM);
    let to = |size: u32, words: &str, line: &str, precision: Precision| {
        Change::new((Axis::Precision, size), words, line, move |spec| spec.training.precision = Some(precision))
    };
    let mut changes = Vec::new();
    if run.precision == Precision::Fp32 {
        let (name, dtype, flag, precision) = match old {
            true => ("autocast to float16", "float16", "fp16=True", Precision::AutocastFp16),
            false => ("autocast to bfloat16", "bfloat16", "bf16=True", Precision::AutocastBf16),
        };
        let line = if script == Script::Trainer {
            flag.into()
        } else {
            format!("with torch.autocast(\"cuda\", torch.{dtype}):")
        };
        changes.push(to(size::NUMERICS, name, &line, precision));
    }
    if !old && matches!(run.precision, Precision::Fp32 | Precision::AutocastBf16) {
        let line = match script {
            Script::Own => "model.to(torch.bfloat16)",
            Script::Transformers | Script::Trainer => "from_pretrained(…, dtype=torch.bfloat16)",
        };
        changes.push(to(size::NUMERICS + 1, "bf16 weights", line, Precision::Bf16));
    }
    changes
}

/// Largest number of parts.
const MAX_PARTS: usize = 32;

/// Largest number of tensors times parts: each part adds a forward and a backward pass, and an answer should come within a second.
const MAX_TENSORS: u64 = 2000;

/// So many parts are proposed of any network: a batch of a few examples in single ones is what people take first.
const LEAST_PARTS: usize = 8;

/// The same examples per step in parts, twice as many each time.
fn splits(run: &RunSettings, tensors: u64, script: Script) -> Vec<Change> {
    // A list of batches is not divided.
    if !run.turns.batches.is_empty() {
        return Vec::new();
    }
    let (batch, accumulate) = (run.batch, run.accumulate);
    let most = usize::try_from(MAX_TENSORS / tensors.max(1)).unwrap_or(MAX_PARTS).clamp(LEAST_PARTS, MAX_PARTS);
    let mut parts: Vec<usize> = Vec::new();
    for part in (2..=most).filter(|parts| batch.is_multiple_of(*parts)) {
        if parts.last().is_none_or(|last| part >= 2 * last) {
            parts.push(part);
        }
    }
    let to = |(i, parts): (usize, usize)| {
        let times = accumulate.checked_mul(parts)?;
        Some(split((batch / parts, times), size::SPLIT + i as u32, script))
    };
    parts.into_iter().enumerate().filter_map(to).collect()
}

/// Batches of so many examples, so many times for a step.
fn split((batch, times): (usize, usize), size: u32, script: Script) -> Change {
    let line = match script {
        Script::Trainer => format!("per_device_train_batch_size={batch}, gradient_accumulation_steps={times}"),
        Script::Own | Script::Transformers => {
            format!("batch_size={batch}, (loss / {times}).backward(), a step every {times}")
        }
    };
    Change::new((Axis::Split, size), format!("accumulation {times} × {batch}"), line, move |spec| {
        (spec.training.batch, spec.training.accumulate) = (Some(batch), Some(times));
    })
}

/// The division of a step into so many batches of so many examples.
pub(super) fn division(spec: &RunSpec, session: &Session, (batch, times): (usize, usize)) -> Change {
    split((batch, times), size::SPLIT, Script::of_run(spec, session))
}

/// Shorter texts are not proposed.
const MIN_TOKENS: usize = 128;

/// Usual lengths, for runs that name none, in which the network's own maximum is the default.
const USUAL_TOKENS: [usize; 3] = [8192, 2048, 512];

/// Half the tokens, and a quarter; if the length is only the default maximum, usual lengths, too.
fn shorter(spec: &RunSpec, session: &Session, script: Script) -> Vec<Change> {
    let Input::Tokens { length, .. } = session.network.architecture().task().input else { return Vec::new() };
    // A list of lengths is the user's, and a model file has its own sequence length.
    if spec.shape.lengths.is_some() || spec.model.model_file.is_some() && script == Script::Own {
        return Vec::new();
    }
    let usual = USUAL_TOKENS.into_iter().filter(|tokens| spec.model.sequence.is_none() && *tokens < length / 4);
    let lengths = [length / 2, length / 4].into_iter().chain(usual).filter(|tokens| *tokens >= MIN_TOKENS);
    let to = |(i, tokens): (usize, usize)| {
        let line = if script == Script::Own {
            format!("block_size = {tokens}")
        } else {
            format!("tokenizer(…, truncation=True, max_length={tokens})")
        };
        Change::new((Axis::Sequence, size::SEQUENCE + i as u32), format!("{tokens} tokens"), line, move |spec| {
            spec.model.sequence = Some(tokens);
        })
    };
    lengths.enumerate().map(to).collect()
}
