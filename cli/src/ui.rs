//! The two streams: results to stdout, the rest to stderr, coloured or not.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use lab::backends::Remark;
use terminal_size::{Height, Width};

use crate::args::{ColorWhen, GlobalArgs, tips};
use crate::exit::{Code, Failure, Result};
use crate::render::{View, style::Style};
use crate::visible;

/// True if the reader of standard output has closed it.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// What Linux calls the open file behind standard error; nothing elsewhere.
const STANDARD_ERROR: &str = "/proc/self/fd/2";
const STANDARD_OUTPUT: &str = "/proc/self/fd/1";
/// Width of a terminal that does not say its own.
const USUAL_COLUMNS: usize = 80;

/// Output to the user.
pub(crate) struct Ui {
    /// True for no progress and no notes.
    pub quiet: bool,
    /// True for notes on choices and their reasons.
    pub verbose: bool,
    /// View of results on stdout.
    pub view: View,
    errors: Style,
    /// Notes that wait for the answer.
    waiting: Mutex<Vec<String>>,
}

impl Ui {
    /// Makes it from the flags.
    pub(crate) fn new(global: &GlobalArgs) -> Self {
        let mut ui = Self::colored(global.color);
        ui.view.full = global.full;
        Self { quiet: global.quiet, verbose: global.verbose, ..ui }
    }

    /// Makes it with the usual notes.
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
            waiting: Mutex::default(),
        }
    }

    /// Makes one that says nothing beside an answer.
    pub(crate) fn silent() -> Self {
        Self { quiet: true, ..Self::colored(ColorWhen::Never) }
    }

    /// Makes it without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self::colored(ColorWhen::Never)
    }

    /// Returns a copy without notes.
    pub(crate) fn silenced(&self) -> Self {
        Self { quiet: true, verbose: false, view: self.view, errors: self.errors, waiting: Mutex::default() }
    }

    /// Prints a result for people.
    ///
    /// # Errors
    /// If stdout cannot be written. A reader that closes it early (`| head`) is not an error.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        if ends_within_a_line(Path::new(STANDARD_OUTPUT)) {
            to_stdout(b"\n")?;
        }
        to_stdout(visible::for_terminal(text).as_bytes())
    }

    /// Prints a result for programs.
    pub(crate) fn document(&self, contents: &[u8]) -> Result<()> {
        to_stdout(&visible::document(contents))
    }

    /// Prints a piece of JSON for programs.
    pub(crate) fn json(&self, piece: &str) -> Result<()> {
        to_stdout(visible::json(piece).as_bytes())
    }

    /// True if the reader closed standard output: commands that print without end stop then.
    pub(crate) fn nobody_reads(&self) -> bool {
        CLOSED.load(Relaxed)
    }

    /// Prints a note, with `-v` only.
    pub(crate) fn note(&self, text: impl Display) {
        if self.verbose && !self.quiet {
            line(text);
        }
    }

    /// Prints what the user should know although all is well, unless `-q`.
    pub(crate) fn tell(&self, text: impl Display) {
        if !self.quiet {
            line(text);
        }
    }

    /// Prints what [`tell`](Self::tell) would, on a line of its own on a terminal and in a file, where another program may have left a part of a line.
    /// What another program wrote to a pipe cannot be read again.
    pub(crate) fn tell_apart(&self, text: impl Display) {
        if !self.quiet {
            begin_line(io::stderr(), terminal_size::terminal_size_of(io::stderr()), STANDARD_ERROR);
        }
        self.tell(text);
    }

    /// Prints what [`tell_apart`](Self::tell_apart) would, but nothing in a file where another program has begun a line that is not at its end.
    pub(crate) fn tell_between_lines(&self, text: impl Display) {
        if !ends_within_a_line(Path::new(STANDARD_ERROR)) {
            self.tell_apart(text);
        }
    }

    /// Ends a line that another program has left on standard error.
    pub(crate) fn end_line(&self) {
        let is_file = fs::metadata(STANDARD_ERROR).is_ok_and(|about| about.is_file());
        if is_file || io::stderr().is_terminal() {
            begin_line(io::stderr(), terminal_size::terminal_size_of(io::stderr()), STANDARD_ERROR);
        } else {
            // What was written to a pipe cannot be read again.
            let _ = writeln!(io::stderr());
        }
    }

    /// Begins a line for an answer on a terminal, where another program may have left a part of one.
    pub(crate) fn begin_answer(&self) {
        if io::stdout().is_terminal() {
            begin_line(io::stdout(), terminal_size::terminal_size_of(io::stdout()), STANDARD_OUTPUT);
        }
    }

    /// Prints what [`tell`](Self::tell) would, but after the answer, whose first line is the first on a terminal.
    pub(crate) fn tell_after(&self, text: impl Display) {
        if !self.quiet {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_string());
        }
    }

    /// Prints the notes that waited for the answer.
    pub(crate) fn end_of_answer(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.iter().for_each(line);
    }

    /// Prints a remark on a choice.
    pub(crate) fn remark(&self, remark: &Remark) {
        if remark.important { self.tell(&remark.text) } else { self.note(&remark.text) }
    }

    /// Prints a failure; returns the exit code.
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

    /// Prints what is wrong with the command line.
    pub(crate) fn refuse(&self, error: clap::Error, words: &[OsString]) -> Code {
        // Clap's own colours are removed: they could not be told from an argument's.
        let text = plain(&tips::text(error, words));
        match text.trim_end().strip_prefix("error:") {
            Some(problem) => line(format!("{}{problem}", self.errors.red("error:"))),
            // Without a command clap returns the help.
            None => line(text.trim_end()),
        }
        Code::Usage
    }
}

