//! What is not represented of networks with complex parameters.

use lab_base::error::{Error, Result};
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings};
use memcore::optim::Implementation;

use super::model::Exported;
use super::signature::StateKind;

impl Exported {
    /// The path of the first complex parameter that is trained.
    pub(super) fn complex_parameter(&self) -> Option<&str> {
        let state = self.contents().signature.state.iter();
        let is_one = |kind| kind == StateKind::Parameter { trained: true };
        state
            .filter(|tensor| is_one(tensor.kind) && tensor.dtype.is_complex())
            .map(|tensor| tensor.path.as_str())
            .next()
    }
}

/// Refuses settings under which the memory of complex parameters is not known.
///
/// # Errors
/// [`Error::Usage`] naming the field and a parameter.
pub(super) fn check(model: &Exported, settings: &RunSettings) -> Result<()> {
    let Some(path) = model.complex_parameter() else { return Ok(()) };
    let refused = |field: &str, what: &str| {
        Err(Error::usage(field, format!("{what} is not represented with complex parameters, such as {path}")))
    };
    let OptimizerSettings { kind, implementation, capturable, .. } = settings.optimizer;
    if !matches!(kind, OptimizerKind::Adam | OptimizerKind::AdamW)
        || implementation != Implementation::Foreach
        || capturable
    {
        return refused("optimizer", "another one than adam and adamw as PyTorch makes them");
    }
    if settings.precision != Precision::Fp32 {
        return refused("precision", "another one than fp32");
    }
    if settings.clip_grad_norm.is_some() {
        return refused("clip", "clipping");
    }
    if settings.ema.is_some() {
        return refused("ema", "an average");
    }
    Ok(())
}
