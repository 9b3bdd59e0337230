//! What is wrong with a command line, in this program's words, with a tip where people err. Tips are written by hand; clap's own guesses are shown
//! only for a slip of the keys, since a similar name is another thing (`--batches` is not `--batch-size`).

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::spellings::NO_EFFECT;

/// Most letters that may be wrong, missing, too many or swapped in a slip of the keys.
const SLIP: usize = 2;

/// What a script does that `predict` does not count.
const RUN_IT: &str = "vramlab does not count this for a model file; your script does it: vramlab predict --gpu rtx4090 -- python train.py";

/// Weights of few bits.
const BITS: &str = "weights of 4 or 8 bits: --load-in-4bit, --load-in-8bit";

/// Tips for flags that there are not: their names, and what to do.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["epochs", "num-train-epochs", "num-epochs"],
        "memory repeats after a few steps, so epochs do not matter; leave the flag out, or give --steps N",
    ),
    (NO_EFFECT, "it has no effect on memory; leave the flag out"),
    (&["qlora"], "--lora 16 --load-in-4bit"),
    (&["peft"], "adapters of rank 16: --lora 16"),
    (&["4bit", "8bit", "bnb", "quantization", "quantize", "bits"], BITS),
    (&["lora", "offload", "cpu-offload"], RUN_IT),
    (&["compile", "torch-compile", "liger", "flash"], RUN_IT),
    (&["memory", "vram", "gpu-memory", "mem"], "give the card or its memory: --gpu rtx4090, --gpu 24GiB"),
    (
        &["gpus"],
        "several cards: --data-parallel N; which card to take: vramlab plan NETWORK --global-batch 64 --gpus any",
    ),
    (&["amp"], "--precision autocast-bf16, or --bf16"),
    (&["host", "address"], "vramlab ui --public ADDRESS, with 0.0.0.0 for every address"),
    (
        &["world-size", "num-gpus", "n-gpus", "nproc-per-node", "num-processes", "ddp", "fsdp", "deepspeed"],
        "several cards: --data-parallel N, and --zero STAGE for ZeRO or FSDP",
    ),
    (&["max-batch", "largest-batch", "auto-batch-size", "find-batch-size"], "the largest batch that fits: --largest"),
    (&["output", "out", "save-to"], "write the answer with --html FILE.html, --json FILE or --export-csv FILE"),
    (&["betas", "eps", "beta1", "beta2"], "this changes no memory; leave it out"),
    (&["b"], "--batch 8"),
    (&["g"], "--gpu rtx4090"),
    (&["s"], "--sequence 1024"),
    (&["device"], "the card to predict for: --gpu rtx4090; vramlab train has --device"),
    (&["gpu"], "vramlab predict has --gpu; this command reads a file, or uses this machine"),
    (
        &["inference", "eval", "generate"],
        "vramlab counts training; a script of inference is run as it is: vramlab predict infer.py",
    ),
    (&["dry-run"], "every prediction is a dry run; leave it out"),
    (&["no-color", "no-colour"], "--color never"),
    (&["list"], "`vramlab ask` alone lists the questions, `vramlab info models` the networks"),
];

/// Tips for values: the flag, parts of the value, and what to do.
const VALUES: &[(&str, &[&str], &str)] = &[
    ("--optimizer", &["8bit", "bnb", "paged", "adafactor", "lion", "muon", "galore", "shampoo", "lomo"], RUN_IT),
    ("--json", &[""], "--json - prints it, --json answer.json writes a file"),
    ("--html", &[""], "name the page: --html page.html"),
    ("--freeze", &[""], "name what is not trained: --freeze 'embed*', or --freeze '*,!head'"),
    ("--batch", &["auto", "max", "largest"], "the largest batch that fits: --largest"),
    ("--batch", &[","], "several sizes: -L batch 8,16"),
    ("--sequence", &[","], "several sizes: -L sequence 512,1024"),
    ("--gpu", &["any", "all"], "which card to take: vramlab plan NETWORK --global-batch 64 --gpus any"),
    ("--gpu", &[","], "one card at a time; vramlab plan compares cards: --gpus rtx4090,rtx3090"),
    ("--precision", &["int8", "int4", "nf4", "fp8", "float8", "4bit", "8bit"], RUN_IT),
    ("--attention", &["flash"], "flash-attn is a library of its own; PyTorch's own fused kernel is --attention sdpa"),
    (
        "--model",
        &[".json", ".pt2", ".toml", "/"],
        "--model-file FILE names a file, and a file stands alone: vramlab predict config.json, vramlab check memory.lock.json --update config.json",
    ),
    (
        "--model",
        &[""],
        "`vramlab info models` lists the networks; a network of your own: vramlab predict train.py, config.json or model.pt2",
    ),
];

