//! The two groups of parameters that the library's `Trainer` gives its optimizer: those with weight decay, and norms and biases, without.

use lab_base::error::Result;
use lab_training::{Groups, OptimizerSettings};
use memcore::nn::Parameter;

/// Makes groups of `parameters`, in the order of `model.named_parameters()`. The weight decay is that of the first group.
///
/// # Errors
/// A setting that the optimizer does not have.
pub(super) fn by_decay(settings: &OptimizerSettings, parameters: &[Parameter]) -> Result<Groups> {
    let (decaying, others): (Vec<Parameter>, Vec<Parameter>) =
        parameters.iter().cloned().partition(|parameter| decays(parameter.path()));
    let fixed = OptimizerSettings { weight_decay: Some(0.0), ..*settings };
    Ok(Groups::new(vec![settings.build(decaying)?, fixed.build(others)?]))
}

/// `get_decay_parameter_names`: no bias, and nothing in a norm. (Only GPT-2's norms, `ln_1`, are recognised by their type alone.)
fn decays(path: &str) -> bool {
    let path = path.to_lowercase();
    let of_norm = |part: &str| part == "norm" || part.ends_with("_norm") || part.starts_with("ln_");
    !["bias", "layernorm", "rmsnorm"].iter().any(|name| path.contains(name)) && !path.split('.').any(of_norm)
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
