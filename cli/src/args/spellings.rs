//! The spellings of other programs: flags as PyTorch's scripts, transformers, Accelerate, Lightning and DeepSpeed name them, as the flags here.
//!
//! Names of values (`AdamW`, `bfloat16`) are read where they are defined, by `lab_base::named!`.

use std::ffi::{OsStr, OsString};

use clap::Command;
use lab::named::spelled;

/// Flags of other programs that take a value, and the flag here.
const NAMES: &[(&str, &[&str])] = &[
    (
        "batch",
        &[
            "batch-size",
            "batchsize",
            "bs",
            "per-device-train-batch-size",
            "per-gpu-train-batch-size",
            "train-batch-size",
            "micro-batch-size",
            "train-micro-batch-size-per-gpu",
        ],
    ),
    (
        "sequence",
        &[
            "seq",
            "seq-len",
            "seq-length",
            "seqlen",
            "sequence-length",
            "sequence-len",
            "max-length",
            "max-seq-len",
            "max-seq-length",
            "context-length",
            "block-size",
            "model-max-length",
            "tokens",
        ],
    ),
    ("precision", &["dtype", "torch-dtype"]),
    ("optimizer", &["optim", "opt"]),
    ("lr", &["learning-rate"]),
    ("lora", &["lora-r", "lora-rank"]),
    ("lora-target", &["target-modules", "lora-target-modules"]),
    (
        "accumulate",
        &[
            "gradient-accumulation-steps",
            "grad-accumulation-steps",
            "gradient-accumulation",
            "grad-accum",
            "accumulation-steps",
            "accumulate-grad-batches",
        ],
    ),
    ("clip-grad-norm", &["max-grad-norm", "gradient-clip-val", "grad-clip", "gradient-clipping"]),
    ("steps", &["max-steps", "num-steps", "max-train-steps"]),
    ("attention", &["attn-implementation", "attn"]),
    ("layers", &["num-layers", "n-layer", "n-layers", "num-hidden-layers"]),
    ("width", &["hidden-size", "d-model", "n-embd"]),
    ("heads", &["num-heads", "n-head", "n-heads", "num-attention-heads"]),
    ("vocabulary", &["vocab-size"]),
    ("classes", &["num-classes", "num-labels"]),
    ("image", &["image-size", "img-size"]),
    ("alloc-conf", &["pytorch-cuda-alloc-conf", "pytorch-alloc-conf", "cuda-alloc-conf"]),
    ("zero", &["zero-stage"]),
    ("gpu", &["card", "gpu-name"]),
];

/// What another program's flag says here: without a value, or with this one.
struct Says {
    flag: &'static str,
    /// The value that this is about; `None` for a flag without a value, or with `true`.
    value: Option<&'static str>,
    here: &'static [&'static str],
}

const fn says(flag: &'static str, value: Option<&'static str>, here: &'static [&'static str]) -> Says {
    Says { flag, value, here }
}

/// Flags of other programs whose value is another flag's here.
const SAYS: &[Says] = &[
    says("gradient-checkpointing", None, &["--checkpoint", "blocks"]),
    says("activation-checkpointing", None, &["--checkpoint", "blocks"]),
    says("grad-checkpointing", None, &["--checkpoint", "blocks"]),
    says("checkpointing", None, &["--checkpoint", "blocks"]),
    says("bf16", None, &["--autocast", "bf16"]),
    says("fp16", None, &["--autocast", "fp16"]),
    says("amp", Some("bf16"), &["--precision", "autocast-bf16"]),
    says("amp", Some("fp16"), &["--precision", "autocast-fp16"]),
    says("amp", None, &["--precision", "autocast-fp16"]),
    says("mixed-precision", Some("bf16"), &["--autocast", "bf16"]),
    says("mixed-precision", Some("fp16"), &["--autocast", "fp16"]),
    // Commands without arguments of transformers.
    says("bf16", None, &["--precision", "autocast-bf16"]),
    says("fp16", None, &["--precision", "autocast-fp16"]),
    says("mixed-precision", Some("bf16"), &["--precision", "autocast-bf16"]),
    says("mixed-precision", Some("fp16"), &["--precision", "autocast-fp16"]),
    says("mixed-precision", Some("no"), &["--precision", "fp32"]),
    says("fused", None, &["--optimizer-impl", "fused"]),
    says("foreach", None, &["--optimizer-impl", "foreach"]),
    says("optim", Some("adamw-torch-fused"), &["--optimizer", "adamw", "--optimizer-impl", "fused"]),
    says("optimizer", Some("adamw-torch-fused"), &["--optimizer", "adamw", "--optimizer-impl", "fused"]),
    says("bits", Some("4"), &["--load-in-4bit"]),
    says("bits", Some("8"), &["--load-in-8bit"]),
    says("expandable-segments", None, &["--alloc-conf", "expandable_segments:True"]),
];

