//! A command line before clap reads it: which words are flags, their values, or neither.

use std::ffi::OsString;

use clap::Command;

use super::spellings;

/// A command line as clap takes it.
pub(super) struct Entered {
    pub(super) words: Vec<OsString>,
    /// What was chosen, where the answer itself does not say it.
    pub(super) notes: Vec<String>,
}

/// The words of a command line, around the name of its command.
pub(super) struct Line<'a> {
    root: &'a Command,
    before: Vec<OsString>,
    pub(super) rest: Vec<OsString>,
}

impl<'a> Line<'a> {
    /// Makes it of the whole command, the words before the name of the command, and those after it.
    pub(super) fn new(root: &'a Command, before: Vec<OsString>, rest: Vec<OsString>) -> Self {
        Self { root, before, rest }
    }

    /// The word that asks for help, which clap gives; `None` if none does.
    pub(super) fn help_word(&self) -> Option<OsString> {
        self.rest.iter().take_while(|word| *word != "--").find(|word| *word == "-h" || *word == "--help").cloned()
    }

    /// The words of a command with this one behind it.
    pub(super) fn only(&self, name: &str, word: OsString) -> Vec<OsString> {
        self.before.iter().cloned().chain([name.into(), word]).collect()
    }

    /// Returns a command by its name: `snapshot show`.
    pub(super) fn command(&self, name: &str) -> Option<&'a Command> {
        let mut names = name.split(' ');
        let first = self.root.find_subcommand(names.next()?)?;
        names.try_fold(first, |command, name| command.find_subcommand(name))
    }

    /// Returns the line as it is, with flags in this program's spelling.
    pub(super) fn with_own(self, name: &str) -> Entered {
        let rest = self.rest.clone();
        self.with(name, rest)
    }

    /// Returns a line of another command, with these words.
    pub(super) fn with(self, name: &str, rest: Vec<OsString>) -> Entered {
        let rest = match self.command(name) {
            // What follows are a script's own words.
            Some(command) if name != "rehearse" && name != "watch" => spellings::as_ours(&rest, command),
            _ => rest,
        };
        let words = self.before.into_iter().chain(name.split(' ').map(OsString::from)).chain(rest).collect();
        Entered { words, notes: Vec::new() }
    }

    /// Returns the places of the words that are neither flags nor their values, up to `--`. Flags are those of these commands; after a flag of none
    /// of them nothing is looked for, so that clap can name it.
    pub(super) fn positionals(&self, commands: &[&str]) -> Vec<usize> {
        let commands: Vec<&Command> = commands.iter().filter_map(|name| self.command(name)).collect();
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(word) = self.rest.get(at).filter(|word| *word != "--") {
            let flag = word.to_str().filter(|word| word.starts_with('-') && word.len() > 1);
            let Some(flag) = flag else {
                found.push(at);
                at += 1;
                continue;
            };
            let next = self.rest.get(at + 1).and_then(|word| word.to_str());
            let values = match flag {
                "--largest" => Some(usize::from(matches!(next, Some("batch" | "sequence")))),
                _ => commands
                    .iter()
                    .find_map(|command| spellings::consumed(flag, next, command).or_else(|| values_of(command, flag))),
            };
            let Some(values) = values else { break };
            // A flag that lacks a value does not have the words of the command behind it.
            let behind = self.rest[at + 1..].iter().take(values);
            at += 1 + behind.take_while(|word| *word != "--").count();
        }
        found
    }
}

/// Returns the number of words that follow a flag of this command, in any spelling; `None` if it has no such flag.
pub(super) fn values_of(command: &Command, flag: &str) -> Option<usize> {
    let spelled = spellings::as_ours(&[OsString::from(flag)], command);
    let flag = spelled.first()?.to_str()?;
    if spelled.len() > 1 {
        // A flag of another program that says its value.
        return Some(0);
    }
    let (name, has_value) = flag.split_once('=').map_or((flag, false), |(name, _)| (name, true));
    let arg = command.get_arguments().find(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long)),
        None => arg.get_short().is_some_and(|short| name.strip_prefix('-') == Some(short.to_string().as_str())),
    })?;
    let takes = arg.get_action().takes_values() && !has_value && !arg.is_require_equals_set();
    Some(if takes { arg.get_num_args().map_or(1, |n| n.max_values()) } else { 0 })
}

/// True if a command has a flag of exactly this name, not one that is spelled otherwise.
pub(super) fn is_exactly_a_flag(command: &Command, flag: &str) -> bool {
    let name = flag.split('=').next().unwrap_or(flag);
    command.get_arguments().any(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| name == format!("-{short}")),
    })
}
