//! The two streams: results to stdout, the rest to stderr, coloured or not.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::args::{ColorWhen, GlobalArgs};
use crate::exit::{Code, Failure, Result};
use crate::render::style::Style;

/// How to talk to the user.
pub(crate) struct Ui {
    /// No progress and no notes.
    pub quiet: bool,
    /// Notes on what was chosen, and why.
    pub verbose: bool,
    /// Of stdout.
    pub style: Style,
    errors: Style,
}

impl Ui {
    /// As the flags say.
    pub(crate) fn new(global: &GlobalArgs) -> Self {
        let colored = |terminal: bool| match global.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => terminal && wants_color(),
        };
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            style: Style::new(colored(io::stdout().is_terminal())),
            errors: Style::new(colored(io::stderr().is_terminal())),
        }
    }

    /// Before any flag is known.
    pub(crate) fn plain() -> Self {
        Self { quiet: false, verbose: false, style: Style::new(false), errors: Style::new(false) }
    }

    /// The same, without notes.
    pub(crate) fn silenced(&self) -> Self {
        Self { quiet: true, verbose: false, ..*self }
    }

    /// A result.
    ///
    /// # Errors
    /// When stdout cannot be written. A reader that has read enough (`| head`) is no error.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(Code::Usage, anyhow::Error::new(error).context("cannot write to standard output")))
            }
            _ => Ok(()),
        }
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

    /// Says what went wrong; returns the exit code.
    pub(crate) fn fail(&self, failure: &Failure) -> Code {
        let text = match failure.out_of_memory() {
            Some(report) => crate::render::oom::text(report),
            None => format!("{:#}", failure.error),
        };
        line(format!("{} {text}", self.errors.red("error:")));
        failure.code
    }
}

/// One line on stderr; when that is closed there is nobody to tell.
fn line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// <https://no-color.org>: any value but the empty one; and terminals that cannot.
fn wants_color() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}
