//! The two groups of parameters that the library's `Trainer` gives its optimizer: those with weight decay, and norms and biases, without.

use lab_base::error::Result;
use lab_training::OptimizerSettings;
use memcore::nn::Parameter;
use memcore::optim::{Optimizer, ParameterState};

/// An optimizer with groups of parameters, each updated by itself.
pub(super) struct Groups {
    groups: Vec<Box<dyn Optimizer>>,
    /// Parameters of all groups, one group after the other.
    parameters: Vec<Parameter>,
}

impl Groups {
    /// Makes groups of `parameters`, in the order of `model.named_parameters()`. The weight decay is that of the first group.
    ///
    /// # Errors
    /// A setting that the optimizer does not have.
    pub(crate) fn new(settings: &OptimizerSettings, parameters: &[Parameter]) -> Result<Self> {
        let (decaying, others): (Vec<Parameter>, Vec<Parameter>) =
            parameters.iter().cloned().partition(|parameter| decays(parameter.path()));
        let parameters = decaying.iter().chain(&others).cloned().collect();
        let fixed = OptimizerSettings { weight_decay: Some(0.0), ..*settings };
        let groups = vec![settings.build(decaying)?, fixed.build(others)?];
        Ok(Self { groups, parameters })
    }

    /// Returns the group of the parameter of this number, and its number there.
    fn place(&self, index: usize) -> (usize, usize) {
        let first = self.groups.first().map_or(0, |group| group.parameters().len());
        if index < first { (0, index) } else { (1, index - first) }
    }
}

/// `get_decay_parameter_names`: no bias, and nothing in a norm. (Only GPT-2's norms, `ln_1`, are recognised by their type alone.)
fn decays(path: &str) -> bool {
    let path = path.to_lowercase();
    let of_norm = |part: &str| part == "norm" || part.ends_with("_norm") || part.starts_with("ln_");
    !["bias", "layernorm", "rmsnorm"].iter().any(|name| path.contains(name)) && !path.split('.').any(of_norm)
}

impl Optimizer for Groups {
    fn step(&mut self) -> memcore::Result<()> {
        self.groups.iter_mut().try_for_each(|group| group.step())
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let (group, index) = self.place(index);
        self.groups.get(group)?.state(index)
    }

    fn make_state(&mut self, index: usize, steps: i32) -> memcore::Result<Option<ParameterState>> {
        let (group, index) = self.place(index);
        self.groups.get_mut(group).map_or(Ok(None), |group| group.make_state(index, steps))
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn takes_loss_scale(&self) -> bool {
        self.groups.iter().all(|group| group.takes_loss_scale())
    }

    fn zero_grad_name(&self) -> &'static str {
        self.groups.first().map_or("", |group| group.zero_grad_name())
    }
}

#[cfg(test)]
mod tests {
    use super::decays;

    #[test]
    fn norms_and_biases_do_not_decay() {
        for path in ["transformer.h.0.attn.c_attn.weight", "model.embed_tokens.weight", "lm_head.weight"] {
            assert!(decays(path), "{path}");
        }
        for path in [
            "transformer.h.0.ln_1.weight",
            "transformer.h.0.attn.c_attn.bias",
            "model.layers.0.input_layernorm.weight",
            "model.norm.weight",
            "model.layers.0.self_attn.q_norm.weight",
            "bert.embeddings.LayerNorm.weight",
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ] {
            assert!(!decays(path), "{path}");
        }
    }
}