/// Begins a line on a terminal or in a regular file, if there is not one that begins already.
fn begin_line(mut stream: impl Write + IsTerminal, size: Option<(Width, Height)>, path: &str) {
    if stream.is_terminal() {
        let columns = size.map_or(0, |(Width(columns), _)| usize::from(columns));
        let columns = if columns > 0 { columns } else { USUAL_COLUMNS };
        // At the start of a line the spaces stay on it; elsewhere they go on to the next one. A terminal that is gone gets neither.
        let _ = write!(stream, "{}\r", " ".repeat(columns - 1)).and_then(|()| stream.flush());
    } else if ends_within_a_line(Path::new(path)) {
        let _ = writeln!(stream);
    }
}

/// True if the regular file at this path ends within a line.
fn ends_within_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    // Opening a pipe would wait.
    fs::metadata(path).is_ok_and(|about| about.is_file()) && last().is_ok_and(|byte| byte != b'\n')
}

/// Replaces the messages of number parsers by plainer ones.
fn plain(text: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        (": invalid digit found in string", ": a whole number, not negative, is expected"),
        (": cannot parse integer from empty string", ": a whole number is expected"),
        (": number too large to fit in target type", ": too large"),
        (": number too small to fit in target type", ": too small"),
        (": invalid float literal", ": a number is expected"),
    ];
    WORDS.iter().fold(text.to_string(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// Returns the message and its causes, except those that the message before contains.
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
        Err(error) => Err(Failure::unwritten(anyhow::Error::new(error).context("cannot write to standard output"))),
    }
}

/// Prints one line on stderr; errors are ignored, since they cannot be reported.
fn line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", visible::for_terminal(&text.to_string()));
}

/// Installs a panic hook: panics are errors of this program, but they may quote text from outside.
pub(crate) fn show_panics() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        let shown = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        line(format!("{info}{}", if shown { format!("\n{backtrace}") } else { String::new() }));
    }));
}

/// <https://no-color.org>: colours unless the variable has a value that is not empty, or the terminal has none.
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
        assert_eq!(plain(&format!("'-1': {error}")), "'-1': a whole number, not negative, is expected");
        let error = "a".parse::<f64>().unwrap_err();
        assert_eq!(plain(&format!("'a': {error}")), "'a': a number is expected");
    }

    #[test]
    fn causes_are_said_once() {
        let io = std::io::Error::other("disk on fire");
        let data = lab::data::DataError::Io { path: "images".into(), source: io };
        assert_eq!(chain(&anyhow::Error::new(data).context("--data")), "--data: images: disk on fire");
    }

    #[test]
    fn a_file_that_ends_within_a_line_is_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        assert!(!ends_within_a_line(&path) && !ends_within_a_line(folder.path()));
        for (text, within) in [("", false), ("half", true), ("whole\n", false), ("whole\nhalf", true)] {
            fs::write(&path, text).unwrap();
            assert_eq!(ends_within_a_line(&path), within, "{text:?}");
        }
    }
}
