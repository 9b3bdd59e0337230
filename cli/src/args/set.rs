//! `--set NAME=VALUE`: any field of a run by its name, from the one list of fields (`lab::run::RunSpec`).

use lab::run::RunSpec;
use serde_json::{Map, Value};

use super::{Command, spellings};
use crate::exit::{Failure, Result};

/// Settings of PyTorch's optimizers that change no byte of memory.
const WITHOUT_EFFECT: [&str; 7] = ["eps", "betas", "beta1", "beta2", "alpha", "dampening", "lr-decay"];

/// Fields by name, and notes about what was set without effect.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Set {
    pub(super) fields: Map<String, Value>,
    pub(super) notes: Vec<String>,
}

/// Most names that an error proposes.
const PROPOSED: usize = 3;

/// Returns what `--set` of a command sets. `optimizer.lr` is the field `lr`: the words before the last dot are for the reader.
///
/// # Errors
/// Text without `=`, and names that no run of this command has.
pub(super) fn read_set(command: &Command, flags: &clap::Command) -> Result<Set> {
    let asked = match command {
        Command::Train(args) => &args.training.set,
        Command::Predict(args) => &args.dry_run.training.set,
        Command::Fit(args) => &args.dry_run.training.set,
        Command::Plan(args) => &args.dry_run.training.set,
        Command::Check(args) => &args.dry_run.training.set,
        _ => return Ok(Set::default()),
    };
    read(asked, flags)
}

fn read(asked: &[String], flags: &clap::Command) -> Result<Set> {
    let is_flag = |name: &str| flags.get_arguments().any(|flag| flag.get_long() == Some(name));
    let mut set = Set::default();
    for text in asked {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--set {text}: expected NAME=VALUE, as in --set optimizer.lr=1e-4"))
        })?;
        let last = name.rsplit('.').next().unwrap_or(name);
        let field = spellings::ours(last);
        if WITHOUT_EFFECT.contains(&field.as_str()) {
            set.notes.push(format!("note: --set {name}: this changes no memory"));
            continue;
        }
        if !RunSpec::has_field(&field) {
            return Err(Failure::usage(format!("--set {name}: a run has no such setting{}", meant(name, &field))));
        }
        if !is_flag(&field) {
            return Err(Failure::usage(format!(
                "--set {name}: {} does not have it; a run on a device does: vramlab train --{field} {value}",
                flags.get_name()
            )));
        }
        RunSpec::default()
            .with([(field.as_str(), &Value::String(value.into()))])
            .map_err(|error| Failure::usage(format!("--set {name}: {error}")))?;
        set.fields.insert(field, Value::String(value.into()));
    }
    Ok(set)
}

