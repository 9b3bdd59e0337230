//! Liger's kernels in files of arguments and in recipes: counted where they are recorded, else left as they were found.

use serde_json::{Map, Value};

use super::found::HfArgs;
use super::meaning::is_on;
use crate::huggingface::Configuration;

/// Keys that put all kernels in: those of transformers and ms-swift, of TRL, of LLaMA-Factory.
const WHOLE: [&str; 3] = ["use_liger_kernel", "use_liger", "enable_liger_kernel"];

/// Keys of axolotl, which put all in together.
const PARTS: [&str; 4] = ["liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_fused_linear_cross_entropy"];

/// Models whose kernels are recorded.
const RECORDED: [&str; 6] = ["gemma", "llama", "mistral", "phi3", "qwen2", "qwen3"];

/// Replaces what was found of these keys by the field `liger`, if the network has recorded kernels. Returns true if it did.
pub(crate) fn with_liger(keys: &Map<String, Value>, config: Option<Configuration<'_>>, found: &mut HfArgs) -> bool {
    let on = |name: &&str| keys.get(*name).is_some_and(is_on);
    let asked = WHOLE.iter().any(on) || PARTS.iter().all(on);
    let recorded = config.and_then(|config| model_type(&config)).is_some_and(|kind| RECORDED.contains(&&*kind));
    let others = ["zero", "modules-to-save", "packing"].iter().any(|field| found.fields.contains_key(*field));
    let precision = found.fields.get("precision").and_then(Value::as_str);
    let types = precision.is_none_or(|precision| ["fp32", "bf16", "bf16-autocast-bf16"].contains(&precision));
    if !asked || !recorded || others || !types {
        return false;
    }
    let is_of_it = |text: &str| WHOLE.iter().chain(&PARTS).any(|name| text.starts_with(&format!("{name}=")));
    found.refusals.retain(|refused| !is_of_it(&refused.argument));
    found.left_out.retain(|what| !is_of_it(what));
    found.fields.remove("loss");
    found.fields.insert("liger".into(), true.into());
    true
}

fn model_type(config: &Configuration<'_>) -> Option<String> {
    let value: Value = serde_json::from_str(&config.text().ok()?).ok()?;
    Some(value.get("model_type")?.as_str()?.into())
}
