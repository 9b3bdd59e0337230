//! The door: what people type, as the commands that there are.
//!
//! A person knows a file or a name, not which command takes it. `predict WHAT`, `open FILE`, `ask NAME` and `info TOPIC` look at it and choose;
//! flags are passed on as they are. Everything else about a command line is clap's.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use lab::cards::Card;

use super::line::{Entered, Line, values_of};
use super::scripts::{card_behind, interpreter, largest_of, python, startable, told_apart};
use super::what::{self, What};
use super::{opened, recipe, spellings};
use crate::exit::{Failure, Result};

/// Commands of which a word names a network, a script, a file or a topic.
const CHOOSES: [&str; 8] = ["predict", "train", "fit", "plan", "open", "info", "ask", "check"];

/// Returns the words of the chosen command.
///
/// # Errors
/// Words that name nothing; files of which the command says nothing.
pub(super) fn enter(words: Vec<OsString>, root: &Command) -> Result<Entered> {
    let Some((at, name)) = spellings::after_command(&words, root) else {
        return Ok(Entered { words, notes: Vec::new() });
    };
    let line = Line::new(root, words[..at - 1].to_vec(), words[at..].to_vec());
    if let Some(help) = line.help_word() {
        // Of commands whose words are chosen from here, clap knows none.
        let words = if CHOOSES.contains(&name.as_str()) { line.only(&name, help) } else { words };
        return Ok(Entered { words, notes: Vec::new() });
    }
    match name.as_str() {
        "predict" => predict(line),
        "rehearse" => rehearse(line),
        "train" | "fit" | "plan" => network(line, &name),
        "open" => opened::choose(line),
        "info" => info(line),
        "ask" => ask(line),
        "check" => check(line),
        "snapshot" => snapshot(line),
        "watch" => watch(line),
        _ => Ok(line.with_own(&name)),
    }
}

/// `predict WHAT`: a script is rehearsed, a network is simulated.
fn predict(mut line: Line<'_>) -> Result<Entered> {
    let places = line.positionals(&["predict", "rehearse", "fit"]);
    let command = line.rest.iter().position(|word| word == "--").map(|at| line.rest.split_off(at).split_off(1));
    let Some(&at) = places.first() else {
        return match command.filter(|command| !command.is_empty()) {
            Some(command) => {
                let flags = std::mem::take(&mut line.rest);
                rehearsed(line, flags, command)
            }
            None => network(with_its_recipe(line), "predict"),
        };
    };
    let word = line.rest[at].to_string_lossy().into_owned();
    match what::named(&word)? {
        What::Command(_) => {
            let mut words = line.rest.split_off(at);
            let mut flags = std::mem::take(&mut line.rest);
            flags.extend(card_behind(&mut words));
            if let Some(more) = command {
                words.push("--".into());
                words.extend(more);
            }
            rehearsed(line, flags, words)
        }
        What::Script(script) => {
            let mut after = line.rest.split_off(at).split_off(1);
            let mut flags = std::mem::take(&mut line.rest);
            let interpreter = interpreter(&mut flags)?.or(interpreter(&mut after)?).unwrap_or_else(python);
            if after.iter().any(|word| word == "--largest") {
                let typed = [flags, after].concat();
                return Err(largest_of(&[interpreter, script.into_os_string()], &typed));
            }
            let (own, arguments) = told_apart(&line, after)?;
            flags.extend(own);
            let words =
                [interpreter, script.into_os_string()].into_iter().chain(arguments).chain(command.unwrap_or_default());
            rehearsed(line, flags, words.collect())
        }
        What::Recipe { flag: "--recipe", file, .. } if command.is_none() => match recipe::start(&line, at, &file)? {
            recipe::Start::Rehearsed { flags, command, note } => {
                let entered = rehearsed(line, flags, command)?;
                Ok(Entered { notes: vec![note], ..entered })
            }
            recipe::Start::Counted(note) => {
                let entered = network(line, "predict")?;
                Ok(Entered { notes: note.into_iter().chain(entered.notes).collect(), ..entered })
            }
        },
        _ if command.is_some() => Err(Failure::usage(format!(
            "after -- stands a command that trains, but {word} is a network; give one of the two"
        ))),
        _ => network(line, "predict"),
    }
}

