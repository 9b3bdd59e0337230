//! Adapters instead of the network.

use lab_imports::exported::Exported;
use lab_imports::huggingface::Pretrained;
use lab_models::LoraTarget;
use lab_training::Precision;

use super::super::network::Network;
use super::super::session::Session;
use super::super::spec::RunSpec;
use super::change::{Axis, Change, size};

/// The rank of the adapters that are proposed.
const RANK: usize = 16;

/// Adapters instead of the network, and 4-bit weights below them, where both are built in.
pub(super) fn adapters(spec: &RunSpec, session: &Session) -> Vec<Change> {
    let training = &spec.training;
    let others =
        training.freeze.is_some() || spec.shape.ema.is_some() || spec.shape.channels_last || spec.model.built_on_device;
    if others || spec.parallel.split.devices.is_some() {
        return Vec::new();
    }
    match &session.network {
        Network::Pretrained(model, _) if model.is_language_model() => {
            of_family(model, training.lora.is_some(), session)
        }
        Network::Exported(model, _) if training.lora.is_none() && model.adversary().is_none() => of_graph(model),
        _ => Vec::new(),
    }
}

fn to(more: u32, words: &str, line: &str, edit: impl Fn(&mut RunSpec) + Send + Sync + 'static) -> Change {
    Change::new((Axis::Adapters, size::ADAPTERS + more), words, line, edit)
}

/// Those of a network that vramlab has by its family.
fn of_family(model: &Pretrained, adapted: bool, session: &Session) -> Vec<Change> {
    let mut changes = Vec::new();
    if !adapted && model.lora_target().is_some() {
        let line = "get_peft_model(model, LoraConfig(r=16))";
        changes.push(to(0, "LoRA of rank 16", line, |spec| spec.training.lora = Some(RANK)));
    }
    let half = matches!(session.run.precision, Precision::Bf16 | Precision::Fp16 | Precision::Bf16AutocastBf16);
    let quantizes = half && session.run.quantized.is_none() && model.not_quantized().is_some();
    if quantizes && (adapted || !changes.is_empty()) {
        let words = if adapted { "4-bit weights" } else { "LoRA of rank 16 beside 4-bit weights" };
        let line = "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", …)";
        changes.push(to(1, words, line, |spec| {
            spec.training.lora.get_or_insert(RANK);
            spec.model.load_in_4bit = true;
        }));
    }
    changes
}

/// Those of a graph, on the layers that PEFT or people choose.
fn of_graph(model: &Exported) -> Vec<Change> {
    let Some(target) = model.usual_lora_target() else { return Vec::new() };
    let named = match (&target, model.lora_target().is_some()) {
        (_, true) => String::new(),
        (LoraTarget::Names(names), _) => format!(", target_modules={names:?}"),
        (other, _) => format!(", target_modules=\"{other}\""),
    };
    let line = format!("get_peft_model(model, LoraConfig(r=16{named}))");
    let own = model.lora_target().is_none().then_some(target);
    vec![to(0, "LoRA of rank 16", &line, move |spec| {
        spec.training.lora = Some(RANK);
        spec.training.lora_target.clone_from(&own);
    })]
}
