//! What to say where the Python that ran has no PyTorch.

use std::path::{Path, PathBuf};

use lab_base::python::{of_process, with_package};
use lab_results::command::quoted;

use super::answers;
use super::folder::Folder;
use super::request::Request;

/// Name of the package.
const PACKAGE: &str = "torch";

/// A Python that looked for PyTorch and has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTorch {
    /// Its path.
    pub program: String,
    /// Another Python of this machine that has PyTorch.
    pub other: Option<PathBuf>,
}

impl NoTorch {
    /// Finds one among the processes of a run; `None` if each that looked for PyTorch has it.
    pub(super) fn read(folder: &Folder) -> Option<Self> {
        let program = answers::without_torch(folder)?;
        let working = std::env::current_dir().unwrap_or_default();
        let other = with_package(PACKAGE, &working, &of_process).filter(|other| *other != Path::new(&program));
        Some(Self { program, other })
    }

    /// Says so in a sentence that ends in a command that works: that which `again` makes of a Python and the folder that it lies in.
    pub fn sentence(&self, again: impl Fn(&str, &str) -> String) -> String {
        let program = &self.program;
        match &self.other {
            Some(other) => {
                let text = |path: &Path| quoted(&path.to_string_lossy());
                let (python, folder) = (text(other), text(other.parent().unwrap_or(other)));
                format!("{program} has no PyTorch, and {python} has: {}", again(&python, &folder))
            }
            None => format!(
                "{program} has no PyTorch, and no other Python was found that has. Make an environment with it, which needs no GPU: \
                 python3 -m venv .venv && .venv/bin/python -m pip install torch && {}",
                again(".venv/bin/python", "$PWD/.venv/bin")
            ),
        }
    }
}

/// Says which Python has no PyTorch, and how to start the command with one that has; `None` if each that looked for it has it.
pub(super) fn problem(folder: &Folder, request: &Request) -> Option<String> {
    let words: Vec<String> = request.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    Some(NoTorch::read(folder)?.sentence(|python, folder| again(python, folder, &request.card.spelled, &words)))
}

/// The same command with another Python.
fn again(python: &str, folder: &str, card: &str, words: &[String]) -> String {
    match words {
        [first, rest @ ..] if is_python(first) => {
            let rest = rest.iter().map(String::as_str);
            let words: Vec<&str> = std::iter::once(python).chain(rest).collect();
            format!("vramlab rehearse --gpu {card} -- {}", words.join(" "))
        }
        // What a shell or a launcher starts is searched for.
        _ => format!("PATH={folder}:$PATH vramlab rehearse --gpu {card} -- {}", words.join(" ")),
    }
}

/// True for `python`, `python3`, `/usr/bin/python3.12`.
fn is_python(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.strip_prefix("python").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_works_is_the_same_with_another_python() {
        let said = |other: Option<&str>, command: &str| {
            let words: Vec<String> = command.split(' ').map(String::from).collect();
            let found = NoTorch { program: "/usr/bin/python3".into(), other: other.map(PathBuf::from) };
            found.sentence(|python, folder| again(python, folder, "rtx4090", &words))
        };
        assert_eq!(
            said(Some("/home/me/.venv/bin/python"), "python3 train.py --lr 1"),
            "/usr/bin/python3 has no PyTorch, and /home/me/.venv/bin/python has: \
             vramlab rehearse --gpu rtx4090 -- /home/me/.venv/bin/python train.py --lr 1"
        );
        let launched = said(Some("/opt/env/bin/python"), "torchrun train.py");
        assert!(
            launched.ends_with("has: PATH=/opt/env/bin:$PATH vramlab rehearse --gpu rtx4090 -- torchrun train.py"),
            "{launched}"
        );
        let none = said(None, "/usr/bin/python3.11 train.py");
        assert!(
            none.ends_with("-m pip install torch && vramlab rehearse --gpu rtx4090 -- .venv/bin/python train.py"),
            "{none}"
        );
        assert!(!is_python("python-wrapper") && !is_python("pythonista") && is_python("python"));
    }
}
