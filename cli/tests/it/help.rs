//! Help, completions and the manual describe the commands of this build and no others.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{done, run};

const COMMANDS: &[(&str, &str)] = &[
    ("devices", "vramlab devices --json -"),
    ("list", "vramlab list --full"),
    ("cards", "vramlab cards --full"),
    ("models", "vramlab models --json -"),
    ("show", "vramlab show gpt2 --batch 8"),
    ("open", "vramlab open snapshot.pickle"),
    ("info", "vramlab info cards"),
    ("ask", "vramlab ask batch-size --backend meta --set batch=32,64,128"),
    ("train", "vramlab train --model mlp --data digits --backend cpu"),
    ("predict", "vramlab predict gpt2 --batch 8 --gpu 24GiB"),
    ("fit", "vramlab fit --model gpt2 --optimizer adamw --gpu rtx4090"),
    ("plan", "vramlab plan gpt2 --global-batch 64 --gpu rtx4090"),
    ("rehearse", "vramlab rehearse --gpu rtx4090 -- python train.py --batch-size 16"),
    ("replay", "vramlab replay run.json --compare caching,expandable,planned"),
    ("snapshot", "vramlab snapshot show snapshot.pickle"),
    ("tune", "vramlab tune snapshot.pickle"),
    ("check", "vramlab check --baseline memory.lock.json"),
    ("explain", "vramlab explain train.log"),
    ("bench", "vramlab bench --html bench.html"),
    ("watch", "vramlab watch --once --json -"),
    ("report", "vramlab report run.json events.json -o run.html"),
    ("diff", "vramlab diff before.pickle after.pickle"),
    ("view", "vramlab view snapshot.pickle"),
    ("completions", "source <(vramlab completions bash)"),
    ("man", "vramlab man | man -l -"),
    ("ui", "vramlab ui --no-open --port 8421"),
    ("mcp", "vramlab mcp --dir ."),
];

/// Commands that are shown, at most ten.
const SHOWN: [&str; 10] = ["predict", "plan", "open", "diff", "ask", "watch", "check", "train", "ui", "info"];

/// Commands of this build: scripts are rehearsed on Linux alone; the viewer and the tools of assistants are features.
fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().copied().filter(|(command, _)| match *command {
        "rehearse" => cfg!(target_os = "linux"),
        "view" => cfg!(feature = "view"),
        "ui" => cfg!(feature = "ui"),
        "mcp" => cfg!(feature = "mcp"),
        _ => true,
    })
}

#[test]
fn every_command_shows_a_worked_example() {
    for (command, example) in commands() {
        let help = done(&[command, "--help"]);
        assert!(help.contains(example), "{command}: {help}");
        assert!(help.contains("Usage: vramlab"), "{command}: {help}");
    }
}

#[test]
fn what_is_offered_is_what_there_is() {
    let help = done(&["--help"]);
    let offered: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .take_while(|line| !line.is_empty())
        // A line with a deeper indent continues the line before it.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(offered, SHOWN);
    // What is not shown works, and so do the names of earlier versions.
    for (command, _) in commands().chain([("run", ""), ("monitor", "")]) {
        assert!(done(&[command, "--help"]).contains("Usage: vramlab"), "{command}");
    }
    let train = done(&["train", "--help"]);
    assert!(train.contains("autocast-bf16") && train.contains("--capturable") && train.contains("adagrad"), "{train}");
    assert!(train.contains("--html") && train.contains("--export-trace"), "{train}");
    // Only commands whose results have a drawing have this flag.
    assert!(!done(&["devices", "--help"]).contains("--html"));
}

#[test]
fn completions_and_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&["completions", shell]);
        assert!(commands().all(|(command, _)| !SHOWN.contains(&command) || script.contains(command)), "{shell}");
        assert!(script.contains("memory-limit"), "{shell}");
        // Earlier names work, and nobody is led to them.
        for hidden in ["vramlab,rehearse)", "'rehearse:", "-a \"rehearse\"", "--worker", "-l worker"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = done(&["completions", shell]);
        assert!(script.contains("sequence-length") && script.contains("rtx4090"), "{shell}");
    }
}

