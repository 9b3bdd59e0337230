//! Request for a rehearsal, and checks that it can be fulfilled.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use lab_base::cards::{ALL, Card};
use lab_base::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::world::World;
use crate::run::shares_answers;

/// Maximum number of cards that the library simulates.
pub(super) const MAX_CARDS: usize = 16;

/// Request for a rehearsal.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Variables that are added to the script's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The card to simulate.
    pub card: RequestedCard,
    /// Number of such cards in a machine.
    pub cards: usize,
    /// Ranks that the rehearsal starts, and the size of their world; `None` if the command starts its own ranks.
    pub world: Option<World>,
    /// Conditions that end the script.
    pub stop: Stop,
    /// True if events complete only when something waits for them.
    pub late_events: bool,
    /// True if the script's own cuDNN says which plans there are and what they take.
    pub asks_cudnn: bool,
    /// True if allocations are recorded with the lines of the script.
    pub stacks: bool,
    /// True if each phase of the script is told with its own peak: loading, training, evaluation, generation, saving, resuming.
    pub phases: bool,
    /// True if the values of small tensors are computed.
    pub values: bool,
    /// Folder for the files that the script would write; without one they are discarded.
    pub keep_outputs: Option<PathBuf>,
    /// True if a script that ran out of memory runs once more, with enough memory, to find what it needs.
    pub needs: bool,
    /// True if a script of several streams runs once more with late events.
    pub late_again: bool,
    /// Least memory of the card that has enough of it, if not the usual. Bytes.
    pub enough: Option<u64>,
    /// True if the script's output is hidden.
    pub silent: bool,
    /// True if connections beyond this machine are refused.
    pub offline: bool,
    /// Words of a made-up text, if data that is not there is made up.
    pub make_data: Option<u64>,
}

impl Request {
    /// Rehearses a command on one card, with everything that makes the answer exact. The script's output is hidden, and it runs to its end, once.
    pub fn new(command: Vec<OsString>, card: RequestedCard) -> Self {
        Self {
            command,
            environment: Vec::new(),
            card,
            cards: 1,
            world: None,
            stop: Stop::default(),
            late_events: false,
            asks_cudnn: true,
            stacks: true,
            phases: false,
            values: true,
            keep_outputs: None,
            needs: false,
            late_again: false,
            enough: None,
            silent: true,
            offline: false,
            make_data: None,
        }
    }
}

/// Simulated card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedCard {
    /// Name that programs see.
    pub name: String,
    /// The card as a flag names it: `rtx4090`, `8589934592B`.
    pub spelled: String,
    /// Memory in bytes, as the driver reports it.
    pub total_bytes: u64,
    /// Bytes that a process takes at once, for its CUDA context.
    pub context_bytes: u64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Number of multiprocessors, if known.
    pub multiprocessors: Option<u16>,
}

impl RequestedCard {
    /// Bytes that are left of it for what PyTorch reserves.
    pub fn room(&self) -> u64 {
        self.total_bytes.saturating_sub(self.context_bytes)
    }
}

impl From<&Card> for RequestedCard {
    fn from(card: &Card) -> Self {
        // The driver names the maker, except for Tesla cards.
        let maker = if card.title.starts_with("Tesla") { "" } else { "NVIDIA " };
        Self {
            name: format!("{maker}{}", card.title),
            spelled: card.name.into(),
            total_bytes: card.total_bytes(),
            context_bytes: card.context.most_bytes(),
            capability: (card.sm / 10, card.sm % 10),
            multiprocessors: Some(card.multiprocessors),
        }
    }
}

impl RequestedCard {
    /// The known card of a compute capability (ten times it) that has the most multiprocessors of those that share cuDNN's answers, else one that is made up.
    pub fn of_capability(sm: u32) -> Self {
        let alike = ALL.iter().filter(|card| card.sm == sm && shares_answers(sm, Some(card.multiprocessors)));
        let most = alike.max_by_key(|card| card.multiprocessors);
        most.map_or_else(|| Self { capability: (sm / 10, sm % 10), ..Self::of_bytes(1 << 40) }, Self::from)
    }

    /// Makes a card of capability 9.0 with this many bytes, all of them for tensors.
    pub fn of_bytes(total_bytes: u64) -> Self {
        let name = format!("GPU of {}", lab_base::figures::short(total_bytes));
        // A small number needs its unit.
        let spelled = format!("{total_bytes}B");
        Self { name, spelled, total_bytes, context_bytes: 0, capability: (9, 0), multiprocessors: None }
    }
}

/// Steps of a run that ends as soon as memory is flat: least, most, and the seconds from the first step on after which it ends anyway.
pub(super) const LEAST_STEPS: u64 = 3;
pub(super) const MOST_STEPS: u64 = 20;
pub(super) const MOST_SECONDS: u64 = 60;

/// Conditions that end the script. The first that holds ends it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// True if the script ends once a step repeats the one before it, or when that was waited for long enough.
    pub settled: bool,
    /// Number of an optimizer's steps.
    pub steps: Option<u64>,
    /// Time since the start.
    pub time: Option<Duration>,
    /// Uses of the network: the script ends after the step by which all of them were seen.
    pub until: Vec<Use>,
}

impl Stop {
    /// Says of how many steps this one is: ` of 3`, ` of 20 at most`; empty if only something else ends the script, as after the 20th
    /// where a line that runs every few steps is waited for.
    pub fn of_steps(&self, step: u64) -> String {
        match self.steps {
            Some(steps) => format!(" of {steps}"),
            None if self.settled && step <= MOST_STEPS => format!(" of {MOST_STEPS} at most"),
            None => String::new(),
        }
    }
}

/// Use of the network besides training steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Evaluation mode of the network.
    Evaluation,
    /// Saving, by `torch.save` or safetensors.
    Saving,
    /// Generation, by `generate` of transformers.
    Generation,
}

/// Flags of Python that make it ignore environment variables, `sitecustomize`, or both.
const ISOLATING: [char; 3] = ['I', 'S', 'E'];

impl Request {
    /// Checks that the request can be rehearsed.
    ///
    /// # Errors
    /// [`Error::Usage`] that names what cannot be rehearsed.
    pub fn check(&self) -> Result<()> {
        if self.command.is_empty() {
            return Err(Error::usage("COMMAND", "name what to run: vramlab predict train.py"));
        }
        let script = self.command[0].to_str().filter(|word| word.ends_with(".py"));
        if let Some(script) = script.filter(|word| Path::new(word).is_file() && !is_executable(Path::new(word))) {
            return Err(Error::usage("COMMAND", format!("{script} is a script of Python: python {script}")));
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

/// True if a file may be executed.
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// Checks that outputs can be kept in a folder: it is new, and is made here, or it is empty.
///
/// # Errors
/// [`Error::Usage`] that names the folder.
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

/// Returns the flag that keeps the rehearsal out of Python, if the command runs Python with such a flag.
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
                // The rest of the command is the program and its arguments.
                'c' | 'm' => return None,
                // These flags take a value: the rest of this word, or the next word.
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
