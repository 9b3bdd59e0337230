//! `vramlab`: the memory that training a neural network takes, measured, predicted and explained.
//!
//! | module | what it does |
//! |---|---|
//! | `args` | what was typed, as data; scans and configuration files |
//! | `backends` | the one table of devices in this build |
//! | `commands` | one file per command |
//! | `render` | tables, charts and figures for people |
//! | `output` | files that are there whole or not at all |
//! | `file_lock` | changes to one file by several processes, one after the other |
//! | `exit` | failures and their exit codes |
//! | `status` | what a running training says of itself, for `monitor` |
//!
//! Results go to stdout, everything else to stderr. What is computed lives in `lab`; nothing here knows how.

mod account;
mod args;
mod backends;
mod commands;
mod destination;
mod exit;
mod file_lock;
mod interrupt;
mod output;
mod progress;
mod render;
mod status;
mod ui;

use std::process::ExitCode;

use crate::exit::Code;

fn main() -> ExitCode {
    backends::prepare();
    interrupt::install();
    let code = match args::parse(std::env::args_os().collect()) {
        Ok(invocation) => {
            let ui = ui::Ui::new(&invocation.cli.global);
            commands::run(&invocation, &ui).unwrap_or_else(|failure| ui.fail(&failure))
        }
        Err(args::Refusal::Clap(error)) => {
            // Help and version are no failures; clap knows which stream each belongs to. A reader that has enough has what it wants.
            match error.print() {
                Err(problem) if problem.kind() != std::io::ErrorKind::BrokenPipe => Code::Usage,
                _ if error.use_stderr() => Code::Usage,
                _ => Code::Done,
            }
        }
        Err(args::Refusal::Failure(failure)) => ui::Ui::plain().fail(&failure),
    };
    code.into()
}