/// Returns bash's completions after these words.
fn offered_by_bash(words: &[&str]) -> Option<Vec<String>> {
    let script = format!(
        "source <(cat); COMP_WORDS=(vramlab {}); COMP_CWORD={}; COMP_LINE=\"${{COMP_WORDS[*]}}\"; COMP_POINT=${{#COMP_LINE}}; \
         _vramlab vramlab \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len()
    );
    let bash =
        Command::new("bash").args(["--norc", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut bash = bash.ok()?;
    bash.stdin.take()?.write_all(done(&["completions", "bash"]).as_bytes()).ok()?;
    let output = bash.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
}

#[test]
#[cfg(target_os = "linux")]
fn bash_offers_experiments_models_and_cards() {
    for (words, offer) in [
        (&["ask", "batch"][..], "batch-size"),
        (&["predict", "--gpu", "rtx4"], "rtx4090"),
        (&["plan", "--gpu", ""], "h200"),
        (&["train", "--model", "gp"], "gpt2"),
    ] {
        let Some(offered) = offered_by_bash(words) else { return };
        assert!(offered.iter().any(|one| one == offer), "{words:?}: {offered:?}");
    }
}

#[test]
fn there_is_a_page_of_the_manual_for_every_command() {
    let manual = done(&["man"]);
    assert!(manual.starts_with(".ie") || manual.starts_with(".TH"), "{}", &manual[..40]);
    for command in &SHOWN[..8] {
        assert!(manual.contains(&format!("vramlab\\-{command}")), "{command}");
    }
    assert!(done(&["man", "snapshot", "show"]).contains("vramlab\\-snapshot"));
    let unknown = run(&["man", "predikt"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("no command \"predikt\" of vramlab; known: devices, list"), "{}", unknown.stderr);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("man1");
    done(&["man", "--write", folder.to_str().unwrap()]);
    for page in ["vramlab.1", "vramlab-predict.1", "vramlab-snapshot-show.1"] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(".SH \"EXIT STATUS\""), "{page}");
    }
}

#[test]
fn version_and_no_arguments() {
    assert!(done(&["--version"]).starts_with("vramlab "));
    let nothing = run(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(2), ""));
    assert!(nothing.stderr.contains("Usage: vramlab"));
    assert!(!nothing.stderr.contains("error:"), "the help is not an error: {}", nothing.stderr);
}

/// Most lines, and most flags, of a short page.
const SHORT: (usize, usize) = (25, 10);

#[test]
fn short_pages_are_short() {
    for command in &SHOWN[..8] {
        let mut program = crate::common::vramlab();
        let output = program.args([command, "-h"]).env("COLUMNS", "80").output().unwrap();
        let page = String::from_utf8(output.stdout).unwrap();
        let flags = page.lines().filter(|line| line.trim_start().starts_with('-') && !line.contains("--help")).count();
        assert!(page.lines().count() <= SHORT.0 && flags <= SHORT.1, "{command}: {flags} flags: {page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{command}: {page}");
        assert!(page.starts_with(|c: char| c.is_ascii_uppercase()) && page.contains("Usage: vramlab"), "{page}");
    }
}

#[test]
fn the_long_page_has_tasks_and_every_field() {
    let page = done(&["predict", "--help"]);
    for task in
        ["The network:", "The card:", "The training:", "Make it fit:", "Several cards:", "Over a range:", "Output:"]
    {
        assert!(page.lines().any(|line| line == task), "{task}: {page}");
    }
    let fields = lab::run::RunSpec::default().fields();
    // Those of other commands: a device that computes, and where a training begins.
    let others = ["backend", "device", "cuda-graph", "tf32", "load", "resume"];
    let is_a_flag =
        |field: &str| page.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == format!("--{field}"));
    for other in others {
        assert!(fields.contains_key(other) && !is_a_flag(other), "{other}: take it out of the list");
    }
    for field in fields.keys().filter(|field| !others.contains(&field.as_str())) {
        assert!(page.contains(field.as_str()), "{field}: {page}");
    }
    // A field that the page does not explain can be set by its name, and by its own flag as before.
    let by_name = crate::common::json(&["predict", "gpt2", "--set", "model.layers=2", "--batch", "1"]);
    let by_flag = crate::common::json(&["predict", "--model", "gpt2", "--layers", "2", "--batch", "1"]);
    assert_eq!(by_name["peak"], by_flag["peak"]);
}