/// Proposes the fields that are spelt alike, else those that have a word of the name.
fn meant(name: &str, field: &str) -> String {
    let fields = RunSpec::default().fields();
    let names = || fields.keys().map(String::as_str);
    let words: Vec<String> = name.split('.').map(spellings::ours).collect();
    let has_word = |known: &&str| words.iter().any(|word| known == word || known.split('-').any(|part| part == word));
    let alike = lab::similar::all_similar(field, names());
    let near: Vec<&str> = if alike.is_empty() { names().filter(has_word).collect() } else { alike };
    let near: Vec<String> = near.iter().take(PROPOSED).map(|name| format!("{name:?}")).collect();
    match near.is_empty() {
        true => " (vramlab predict --help lists all)".into(),
        false => format!("; did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::{Cli, parse};

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| word.to_string()).collect()
    }

    fn of_predict(list: &[&str]) -> Result<Set> {
        let mut root = Cli::command();
        root.build();
        read(&words(list), root.find_subcommand("predict").unwrap())
    }

    #[test]
    fn settings_are_read_by_name() {
        let set =
            of_predict(&["optimizer.lr=1e-4", "batch_size=8", "optimizer.eps=1e-6", "training.precision=bfloat16"])
                .unwrap();
        let mut fields: Vec<(&str, &str)> =
            set.fields.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        fields.sort_unstable();
        assert_eq!(fields, [("batch", "8"), ("lr", "1e-4"), ("precision", "bfloat16")]);
        assert_eq!(set.notes, ["note: --set optimizer.eps: this changes no memory"]);
    }

    #[test]
    fn an_error_names_the_fields_that_may_be_meant() {
        for (text, part) in [
            ("batch", "expected NAME=VALUE"),
            ("model.layrs=3", "did you mean \"layers\"?"),
            ("batch=many", "expected a whole number"),
            ("json=x", "no such setting (vramlab predict --help lists all)"),
            ("optimizer.name=lion", "did you mean \"optimizer\" or \"optimizer-impl\"?"),
            ("lora.dropput=0.1", "did you mean \"dropout\""),
            ("evaluation.batch-sise=4", "did you mean \"batch"),
            ("optimizer=adamww", "adamw"),
            ("training.cuda-graph=true", "vramlab train --cuda-graph true"),
        ] {
            let failure = of_predict(&[text]).unwrap_err();
            assert!(failure.error.to_string().contains(part), "{text}: {}", failure.error);
        }
    }

    /// A value of each field that differs from its default, and the fields that it needs.
    const VALUES: &[(&str, &str, &[&str])] = &[
        ("accumulate", "4", &[]),
        ("adversary", "d.pt2", &[]),
        ("alloc-conf", "expandable_segments:True", &[]),
        ("allocator", "direct", &[]),
        ("amsgrad", "true", &[]),
        ("attention", "sdpa", &[]),
        ("attention-mask", "padded", &[]),
        ("backend", "meta", &[]),
        ("batch", "3", &[]),
        ("batches", "3,4", &[]),
        ("built-on-device", "true", &[]),
        ("capturable", "true", &[]),
        ("channels-last", "true", &[]),
        ("checkpoint", "1,3", &[]),
        ("checkpoint-save", "mm:2,attention", &["--checkpoint", "blocks"]),
        ("choices", "5", &[]),
        ("classes", "7", &[]),
        ("clip-grad-norm", "0.5", &[]),
        ("cuda-graph", "true", &[]),
        ("cudnn-workspace", "4MiB", &[]),
        ("cut", "1", &["--devices", "meta:0,meta:1"]),
        ("data", "digits", &[]),
        ("data-parallel", "8", &[]),
        ("device", "1", &[]),
        ("devices", "meta:0,meta:1", &[]),
        ("dora", "true", &["--lora", "8"]),
        ("double-quant", "true", &["--load-in-4bit"]),
        ("dropout", "0.25", &[]),
        ("ema", "model", &[]),
        ("env", "CUBLASLT_WORKSPACE_SIZE=32", &[]),
        ("eval-batch", "2", &["--eval-every", "2"]),
        ("eval-every", "5", &[]),
        ("eval-keep", "logits", &["--eval-every", "2"]),
        ("eval-steps", "6", &["--eval-every", "2"]),
        ("features", "9", &[]),
        ("freeze", "*,!head", &[]),
        ("gpu", "rtx4090", &[]),
        ("gradient-as-bucket-view", "true", &["--data-parallel", "2"]),
        ("head", "causal-lm", &[]),
        ("heads", "3", &[]),
        ("hold", "loss", &[]),
        ("image", "96", &[]),
        ("keep", "loss", &[]),
        ("keep-intermediate", "true", &[]),
        ("layers", "3", &[]),
        ("lengths", "64,128", &[]),
        ("liger", "true", &[]),
        ("like", "torch-2.11-sm89", &[]),
        ("load", "weights.safetensors", &[]),
        ("load-in-4bit", "true", &[]),
        ("load-in-8bit", "true", &[]),
        ("logits-to-keep", "64", &[]),
        ("loop", "trainer", &[]),
        ("lora", "16", &[]),
        ("lora-dropout", "0.1", &["--lora", "8"]),
        ("lora-target", "all-linear", &["--lora", "8"]),
        ("loss", "mse", &[]),
        ("lr", "0.5", &[]),
        ("maximize", "true", &[]),
        ("memory-fraction", "0.5", &[]),
        ("memory-limit", "8GiB", &[]),
        ("micro-batches", "4", &["--devices", "meta:0,meta:1"]),
        ("model", "mlp", &[]),
        ("model-file", "net.toml", &[]),
        ("modules-to-save", "lm_head", &["--lora", "8"]),
        ("multiprocessors", "100", &[]),
        ("nesterov", "true", &[]),
        ("optimizer", "lion", &[]),
        ("optimizer-impl", "fused", &[]),
        ("packing", "4", &[]),
        ("pipeline-schedule", "gpipe", &["--devices", "meta:0,meta:1"]),
        ("precision", "bf16", &[]),
        ("resume", "state.vram", &[]),
        ("rslora", "true", &["--lora", "8"]),
        ("save-on-cpu", "pinned", &[]),
        ("schedule", "input,zero_grad,forward,loss,backward,step,del", &[]),
        ("seed", "7", &[]),
        ("sequence", "65", &[]),
        ("step-in-backward", "true", &[]),
        ("steps", "11", &[]),
        ("sync-each", "true", &["--data-parallel", "2"]),
        ("tf32", "conv", &[]),
        ("tied", "true", &[]),
        ("transformers", "4.51", &[]),
        ("vocabulary", "999", &[]),
        ("weight-decay", "0.25", &[]),
        ("width", "32", &[]),
        ("zero", "3", &["--data-parallel", "2"]),
        ("zero-grad", "zero", &[]),
    ];

    /// The run of a command line.
    fn run(list: &[&str]) -> RunSpec {
        match parse(list.iter().map(std::ffi::OsString::from).collect()) {
            Ok(invocation) => invocation.run,
            Err(refused) => panic!("{list:?}: {refused:?}"),
        }
    }

    #[test]
    fn every_field_of_a_run_can_be_set_by_name_as_by_its_flag() {
        let fields = RunSpec::default().fields();
        let named: Vec<&str> = VALUES.iter().map(|(name, ..)| *name).collect();
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(named, names, "a value for each field");
        let mut root = Cli::command();
        root.build();
        let has = |command: &str, name: &str| {
            root.find_subcommand(command).unwrap().get_arguments().any(|flag| flag.get_long() == Some(name))
        };
        for (name, value, beside) in VALUES {
            let command = if has("predict", name) { "predict" } else { "train" };
            assert!(has(command, name), "{name}");
            let begin = [&["vramlab", command][..], beside].concat();
            let flag = match fields[*name] {
                Value::Bool(_) => vec![format!("--{name}")],
                _ if matches!(*name, "gradient-as-bucket-view" | "sync-each" | "cuda-graph") => {
                    vec![format!("--{name}")]
                }
                _ => vec![format!("--{name}={value}")],
            };
            let flag: Vec<&str> = flag.iter().map(String::as_str).collect();
            let setting = format!("{name}={value}");
            let (typed, set) = (run(&[&begin[..], &flag].concat()), run(&[&begin[..], &["--set", &setting]].concat()));
            assert_eq!(set.fields(), typed.fields(), "{command} --set {setting}");
            assert_ne!(set.fields(), run(&begin).fields(), "{command} --set {setting} changes nothing");
        }
    }
}
