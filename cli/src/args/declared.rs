//! Which commands' flags are declared.
//!
//! Several commands describe a run, each by more than a hundred flags: declaring them all takes longer than small answers. Of a line that begins with one
//! of these commands, only the flags of those that it may become are declared.

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};

use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Commands by name, and those that each may become.
const FEW: [(&str, &[&str]); 5] = [
    ("predict", &["predict", "rehearse", "fit"]),
    ("rehearse", &["rehearse"]),
    ("train", &["train"]),
    ("fit", &["fit"]),
    ("plan", &["plan"]),
];

thread_local! {
    /// The commands whose flags are declared; `None` for all.
    static WANTED: Cell<Option<&'static [&'static str]>> = const { Cell::new(None) };
}

/// The commands that a line may be of; `None` if it may be of any, or asks for help.
pub(super) fn few(words: &[OsString]) -> Option<&'static [&'static str]> {
    let mut typed = words.iter().skip(1).filter_map(|word| word.to_str());
    if typed.clone().take_while(|word| *word != "--").any(|word| matches!(word, "-h" | "--help" | "help")) {
        return None;
    }
    let first = typed.find(|word| !word.starts_with('-'))?;
    // Scripts and files have a point or a slash; a network by name has neither.
    if first == "predict" && !typed.any(|word| word.contains(['.', '/']) || matches!(word, "--" | "--largest")) {
        return Some(&["predict"]);
    }
    FEW.into_iter().find(|(name, _)| *name == first).map(|(_, names)| names)
}

/// Returns what `parse` returns where only the flags of these commands are declared.
pub(super) fn only<T>(names: &'static [&'static str], parse: impl FnOnce() -> T) -> T {
    WANTED.set(Some(names));
    let parsed = parse();
    WANTED.set(None);
    parsed
}

/// The flags of a command that describes a run.
#[derive(Clone, Debug)]
pub(crate) struct RunFlags<T>(T);

impl<T> Deref for RunFlags<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RunFlags<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for RunFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for RunFlags<T> {
    fn augment_args(command: Command) -> Command {
        let is_wanted = WANTED.get().is_none_or(|names| names.contains(&command.get_name()));
        if is_wanted { T::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    #[test]
    fn only_what_a_line_may_become_is_declared() {
        let flags = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let declared = || Cli::declared().get_subcommands().map(|one| one.get_arguments().count()).collect();
            let counts: Vec<usize> = match few(&words) {
                Some(names) => only(names, declared),
                None => declared(),
            };
            counts.into_iter().sum::<usize>()
        };
        let all = flags("vramlab nothing");
        assert_eq!(all, flags("vramlab predict --help"));
        assert_eq!(all, flags("vramlab --color never predict gpt2"));
        assert!(flags("vramlab predict gpt2") < flags("vramlab predict gpt2 --largest"));
        assert_eq!(flags("vramlab predict train.py"), flags("vramlab predict -- python train.py --help"));
        assert!(flags("vramlab predict train.py") * 2 < all);
        // What is typed after a command is parsed with the flags of that command.
        assert!(all == flags("vramlab ask batch-size") && WANTED.get().is_none());
    }
}