/// Returns the flag of a command that a typed one is a slip of the keys away from.
pub(super) fn nearly<'a>(command: &'a Command, typed: &str) -> Option<&'a str> {
    let name = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
    let known = command.get_arguments().filter_map(clap::Arg::get_long);
    known
        .map(|known| (slips(known, name), known))
        .filter(|(slips, known)| is_slip(*slips, known))
        .min()
        .map(|(_, known)| known)
}

fn is_slip(slips: usize, known: &str) -> bool {
    // In a short name two other letters are another word.
    slips <= SLIP.min(known.len() / 3)
}

/// Returns the letters that are wrong, missing, too many or swapped.
fn slips(known: &str, typed: &str) -> usize {
    lab::similar::slips(known, typed)
}

/// Returns the whole text for standard error, without colours.
pub(crate) fn text(mut error: clap::Error, words: &[OsString]) -> String {
    if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return error.render().to_string();
    }
    let (flag, value) = (given(&error, ContextKind::InvalidArg), given(&error, ContextKind::InvalidValue));
    let unknown_command = given(&error, ContextKind::InvalidSubcommand);
    let typed = flag.as_deref().and_then(|flag| flag.split([' ', '=']).next()).unwrap_or_default().to_string();
    let by_hand = match error.kind() {
        ErrorKind::UnknownArgument if typed.starts_with('-') => of_flag(&typed),
        ErrorKind::UnknownArgument => of_word(&typed),
        ErrorKind::WrongNumberOfValues if typed == "--parameter-scan" => {
            Some("a range is -P batch 8 64, a list -L batch 8,64".into())
        }
        ErrorKind::MissingRequiredArgument => of_missing(&command_of(&error, words)),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            value.as_deref().and_then(|value| of_value(&typed, value))
        }
        ErrorKind::InvalidSubcommand => unknown_command.as_deref().and_then(of_command),
        _ => None,
    };
    let command = command_of(&error, words);
    // Guesses of names that are only similar would lead elsewhere.
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand] {
        let guess = given(&error, kind);
        let meant = flag_or(&typed, value.as_deref().or(unknown_command.as_deref()), kind);
        let near = guess.is_some_and(|guess| {
            let guess = guess.trim_start_matches('-').to_string();
            is_slip(slips(&guess, meant.trim_start_matches('-')), &guess)
        });
        if by_hand.is_some() || !near {
            error.remove(kind);
        }
    }
    error.remove(ContextKind::Suggested);
    error.remove(ContextKind::Usage);
    let said = error.render().to_string();
    let said = said.split("\n\nFor more information").next().unwrap_or_default().trim_end();
    let tip = by_hand.map(|tip| format!("\n\n  tip: {tip}")).unwrap_or_default();
    format!("{said}{tip}\n\nFor help: {command} -h")
}

fn flag_or(flag: &str, value: Option<&str>, kind: ContextKind) -> String {
    match kind {
        ContextKind::SuggestedArg => flag.to_string(),
        _ => value.unwrap_or_default().to_string(),
    }
}

fn given(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// Returns `vramlab predict`, of the usage in the error, else of the words.
fn command_of(error: &clap::Error, typed: &[OsString]) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage.split_whitespace().skip_while(|word| *word != "vramlab");
    let words: Vec<&str> = words.take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())).collect();
    if !words.is_empty() {
        // Commands that a person meets under another name.
        return match words.join(" ").as_str() {
            "vramlab explain" => "vramlab open".into(),
            "vramlab rehearse" | "vramlab fit" => "vramlab predict".into(),
            other => other.into(),
        };
    }
    let name = typed.iter().skip(1).filter_map(|word| word.to_str()).find(|word| !word.starts_with('-'));
    name.filter(|_| error.kind() != ErrorKind::InvalidSubcommand)
        .map_or("vramlab".into(), |name| format!("vramlab {name}"))
}

fn of_flag(flag: &str) -> Option<String> {
    let name = lab::named::spelled(flag.trim_start_matches('-'));
    // What libraries and scripts do is meant by a part of the name, too: --use-lora, --bnb-4bit-quant-type.
    let in_parts = |part: &str| name.split('-').any(|word| word == part);
    let is_meant = |tip: &str, part: &str| name == part || [RUN_IT, BITS].contains(&tip) && in_parts(part);
    let found = FLAGS.iter().find(|(parts, tip)| parts.iter().any(|part| is_meant(tip, part)));
    found.map(|(_, tip)| (*tip).to_string())
}

