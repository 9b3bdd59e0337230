//! Ten people use vramlab for the first time and have only the README. Each file of `tests/walks` is one of them: who it is, at most three commands, and
//! the screens that came. `tests/walks/folder` has the files that they have.
//!
//! A screen is compared line by line; `…` stands for any lines. `$` is a command, `>>>` a line of Python, `>` a move on the page of `vramlab ui`, and
//! `[exit 1]` the exit code, which is 0 where none stands. A command after which `(PyTorch)` stands needs a Python with PyTorch: `--full` plays those walks
//! with that of `VRAMLAB_REHEARSAL_PYTHON`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, words};
use crate::markdown::blocks;

/// The environment variable with a Python that has PyTorch for CUDA.
const PYTHON: &str = "VRAMLAB_REHEARSAL_PYTHON";

/// Most commands of a walk.
const MOST: usize = 3;

/// A command, and what came.
#[derive(Default)]
struct Step {
    typed: String,
    screen: Vec<String>,
    code: i32,
    needs_pytorch: bool,
}

struct Walk {
    name: String,
    steps: Vec<Step>,
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Reads every walk, in the order of the file names.
fn walks() -> Vec<Walk> {
    let files = fs::read_dir(tests().join("walks")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|ending| ending == "txt")).collect();
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Walk {
    let name = path.file_stem().unwrap().to_str().unwrap().to_string();
    let text = fs::read_to_string(path).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        let typed = ["$ ", ">>> ", "> "].iter().any(|prompt| line.starts_with(prompt));
        if typed {
            let typed = line.trim_end_matches(" (PyTorch)").to_string();
            steps.push(Step { needs_pytorch: typed != line, typed, ..Step::default() });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']')) {
                Some(code) => step.code = code.parse().unwrap(),
                None => step.screen.push(line.to_string()),
            }
        }
    }
    for step in &mut steps {
        let end = step.screen.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        step.screen.truncate(end);
    }
    Walk { name, steps }
}

/// The folder of a person who has the README: the files of `tests/walks/folder`, and a snapshot.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(tests().join("walks/folder")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let recorded = tests().join("../../lab/traces/tests/golden/recordings/unet_oom.pickle.gz");
    let mut snapshot = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(recorded).unwrap()).read_to_end(&mut snapshot).unwrap();
    fs::write(folder.path().join("snapshot.pickle"), snapshot).unwrap();
    folder
}

/// Says where a screen is another one; `None` if it is the same. `…` stands for any lines, or for the rest of a line.
fn differs(screen: &[String], came: &str) -> Option<String> {
    let mut lines = came.lines().map(str::trim_end).peekable();
    let mut any = false;
    for expected in screen {
        if expected == "…" {
            any = true;
            continue;
        }
        let same = |line: &str| match expected.split_once('…').filter(|(_, rest)| rest.is_empty()) {
            Some((begin, _)) => line == expected || line.starts_with(begin),
            None => line == expected,
        };
        let found = if any { lines.by_ref().any(same) } else { lines.next().is_some_and(same) };
        if !found {
            return Some(format!("not there, or not in this place: {expected}"));
        }
        any = false;
    }
    let rest: Vec<&str> = lines.filter(|_| !any).collect();
    (!rest.is_empty()).then(|| format!("more came: {}", rest.join("\n")))
}

/// Plays a command of a shell; `python`: the Python with PyTorch.
fn play(step: &Step, folder: &Path, python: Option<&Path>) -> (i32, String) {
    let typed = step.typed.trim_start_matches("$ ");
    let typed = words(typed);
    assert_eq!(typed[0], "vramlab", "{}", step.typed);
    let mut command = common::vramlab();
    command.current_dir(folder).args(&typed[1..]);
    if let Some(python) = python {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let with = std::iter::once(python.parent().unwrap().to_path_buf()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(with).unwrap()).env_remove("VIRTUAL_ENV");
        command.env_remove(common::ONLY_BUILT_IN);
    }
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    common::fits(&out);
    (output.status.code().unwrap(), err + &out)
}

/// Plays a walk; returns what was other than in its file. Commands that need PyTorch are played only with one.
fn played(walk: &Walk, python: Option<&Path>) -> Vec<String> {
    let folder = folder();
    let mut other = Vec::new();
    let steps = walk.steps.iter().filter(|step| step.typed.starts_with("$ ") && !is_of_the_page(step));
    for step in steps.filter(|step| python.is_some() || !step.needs_pytorch) {
        let (code, came) = play(step, folder.path(), python.filter(|_| step.needs_pytorch));
        let problem = differs(&step.screen, &came).or((code != step.code).then(|| format!("exit {code}")));
        other.extend(problem.map(|problem| format!("{}: {}\n{problem}\nwhat came:\n{came}", walk.name, step.typed)));
    }
    other
}

