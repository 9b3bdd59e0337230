//! Premises of an answer: the type, the tokens and the batch, each with its source.

use lab_base::error::Result;
use lab_base::figures::{counted, grouped};
use lab_imports::huggingface::{LoadAs, Release, SavedType};
use lab_models::{Input, Lora, LoraTarget};
use lab_results::Premise;
use lab_training::{Precision, RunSettings};

use super::network::Network;
use super::spec::RunSpec;

/// Precision of a run unless a flag sets another: that of the model file, or the type in which a checkpoint is loaded.
///
/// # Errors
/// A type in a `config.json` that is not supported.
pub(super) fn precision(network: &Network, of_file: Option<Precision>) -> Result<Precision> {
    match (of_file, network) {
        (Some(precision), _) => Ok(precision),
        (None, Network::Pretrained(model, _)) => Ok(Precision::throughout(model.loaded_type()?)),
        (None, Network::Exported(model, _)) => Ok(Precision::throughout(model.dtype())),
        (None, Network::Architecture(_)) => Ok(Precision::default()),
    }
}

/// The release of PyTorch, if it is the one that exported the network and not the usual one.
fn release(spec: &RunSpec, file: &str) -> Option<Premise> {
    let exporter = spec.model.exporter().filter(|_| spec.profile.like.is_none())?;
    if !spec.like().starts_with(&format!("torch-{}-", exporter.counted)) || spec.like() == spec.usual_like() {
        return None;
    }
    let source = match exporter.is_known() {
        true => format!("{file}; --like RELEASE"),
        false => format!("the newest known; {file} is of {}", exporter.version),
    };
    Some(Premise { name: "release".into(), value: format!("PyTorch {}", exporter.counted), source })
}

/// Settings that a run's file sets.
#[derive(Clone, Copy, Default)]
pub(super) struct OfFile {
    /// True if it sets the precision.
    pub precision: bool,
    /// True if it sets the batch.
    pub batch: bool,
}

/// The release of transformers that counts, and why; beside it the one that saved the file, if it is another.
fn of_transformers(spec: &RunSpec, file: &str, saved_by: Option<Release>) -> Premise {
    let model = &spec.model;
    let release = model.release();
    let why = if model.transformers.is_some() { said_by(spec, "--transformers") } else { model.usual_release.reason() };
    let saved = saved_by.filter(|saved| *saved != release).map(|saved| format!("; {saved} saved {file}"));
    let source = why + &saved.unwrap_or_default();
    Premise { name: "transformers".into(), value: format!("transformers {release}"), source }
}

pub(super) fn all(network: &Network, run: &RunSettings, spec: &RunSpec, of_file: OfFile) -> Vec<Premise> {
    let (model, training) = (&spec.model, &spec.training);
    let file = model.model_file.as_ref().and_then(|path| path.file_name()).map(|name| name.display().to_string());
    let file = file.or_else(|| model.model.clone()).unwrap_or_default();
    let or_default = |typed: bool, in_file: bool, flag: &str, value: &str| match (typed, in_file) {
        (true, _) => said_by(spec, flag),
        (false, true) => file.clone(),
        (false, false) => format!("default; {flag} {value}"),
    };
    let typed = training.precision.is_some();
    let precision = match network {
        Network::Pretrained(checkpoint, _) if !typed && checkpoint.options().load_as == LoadAs::Float32 => {
            format!("default of transformers {}; --precision TYPE", model.release())
        }
        Network::Pretrained(checkpoint, _) => {
            of_checkpoint(checkpoint.saved_type(), run.precision, typed.then(|| said_by(spec, "--precision")), &file)
        }
        Network::Exported(..) => or_default(typed, true, "--precision", "TYPE"),
        Network::Architecture(_) => or_default(typed, of_file.precision, "--precision", "TYPE"),
    };
    let mut value = words(run.precision).to_string();
    if let Network::Exported(model, _) = network
        && let Some(other) = model.other_type()
    {
        value = format!("{value}, some parameters {other}");
    }
    let mut premises: Vec<Premise> = of_default_network(spec).into_iter().collect();
    premises.push(Premise { name: "precision".into(), value, source: precision });
    premises.extend(release(spec, &file));
    if let Network::Pretrained(checkpoint, _) = network {
        premises.push(of_transformers(spec, &file, checkpoint.saved_by()));
    }
    if let Input::Tokens { length, .. } = network.architecture().task().input {
        let source = match (model.sequence, network) {
            _ if spec.shape.lengths.is_some() => said_by(spec, "--lengths"),
            (Some(_), _) => said_by(spec, "--sequence"),
            (None, Network::Pretrained(model, _)) => match model.positions() {
                Some(most) if most > length => {
                    format!("default; --sequence N, up to {}", grouped(most as u64, ' '))
                }
                _ => "the configuration's maximum; --sequence N".into(),
            },
            (None, Network::Exported(..)) => format!("the example of {file}; --sequence N"),
            (None, Network::Architecture(_)) => or_default(false, model.model_file.is_some(), "--sequence", "N"),
        };
        let value = match &spec.shape.lengths {
            Some(lengths) => format!("{} tokens", lengths.in_words()),
            None => counted(length as u64, "token"),
        };
        premises.push(Premise { name: "tokens".into(), value, source });
    }
    let batch = or_default(training.batch.is_some(), of_file.batch, "--batch", "N");
    let batch = match network {
        Network::Exported(..) if training.batch.is_none() => format!("the example of {file}; --batch N"),
        _ => batch,
    };
    let (sizes, source) = match &spec.shape.batches {
        Some(batches) => (batches.in_words(), said_by(spec, "--batches")),
        None => (grouped(run.batch as u64, ' '), batch),
    };
    premises.push(Premise { name: "batch".into(), value: format!("batch {sizes}"), source });
    premises.extend(written_out_attention(network, spec));
    premises.extend(run.lora.as_ref().map(|lora| adapted(lora, spec)));
    premises
}

