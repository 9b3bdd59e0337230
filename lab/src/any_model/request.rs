//! Fields of a run as options of the driver.

use std::ffi::OsString;
use std::path::Path;

use lab_base::changes::ALLOC_CONF;
use lab_base::error::{Error, Result};
use lab_imports::huggingface::Configuration;
use lab_imports::published;
use lab_models::{LORA_SWITCHES, TUNING_FIELDS};
use lab_training::OptimizerKind;
use serde_json::{Value, json};

use super::hub_cache::in_hub_cache;
use crate::run::RunSpec;

/// Steps of the program unless a run says how many. A rehearsal ends as soon as memory is flat.
const MOST_STEPS: u64 = 20;

/// Steps of training among the phases of a run: the second has what the first left, and the third shows that it stays so.
const PHASE_STEPS: usize = 3;

/// Fields that the driver takes, and those that change no memory of it.
const TAKEN: [&str; 16] = [
    "batch",
    "steps",
    "sequence",
    "optimizer",
    "optimizer-impl",
    "precision",
    "accumulate",
    "zero-grad",
    "clip-grad-norm",
    "checkpoint",
    "attention",
    "head",
    "choices",
    "keep",
    "freeze",
    "loss",
];
const WITHOUT_EFFECT: [&str; 3] = ["lr", "seed", "data"];

/// Fields that the rehearsal takes, and the word itself.
const OF_THE_REHEARSAL: [&str; 5] = ["model", "model-file", "gpu", "alloc-conf", "env"];

/// Returns the request for the driver: the word, as it was typed, and the options.
///
/// # Errors
/// [`Error::Usage`] that names a field which the driver cannot do.
pub fn options(word: &str, spec: &RunSpec) -> Result<Value> {
    let fields = spec.said();
    let known = |name: &str| {
        TAKEN.contains(&name)
            || TUNING_FIELDS.contains(&name)
            || WITHOUT_EFFECT.contains(&name)
            || OF_THE_REHEARSAL.contains(&name)
    };
    if let Some(name) = fields.keys().find(|name| !known(name)) {
        return Err(cannot(
            name,
            "your Python builds this network, and a rehearsal trains it: there it is not an option",
        ));
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| *text != "none");
    let optimizer = spec.training.optimizer.unwrap_or(OptimizerKind::AdamW);
    check_values(&text, optimizer)?;
    Ok(json!({
        "model": word,
        "config": configuration(word, spec).unwrap_or_default(),
        "batch": spec.training.batch.unwrap_or(1),
        "steps": spec.training.steps.map_or(MOST_STEPS, |steps| steps as u64),
        "optimizer": [optimizer.class(), optimizer.arguments()],
        "optimizer_impl": text("optimizer-impl"),
        "precision": text("precision"),
        "accumulate": fields.get("accumulate"),
        "zero_grad": text("zero-grad"),
        "clip": fields.get("clip-grad-norm"),
        "sequence": fields.get("sequence"),
        "checkpoint": text("checkpoint"),
        "attention": text("attention"),
        "head": text("head"),
        "choices": fields.get("choices"),
        "keep": text("keep"),
        "bits": bits(spec),
        "lora": fields.get("lora"),
        "lora_target": text("lora-target"),
        "lora_dropout": fields.get("lora-dropout"),
        "modules_to_save": text("modules-to-save"),
        "lora_switches": LORA_SWITCHES.iter().filter(|switch| fields.contains_key(switch.field)).map(|switch| switch.peft).collect::<Vec<_>>(),
        "double_quant": spec.model.double_quant,
        "freeze": text("freeze"),
        "loss": text("loss"),
    }))
}

/// Checks that the driver can do what fields ask for.
fn check_values<'a>(text: &impl Fn(&str) -> Option<&'a str>, optimizer: OptimizerKind) -> Result<()> {
    if let Some(data) = text("data").filter(|data| *data != "synthetic") {
        return Err(cannot("data", &format!("{data}: only made-up inputs of the class's sizes")));
    }
    if let Some(checkpoint) = text("checkpoint").filter(|what| *what != "blocks") {
        return Err(cannot(
            "checkpoint",
            &format!("{checkpoint}: networks that your Python builds have none or blocks, by the library's own switch"),
        ));
    }
    if let Some(loss) = text("loss").filter(|loss| *loss != "checkpointed" && !loss.starts_with("chunked")) {
        return Err(cannot(
            "loss",
            &format!(
                "{loss}: networks that your Python builds have their own loss, or of decoders checkpointed and chunked:N"
            ),
        ));
    }
    if optimizer == OptimizerKind::Muon {
        return Err(cannot(
            "optimizer",
            "muon: networks that your Python builds have one optimizer for all parameters",
        ));
    }
    Ok(())
}

/// The options with those of the phases of a run: the number of new tokens, if they are asked for, and few steps unless the run says how many.
pub fn with_phases(mut options: Value, spec: &RunSpec, phases: Option<u32>) -> Value {
    if let Some(new_tokens) = phases {
        options["phases"] = new_tokens.into();
        options["steps"] = spec.training.steps.unwrap_or(PHASE_STEPS).into();
    }
    options
}

/// Returns the configuration, if this program knows it by the network's name, and the hub's cache on this machine does not have it.
pub(super) fn configuration(word: &str, spec: &RunSpec) -> Option<Value> {
    if let Some(Configuration::Known(known)) = spec.model.configuration() {
        return Some(known.config_as_data());
    }
    let is_here = Path::new(word).exists() || in_hub_cache(word).is_some();
    (!is_here).then(|| published::find(word)?.config_as_data()).flatten()
}