/// Flags of other programs that change no memory: those with a value, and [without](SWITCHES_WITHOUT_EFFECT).
pub(super) const NO_EFFECT: &[&str] = &[
    "lora-alpha",
    "lora-bias",
    "warmup-steps",
    "warmup-ratio",
    "lr-scheduler-type",
    "logging-steps",
    "logging-dir",
    "save-steps",
    "save-total-limit",
    "report-to",
    "run-name",
    "output-dir",
    "num-train-epochs",
    "num-epochs",
    "epochs",
];
const SWITCHES_WITHOUT_EFFECT: &[&str] = &["do-train", "overwrite-output-dir", "push-to-hub"];

/// Takes the flags that change no memory out of words, up to `--`, and returns them as they were typed. A flag that the command has stays.
pub(super) fn without_effect(words: &mut Vec<OsString>, command: &Command) -> Vec<String> {
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let (mut at, mut taken) = (0, Vec::new());
    while let Some(word) = words.get(at).filter(|word| *word != "--") {
        let flag = word.to_str().filter(|word| word.starts_with("--")).map(String::from);
        let name = flag.as_deref().map(|flag| spelled(flag[2..].split('=').next().unwrap_or_default()));
        let (Some(flag), Some(name)) = (flag, name.filter(|name| !has(name))) else {
            at += 1;
            continue;
        };
        let is_switch = SWITCHES_WITHOUT_EFFECT.contains(&name.as_str());
        if !is_switch && !NO_EFFECT.contains(&name.as_str()) {
            at += 1;
            continue;
        }
        words.remove(at);
        let is_value = |word: &OsString| !word.to_string_lossy().starts_with("--");
        if !is_switch && !flag.contains('=') && words.get(at).is_some_and(is_value) {
            words.remove(at);
        }
        taken.push(flag);
    }
    taken
}

/// Returns this program's name of a flag; the name itself if it has no other.
pub(super) fn ours(name: &str) -> String {
    let plain = spelled(name);
    let found = NAMES.iter().find(|(_, theirs)| theirs.contains(&plain.as_str()));
    found.map_or(plain, |(ours, _)| (*ours).to_string())
}

/// Returns the words of a command with other programs' flags as those here. Flags that the command has keep their meaning, and what follows `--`,
/// or a rehearsal's command, is left alone.
pub(super) fn as_ours(words: &[OsString], command: &Command) -> Vec<OsString> {
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let scans_own = has("parameter-list") && has("batch");
    let mut taken: Vec<OsString> = Vec::with_capacity(words.len());
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            taken.push(word.clone());
            taken.extend(rest.cloned());
            break;
        }
        let Some(typed) = word.to_str().and_then(|word| word.strip_prefix("--")) else {
            let is_axis = scans_own && matches!(word.to_str(), Some("-L" | "-P"));
            taken.push(word.clone());
            if let Some(axis) = rest.next_if(|_| is_axis) {
                taken.push(axis.to_str().filter(|axis| !has(axis)).map_or(axis.clone(), |axis| ours(axis).into()));
            }
            continue;
        };
        let (name, value) = typed.split_once('=').map_or((typed, None), |(name, value)| (name, Some(value)));
        let plain = spelled(name);
        let next = rest.peek().and_then(|word| word.to_str());
        if let Some((here, used_next)) = said(&plain, value, next, has) {
            let knows = has(&plain) && value.or(next).is_none_or(|value| spelled(value) != "adamw-torch-fused");
            if !knows {
                taken.extend(here.iter().map(OsString::from));
                rest.next_if(|_| used_next);
                continue;
            }
        }
        let ours = if has(name) { name.to_string() } else { ours(name) };
        match has(&ours) {
            true => taken.push(value.map_or(format!("--{ours}"), |value| format!("--{ours}={value}")).into()),
            false => taken.push(word.clone()),
        }
    }
    taken
}