fn is_of_the_page(step: &Step) -> bool {
    step.typed == "$ vramlab ui"
}

#[test]
fn ten_people_come_to_their_answer_in_three_commands() {
    let walks = walks();
    assert_eq!(walks.len(), 10);
    for walk in &walks {
        let is_command = |step: &&Step| step.typed != ">>> import vramlab" && !step.typed.starts_with("> ");
        let typed = walk.steps.iter().filter(is_command).count();
        assert!((1..=MOST).contains(&typed), "{}: {typed} commands", walk.name);
        // A wrong turn is an error: exit code 2 or 3.
        assert!(walk.steps.iter().all(|step| step.code <= 1), "{}: a wrong turn", walk.name);
    }
    let other: Vec<String> = walks.iter().flat_map(|walk| played(walk, None)).collect();
    assert!(other.is_empty(), "{}", other.join("\n\n"));
}

#[test]
fn lines_of_python_answer_as_they_stand() {
    for walk in walks().iter().filter(|walk| walk.steps.iter().any(|step| step.typed.starts_with(">>> "))) {
        let folder = folder();
        let mut python = Command::new("python3");
        python.args(["-m", "doctest", "-o", "ELLIPSIS"]).arg(tests().join("walks").join(format!("{}.txt", walk.name)));
        python
            .current_dir(folder.path())
            .env("PYTHONPATH", tests().join("../../python"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        python.env("VRAMLAB_BINARY", env!("CARGO_BIN_EXE_vramlab")).env("VIRTUAL_ENV", common::NO_PACKAGES);
        let output = python.env(common::ONLY_BUILT_IN, "1").output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{}: {said}", walk.name);
    }
}

/// The teacher's page answers each move as the walk says: `> {"model": "gpt2", "batch": 8}`, and below it the verdict.
#[cfg(feature = "ui")]
#[test]
fn moves_on_the_page_have_the_answers_that_stand_below_them() {
    let mut moves = 0;
    for walk in walks().iter().filter(|walk| walk.steps.iter().any(is_of_the_page)) {
        let server = crate::ui::Server::start(&[]);
        for step in walk.steps.iter().filter(|step| step.typed.starts_with("> ")) {
            let spec = serde_json::from_str(step.typed.trim_start_matches("> ")).unwrap();
            let found = server.predict(spec);
            let said = found["result"]["sentence"].as_str().unwrap_or_default();
            assert_eq!(step.screen.join(" "), said, "{}: {}", walk.name, step.typed);
            moves += 1;
        }
    }
    assert!(moves >= 2, "{moves}");
}

#[test]
#[ignore = "needs a Python with PyTorch"]
fn with_pytorch_the_whole_walks_are_played() {
    let Some(python) = std::env::var_os(PYTHON).map(PathBuf::from) else {
        eprintln!("not played: {PYTHON} names no Python with PyTorch");
        return;
    };
    let other: Vec<String> = walks().iter().flat_map(|walk| played(walk, Some(&python))).collect();
    assert!(other.is_empty(), "{}", other.join("\n\n"));
}

/// What `docs/walks.md` shows of commands that need PyTorch is what a walk shows: with PyTorch that is played.
#[test]
fn the_document_shows_what_walks_show() {
    let text = fs::read_to_string(tests().join("../../docs/walks.md")).unwrap();
    let (blocks, walks) = (blocks(&text), walks());
    let pairs = blocks.iter().zip(blocks.iter().skip(1));
    let mut compared = 0;
    for (command, picture) in pairs.filter(|(command, picture)| command.not_run.is_some() && picture.language == "text")
    {
        let typed = format!("$ {}", command.text.trim());
        let step = walks.iter().flat_map(|walk| &walk.steps).find(|step| step.typed == typed && step.needs_pytorch);
        let mut lines = step.unwrap_or_else(|| panic!("no walk has {typed}")).screen.iter();
        for line in picture.text.lines().filter(|line| *line != "…") {
            assert!(lines.any(|is| is == line), "{typed}: not in the walk, or not there: {line}");
        }
        compared += 1;
    }
    assert!(compared > 0);
}

#[test]
fn a_screen_that_is_another_one_is_told() {
    let screen = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    assert_eq!(differs(&screen("a\n…\nd e…"), "a\nb\nc\nd e f\n"), None);
    assert_eq!(differs(&screen("a\n…"), "a\nb\n"), None);
    for (shown, came) in [("a", "b"), ("a\nc", "a\nb\nc"), ("a", "a\nb"), ("a\n…\nd", "a\nb"), ("a\nb", "a")] {
        assert!(differs(&screen(shown), came).is_some(), "{shown:?}, {came:?}");
    }
}
