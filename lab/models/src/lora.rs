//! Low-rank adapters on the linear layers of a network, as PEFT's `LoraConfig` names them.

use std::fmt;
use std::str::FromStr;

use lab_base::as_text;
use lab_base::error::{Error, Result};
use memcore::nn::{LayerKind, LowRank, Parameter};
use serde::Serialize;

/// The name in the paths of all weights of adapters.
const ADAPTER: &str = ".lora_";

/// The name in the paths of the weights of modules that are copied to be trained.
const SAVED: &str = ".modules_to_save.";

/// Output layers of language models, on which `all-linear` puts no adapter.
const OUTPUT_LAYERS: [&str; 2] = ["lm_head", "embed_out"];

/// PEFT's own default for `lora_alpha`.
pub const LORA_ALPHA: u32 = 8;

/// Fields of a run that PEFT and bitsandbytes are told.
pub const TUNING_FIELDS: [&str; 9] = [
    "lora",
    "lora-target",
    "lora-dropout",
    "modules-to-save",
    "dora",
    "rslora",
    "load-in-4bit",
    "load-in-8bit",
    "double-quant",
];

/// An option of adapters that is on or off.
#[derive(Debug, PartialEq, Eq)]
pub struct LoraSwitch {
    /// The field of a run.
    pub field: &'static str,
    /// The name in PEFT's `LoraConfig`, which most trainers have taken over.
    pub peft: &'static str,
    /// The name in axolotl's recipes.
    pub axolotl: &'static str,
}

/// Names of the list of modules that are copied: in PEFT and ms-swift, in TRL and axolotl, in LLaMA-Factory.
pub const SAVED_MODULES: [&str; 3] = ["modules_to_save", "lora_modules_to_save", "additional_target"];

/// All of these options. Files of trainers are read and written by them.
pub static LORA_SWITCHES: [LoraSwitch; 2] = [
    LoraSwitch { field: "dora", peft: "use_dora", axolotl: "peft_use_dora" },
    LoraSwitch { field: "rslora", peft: "use_rslora", axolotl: "peft_use_rslora" },
];

/// The layers that get an adapter: `target_modules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoraTarget {
    /// `all-linear`: every linear layer but a language model's output layer.
    AllLinear,
    /// The layers whose paths end with one of these names.
    Names(Vec<String>),
    /// The layers whose whole paths match this regular expression of Python; only PEFT itself reads it.
    Pattern(String),
}

impl LoraTarget {
    /// The layers of these names.
    pub fn names(names: &[&str]) -> Self {
        Self::Names(names.iter().map(|name| (*name).to_string()).collect())
    }

    fn covers(&self, path: &str, kind: LayerKind) -> bool {
        match self {
            Self::AllLinear => kind == LayerKind::Linear && !OUTPUT_LAYERS.contains(&path),
            Self::Names(names) => names.iter().any(|name| is_named(path, name)),
            Self::Pattern(_) => false,
        }
    }
}

/// True if a path is this name, or ends with it after a dot.
fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

impl FromStr for LoraTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all-linear" {
            return Ok(Self::AllLinear);
        }
        if text.contains(['*', '|', '\\', '(', '[', '^', '$', '+', '?']) {
            return Ok(Self::Pattern(text.into()));
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_string()).collect();
        if names.iter().any(String::is_empty) {
            return Err(format!("{text:?}: expected all-linear, or names of layers, as in q_proj,v_proj"));
        }
        Ok(Self::Names(names))
    }
}

impl fmt::Display for LoraTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllLinear => f.write_str("all-linear"),
            Self::Names(names) => f.write_str(&names.join(",")),
            Self::Pattern(text) => f.write_str(text),
        }
    }
}

as_text!(LoraTarget);

/// Adapters of a training in which nothing else is trained: `get_peft_model(model, LoraConfig(…))`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lora {
    /// `r`
    pub rank: usize,
    /// `target_modules`
    pub target: LoraTarget,
    /// `lora_dropout`
    pub dropout: f64,
    /// `use_dora`
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// `use_rslora`: the results are divided by the root of the rank, not by the rank.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rslora: bool,
    /// `modules_to_save`: modules that are trained whole, as copies beside the originals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub saved: Vec<String>,
}

impl Lora {
    /// Returns the adapter of the layer of a kind at a path; `None` if it has none.
    pub fn of_layer(&self, path: &str, kind: LayerKind) -> Option<LowRank> {
        let rank = self.rank.max(1) as f64;
        let scaling = f64::from(LORA_ALPHA) / if self.rslora { rank.sqrt() } else { rank };
        let options = LowRank { rank: self.rank, scaling, dropout: self.dropout, magnitudes: self.dora };
        let is_excluded = self.saved.iter().any(|name| is_named(path, name));
        (!path.contains(ADAPTER) && self.target.covers(path, kind) && !is_excluded).then_some(options)
    }