/// Returns what a flag of [`SAYS`] says here, and whether the next word is its value.
fn said(
    name: &str,
    value: Option<&str>,
    next: Option<&str>,
    has: impl Fn(&str) -> bool,
) -> Option<(&'static [&'static str], bool)> {
    let is_on = |value: &str| value.eq_ignore_ascii_case("true");
    SAYS.iter().filter(|says| says.flag == name && has(&says.here[0][2..])).find_map(|says| {
        match (says.value, value, next) {
            (None, Some(value), _) => is_on(value).then_some((says.here, false)),
            (None, None, next) => {
                let off = next.is_some_and(|next| next.eq_ignore_ascii_case("false"));
                (!off).then_some((says.here, next.is_some_and(is_on)))
            }
            (Some(wanted), Some(value), _) => (spelled(value) == wanted).then_some((says.here, false)),
            (Some(wanted), None, Some(next)) => (spelled(next) == wanted).then_some((says.here, true)),
            (Some(_), None, None) => None,
        }
    })
}

/// Returns how many words after a flag of [`SAYS`] belong to it; `None` if it is none, or if the command has a flag of this name.
pub(super) fn consumed(flag: &str, next: Option<&str>, command: &Command) -> Option<usize> {
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let typed = flag.strip_prefix("--")?;
    let (name, value) = typed.split_once('=').map_or((typed, None), |(name, value)| (name, Some(value)));
    let plain = spelled(name);
    let (_, used_next) = said(&plain, value, next, has)?;
    (!has(&plain)).then_some(usize::from(used_next))
}

/// Returns where the words of a command begin: the place after its name, which flags of every command may stand before.
pub(super) fn after_command(words: &[OsString], root: &Command) -> Option<(usize, String)> {
    let takes_value = |word: &OsStr| word == "--color";
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if word.to_str().is_some_and(|word| word.starts_with('-')) {
            at += if takes_value(word) { 2 } else { 1 };
            continue;
        }
        let name = word.to_str()?;
        return root.find_subcommand(name).map(|command| (at + 1, command.get_name().to_string()));
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn of_predict(words: &str) -> String {
        let mut root = Cli::command();
        root.build();
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let taken = as_ours(&words, root.find_subcommand("predict").unwrap());
        taken.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_of_other_programs_are_flags_here() {
        for (typed, taken) in [
            ("--batch-size 8", "--batch 8"),
            ("--batch_size=8", "--batch=8"),
            ("--per_device_train_batch_size 8", "--batch 8"),
            ("--seq-len 512 --max_length=4", "--sequence 512 --sequence=4"),
            ("--dtype bf16", "--precision bf16"),
            ("--bf16", "--autocast bf16"),
            ("--bf16 True --batch 2", "--autocast bf16 --batch 2"),
            ("--fp16=true", "--autocast fp16"),
            ("--mixed_precision bf16", "--autocast bf16"),
            ("--gradient_checkpointing", "--checkpoint blocks"),
            ("--gradient-checkpointing true", "--checkpoint blocks"),
            ("--optim adamw_torch_fused", "--optimizer adamw --optimizer-impl fused"),
            ("--optim=sgd", "--optimizer=sgd"),
            ("--model_file config.json", "--model-file config.json"),
            ("-L batch-size 1,2", "-L batch 1,2"),
            // Kept: the command's own flags, unknown ones, and what belongs to another command.
            ("--batches 1,2 --nosuch 3", "--batches 1,2 --nosuch 3"),
            ("--batch 4 -- python train.py --batch-size 8", "--batch 4 -- python train.py --batch-size 8"),
        ] {
            assert_eq!(of_predict(typed), taken, "{typed}");
        }
    }

    #[test]
    fn every_name_stands_for_one_flag_that_there_is() {
        let mut root = Cli::command();
        root.build();
        let has = |name: &str| {
            let predict = root.find_subcommand("predict").unwrap();
            predict.get_arguments().any(|arg| arg.get_long() == Some(name))
        };
        let mut seen = std::collections::BTreeSet::new();
        for (ours, theirs) in NAMES {
            assert!(has(ours), "{ours}");
            for name in *theirs {
                assert!(!has(name) && seen.insert(name), "{name} is a flag here, or named twice");
            }
        }
        for Says { here, .. } in SAYS {
            assert!(here.iter().step_by(2).all(|flag| has(&flag[2..])), "{here:?}");
        }
    }
}
