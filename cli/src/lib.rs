//! The command line of `vramlab`: the memory that training a neural network takes, measured, predicted and explained.
//!
//! It takes a table of backends ([`main_with`]) and returns an exit code. A program with a backend of its own is three lines:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     cli::main_with(cli::BACKENDS)
//! }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `args` | what was typed, as data; scans and configuration files |
//! | `backends` | the one table of devices in this build |
//! | `commands` | one file per command |
//! | `render` | tables, charts and figures for people |
//! | `output` | destinations of results, checked before anything is run |
//! | `whole_file` | files that appear whole or not at all |
//! | `file_kind` | the kind of a file, and what to do with one of the wrong kind |
//! | `file_lock` | changes to one file by several processes, one after the other |
//! | `exit` | failures and their exit codes |
//! | `viewer` | a recording on a terminal, with keys |
//! | `visible` | text from outside, as a terminal may show it |
//! | `status` | the status of a running training, for `monitor` |
//!
//! Results go to stdout, everything else to stderr. `lab` does all computation.

mod absent;
mod args;
mod backends;
mod cache;
mod commands;
mod destination;
mod exit;
mod file_kind;
mod file_lock;
mod interrupt;
mod mapped_file;
mod output;
mod progress;
mod render;
mod status;
mod ui;
#[cfg(feature = "view")]
mod viewer;
mod visible;
mod whole_file;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::exit::Code;

/// A host without memory ends the program with a sentence.
#[global_allocator]
static HOST_MEMORY: lab::host_memory::EndingAllocator = lab::host_memory::EndingAllocator::new(Code::Device.number());

pub use lab::backends::{About, DeviceMemory, Entry};

pub use crate::backends::BACKENDS;

#[cfg(doctest)]
#[doc = include_str!("../../docs/backend.md")]
struct AddingABackend;

/// Runs the program with these backends on the process's arguments.
pub fn main_with(backends: &'static [Entry]) -> ExitCode {
    HOST_MEMORY.keep_reserve();
    ui::show_panics();
    backends::prepare();
    interrupt::install();
    #[cfg(unix)]
    interrupt::file_limits_are_errors();
    lab::input::ends_when(interrupt::asked);
    run(std::env::args_os().collect(), backends)
}

/// Runs the program with these words (the program's name first) and these backends. The first table of a process stays.
pub fn run(words: Vec<OsString>, backends: &'static [Entry]) -> ExitCode {
    backends::set(backends);
    let ui = ui::Ui::colored(args::color(&words));
    let code = match args::parse(words.clone()) {
        Ok(invocation) => {
            let ui = ui::Ui::new(&invocation.cli.global);
            if ui.quiet {
                interrupt::silence();
            }
            invocation.notes.iter().for_each(|note| ui.tell_after(note));
            let done = commands::run(&invocation, &ui);
            ui.end_of_answer();
            match done {
                Ok(Code::Interrupted) => {
                    ui.tell("interrupted: what was measured until then was delivered");
                    Code::Interrupted
                }
                Ok(code) => code,
                // What was waited for did not come before the user stopped waiting.
                Err(_) if lab::input::gave_up() => Code::Interrupted,
                Err(failure) => ui.fail(&invocation.with_a_way_out(invocation.at_its_source(failure))),
            }
        }
        Err(args::Refusal::Clap(error)) if error.use_stderr() => ui.refuse(error, &words),
        // Help and version are not failures; nor is a reader that closes the pipe.
        Err(args::Refusal::Clap(error)) => match error.print() {
            Err(problem) if problem.kind() != std::io::ErrorKind::BrokenPipe => Code::Usage,
            _ => Code::Done,
        },
        Err(args::Refusal::Failure(_)) if lab::input::gave_up() => Code::Interrupted,
        Err(args::Refusal::Failure(failure)) => ui.fail(&failure),
    };
    code.into()
}

/// What a training takes, as JSON for other programs (`vramlab-estimate-1`), with these backends.
///
/// `configuration`: a network's name, the path of a file that `vramlab predict` reads, or the text of a `config.json`. `arguments`: fields of a run, as an
/// object of JSON (`{"batch": 4, "gpu": "rtx4090"}`). Every problem is a value, `{"error": {"kind": …, "message": …}}`. Threads may call it at once.
pub fn estimate(configuration: &str, arguments: &str, backends: &'static [Entry]) -> String {
    backends::set(backends);
    commands::estimate::estimate(configuration, arguments)
}

/// True if these words, with their configuration file, form a valid command. Nothing is run.
pub fn understands(words: Vec<OsString>, backends: &'static [Entry]) -> bool {
    backends::set(backends);
    args::parse(words).is_ok()
}
