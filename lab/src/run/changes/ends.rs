//! What is kept of a forward pass for its backward: the scores of a loss, and all that is saved.

use lab_training::{SavedOn, Schedule};

use super::super::choices::{CHUNKS, LossChoice};
use super::super::network::Network;
use super::super::session::Session;
use super::super::spec::RunSpec;
use super::change::{Axis, Change, size};

/// The loss of a decoder in parts of its tokens, where nothing else is said of it.
pub(super) fn loss(spec: &RunSpec, session: &Session) -> Option<Change> {
    let Network::Pretrained(model, _) = &session.network else { return None };
    let others = spec.model.loss.is_some()
        || spec.model.by_trainer()
        || spec.shape.eval_every.is_some()
        || spec.training.data.as_deref().is_some_and(|data| data != "synthetic")
        || spec.parallel != RunSpec::default().parallel;
    if others || !model.predicts_next() {
        return None;
    }
    let line = "checkpoint(head_and_loss, h, y, use_reentrant=False) for h, y in zip(hidden.chunk(8), labels.chunk(8))";
    Some(Change::new((Axis::Loss, size::LINE + 1), "loss in 8 chunks", line, |spec| {
        (spec.model.loss, spec.model.keep) = (Some(LossChoice::Chunked(CHUNKS)), None);
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
