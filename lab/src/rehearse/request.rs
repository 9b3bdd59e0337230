//! What is asked for, and what of it cannot be kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use lab_base::cards::Card;
use lab_base::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::world::World;

/// The most cards that the library stands for.
pub(super) const MAX_CARDS: usize = 16;

/// A rehearsal.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Variables of the script's environment besides those that there are.
    pub environment: Vec<(OsString, OsString)>,
    /// The card.
    pub card: RequestedCard,
    /// How many of it a machine has.
    pub cards: usize,
    /// Which ranks of how many are started from here; without it, the command starts its own.
    pub world: Option<World>,
    /// When to end the script.
    pub stop: Stop,
    /// Events complete when something waits for them.
    pub late_events: bool,
    /// Whether the lines of the script are recorded.
    pub stacks: bool,
    /// Whether small tensors are computed.
    pub values: bool,
    /// Where files go that the script would write; without it they are thrown away.
    pub keep_outputs: Option<PathBuf>,
    /// Whether a script that ran out of memory is run once more, with memory enough, to see what it needs.
    pub needs: bool,
    /// Whether what the script prints is left out.
    pub silent: bool,
}

/// A card that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedCard {
    /// What programs are told.
    pub name: String,
    /// Bytes, as the driver says.
    pub total_bytes: u64,
    /// Bytes that a process takes at once.
    pub context_bytes: u64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// How many it has, where that is known.
    pub multiprocessors: Option<u16>,
}

impl From<&Card> for RequestedCard {
    fn from(card: &Card) -> Self {
        // As the driver says it: of Teslas it leaves the maker out.
        let maker = if card.title.starts_with("Tesla") { "" } else { "NVIDIA " };
        Self {
            name: format!("{maker}{}", card.title),
            total_bytes: card.total_bytes(),
            context_bytes: card.context.most_bytes(),
            capability: (card.sm / 10, card.sm % 10),
            multiprocessors: Some(card.multiprocessors),
        }
    }
}

impl RequestedCard {
    /// So many bytes, all for tensors, on a card of capability 9.0.
    pub fn of_bytes(total_bytes: u64) -> Self {
        let name = format!("GPU of {}", lab_base::figures::short(total_bytes));
        Self { name, total_bytes, context_bytes: 0, capability: (9, 0), multiprocessors: None }
    }
}

/// When to end the script: the first that holds.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// After so many steps of an optimizer.
    pub steps: Option<u64>,
    /// After so long.
    pub time: Option<Duration>,
    /// After the step by which all of these were seen.
    pub until: Vec<Use>,
}

/// What a training may do besides steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// The network in evaluation mode.
    Evaluation,
    /// `torch.save`, safetensors.
    Saving,
    /// `generate` of transformers.
    Generation,
}

/// What makes Python read neither variables nor `sitecustomize`.
const ISOLATING: [char; 3] = ['I', 'S', 'E'];

impl Request {
    /// # Errors
    /// [`Error::Usage`] for what cannot be rehearsed.
    pub fn check(&self) -> Result<()> {
        if self.command.is_empty() {
            return Err(Error::usage("COMMAND", "name what to run: vramlab rehearse -- python train.py"));
        }
        if self.cards == 0 || self.cards > MAX_CARDS {
            return Err(Error::usage("--gpus", format!("from 1 to {MAX_CARDS}, not {}", self.cards)));
        }
        if let Some(world) = &self.world {
            world.check()?;
        }
        if let Some(keep) = &self.keep_outputs {
            can_keep(keep)?;
        }
        match isolating_flag(&self.command) {
            None => Ok(()),
            Some(flag) => Err(Error::usage(
                format!("python {flag}"),
                "keeps Python from loading what counts its steps (PYTHONPATH, sitecustomize); leave the flag out",
            )),
        }
    }
}

/// Whether outputs can be kept in a folder: it is new, or has nothing in it.
///
/// # Errors
/// [`Error::Usage`] naming it.
fn can_keep(keep: &Path) -> Result<()> {
    let wrong = |problem: String| Err(Error::usage("--keep-outputs", format!("{}: {problem}", keep.display())));
    match fs::read_dir(keep).map(|mut entries| entries.next().is_some()) {
        Ok(true) => wrong("is not empty".into()),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::create_dir_all(keep) {
            Ok(()) => Ok(()),
            Err(error) => wrong(error.to_string()),
        },
        Err(error) => wrong(error.to_string()),
    }
}

/// The flag of a Python in the command that keeps the rehearsal out of it.
fn isolating_flag(command: &[OsString]) -> Option<String> {
    let words: Vec<&str> = command.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let name = words.first()?.rsplit('/').next()?;
    if !name.starts_with("python") && !name.starts_with("pypy") {
        return None;
    }
    let mut words = words[1..].iter();
    while let Some(flags) = words.next().filter(|word| word.starts_with('-') && word.len() > 1) {
        if flags.starts_with("--") {
            continue;
        }
        for flag in flags.chars().skip(1) {
            match flag {
                // What follows is the program.
                'c' | 'm' => return None,
                // These take a value: here, or in the next word.
                'W' | 'X' => {
                    if flags.ends_with(flag) {
                        words.next();
                    }
                    break;
                }
                flag if ISOLATING.contains(&flag) => return Some(format!("-{flag}")),
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_isolate_python_are_found_and_no_others() {
        let found = |line: &str| isolating_flag(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(found("python -I train.py").as_deref(), Some("-I"));
        assert_eq!(found("/usr/bin/python3.11 -uE train.py").as_deref(), Some("-E"));
        assert_eq!(found("python -W ignore -S train.py").as_deref(), Some("-S"));
        assert_eq!(found("python -X importtime -BI -m train").as_deref(), Some("-I"));
        for line in ["python train.py -I", "python -m train -S", "torchrun -I", "python -c E", "python -WIgnore t.py"] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
