//! Names of optimizers in recipes: those of transformers' `OptimizerNames`, which most trainers take.

use lab_training::OptimizerKind;
use serde_json::Value;

use super::keys::Taken;

/// Further names in recipes, the optimizer here, and its form. One that this program does not have yet is an error by the recipe's own name.
const OTHERS: [(&str, &str, Option<&str>); 3] =
    [("adamw_hf", "adamw", Some("foreach")), ("adamw", "adamw", Some("foreach")), ("nadam", "nadam", None)];

/// Optimizers of other packages, by the one here that keeps as much or more.
const LIKE_OTHERS: [(&str, &str, &str); 3] = [
    ("muon", "muon", "counted as torch.optim.Muon of the layers' matrices and AdamW of the rest"),
    ("adamw_torch_8bit", "adamw8bit", "torchao's states of 8 bits are counted as those of bitsandbytes"),
    ("adamw_torch_4bit", "adamw8bit", "states of 4 bits are counted as 8 bits: it needs less"),
];

/// Sets the optimizer that a key names.
pub(super) fn set(taken: &mut Taken<'_>, key: &str, value: &Value) {
    let name = value.as_str().unwrap_or_default().to_ascii_lowercase();
    if let Some((_, kind, how)) = LIKE_OTHERS.iter().find(|(theirs, _, _)| *theirs == name) {
        taken.set("optimizer", *kind);
        taken.set("optimizer-impl", "loop");
        return taken.inexact(key, value, how);
    }
    let named = OptimizerKind::of_transformers(&name).map(|(kind, form)| (kind.name(), Some(form.name())));
    let other = || OTHERS.iter().find(|(theirs, _, _)| *theirs == name).map(|(_, kind, form)| (*kind, *form));
    match named.or_else(other).filter(|(kind, _)| OptimizerKind::parse(kind).is_ok()) {
        Some((kind, form)) => {
            taken.set("optimizer", kind);
            if let Some(form) = form {
                taken.set("optimizer-impl", form);
            }
        }
        None => taken.unsupported(key, value, Some("optimizer")),
    }
}
