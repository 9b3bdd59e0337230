//! What is kept of a forward pass for its backward: the scores of a loss, results of operators, and all that is saved.

use lab_models::Recompute;
use lab_training::{CheckpointSave, Precision, SavedOn, Schedule};

use super::super::choices::{CHUNKS, LossChoice};
use super::super::network::Network;
use super::super::session::Session;
use super::super::spec::RunSpec;
use super::change::{Axis, Change, size};

/// The loss of a decoder by Liger's kernel, and in parts of its tokens, where nothing else is said of it.
pub(super) fn losses(spec: &RunSpec, session: &Session) -> Vec<Change> {
    let Network::Pretrained(model, _) = &session.network else { return Vec::new() };
    let others = spec.model.loss.is_some()
        || spec.model.logits_to_keep.is_some()
        || spec.model.by_trainer()
        || spec.shape.eval_every.is_some()
        || spec.training.data.as_deref().is_some_and(|data| data != "synthetic")
        || spec.parallel.split.devices.is_some();
    if others || !model.predicts_next() {
        return Vec::new();
    }
    let to = |size: u32, words: &str, line: &str, loss: LossChoice| {
        Change::new((Axis::Loss, size), words, line, move |spec| {
            (spec.model.loss, spec.model.keep) = (Some(loss), None);
        })
    };
    let mut changes = Vec::new();
    // No device here has its kernels, and it is recorded in these types.
    if spec.device.backend.is_none() && matches!(session.run.precision, Precision::Fp32 | Precision::Bf16) {
        let line = "LigerForCausalLMLoss(hidden_states=hidden, lm_head_weight=model.lm_head.weight, labels=labels, …)";
        changes.push(to(size::PACKAGE, "Liger's fused loss", line, LossChoice::Liger));
    }
    let line = "checkpoint(head_and_loss, h, y, use_reentrant=False) for h, y in zip(hidden.chunk(8), labels.chunk(8))";
    changes.push(to(size::LINE + 1, "loss in 8 chunks", line, LossChoice::Chunked(CHUNKS)));
    changes
}

/// Checkpointing of a decoder's blocks that keeps the results of products and attention, where nothing else is said of it.
pub(super) fn selective_checkpointing(spec: &RunSpec, session: &Session) -> Option<Change> {
    const KEPT: &str = "mm,addmm,attention";
    let Network::Pretrained(model, _) = &session.network else { return None };
    let others = spec.model.checkpoint.is_some() || spec.parallel != RunSpec::default().parallel;
    let kept: CheckpointSave = KEPT.parse().ok().filter(|_| !others && model.predicts_next())?;
    let contexts = "\"context_fn\": partial(create_selective_checkpoint_contexts, [aten.mm.default, …])";
    let line = match spec.model.by_trainer() {
        true => format!("gradient_checkpointing_kwargs={{\"use_reentrant\": False, {contexts}}}"),
        false => format!("model.gradient_checkpointing_enable({{\"use_reentrant\": False, {contexts}}})"),
    };
    let words = "checkpointing that keeps products and attention";
    Some(Change::new((Axis::Checkpoint, size::LINE + 1), words, line, move |spec| {
        (spec.model.checkpoint, spec.model.checkpoint_save) = (Some(Recompute::Blocks), Some(kept.clone()));
    }))
}

/// What forward saves for backward on the host, where nothing was recorded that cannot be combined with it.
pub(super) fn saved_on_host(spec: &RunSpec, session: &Session) -> Option<Change> {
    let checkpointed = spec.model.checkpoint.is_some() && matches!(session.network, Network::Exported(..));
    let others = spec.shape.save_on_cpu.is_some()
        || spec.model.by_trainer()
        || spec.model.adversary.is_some()
        || spec.training.schedule.is_some()
        || session.run.schedule != Schedule::default()
        || spec.parallel != RunSpec::default().parallel;
    if others || checkpointed {
        return None;
    }
    let line = "with torch.autograd.graph.save_on_cpu(pin_memory=True):";
    Some(Change::new((Axis::SavedOn, size::HOST), "saved tensors on the host", line, |spec| {
        spec.shape.save_on_cpu = Some(SavedOn::Pinned);
    }))
}