/// A further word where none stands.
fn of_word(word: &str) -> Option<String> {
    match word {
        "cards" | "gpus" | "devices" | "models" | "networks" | "experiments" => Some(format!("vramlab info {word}")),
        _ if Path::new(word).exists() || super::model::names().contains(&word) => {
            Some("give one network or script at a time".into())
        }
        _ => None,
    }
}

/// A command without what it needs.
fn of_missing(command: &str) -> Option<String> {
    match command {
        "vramlab check" => Some("this makes the file: vramlab check memory.lock.json --update gpt2".into()),
        "vramlab diff" => {
            Some("two files, or two sets of flags: vramlab diff \"gpt2 --batch 4\" \"gpt2 --batch 8\"".into())
        }
        _ => None,
    }
}

fn of_value(flag: &str, value: &str) -> Option<String> {
    let value = value.to_ascii_lowercase();
    let fits = |(of, parts, _): &&(&str, &[&str], &str)| *of == flag && parts.iter().any(|part| value.contains(*part));
    VALUES.iter().find(fits).map(|(_, _, tip)| (*tip).to_string())
}

/// A word where a command stands: a file or a network.
fn of_command(word: &str) -> Option<String> {
    let path = Path::new(word);
    let is_network = super::model::names().contains(&word) || super::what::is_starter(word);
    if path.exists() || is_network {
        let reads = path.extension().and_then(|ending| ending.to_str());
        let verb = if matches!(reads, Some("pickle" | "pkl" | "log" | "txt" | "gz")) { "open" } else { "predict" };
        return Some(format!("vramlab {verb} {word}"));
    }
    let tip = match word.replace('_', "-").as_str() {
        "gui" | "web" | "serve" | "server" | "dashboard" | "browser" => "vramlab ui",
        "leak" | "leaks" => "vramlab ask leak, or for your script vramlab predict train.py",
        "estimate-memory" | "profile" | "memory" | "size" => "vramlab predict gpt2 --gpu rtx4090",
        "lora" | "qlora" => "vramlab predict config.json --lora 16 --load-in-4bit",
        "largest" | "fits" | "max-batch" => "vramlab predict gpt2 --gpu rtx4090 --largest",
        "version" => "vramlab --version",
        _ => return None,
    };
    Some(tip.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn told(words: &str) -> String {
        let words = format!("vramlab {words}");
        text(Cli::command().try_get_matches_from(words.split(' ')).unwrap_err(), &[])
    }

    #[test]
    fn tips_are_right_or_there_are_none() {
        for (words, tip) in [
            ("predict --bacth 4", Some("'--batch'")),
            ("predict --peft", Some("--lora 16")),
            ("predict --fsdp", Some("--zero STAGE")),
            ("predict --json", Some("--json - prints it")),
            ("predict --batch 8,16", Some("-L batch 8,16")),
            ("predict --batch auto", Some("--largest")),
            ("predict --device cuda", Some("--gpu rtx4090")),
            ("list models", Some("vramlab info models")),
            ("check", Some("--update")),
            ("fits gpt2", Some("--largest")),
            ("predict --bnb-4bit-quant-type nf4", Some("--load-in-4bit")),
            ("predict --cpu-offload", Some("your script does it")),
            ("predict --optimizer galore-adamw8bit", Some("your script does it")),
            ("predict --num-train-epochs 3", Some("epochs do not matter")),
            ("predict --lora-alpha 32", Some("no effect on memory")),
            ("predict --vram 24", Some("--gpu 24GiB")),
            ("predict --gradients-as-lists", None),
            ("predict --model nosuch", Some("vramlab info models")),
            ("predikt", Some("'predict'")),
            ("serve", Some("vramlab ui")),
            ("leak train.py", Some("vramlab predict train.py")),
            ("estimate-memory org/model", Some("vramlab predict gpt2")),
            ("frobnicate", None),
        ] {
            let told = told(words);
            assert_eq!(told.contains("tip:"), tip.is_some(), "{words}: {told}");
            assert!(tip.is_none_or(|tip| told.contains(tip)), "{words}: {told}");
            assert!(!told.contains("Usage:"), "{words}: {told}");
        }
    }
}
