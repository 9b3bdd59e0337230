//! Help, completions and the manual: what is there is said, what is not is not.

mod common;
use common::{done, run};

const COMMANDS: [(&str, &str); 18] = [
    ("devices", "vramlab devices --json -"),
    ("list", "vramlab list --full"),
    ("cards", "vramlab cards --full"),
    ("run", "vramlab run batch-size --backend meta --set batch=32,64,128"),
    ("train", "vramlab train --model mlp --data digits --backend cpu"),
    ("predict", "vramlab predict --model gpt2 --batch 8 --gpu 24GiB"),
    ("fit", "vramlab fit --model gpt2 --optimizer adamw --gpu rtx4090"),
    ("rehearse", "vramlab rehearse --gpu rtx4090 -- python train.py --batch-size 16"),
    ("replay", "vramlab replay run.json --compare caching,expandable,planned"),
    ("snapshot", "vramlab snapshot show snapshot.pickle"),
    ("tune", "vramlab tune snapshot.pickle"),
    ("check", "vramlab check --baseline memory.lock.json"),
    ("explain", "vramlab explain train.log"),
    ("bench", "vramlab bench --html bench.html"),
    ("monitor", "vramlab monitor --once --json -"),
    ("report", "vramlab report run.json events.json -o run.html"),
    ("completions", "source <(vramlab completions bash)"),
    ("man", "vramlab man | man -l -"),
];

/// Those of this system: scripts are rehearsed on Linux alone.
fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.into_iter().filter(|(command, _)| cfg!(target_os = "linux") || *command != "rehearse")
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
        // Deeper lines go on with what the line before says.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let commands: Vec<&str> = commands().map(|(command, _)| command).chain(["help"]).collect();
    assert_eq!(offered, commands);
    let train = done(&["train", "--help"]);
    assert!(train.contains("autocast-bf16") && train.contains("--capturable") && train.contains("adagrad"), "{train}");
    assert!(train.contains("--html") && train.contains("--export-trace"), "{train}");
    // Only where there is something to draw.
    assert!(!done(&["devices", "--help"]).contains("--html"));
}

#[test]
fn completions_and_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&["completions", shell]);
        assert!(commands().all(|(command, _)| script.contains(command)), "{shell}");
        assert!(script.contains("memory-limit"), "{shell}");
    }
    let manual = done(&["man"]);
    for (command, _) in commands() {
        assert!(
            manual.contains(&format!("vramlab\\-{command}")) || manual.contains(&format!("vramlab {command}")),
            "{command}"
        );
    }
    assert!(manual.starts_with(".ie") || manual.starts_with(".TH"), "{}", &manual[..40]);
}

#[test]
fn version_and_no_arguments() {
    assert!(done(&["--version"]).starts_with("vramlab "));
    let nothing = run(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(2), ""));
    assert!(nothing.stderr.contains("Usage: vramlab"));
    assert!(!nothing.stderr.contains("error:"), "the help is no error: {}", nothing.stderr);
}