/// True if a flag of the line names a network.
fn names_network(line: &Line<'_>) -> bool {
    line.rest.iter().any(|word| {
        let flag = word.to_str().and_then(|word| word.split('=').next());
        matches!(flag, Some("--model" | "--model-file" | "--model_file"))
    })
}

/// Gives a line that names a recipe by its flag alone, `--recipe FILE`, the file as a network: the recipe names one.
fn with_its_recipe(mut line: Line<'_>) -> Line<'_> {
    let at = line.rest.iter().position(|word| word == "--recipe").filter(|at| at + 1 < line.rest.len());
    let is_recipe = |at: usize| {
        let found = what::named(&line.rest[at + 1].to_string_lossy());
        matches!(found, Ok(What::Recipe { flag: "--recipe", network: Some(_), .. }))
    };
    if let Some(at) = at.filter(|at| is_recipe(*at) && !names_network(&line)) {
        line.rest.remove(at);
    }
    line
}

/// Returns a rehearsal of a command.
fn rehearsed(line: Line<'_>, flags: Vec<OsString>, command: Vec<OsString>) -> Result<Entered> {
    let Some(own) = line.command("rehearse") else {
        return Err(Failure::usage("scripts are rehearsed on Linux only; elsewhere: vramlab predict config.json"));
    };
    if flags.iter().any(|flag| flag == "--largest") {
        return Err(largest_of(&startable(command), &flags));
    }
    let unknown = flags
        .iter()
        .filter_map(|word| word.to_str())
        .find(|word| word.starts_with("--") && word.len() > 2 && values_of(own, word).is_none());
    if let Some(flag) =
        unknown.filter(|flag| line.command("predict").is_some_and(|predict| values_of(predict, flag).is_some()))
    {
        let shown: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        return Err(Failure::usage(format!(
            "{flag} describes a network; a script sets this itself. Give the script's own argument after it: vramlab predict -- {} …",
            shown.join(" ")
        )));
    }
    let flags = spellings::as_ours(&flags, own);
    let words = flags.into_iter().chain([OsString::from("--")]).chain(startable(command)).collect();
    Ok(line.with("rehearse", words))
}

/// `rehearse COMMAND`, with or without `--`.
fn rehearse(mut line: Line<'_>) -> Result<Entered> {
    let at = line.positionals(&["rehearse"]).first().copied();
    let command = match (at, line.rest.iter().position(|word| word == "--")) {
        (Some(at), _) => line.rest.split_off(at),
        (None, Some(at)) => line.rest.split_off(at).split_off(1),
        (None, None) => return Ok(line.with_own("rehearse")),
    };
    let words =
        std::mem::take(&mut line.rest).into_iter().chain([OsString::from("--")]).chain(startable(command)).collect();
    Ok(line.with("rehearse", words))
}

/// A command with a network: `gpt2`, `config.json`, `model.pt2`, a recipe. `--largest` of `predict` is the command `fit`.
fn network(mut line: Line<'_>, name: &str) -> Result<Entered> {
    let mut notes = Vec::new();
    if let Some(command) = line.command(name).filter(|_| name != "train") {
        let without_effect = spellings::without_effect(&mut line.rest, command);
        if !without_effect.is_empty() {
            notes.push(format!("note: no effect on memory: {}", without_effect.join(", ")));
        }
    }
    let place = line.positionals(&[name, "fit"]).first().copied();
    if let Some(at) = place {
        let word = line.rest.remove(at).to_string_lossy().into_owned();
        let is_named = names_network(&line);
        let found = what::named(&word)?;
        if is_named && !matches!(found, What::Recipe { .. }) {
            return Err(Failure::usage(format!("{word} and --model (or --model-file) both name a network; give one")));
        }
        if matches!(found, What::ByPython(_)) && (name != "predict" || line.rest.iter().any(|word| word == "--largest"))
        {
            return Err(Failure::usage(format!(
                "{word}: no such file, no built-in network (vramlab info models), not in the Hugging Face cache; what your own Python \
                 builds is predicted at one size: vramlab predict {word} --batch 1"
            )));
        }
        let words = words_of(&word, found, is_named, &mut notes)?;
        line.rest.splice(at..at, words);
    }
    let largest = line.rest.iter().position(|word| word == "--largest").filter(|_| name == "predict");
    let Some(at) = largest else {
        let entered = line.with_own(name);
        return Ok(Entered { notes, ..entered });
    };
    line.rest.remove(at);
    let of = line.rest.get(at).filter(|word| *word == "batch" || *word == "sequence").cloned();
    if let Some(of) = of {
        line.rest.splice(at..=at, [OsString::from("--of"), of]);
    }
    let entered = line.with_own("fit");
    Ok(Entered { notes, ..entered })
}

/// Returns the flags that say which network is meant, and notes about where it was found.
fn words_of(word: &str, found: What, is_named: bool, notes: &mut Vec<String>) -> Result<Vec<OsString>> {
    let shown = |config: &Path| format!("note: {word} is in the Hugging Face cache: {}", config.display());
    Ok(match found {
        What::Network(file) => vec!["--model-file".into(), file.into_os_string()],
        What::ByPython(name) => vec!["--model-file".into(), name.into()],
        What::BuiltIn(name) => vec!["--model".into(), name.into()],
        What::Hub { config, .. } => {
            notes.push(shown(&config));
            vec!["--model-file".into(), config.into_os_string()]
        }
        What::Recipe { flag, file, network } => {
            let mut words: Vec<OsString> = vec![flag.into(), file.into_os_string()];
            if let Some(name) = network.filter(|_| !is_named) {
                notes.push(format!("note: {word} names the network {name}"));
                words.extend(words_of(&name, recipe::network(word, &name, notes)?, is_named, notes)?);
            }
            words
        }
        What::Script(_) | What::Command(_) => {
            return Err(Failure::usage(format!(
                "{word}: this command takes a network; a script runs on a simulated card: vramlab predict {word}"
            )));
        }
    })
}

/// `info TOPIC`: cards, devices, models, experiments, or a network from the inside.
fn info(mut line: Line<'_>) -> Result<Entered> {
    let Some(&at) = line.positionals(&["show", "cards", "info"]).first() else { return Ok(line.with_own("info")) };
    let topic = line.rest.remove(at).to_string_lossy().into_owned();
    match topic.as_str() {
        "cards" | "card" | "gpus" | "gpu" => Ok(line.with_own("cards")),
        "devices" | "device" | "backends" => Ok(line.with_own("devices")),
        "models" | "model" | "networks" => Ok(line.with_own("models")),
        "experiments" | "questions" | "list" => Ok(line.with_own("list")),
        name if Card::named(name).is_some() => {
            line.rest.insert(at, name.into());
            Ok(line.with_own("cards"))
        }
        // A card that comes with memories of several sizes.
        name if Card::like(name).iter().all(|card| card.starts_with(&format!("{name}-"))) => Err(Failure::usage(
            format!("{name}: did you mean {}? vramlab info cards lists all", Card::like(name).join(" or ")),
        )),
        _ => {
            let mut notes = Vec::new();
            let words = words_of(&topic, what::named(&topic)?, false, &mut notes)?;
            line.rest.splice(at..at, words);
            let entered = line.with_own("show");
            Ok(Entered { notes, ..entered })
        }
    }
}

/// `ask NAME`; without a name the list of questions.
fn ask(line: Line<'_>) -> Result<Entered> {
    let asks = !line.positionals(&["ask"]).is_empty() || line.rest.iter().any(|word| word == "--claims");
    let lists = !asks && line.positionals(&["list"]).is_empty() && line.rest.iter().all(|word| word != "--");
    let known = |word: &OsString| {
        let flag = word.to_str().unwrap_or_default();
        !flag.starts_with('-') || line.command("list").is_some_and(|list| values_of(list, flag).is_some())
    };
    let name = if lists && line.rest.iter().all(known) { "list" } else { "ask" };
    Ok(line.with_own(name))
}

/// `check FILE`, or `check FILE NETWORK`: neither needs a flag.
fn check(mut line: Line<'_>) -> Result<Entered> {
    let places = line.positionals(&["check"]);
    let Some(&at) = places.first() else { return Ok(line.with_own("check")) };
    let mut notes = Vec::new();
    if let Some(&second) = places.get(1) {
        let word = line.rest[second].to_string_lossy().into_owned();
        let words = words_of(&word, what::named(&word)?, false, &mut notes)?;
        line.rest.splice(second..=second, words);
    }
    let word = line.rest[at].to_string_lossy().into_owned();
    if !Path::new(&word).exists() && matches!(what::named(&word), Ok(What::BuiltIn(_) | What::Hub { .. })) {
        return Err(Failure::usage(format!(
            "{word}: a network, not a memory lock file; this writes one: vramlab check memory.lock.json --update {word}"
        )));
    }
    line.rest.insert(at, "--baseline".into());
    Ok(Entered { notes, ..line.with_own("check") })
}

/// `snapshot FILE` shows it.
fn snapshot(mut line: Line<'_>) -> Result<Entered> {
    let at = line.positionals(&["snapshot show", "snapshot"]).first().copied();
    let word = at.map(|at| line.rest[at].to_string_lossy().into_owned());
    let is_file =
        word.is_some_and(|word| line.command(&format!("snapshot {word}")).is_none() && Path::new(&word).exists());
    if is_file {
        line.rest.insert(0, "show".into());
    }
    Ok(line.with_own("snapshot"))
}

/// `watch`, or `watch PID`, looks at trainings that run; `watch COMMAND`, with or without `--`, runs one.
fn watch(mut line: Line<'_>) -> Result<Entered> {
    let at = line.positionals(&["watch"]).first().copied();
    let is_process = |at: usize| line.rest[at].to_string_lossy().parse::<u32>().is_ok();
    let command = match (at, line.rest.iter().position(|word| word == "--")) {
        (Some(at), _) if !is_process(at) => {
            what::named(&line.rest[at].to_string_lossy()).and_then(|what| match what {
                What::Command(_) | What::Script(_) => Ok(()),
                _ => Err(Failure::usage("watch runs a training of PyTorch: vramlab watch -- python train.py")),
            })?;
            line.rest.split_off(at)
        }
        (_, Some(at)) => line.rest.split_off(at).split_off(1),
        (_, None) => return Ok(line.with_own("watch")),
    };
    let flags = std::mem::take(&mut line.rest);
    let flags = line.command("watch").map_or(flags.clone(), |own| spellings::as_ours(&flags, own));
    let words = flags.into_iter().chain([OsString::from("--")]).chain(startable(command)).collect();
    Ok(line.with("watch", words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words of the command that these words choose, or the refusal.
    fn chosen(folder: &Path, typed: &str) -> String {
        let mut root = crate::args::whole(false);
        root.build();
        let script = folder.join("train.py").display().to_string();
        let words = typed.replace("train.py", &script);
        let words = std::iter::once("vramlab").chain(words.split(' ')).map(OsString::from).collect();
        match enter(words, &root) {
            Ok(entered) => {
                let words: Vec<_> = entered.words.iter().skip(1).map(|word| word.to_string_lossy()).collect();
                words.join(" ").replace(&script, "train.py").replace("python3", "python")
            }
            Err(failure) => format!("error: {}", failure.error),
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_script_is_rehearsed_with_its_own_arguments() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.py"), "import torch\n").unwrap();
        for (typed, words) in [
            ("predict train.py", "rehearse -- python train.py"),
            ("predict train.py --gpu rtx4090", "rehearse --gpu rtx4090 -- python train.py"),
            ("predict --card rtx4090 train.py", "rehearse --gpu rtx4090 -- python train.py"),
            ("-q predict train.py --batch-size 8 --gpu t4", "-q rehearse --gpu t4 -- python train.py --batch-size 8"),
            ("predict train.py data --max_steps 100", "rehearse -- python train.py data --max_steps 100"),
            ("predict train.py --make-data data.jsonl", "rehearse --make-data -- python train.py data.jsonl"),
            ("predict --make-data=64 train.py --n 1", "rehearse --make-data=64 -- python train.py --n 1"),
            ("predict train.py -L n 1,2 --n {n}", "rehearse -L n 1,2 -- python train.py --n {n}"),
            ("predict --python v/bin/python train.py --gpu t4", "rehearse --gpu t4 -- v/bin/python train.py"),
            ("predict train.py --python=v/bin/python --n 1", "rehearse -- v/bin/python train.py --n 1"),
            ("predict train.py --steps 3 -- --steps 9", "rehearse --steps 3 -- python train.py --steps 9"),
            ("predict --gpu t4 -- python train.py --gpu 0", "rehearse --gpu t4 -- python train.py --gpu 0"),
            ("predict torchrun --nproc-per-node 2 train.py", "rehearse -- torchrun --nproc-per-node 2 train.py"),
            ("rehearse --gpu t4 -- train.py", "rehearse --gpu t4 -- python train.py"),
            ("rehearse python train.py", "rehearse -- python train.py"),
            ("rehearse --gpu t4 python train.py --gpu 1", "rehearse --gpu t4 -- python train.py --gpu 1"),
            ("run leak", "ask leak"),
            ("run --json a.json", "list --json a.json"),
            ("monitor --once", "watch --once"),
            ("watch 1234", "watch 1234"),
            ("watch train.py --lr 1", "watch -- python train.py --lr 1"),
            ("watch --interval 5 python train.py --once", "watch --interval 5 -- python train.py --once"),
            ("watch -- ./train.sh", "watch -- ./train.sh"),
        ] {
            assert_eq!(chosen(folder.path(), typed), words, "{typed}");
        }
        for (typed, part) in [
            ("predict --batch 4 train.py", "--batch describes a network"),
            ("predict train.py --gpuu t4", "vramlab has --gpu"),
            ("predict train.py --python", "--python needs the file"),
            ("predict --largest -- python train.py", "let it read its batch from a variable"),
            ("predict train.py --largest", "let it read its batch from a variable"),
            ("predict gpt2 -- python train.py", "give one of the two"),
            ("watch gpt2", "vramlab watch -- python train.py"),
        ] {
            let said = chosen(folder.path(), typed);
            assert!(said.starts_with("error: ") && said.contains(part), "{typed}: {said}");
        }
    }

    #[test]
    fn a_network_is_named_by_the_flag_that_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        for (typed, words) in [
            ("predict gpt2 --batch-size 8", "predict --model gpt2 --batch 8"),
            ("predict --batch 8 gpt2", "predict --batch 8 --model gpt2"),
            ("predict --bf16 True gpt2", "predict --autocast bf16 --model gpt2"),
            ("predict gpt2 --largest --gpu t4", "fit --model gpt2 --gpu t4"),
            ("predict gpt2 --gpu t4 --largest sequence", "fit --model gpt2 --gpu t4 --of sequence"),
            ("predict --model gpt2 --batch 8", "predict --model gpt2 --batch 8"),
            ("train mlp --data digits", "train --model mlp --data digits"),
            ("info gpt2 --batch 8", "show --model gpt2 --batch 8"),
            ("info cards --full", "cards --full"),
            ("check memory.lock.json --update", "check --baseline memory.lock.json --update"),
            ("check --baseline memory.lock.json", "check --baseline memory.lock.json"),
            ("check m.lock.json --update gpt2", "check --baseline m.lock.json --update --model gpt2"),
            ("check m.lock.json gpt2 --gpu t4", "check --baseline m.lock.json --model gpt2 --gpu t4"),
            (
                "check gpt2 --update",
                "error: gpt2: a network, not a memory lock file; this writes one: vramlab check memory.lock.json --update gpt2",
            ),
            // Help, and what is wrong, are clap's.
            ("predict gpt2 -h", "predict -h"),
            ("nosuch gpt2", "nosuch gpt2"),
        ] {
            assert_eq!(chosen(folder.path(), typed), words, "{typed}");
        }
    }
}
