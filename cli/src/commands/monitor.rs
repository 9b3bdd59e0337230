//! `vramlab monitor`

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use lab::results::{Findings, MonitorResult};

use crate::args::MonitorArgs;
use crate::backends;
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::render::sections;
use crate::status;
use crate::ui::Ui;
use crate::visible::sequence;

/// Seconds between two readings.
const READINGS: f64 = 1.0;

/// Shows devices and running trainings, once or until Ctrl-C.
///
/// # Errors
/// A result that cannot be written; a directory of statuses that others can write to. An absent driver, or no running training, is not an error.
pub(super) fn run(args: &MonitorArgs, ui: &Ui) -> Result<Code> {
    if !args.command.is_empty() {
        return super::watch::run(args, ui);
    }
    // Ctrl-C is the way to leave a monitor.
    interrupt::silence();
    output::check(&args.json)?;
    let to_file = matches!(args.json, Some(Destination::File(_)));
    if to_file && !args.once {
        return Err(Failure::usage(
            "--json FILE: a file holds one reading; add --once, or write to standard output: --json -",
        ));
    }
    let live = stdout().is_terminal() && !args.once && args.json.is_none();
    if live && args.pid.is_some() {
        interrupt::listen_for_the_key();
    }
    let mut was_seen = false;
    loop {
        let seen = match look(args.pid) {
            // The training that was watched has ended.
            Err(_) if was_seen && args.pid.is_some() => return Ok(Code::Done),
            seen => seen?,
        };
        was_seen = true;
        if live && args.pid.is_some() && interrupt::key_was_pressed() {
            seen.watched.iter().for_each(|watched| super::watch::ask(watched, ui));
        }
        match &args.json {
            Some(destination) => {
                let json = seen.to_json().map_err(|error| Failure::new(Code::Usage, error))?;
                destination.write(ui, &output::json_line(&json)?)?
            }
            // Moves to the upper left corner and erases everything below.
            None if live => ui.print(&format!("{}{}{}", sequence("H"), sequence("J"), text(&seen, ui)))?,
            None => ui.print(&text(&seen, ui))?,
        }
        if args.once || ui.nobody_reads() || !wait(Duration::from_secs_f64(args.interval.unwrap_or(READINGS))) {
            return Ok(Code::Done);
        }
    }
}

/// Waits until the next look; `false` when Ctrl-C was pressed, which is how to leave a monitor.
fn wait(period: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < period {
        if interrupt::asked() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50).min(period));
    }
    !interrupt::asked()
}

/// Collects the devices and running trainings, or the one training of a process.
///
/// # Errors
/// A process that is not a training of this program.
fn look(pid: Option<u32>) -> Result<MonitorResult> {
    let status::Running { mut runs, mut watched } = status::running()?;
    if let Some(pid) = pid {
        runs.retain(|run| run.pid == pid);
        watched.retain(|run| run.pid == pid);
        if runs.is_empty() && watched.is_empty() {
            return Err(Failure::usage(format!(
                "{pid} is not a training that tells of its memory: `vramlab watch` shows all that do. One of PyTorch does if it runs as \
                 `vramlab watch -- python train.py`, or inside `vramlab.watch()` (docs/python.md)"
            )));
        }
    }
    Ok(MonitorResult { devices: backends::all().iter().flat_map(|entry| (entry.memory)()).collect(), runs, watched })
}

fn text(seen: &MonitorResult, ui: &Ui) -> String {
    sections::text(&seen.title(), &seen.sections(), ui.view)
}
