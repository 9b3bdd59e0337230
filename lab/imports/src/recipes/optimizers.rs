//! Names of optimizers in recipes: those of transformers' `OptimizerNames`, which most trainers take.

use lab_training::OptimizerKind;
use serde_json::Value;

use super::keys::Taken;

/// Names in recipes, the optimizer here, and its form. One that this program does not have yet is an error by the recipe's own name.
#[rustfmt::skip]
const NAMES: &[(&[&str], &str, Option<&str>)] = &[
    (&["adamw_torch_fused"], "adamw", Some("fused")),
    (&["adamw_torch", "adamw_hf", "adamw"], "adamw", Some("foreach")),
    (&["sgd"], "sgd", Some("foreach")),
    (&["adagrad"], "adagrad", Some("foreach")),
    (&["rmsprop"], "rmsprop", Some("foreach")),
    (&["adamw_bnb_8bit", "adamw_8bit"], "adamw8bit", Some("loop")),
    (&["paged_adamw_8bit"], "paged-adamw8bit", Some("loop")),
    (&["paged_adamw", "paged_adamw_32bit"], "paged-adamw", Some("loop")),
    (&["adafactor"], "adafactor", Some("loop")),
    (&["lion", "lion_32bit"], "lion", Some("loop")),
    (&["lion_8bit"], "lion8bit", Some("loop")),
    (&["paged_lion_8bit"], "paged-lion8bit", Some("loop")),
    (&["paged_lion", "paged_lion_32bit"], "paged-lion", Some("loop")),
    (&["rmsprop_bnb_8bit"], "rmsprop8bit", Some("loop")),
    (&["ademamix"], "ademamix", Some("loop")),
    (&["ademamix_8bit"], "ademamix8bit", Some("loop")),
    (&["nadam"], "nadam", None),
];

/// Optimizers of other packages, by the one here that keeps as much or more.
const LIKE_OTHERS: [(&str, &str, &str); 3] = [
    ("muon", "muon", "counted as torch.optim.Muon of the layers' matrices and AdamW of the rest"),
    ("adamw_torch_8bit", "adamw8bit", "torchao's states of 8 bits are counted as those of bitsandbytes"),
    ("adamw_torch_4bit", "adamw8bit", "states of 4 bits are counted as 8 bits: it needs less"),
];

/// Returns the name of an optimizer in a form; `None` if transformers has none.
pub fn name_of(kind: OptimizerKind, form: &str) -> Option<&'static str> {
    let found =
        NAMES.iter().find(|(_, name, of)| *of == Some(form) && OptimizerKind::parse(name).is_ok_and(|it| it == kind));
    found.and_then(|(names, _, _)| names.first().copied())
}

/// Sets the optimizer that a key names.
pub(super) fn set(taken: &mut Taken<'_>, key: &str, value: &Value) {
    let name = value.as_str().unwrap_or_default().to_ascii_lowercase();
    if let Some((_, kind, how)) = LIKE_OTHERS.iter().find(|(theirs, _, _)| *theirs == name) {
        taken.set("optimizer", *kind);
        taken.set("optimizer-impl", "loop");
        return taken.inexact(key, value, how);
    }
    let known = NAMES.iter().find(|(names, _, _)| names.contains(&name.as_str()));
    match known.filter(|(_, kind, _)| OptimizerKind::parse(kind).is_ok()) {
        Some((_, kind, form)) => {
            taken.set("optimizer", *kind);
            if let Some(form) = form {
                taken.set("optimizer-impl", *form);
            }
        }
        None => taken.unsupported(key, value, Some("optimizer")),
    }
}
