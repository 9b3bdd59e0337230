//! A program with its own backend, unknown to this code by name, runs every command.

use std::fs;
use std::process::{Command, ExitCode};

use memcore::backend::Backend;
use serde_json::Value;

#[path = "../../examples/own_backend.rs"]
#[allow(dead_code)]
mod example;

/// Separator of the arguments in the variable that turns this process into the program.
const WORDS: &str = "OWN_BACKEND_WORDS";
const BETWEEN: char = '\u{1f}';

/// Not a test: becomes the program if the variable has its arguments.
#[test]
fn program() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words = std::iter::once("vramlab").chain(words.split(BETWEEN)).map(Into::into).collect();
    let code = cli::run(words, &example::BACKENDS);
    let code = (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(u8::MAX);
    std::process::exit(code.into());
}

/// Runs the program. Returns its output on stdout and stderr and its exit code.
fn ran(words: &[&str], lacks: &str) -> (String, i32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "own_backend::program", "--nocapture", "--quiet"]).env("MINE_LACKS", lacks);
    let output = command.env(WORDS, words.join(&BETWEEN.to_string())).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap())
}

const LINEAR: [&str; 4] = ["--model", "linear", "--steps", "1"];

#[test]
fn every_command_takes_it_and_says_nothing_false() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (events, result, page) = (file("events.jsonl"), file("run.json"), file("page.html"));
    let (snapshot, lock) = (file("snapshot.pickle"), file("memory.lock"));
    let commands: &[&[&str]] = &[
        &["devices"],
        &["devices", "--json", "-"],
        &["list"],
        &["train", "--model", "linear", "--steps", "1"],
        &["train", "--model", "linear", "--steps", "1", "--backend", "mine", "--events", &events],
        &["train", "--model", "linear", "--steps", "1", "--backend", "mine", "--like", "native:mine"],
        &["train", "--model", "linear", "--backend", "mine", "-L", "batch", "1,2"],
        &["train", "--model", "mlp", "--steps", "1", "--devices", "mine:0,mine:1"],
        &["train", "--model", "mlp", "--steps", "1", "--devices", "mine:0,mine:0"],
        &["train", "--model", "mlp", "--steps", "1", "--backend", "mine", "--json", &result],
        &["train", "--model", "linear", "--steps", "1", "--backend", "mine", "--snapshot", &snapshot, "--html", &page],
        &["predict", "--model", "linear", "--steps", "1", "--like", "native:mine"],
        &["fit", "--model", "linear", "--memory-limit", "256MiB", "--like", "native:mine"],
        &["fit", "--model", "linear", "--memory-limit", "256MiB"],
        &["check", "--model", "linear", "--baseline", &lock, "--update"],
        &["check", "--baseline", &lock],
        &["check", "--model", "linear", "--like", "native:mine", "--baseline", &lock, "--update", "--name", "native"],
        &["check", "--model", "linear", "--backend", "mine", "--baseline", &lock, "--update", "--name", "measured"],
        &["check", "--baseline", &lock, "--strict"],
        &["report", &result, "-o", &page],
        &["snapshot", "show", &snapshot],
        &["tune", &snapshot],
        &["monitor", "--once"],
        &["run", "placement", "--backend", "mine"],
        &["run", "precision", "--backend", "mine"],
        &["bench", "--backend", "mine", "--seconds", "1"],
        &["replay", &events],
    ];
    let mut wrong = Vec::new();
    for words in commands {
        let (text, code) = ran(words, "");
        let expected = if words.contains(&"mine:0,mine:0") { 2 } else { 0 };
        // Figures that belong to other backends only.
        let said = ["nothing is copied", "on the processor", "cpu:", "backend cpu", "is : "];
        if code != expected || said.iter().any(|said| text.contains(said)) || text.contains("panicked") {
            wrong.push(format!("{words:?}: {code}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn it_is_in_the_table_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json").display().to_string();
    let train = |backend: &str| {
        let words = [&["-q", "train"][..], &LINEAR[..], &["--backend", backend, "--json", &file]].concat();
        ran(&words, "")
    };
    assert_eq!(train("mine").1, 0, "{}", train("mine").0);
    let found: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&found["settings"]["backend"], &found["parameters"]), (&"mine".into(), &11.into()));
    assert_eq!(train("cpu").1, 2, "the build has it, the table has not");
}

#[test]
fn kernels_that_it_lacks_are_named_together_before_the_run() {
    let words = ["train", "--model", "mlp", "--steps", "1", "--backend", "mine"];
    let (text, code) = ran(&words, "softmax,matmul,conv2d");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("lacks kernels that this run needs: matmul for float32, softmax for float32\n"), "{text}");
    assert!(!text.contains("conv2d"), "{text}");
}

#[test]
fn it_names_itself() {
    let backend = (example::BACKENDS[0].open)(0).unwrap();
    assert_eq!((backend.name(), backend.device_name().as_str(), backend.how_it_copies()), ("mine", "mine", None));
}