/// The bits of the weights of linear layers, if bitsandbytes keeps them.
fn bits(spec: &RunSpec) -> Option<u8> {
    let flags = [(4, spec.model.load_in_4bit), (8, spec.model.load_in_8bit)];
    flags.into_iter().find(|(_, asked)| *asked).map(|(bits, _)| bits)
}

/// Returns the variables of the environment that a run asks for.
pub fn environment(spec: &RunSpec) -> Vec<(OsString, OsString)> {
    let fields = spec.said();
    let conf = fields.get("alloc-conf").and_then(Value::as_str).map(|conf| (ALLOC_CONF.to_string(), conf.to_string()));
    let own = fields.get("env").and_then(Value::as_array).into_iter().flatten();
    let own = own.filter_map(Value::as_str).filter_map(|pair| pair.split_once('='));
    let own = own.map(|(name, value)| (name.to_string(), value.to_string()));
    conf.into_iter().chain(own).map(|(name, value)| (name.into(), value.into())).collect()
}

fn cannot(field: &str, problem: &str) -> Error {
    Error::usage(
        field,
        format!("{problem}; `--script` prints the program, which `vramlab predict` runs with your changes"),
    )
}

/// Returns the name under which the program's lines are shown: that of the configuration's folder or of the word, as a file of Python.
pub fn file_of(word: &str) -> String {
    let path = Path::new(word);
    let is_config = path.file_name().is_some_and(|name| name == "config.json");
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    let named = match (is_config, is_json) {
        (true, _) => path.parent().and_then(Path::file_name),
        (false, true) => path.file_stem(),
        (false, false) => path.file_name(),
    };
    let name = named.map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned());
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    format!("{}.program.py", name.chars().map(safe).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(fields: Value) -> RunSpec {
        let Value::Object(fields) = fields else { panic!("an object") };
        RunSpec::default().with(fields.iter().map(|(name, value)| (name.as_str(), value))).unwrap()
    }

    #[test]
    fn flags_become_options() {
        let said = spec(json!({
            "model-file": "config.json", "batch": 4, "sequence": 512, "optimizer": "sgd", "precision": "autocast-bf16", "accumulate": 2,
            "checkpoint": "blocks", "gpu": "rtx4090", "attention": "eager", "alloc-conf": "expandable_segments:True",
        }));
        let made = options("config.json", &said).unwrap();
        let expected = [
            ("batch", json!(4)),
            ("steps", json!(MOST_STEPS)),
            ("sequence", json!(512)),
            ("optimizer", json!(["torch.optim.SGD", "lr=1e-3"])),
            ("precision", json!("autocast-bf16")),
            ("accumulate", json!(2)),
            ("checkpoint", json!("blocks")),
            ("attention", json!("eager")),
            ("head", Value::Null),
        ];
        expected.into_iter().for_each(|(name, value)| assert_eq!(made[name], value, "{name}"));
        assert_eq!(environment(&said), [(ALLOC_CONF.into(), "expandable_segments:True".into())]);
        let tuned =
            spec(json!({ "load-in-4bit": true, "lora": 16, "lora-target": "q_proj,v_proj", "lora-dropout": 0.1 }));
        let made = options("config.json", &tuned).unwrap();
        let expected = [
            ("bits", json!(4)),
            ("lora", json!(16)),
            ("lora_target", json!("q_proj,v_proj")),
            ("lora_dropout", json!(0.1)),
        ];
        expected.into_iter().for_each(|(name, value)| assert_eq!(made[name], value, "{name}"));
        let made = options("config.json", &spec(json!({ "load-in-8bit": true, "freeze": "*,!head" }))).unwrap();
        assert_eq!((&made["bits"], &made["freeze"]), (&json!(8), &json!("*,!head")));
        assert_eq!(options("config.json", &spec(json!({ "loss": "chunked:4" }))).unwrap()["loss"], json!("chunked:4"));
        let plain = options("config.json", &RunSpec::default()).unwrap();
        assert_eq!((plain["batch"].as_u64(), &plain["optimizer"]), (Some(1), &json!(["torch.optim.AdamW", "lr=1e-4"])));
    }

    #[test]
    fn a_configuration_that_is_known_by_name_is_handed_over() {
        let made = options("bert-base", &spec(json!({ "model": "bert-base", "lora": 8 }))).unwrap();
        assert_eq!((&made["model"], &made["config"]["model_type"]), (&json!("bert-base"), &json!("bert")));
        assert_eq!(options("config.json", &RunSpec::default()).unwrap()["config"], Value::Null);
    }

    #[test]
    fn a_flag_that_the_driver_cannot_do_is_named() {
        for (name, value) in [
            ("ema", json!("model")),
            ("zero", json!(3)),
            ("layers", json!(2)),
            ("channels-last", json!(true)),
            ("checkpoint", json!("sqrt")),
            ("data", json!("digits")),
            ("loss", json!("liger")),
            ("weight-decay", json!(0.1)),
        ] {
            let error = options("config.json", &spec(json!({ name: value }))).unwrap_err().to_string();
            assert!(error.starts_with(name) || error.contains(&format!("--{name}")), "{name}: {error}");
            assert!(error.contains("--script"), "{error}");
        }
    }

    #[test]
    fn the_program_is_named_after_the_model() {
        assert_eq!(file_of("models/gemma-3-1b/config.json"), "gemma-3-1b.program.py");
        assert_eq!(file_of("Qwen/Qwen3-0.6B"), "Qwen3-0.6B.program.py");
        assert_eq!(file_of("timm:vit_base"), "timm_vit_base.program.py");
    }
}
