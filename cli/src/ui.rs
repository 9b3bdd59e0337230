//! The two streams: results to stdout, the rest to stderr, coloured or not.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::error::ErrorKind;
use lab::backends::Remark;

use crate::args::{ColorWhen, GlobalArgs};
use crate::exit::{Code, Failure, Result};
use crate::render::{View, style::Style};
use crate::visible;

/// Whether the reader of standard output has gone.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How to talk to the user.
pub(crate) struct Ui {
    /// No progress and no notes.
    pub quiet: bool,
    /// Notes on what was chosen, and why.
    pub verbose: bool,
    /// Of results, on stdout.
    pub view: View,
    errors: Style,
}

impl Ui {
    /// As the flags say.
    pub(crate) fn new(global: &GlobalArgs) -> Self {
        let mut ui = Self::colored(global.color);
        ui.view.full = global.full;
        Self { quiet: global.quiet, verbose: global.verbose, ..ui }
    }

    /// With notes as usual.
    pub(crate) fn colored(when: ColorWhen) -> Self {
        let colored = |terminal: bool| match when {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => terminal && wants_color(),
        };
        Self {
            quiet: false,
            verbose: false,
            view: View::of_stdout(false, Style::new(colored(io::stdout().is_terminal()))),
            errors: Style::new(colored(io::stderr().is_terminal())),
        }
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self::colored(ColorWhen::Never)
    }

    /// The same, without notes.
    pub(crate) fn silenced(&self) -> Self {
        Self { quiet: true, verbose: false, ..*self }
    }

    /// A result for people.
    ///
    /// # Errors
    /// When stdout cannot be written. A reader that has read enough (`| head`) is not an error.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        to_stdout(visible::for_terminal(text).as_bytes())
    }

    /// A result for programs.
    pub(crate) fn document(&self, contents: &[u8]) -> Result<()> {
        to_stdout(&visible::document(contents))
    }

    /// A piece of JSON for programs, on standard output.
    pub(crate) fn json(&self, piece: &str) -> Result<()> {
        to_stdout(visible::json(piece).as_bytes())
    }

    /// Whether a reader had read enough when something was printed: who prints for ever ends then.
    pub(crate) fn nobody_reads(&self) -> bool {
        CLOSED.load(Relaxed)
    }

    /// A note, with `-v` only.
    pub(crate) fn note(&self, text: impl Display) {
        if self.verbose && !self.quiet {
            line(text);
        }
    }

    /// Something that the user should know although all is well, unless `-q`.
    pub(crate) fn tell(&self, text: impl Display) {
        if !self.quiet {
            line(text);
        }
    }

    /// What should be said of a choice.
    pub(crate) fn remark(&self, remark: &Remark) {
        if remark.important { self.tell(&remark.text) } else { self.note(&remark.text) }
    }

    /// Says what went wrong; returns the exit code.
    pub(crate) fn fail(&self, failure: &Failure) -> Code {
        let text = match failure.out_of_memory() {
            Some(report) => match failure.error.to_string() {
                own if own.starts_with("out of memory") => crate::render::oom::text(report, self.view),
                context => format!("{context}: {}", crate::render::oom::text(report, self.view)),
            },
            None => chain(&failure.error),
        };
        line(format!("{} {text}", self.errors.red("error:")));
        failure.code
    }

    /// Says what is wrong with the command line.
    pub(crate) fn refuse(&self, error: &clap::Error) -> Code {
        // Clap's own colours are left out: they could not be told from an argument's.
        let mut text = plain(&error.render().to_string());
        if error.kind() == ErrorKind::InvalidValue && text.contains("'--model <NAME>'") {
            text += OWN_NETWORK;
        }
        match text.trim_end().strip_prefix("error:") {
            Some(problem) => line(format!("{}{problem}", self.errors.red("error:"))),
            // The help, where a command is missing.
            None => line(text.trim_end()),
        }
        Code::Usage
    }
}

/// For who names a network that is not among ours.
const OWN_NETWORK: &str = "\nA network of your own: `vramlab rehearse -- python train.py` runs its script on a card that is not \
    there;\n`--model-file` takes a config.json, a .pt2 of torch.export, or a TOML file.\n";

/// What parsers of numbers say, in other words.
fn plain(text: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        (": invalid digit found in string", ": a whole number, 0 or more, is expected"),
        (": cannot parse integer from empty string", ": a whole number is expected"),
        (": number too large to fit in target type", ": too large"),
        (": number too small to fit in target type", ": too small"),
        (": invalid float literal", ": a number is expected"),
    ];
    WORDS.iter().fold(text.to_string(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// The message and its causes, those left out that the message before says already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut before = String::new();
    for cause in error.chain() {
        let message = cause.to_string();
        if !before.ends_with(&message) {
            text += if text.is_empty() { "" } else { ": " };
            text += &message;
        }
        before = message;
    }
    text
}

fn to_stdout(contents: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(contents).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            CLOSED.store(true, Relaxed);
            Ok(())
        }
        Err(error) => {
            Err(Failure::new(Code::Usage, anyhow::Error::new(error).context("cannot write to standard output")))
        }
    }
}

/// One line on stderr; when that is closed there is nobody to tell.
fn line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", visible::for_terminal(&text.to_string()));
}

/// Panics are mistakes of ours, but what they quote may come from outside.
pub(crate) fn show_panics() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        let shown = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        line(format!("{info}{}", if shown { format!("\n{backtrace}") } else { String::new() }));
    }));
}

/// <https://no-color.org>: any value but the empty one; and terminals that cannot.
fn wants_color() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_told_plainly() {
        let error = "-1".parse::<usize>().unwrap_err();
        assert_eq!(plain(&format!("'-1': {error}")), "'-1': a whole number, 0 or more, is expected");
        let error = "a".parse::<f64>().unwrap_err();
        assert_eq!(plain(&format!("'a': {error}")), "'a': a number is expected");
    }

    #[test]
    fn causes_are_said_once() {
        let io = std::io::Error::other("disk on fire");
        let data = lab::data::DataError::Io { path: "images".into(), source: io };
        assert_eq!(chain(&anyhow::Error::new(data).context("--data")), "--data: images: disk on fire");
    }
}
