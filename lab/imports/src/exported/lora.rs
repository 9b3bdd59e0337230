//! On which layers of a graph PEFT, or people, put low-rank adapters, and which graphs get none here.

use lab_base::error::{Error, Result};
use lab_models::LoraTarget;

use super::model::Exported;
use super::modules::model_type;

/// Layers on which PEFT puts adapters unless a script names some, by the model's type, as far as they are linear modules:
/// `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING` of PEFT 0.21. A folder of transformers has the type's name, but for two.
const USUAL: [(&[&str], &[&str]); 5] = [
    (
        &[
            "bart", "opt", "llama", "mistral", "mixtral", "stablelm", "gemma", "gemma2", "gemma3", "qwen2", "qwen3",
            "gpt_neo", "llama4",
        ],
        &["q_proj", "v_proj"],
    ),
    (&["bert", "roberta", "xlm_roberta", "electra"], &["query", "value"]),
    (&["deberta_v2"], &["query_proj", "value_proj"]),
    (&["t5", "mt5"], &["q", "v"]),
    (&["phi"], &["q_proj", "v_proj", "fc1", "fc2"]),
];

/// Names of layers that PEFT looks for in the stacked weights of experts, too (`_MOE_TARGET_MODULE_MAPPING` of PEFT 0.21).
const OF_EXPERTS: [&str; 7] = ["gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"];

/// Names of the linear layers of attention in decoders.
const OF_ATTENTION: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];

impl Exported {
    /// Returns the layers that get an adapter unless the run names some: PEFT's own choice; `None` if it has none for this network.
    pub fn lora_target(&self) -> Option<LoraTarget> {
        let kind = model_type(&self.contents().program.nodes.last()?.modules)?;
        let (_, names) = USUAL.iter().find(|(kinds, _)| kinds.contains(&kind))?;
        Some(LoraTarget::names(names))
    }

    /// Returns layers that people put adapters on: PEFT's own choice, or else those of attention beside stacked experts, or all linear ones; `None` for a
    /// network without layers.
    pub fn usual_lora_target(&self) -> Option<LoraTarget> {
        if let Some(own) = self.lora_target() {
            return Some(own);
        }
        let layers = self.contents().linear_layers();
        let has = |name: &&&str| {
            let end = format!(".{name}.weight");
            layers.values().any(|weight| self.contents().signature.state[*weight].path.ends_with(&end))
        };
        let of_attention: Vec<&str> = OF_ATTENTION.iter().filter(has).copied().collect();
        match (self.has_stacked_experts(), of_attention.is_empty()) {
            (true, true) => None,
            (true, false) => Some(LoraTarget::names(&of_attention)),
            (false, _) => (!layers.is_empty()).then_some(LoraTarget::AllLinear),
        }
    }

    /// True if one tensor holds a weight of all experts of a layer.
    fn has_stacked_experts(&self) -> bool {
        let state = &self.contents().signature.state;
        state.iter().any(|tensor| tensor.dims.len() == 3 && tensor.path.contains("experts"))
    }

    /// Refuses adapters that this network cannot get here.
    ///
    /// # Errors
    /// [`Error::Usage`] with a way that works.
    pub fn check_lora(&self, target: &LoraTarget, saves: bool) -> Result<()> {
        let is_stacked = |name: &&String| OF_EXPERTS.contains(&name.rsplit('.').next().unwrap_or_default());
        let stacked = match target {
            _ if !self.has_stacked_experts() => None,
            LoraTarget::Names(names) => names.iter().find(is_stacked).cloned(),
            other => Some(other.to_string()),
        };
        if let Some(name) = stacked {
            let problem = format!(
                "{name}: PEFT puts adapters on the stacked weights of experts, too, which vramlab does not do by itself; attention alone works: \
                 --lora-target {}",
                OF_ATTENTION.join(",")
            );
            return Err(Error::usage("lora-target", problem));
        }
        if saves {
            let problem = "vramlab does not copy modules of a recorded graph; leave it out, or rehearse the script (vramlab predict train.py)";
            return Err(Error::usage("modules-to-save", problem));
        }
        if self.contents().linear_layers().is_empty() {
            let problem =
                "this graph has no linear layers that vramlab knows; rehearse the script (vramlab predict train.py)";
            return Err(Error::usage("lora", problem));
        }
        Ok(())
    }
}
