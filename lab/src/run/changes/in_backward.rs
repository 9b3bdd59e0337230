//! Steps of the optimizer that are taken in backward.

use lab_training::Schedule;

use super::super::session::Session;
use super::super::spec::RunSpec;
use super::change::{Axis, Change, size};

/// Each parameter's step as soon as its gradient is there, where nothing needs all gradients at once.
pub(super) fn in_backward(spec: &RunSpec, session: &Session) -> Option<Change> {
    let run = &session.run;
    let together =
        run.accumulate > 1 || run.clip_grad_norm.is_some() || !run.set_to_none || run.precision.scales_loss();
    let others = run.optimizer.in_backward
        || spec.model.by_trainer()
        || spec.model.adversary.is_some()
        || run.schedule != Schedule::default()
        || spec.parallel != RunSpec::default().parallel;
    if together || others {
        return None;
    }
    let line = "p.register_post_accumulate_grad_hook(step) for each parameter, with an optimizer of its own";
    Some(Change::new((Axis::InBackward, size::HOOKS), "steps in backward", line, |spec| {
        spec.training.step_in_backward = true;
    }))
}