/// Says which network is meant where none is named.
fn of_default_network(spec: &RunSpec) -> Option<Premise> {
    let model = &spec.model;
    let is_named = model.model.is_some() || model.model_file.is_some() || model.graph.is_some();
    let value = format!("the network {}", model.name());
    (!is_named).then(|| Premise {
        name: "network".into(),
        value,
        source: "default; vramlab predict gpt2 names one".into(),
    })
}

/// Says that attention is written out, as in the papers, where nobody chose that: most scripts use PyTorch's fused kernels.
fn written_out_attention(network: &Network, spec: &RunSpec) -> Option<Premise> {
    let Network::Architecture(architecture) = network else { return None };
    let is_written_out = architecture.has_fused_attention() == Some(false) && spec.model.attention.is_none();
    let value = "attention as matmul and softmax".into();
    is_written_out.then(|| Premise { name: "attention".into(), value, source: "default; --attention sdpa".into() })
}

/// The layers that get adapters.
fn adapted(lora: &Lora, spec: &RunSpec) -> Premise {
    let layers = match &lora.target {
        LoraTarget::AllLinear => "all linear layers".into(),
        LoraTarget::Names(names) => names.join(", "),
        LoraTarget::Pattern(pattern) => pattern.clone(),
    };
    let source = match spec.training.lora_target {
        Some(_) => said_by(spec, "--lora-target"),
        None => "PEFT's default; --lora-target NAMES".into(),
    };
    Premise { name: "adapters".into(), value: format!("adapters on {layers}"), source }
}

/// The flag that says a field, or the name of the file that does.
fn said_by(spec: &RunSpec, flag: &str) -> String {
    match spec.of_files.get(flag.trim_start_matches('-')) {
        Some(file) => file.rsplit(['/', '\\']).next().unwrap_or(file).to_string(),
        None => flag.to_string(),
    }
}

/// Source of a checkpoint's precision. `said`: what overrides the file's type, which is then named beside.
fn of_checkpoint(saved: &SavedType, taken: Precision, said: Option<String>, file: &str) -> String {
    let named: &str = match (saved, &said) {
        (SavedType::Unnamed, Some(said)) => return said.clone(),
        (SavedType::Unnamed, None) => return format!("{file} names no type; --precision TYPE"),
        (SavedType::Named(dtype), _) => dtype.name(),
        (SavedType::NotRepresented(name), _) => name,
    };
    match said {
        Some(said) if words(taken).split(',').next() == Some(named) => said,
        Some(said) => format!("{said} instead of {named} in {file}"),
        None => file.into(),
    }
}

/// PyTorch's name of a precision.
fn words(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "float32",
        Precision::Fp16 => "float16",
        Precision::Bf16 => "bfloat16",
        Precision::AutocastFp16 => "float32, autocast to float16",
        Precision::AutocastBf16 => "float32, autocast to bfloat16",
        Precision::Bf16AutocastBf16 => "bfloat16, autocast to bfloat16",
    }
}
