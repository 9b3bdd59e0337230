//! Configurations that several tests read.

use lab_imports::huggingface::{Options, Pretrained, parse};
use lab_models::Recompute;
use serde_json::{Value, json};

/// A small configuration of each kind.
pub(crate) fn small(model_type: &str) -> Value {
    match model_type {
        "gpt2" => json!({ "vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4 }),
        "opt" => json!({ "vocab_size": 64, "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "ffn_dim": 64, "word_embed_proj_dim": 16, "do_layer_norm_before": false }),
        "gpt_neox" => {
            json!({ "vocab_size": 64, "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 64, "rotary_pct": 0.5, "use_parallel_residual": false })
        }
        "bert" => json!({ "vocab_size": 64, "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 64 }),
        "vit" => {
            json!({ "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 64, "id2label": { "0": "a", "1": "b", "2": "c" } })
        }
        "camembert" | "roberta" | "xlm-roberta" => {
            json!({ "vocab_size": 64, "max_position_embeddings": 18, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 64 })
        }
        "distilbert" => {
            json!({ "vocab_size": 64, "max_position_embeddings": 16, "dim": 32, "n_layers": 2, "n_heads": 4,
            "hidden_dim": 64 })
        }
        "t5" | "mt5" => {
            json!({ "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "n_positions": 16,
            "is_encoder_decoder": true, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0 })
        }
        "phi3" => json!({ "vocab_size": 64, "max_position_embeddings": 16, "original_max_position_embeddings": 8,
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 64, "partial_rotary_factor": 0.5,
            "rope_scaling": { "rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [1.5, 3.0] } }),
        _ => json!({ "vocab_size": 64, "max_position_embeddings": 16, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64,
            "rope_scaling": { "rope_type": "linear", "factor": 2.0 } }),
    }
}

/// With the kind's name in it.
pub(crate) fn typed(model_type: &str, mut config: Value) -> Value {
    config["model_type"] = model_type.into();
    config
}

pub(crate) fn read(config: &Value, options: &Options) -> Pretrained {
    parse("config.json", &config.to_string(), options).unwrap()
}

/// All blocks, or none.
pub(crate) fn recompute(all: bool) -> Recompute {
    if all { Recompute::Blocks } else { Recompute::None }
}
