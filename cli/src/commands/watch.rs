//! `vramlab watch -- COMMAND`: a training of PyTorch that runs for real, with its memory beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::results::{Findings, PredictedPeaks, Watched};
use lab::watch::{self, Watching};

use crate::args::MonitorArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::render::{sections, wrapped};
use crate::status;
use crate::ui::Ui;

/// Time between two looks at what the processes told.
const PERIOD: Duration = Duration::from_millis(100);
/// Seconds between two lines, unless something happens.
const LINES: f64 = 10.0;
/// Largest file of a prediction.
const MAX_PREDICTION: u64 = 64 << 20;

/// Runs a command, prints its memory while it runs, and sums it up. The exit code is the command's.
///
/// # Errors
/// A command that cannot be started, or that did not train on a card; files that cannot be read or written.
pub(super) fn run(args: &MonitorArgs, ui: &Ui) -> Result<Code> {
    output::check(&args.json)?;
    if args.once || args.pid.is_some() {
        return Err(Failure::usage(
            "--once and PID are for trainings that run already; leave them out, or the command",
        ));
    }
    let predicted = args.predicted.as_deref().map(predicted).transpose()?;
    // The terminal sends Ctrl-C to the command as well: it decides.
    interrupt::silence();
    interrupt::listen_for_the_key();
    let mut watching = Watching::start(&args.command, interrupt::keeps_the_key)?;
    let ended = follow(&mut watching, args.interval.unwrap_or(LINES), ui)?;
    let result = match watching.result(ended, predicted, &args.snapshot) {
        Ok(result) => result,
        Err(error) if ended.success() => return Err(error.into()),
        Err(error) => {
            ui.tell_apart(error);
            return Ok(Code::Script(watch::exit_code(ended) as u8));
        }
    };
    if let Some(destination) = &args.json {
        let json = result.to_json().map_err(|error| Failure::new(Code::Usage, error))?;
        destination.write(ui, &output::json_line(&json)?)?;
    }
    // Standard output is the command's.
    ui.tell_apart(sections::text(&result.title(), &result.sections(), ui.view).trim_end());
    Ok(Code::Script(result.script_exit as u8))
}

/// Reads what had been predicted.
///
/// # Errors
/// A file that is not a result of `predict`.
fn predicted(path: &Path) -> Result<PredictedPeaks> {
    let name = path.display();
    let cannot = |error: std::io::Error| Failure::usage(format!("--predicted {name}: {error}"));
    if fs::metadata(path).map_err(cannot)?.len() > MAX_PREDICTION {
        return Err(Failure::usage(format!("--predicted {name}: too large for a result of predict")));
    }
    let found = serde_json::from_slice(&fs::read(path).map_err(cannot)?).ok();
    found.and_then(|found| PredictedPeaks::read(&name.to_string(), &found)).ok_or_else(|| {
        let how = "vramlab predict --json predicted.json -- python train.py";
        Failure::usage(format!("--predicted {name}: not a prediction of one run; make one: {how}"))
    })
}

/// Waits for the end, and says meanwhile what happens.
fn follow(watching: &mut Watching, every: f64, ui: &Ui) -> Result<std::process::ExitStatus> {
    let every = Duration::from_secs_f64(every);
    let mut said: BTreeMap<u32, Said> = BTreeMap::new();
    let mut published = status::Guests::default();
    let mut forwarded = false;
    loop {
        let ended = watching.ended()?;
        if ended.is_none() {
            let told = watching.told();
            published.show(&told);
            let asked = interrupt::key_was_pressed();
            for one in told.iter().filter(|one| one.has_figures()) {
                if asked {
                    ask(one, ui);
                }
                said.entry(one.pid).or_default().tell(one, every, ui);
            }
        }
        if let Some(ended) = ended {
            return Ok(ended);
        }
        // A terminal sends Ctrl-C to the command, too; whoever ends only this program means both.
        if interrupt::asked() && !forwarded && !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
            interrupt::end_process(watching.pid());
            forwarded = true;
        }
        std::thread::sleep(PERIOD);
    }
}

/// Asks a process for a snapshot of its next two steps.
pub(super) fn ask(watched: &Watched, ui: &Ui) {
    let name = format!("vramlab-{}-step{}.pickle", watched.pid, watched.steps);
    let path = std::env::current_dir().map_or_else(|_| PathBuf::from(&name), |folder| folder.join(&name));
    match watch::ask(watched, &path) {
        Ok(()) => ui.tell_apart(format!("a snapshot of the next two steps is written to {name}: vramlab open {name}")),
        Err(error) => ui.tell_apart(format!("no snapshot can be asked for: {error}")),
    }
}

/// What was said of a process, and when.
#[derive(Default)]
struct Said {
    at: Option<Instant>,
    steps: u64,
    grows: bool,
    failed: u64,
}

impl Said {
    /// Prints a line if something happened: a first step, growth, memory that ran out, or time that passed with steps.
    fn tell(&mut self, now: &Watched, every: Duration, ui: &Ui) {
        let (grows, failed) = (now.growth.is_some(), now.out_of_memory.as_ref().map_or(0, |oom| oom.count));
        let is_late = self.at.is_none_or(|at| at.elapsed() >= every) && now.steps > self.steps;
        if is_late || grows != self.grows || failed > self.failed {
            let out = if failed > self.failed { "memory ran out; " } else { "" };
            let line = format!("watch: {out}{}", now.line());
            ui.tell_apart(wrapped(&line, ui.view.width, 2).trim_end());
            (self.at, self.steps, self.grows, self.failed) = (Some(Instant::now()), now.steps, grows, failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_predictions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        assert!(predicted(&path).is_err());
        fs::write(&path, "{\"schema\": \"vramlab-fit-1\"}").unwrap();
        let said = predicted(&path).unwrap_err().error.to_string();
        assert!(said.contains("not a prediction of one run"), "{said}");
    }
}
