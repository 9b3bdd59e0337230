//! What is not supported of networks whose trained parameters are of several types, or complex.

use lab_base::error::{Error, Result};
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings};
use memcore::DType;
use memcore::optim::Implementation;

use super::model::Exported;
use super::signature::{StateKind, StateTensor};

impl Exported {
    /// The first trained parameter for whose type this is true.
    fn parameter(&self, is: impl Fn(DType) -> bool) -> Option<&StateTensor> {
        let trained = StateKind::Parameter { trained: true };
        self.contents().signature.state.iter().find(|tensor| tensor.kind == trained && is(tensor.dtype))
    }

    /// Describes what is unusual about the types of the trained parameters, with the path of one, and the precision that they need; `None` if all
    /// are of one type.
    fn unusual_types(&self) -> Option<(String, Precision)> {
        if let Some(tensor) = self.parameter(DType::is_complex) {
            return Some((format!("complex parameters, such as {}", tensor.path), Precision::Fp32));
        }
        let (own, other) = (self.contents().dtype, self.contents().other_type?);
        let tensor = self.parameter(|dtype| dtype == other)?;
        let what = format!("parameters of {own} and of {other}, such as {}", tensor.path);
        Some((what, Precision::throughout(own)))
    }
}

/// What is unusual about the types of a network's trained parameters, with the path of one; `None` if all are of one type.
pub(super) fn unusual(model: &Exported) -> Option<String> {
    model.unusual_types().map(|(unusual, _)| unusual)
}

/// Refuses settings under which the memory of such parameters is not known.
///
/// # Errors
/// [`Error::Usage`] naming the field and a parameter.
pub(super) fn check(model: &Exported, settings: &RunSettings) -> Result<()> {
    let Some((unusual, precision)) = model.unusual_types() else { return Ok(()) };
    let refused =
        |field: &str, what: &str| Err(Error::usage(field, format!("vramlab does not support {what} with {unusual}")));
    let OptimizerSettings { kind, implementation, capturable, .. } = settings.optimizer;
    if !matches!(kind, OptimizerKind::Adam | OptimizerKind::AdamW)
        || implementation != Implementation::Foreach
        || capturable
    {
        return refused("optimizer", "another one than adam and adamw as PyTorch makes them");
    }
    if settings.precision != precision {
        return refused("precision", &format!("another one than {}", precision.name()));
    }
    if settings.clip_grad_norm.is_some() {
        return refused("clip", "clipping");
    }
    if settings.ema.is_some() {
        return refused("ema", "an average");
    }
    Ok(())
}
