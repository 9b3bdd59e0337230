//! The plan that is handed over, as the programs that train spell it.

use lab_imports::huggingface::{Configuration, Pretrained};
use lab_models::{Lora, Recompute};
use lab_training::{Precision, RunSettings};
use memcore::optim::Implementation;
use serde_json::Value;

use crate::run::network::Network;
use crate::run::session::Session;
use crate::run::spec::RunSpec;

/// A plan around a network of transformers.
pub(super) struct HandedPlan<'a> {
    pub(super) spec: &'a RunSpec,
    /// Every field with the value in force.
    in_force: &'a RunSpec,
    pub(super) run: &'a RunSettings,
    pub(super) model: &'a Pretrained,
    pub(super) configuration: Configuration<'a>,
}

impl<'a> HandedPlan<'a> {
    /// `None` around another network.
    pub(super) fn around(spec: &'a RunSpec, session: &'a Session) -> Option<Self> {
        let Network::Pretrained(model, _) = &session.network else { return None };
        let configuration = spec.model.configuration()?;
        Some(Self { spec, in_force: &session.in_force, run: &session.run, model, configuration })
    }

    /// The network's name on the hub; `None` of a file.
    pub(super) fn hub(&self) -> Option<&str> {
        match self.configuration {
            Configuration::Known(known) => known.hub.first().map(String::as_str),
            Configuration::File(_) => None,
        }
    }

    /// The network as a recipe names it: on the hub, else the folder in which the recipe lies.
    pub(super) fn network(&self) -> &str {
        self.hub().unwrap_or(".")
    }

    /// Ranks that share a step's batch.
    pub(super) fn ranks(&self) -> usize {
        self.spec.parallel.ranks.data_parallel.unwrap_or(1).max(1)
    }

    /// Examples of a micro-batch on each rank.
    pub(super) fn micro_batch(&self) -> usize {
        self.run.batch / self.ranks()
    }

    /// Tokens of an example.
    pub(super) fn tokens(&self) -> Option<usize> {
        self.in_force.model.sequence
    }

    /// True if blocks are computed again.
    pub(super) fn checkpoints(&self) -> bool {
        self.model.options().checkpoint != Recompute::None
    }

    /// Python's condition for the number of a block that is computed again, if not all are.
    pub(super) fn chosen_blocks(&self) -> Option<String> {
        match &self.model.options().checkpoint {
            Recompute::These(blocks) => Some(format!("number in {blocks:?}")),
            Recompute::Every(every) => Some(format!("(number + 1) % {every} == 0")),
            _ => None,
        }
    }

    pub(super) fn lora(&self) -> Option<&Lora> {
        self.run.lora.as_ref()
    }

    /// The name of the optimizer in `TrainingArguments` and in recipes; `None` if they have none for it.
    pub(super) fn optim(&self) -> Option<&'static str> {
        self.run.optimizer.kind.name_in_transformers(self.run.optimizer.implementation)
    }

    /// Weight decay, also where the optimizer's own is taken.
    pub(super) fn weight_decay(&self) -> f64 {
        let optimizer = &self.run.optimizer;
        optimizer.weight_decay.unwrap_or_else(|| optimizer.kind.weight_decay())
    }

    /// The largest norm of the gradients; trainers take 1 where a plain loop has none.
    pub(super) fn largest_norm(&self) -> f64 {
        self.run.clip_grad_norm.unwrap_or(lab_imports::huggingface::MAX_GRAD_NORM)
    }

    /// Type of the weights, as PyTorch spells it.
    pub(super) fn weights(&self) -> &'static str {
        match self.run.precision {
            Precision::Fp32 | Precision::AutocastFp16 | Precision::AutocastBf16 => "float32",
            Precision::Fp16 => "float16",
            Precision::Bf16 | Precision::Bf16AutocastBf16 => "bfloat16",
        }
    }

    /// Type of the products under autocast; `None` without.
    pub(super) fn autocast(&self) -> Option<&'static str> {
        match self.run.precision {
            Precision::AutocastFp16 => Some("float16"),
            Precision::AutocastBf16 | Precision::Bf16AutocastBf16 => Some("bfloat16"),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
        }
    }

    /// The settings of PyTorch's allocator.
    pub(super) fn allocator(&self) -> Option<&str> {
        self.spec.allocator.alloc_conf.as_deref().filter(|settings| !settings.is_empty())
    }

    /// `"all-linear"`, a list of names, or an expression that PEFT reads.
    pub(super) fn targets(lora: &Lora) -> Value {
        match &lora.target {
            lab_models::LoraTarget::AllLinear => "all-linear".into(),
            lab_models::LoraTarget::Names(names) => names.clone().into(),
            lab_models::LoraTarget::Pattern(pattern) => pattern.clone().into(),
        }
    }

    /// The optimizer's constructor without its first argument: class and arguments.
    pub(super) fn optimizer_call(&self) -> (&'static str, String) {
        let optimizer = &self.run.optimizer;
        let mut arguments = format!("lr={}", number(optimizer.lr));
        let mut add = |text: &str| {
            arguments.push_str(", ");
            arguments.push_str(text);
        };
        if let Some(decay) = optimizer.weight_decay {
            add(&format!("weight_decay={}", number(decay)));
        }
        optimizer.kind.own_arguments(optimizer.weight_decay.is_some()).for_each(&mut add);
        let of_torch = optimizer.kind.class().starts_with("torch.optim.");
        match optimizer.implementation {
            Implementation::Fused => add("fused=True"),
            Implementation::Foreach if of_torch => add("foreach=True"),
            Implementation::Loop if of_torch => add("foreach=False"),
            Implementation::Loop | Implementation::Foreach => {}
        }
        (optimizer.kind.class(), arguments)
    }
}

/// A number as Python and YAML read it: without an exponent, and always with a point.
pub(super) fn number(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}
