//! Low-rank adapters on the linear layers of a graph: a call of such a layer is `lora.Linear.forward` of PEFT.

use std::collections::HashMap;

use lab_base::error::{Error, Result};
use lab_models::LoraTarget;
use memcore::nn::{Base, Init, LowRankAdapter};
use memcore::{Tensor, ops};

use super::contents::Contents;
use super::model::Exported;
use super::modules::{TRANSFORMERS, calls};
use super::program::{Arg, Node, Program, Slot};
use super::signature::{InputKind, StateKind, StateTensor};

/// The class whose modules PEFT puts adapters on.
const LINEAR: &str = "torch.nn.modules.linear.Linear";

/// The operator that such a module calls.
const CALLED: &str = "linear.default";

/// The weight of a linear layer with its adapter.
pub(super) struct AdaptedWeight {
    weight: Tensor,
    adapter: LowRankAdapter,
}

impl AdaptedWeight {
    /// Makes the adapter that `init` has for the layer of this weight `[out, in]`; `None` if it has none.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn beside(init: &Init, tensor: &StateTensor, weight: &Tensor) -> memcore::Result<Option<Self>> {
        let (Some((module, _)), &[outputs, inputs]) = (tensor.path.rsplit_once('.'), tensor.dims.as_slice()) else {
            return Ok(None);
        };
        let adapter = LowRankAdapter::beside(&init.at(module), inputs, outputs, weight.array())?;
        Ok(adapter.map(|adapter| Self { weight: weight.clone(), adapter }))
    }

    /// The layer's result with that of its adapter.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> memcore::Result<Tensor> {
        let own = ops::linear(x, &self.weight, bias)?;
        self.adapter.added(own, x, &Base { weight: &|| Ok(self.weight.array().clone()), bias: bias.map(Tensor::array) })
    }
}

/// The last tensor of each linear layer, after which its adapter is made, with the layer's weight: both are numbers among the tensors of the file.
///
/// A layer is a module of PyTorch's own class whose weight is used by its own calls alone, and is not shared.
pub(super) fn linear_layers(model: &Contents) -> HashMap<usize, usize> {
    let state = &model.signature.state;
    let inputs = model.program.inputs.iter().zip(&model.signature.inputs);
    let numbers: HashMap<Slot, usize> = inputs
        .filter_map(|(slot, kind)| if let InputKind::State(number) = kind { Some((*slot, *number)) } else { None })
        .collect();
    let mut is_layer: HashMap<usize, bool> = HashMap::new();
    for node in &model.program.nodes {
        let weight = weight_of(node).and_then(|slot| numbers.get(&slot)).copied();
        let own = weight.filter(|number| is_own_call(node, &state[*number]));
        for number in node.given().filter_map(|slot| numbers.get(&slot)) {
            let is_own = own == Some(*number);
            is_layer.entry(*number).and_modify(|all| *all &= is_own).or_insert(is_own);
        }
    }
    let shared: Vec<usize> = state.iter().filter_map(|tensor| tensor.same_as).collect();
    let alone = |number: &usize| state[*number].same_as.is_none() && !shared.contains(number);
    let weights = is_layer.into_iter().filter_map(|(number, is)| is.then_some(number)).filter(alone);
    weights.map(|weight| (last_of_module(state, weight), weight)).collect()
}

/// The slot of a linear call's weight.
fn weight_of(node: &Node) -> Option<Slot> {
    let (_, argument) = node.arguments.iter().find(|(name, _)| name == "weight")?;
    match argument {
        Arg::Value(slot) if node.target == CALLED => Some(*slot),
        _ => None,
    }
}

/// True if the call is one of the module that has the weight.
fn is_own_call(node: &Node, weight: &StateTensor) -> bool {
    let is_parameter = matches!(weight.kind, StateKind::Parameter { .. }) && weight.dims.len() == 2;
    let module = weight.path.strip_suffix(".weight");
    let call = calls(&node.modules).next_back();
    is_parameter && call.is_some_and(|call| call.class == LINEAR && Some(call.path) == module)
}

/// The number of the bias of a weight's module, if it has one; else that of the weight.
fn last_of_module(state: &[StateTensor], weight: usize) -> usize {
    let path = &state[weight].path;
    let bias = path.strip_suffix("weight").map(|module| format!("{module}bias"));
    state.iter().position(|tensor| Some(&tensor.path) == bias.as_ref()).unwrap_or(weight)
}

/// The embeddings of tokens of a network of transformers, by slot: with `gradient_checkpointing_enable()` they require a gradient. A
/// module that scales them does so before its hook runs.
pub(super) fn embeddings(program: &Program) -> Vec<Slot> {
    let first = program.nodes.iter().find(|node| node.target == "embedding.default");
    let is_of_library =
        |node: &&Node| calls(&node.modules).next().is_some_and(|network| network.class.starts_with(TRANSFORMERS));
    let Some(table) = first.filter(is_of_library).and_then(|node| calls(&node.modules).next_back()) else {
        return Vec::new();
    };
    let mut last: Vec<(&str, Slot)> = Vec::new();
    for node in &program.nodes {
        let call = calls(&node.modules).next_back().filter(|call| call.path == table.path);
        let (Some(call), Some(made)) = (call, node.outputs.first()) else { continue };
        match last.iter_mut().find(|(key, _)| *key == call.key) {
            Some((_, slot)) => *slot = made.slot,
            None => last.push((call.key, made.slot)),
        }
    }
    last.into_iter().map(|(_, slot)| slot).collect()
}

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
        let network = calls(&self.contents().program.nodes.last()?.modules).next()?.class.to_string();
        let mut parts = network.strip_prefix(TRANSFORMERS)?.split('.').skip_while(|part| *part != "models").skip(1);
        let kind = parts.next()?;
        let (_, names) = USUAL.iter().find(|(kinds, _)| kinds.contains(&kind))?;
        Some(LoraTarget::names(names))
    }

    /// Returns layers that people put adapters on: PEFT's own choice, or else those of attention beside stacked experts, or all linear ones; `None` for a
    /// network without layers.
    pub fn usual_lora_target(&self) -> Option<LoraTarget> {
        if let Some(own) = self.lora_target() {
            return Some(own);
        }
        let layers = linear_layers(self.contents());
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
        if linear_layers(self.contents()).is_empty() {
            let problem =
                "this graph has no linear layers that vramlab knows; rehearse the script (vramlab predict train.py)";
            return Err(Error::usage("lora", problem));
        }
        Ok(())
    }
}