    /// The options that are on.
    pub fn switched_on(&self) -> impl Iterator<Item = &'static LoraSwitch> {
        let on = [self.dora, self.rslora];
        LORA_SWITCHES.iter().zip(on).filter(|(_, on)| *on).map(|(switch, _)| switch)
    }

    /// True for a parameter that is trained: a weight of an adapter, or of a module that is copied.
    pub fn trains(name: &str) -> bool {
        name.contains(ADAPTER) || name.contains(SAVED)
    }

    /// True if the module at a path is copied, and the copy trained: its whole path ends with a name, as `norm` ends `input_layernorm`, too.
    pub fn saves(&self, path: &str) -> bool {
        self.saved.iter().any(|name| path.ends_with(name.as_str()))
    }

    /// Refuses a layer that has an adapter and is copied with it.
    fn check_copied<'a>(&self, mut adapted: impl Iterator<Item = &'a str>) -> Result<()> {
        match adapted.find(|layer| self.saves(layer)) {
            Some(layer) => {
                let name = self.saved.iter().find(|name| layer.ends_with(name.as_str())).map_or("", String::as_str);
                let problem = format!("PEFT would copy the adapter of {layer} with it; give its whole name");
                Err(Error::usage("modules-to-save", format!("{name}: {problem}")))
            }
            None => Ok(()),
        }
    }

    /// Refuses a name that no layer has which can have an adapter.
    ///
    /// # Errors
    /// [`Error::Usage`] naming it.
    pub fn check(&self, parameters: &[Parameter]) -> Result<()> {
        let adapted =
            || parameters.iter().filter_map(|parameter| parameter.path().split_once(ADAPTER)).map(|(layer, _)| layer);
        let missing = match &self.target {
            LoraTarget::AllLinear => adapted().next().is_none().then_some("all-linear"),
            LoraTarget::Names(names) => {
                let has = |name: &String| adapted().any(|layer| is_named(layer, name));
                names.iter().find(|name| !has(name)).map(String::as_str)
            }
            LoraTarget::Pattern(text) => Some(text.as_str()),
        };
        if let Some(name) = missing {
            return Err(Error::usage(
                "lora-target",
                format!(
                    "{name}: no linear layer, table of embeddings or convolution is called so; a rehearsal of the script has PEFT's others (vramlab predict train.py)"
                ),
            ));
        }
        self.check_copied(adapted())?;
        let copied = || parameters.iter().filter_map(|parameter| parameter.path().split_once(SAVED));
        match self.saved.iter().find(|name| !copied().any(|(module, _)| module.ends_with(name.as_str()))) {
            Some(name) => {
                let problem = "no module of the network with weights of its own is called so";
                Err(Error::usage("modules-to-save", format!("{name}: {problem}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_by_the_end_of_their_paths() {
        let lora = |target: &str| Lora {
            rank: 8,
            target: target.parse().unwrap(),
            dropout: 0.0,
            dora: false,
            rslora: false,
            saved: vec!["lm_head".into()],
        };
        let path = "model.layers.0.self_attn.q_proj";
        let adapts = |target: &str, path: &str, kind: LayerKind| lora(target).of_layer(path, kind).is_some();
        let linear = |target: &str, path: &str| adapts(target, path, LayerKind::Linear);
        assert!(linear("q_proj,v_proj", path) && linear("self_attn.q_proj", path) && !linear("proj", path));
        assert!(linear("all-linear", path) && !linear("all-linear", "lm_head"));
        assert!(
            !adapts("all-linear", "embed_tokens", LayerKind::Table) && adapts("conv1", "conv1", LayerKind::Convolution)
        );
        assert!(!linear("lm_head", "lm_head") && lora("q_proj").saves("lm_head"));
        assert!(!lora("q_proj").saves("model.lm_heads") && lora("q_proj").saves("model.own_lm_head"));
        assert!(!linear("default", "q_proj.lora_A.default"));
        assert_eq!(lora("q, v").target.to_string(), "q,v");
        let pattern = lora(r"layers.[\d]+.(q|k),?_proj").target;
        assert_eq!(
            (pattern.to_string().as_str(), pattern.covers(path, LayerKind::Linear)),
            (r"layers.[\d]+.(q|k),?_proj", false)
        );
        assert!("q,,v".parse::<LoraTarget>().unwrap_err().contains("expected all-linear"));
    }
}
