//! Starts the command, follows its processes, and ends them.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use lab_base::error::Result;

use super::answers::{self, Answer};
use super::commands::Commands;
use super::folder::Folder;
use super::processes::{Processes, adopt_orphans};
use super::progress::Progress;
use super::request::Request;

/// How often files are looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the first rank that is done waits for the others.
const RANKS_TIME: Duration = Duration::from_secs(60);

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The command ended by itself.
    Ended,
    /// After as many steps as were asked for.
    Steps,
    /// After everything that was to be seen.
    Seen,
    /// After as long as was asked for.
    Time,
    /// The user ended it.
    Interrupted,
}

#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) ending: Ending,
    /// Of the command; `None` where it was ended.
    pub(super) exit: Option<ExitStatus>,
}

impl Followed {
    /// Whether the script went as far as it should, and did not fail.
    pub(super) fn is_complete(&self) -> bool {
        match self.ending {
            Ending::Ended => self.exit.is_some_and(|exit| exit.success()),
            Ending::Steps | Ending::Seen => true,
            Ending::Time | Ending::Interrupted => false,
        }
    }

    /// Its exit code, as a shell would give it.
    pub(super) fn exit_code(&self) -> Option<i32> {
        let exit = self.exit?;
        exit.code().or_else(|| exit.signal().map(|signal| 128 + signal))
    }
}

/// Runs the command.
pub(super) fn run(
    request: &Request,
    folder: &Folder,
    watch: &mut dyn FnMut(Option<Progress>) -> ControlFlow<()>,
) -> Result<Followed> {
    adopt_orphans();
    let processes = Processes::before();
    let mut commands = Commands::start(request, folder)?;
    let (asked, mut exit) = follow(&mut commands, request, folder, watch);
    let own_end = exit.is_some();
    let answers = folder.answers();
    let mut reap = || {
        if exit.is_none() {
            exit = commands.ended();
        }
    };
    processes.end(|pid| answers.join(format!("{pid}.started")).exists(), &mut reap);
    let ending = match asked {
        Some(ending) => ending,
        None => ending_of(&answers::read(folder), own_end && exit.is_some_and(|exit| !exit.success())),
    };
    Ok(Followed { ending, exit: exit.filter(|_| own_end) })
}

/// Why a command ended that was not ended from here. Where it failed by an exception of one rank, it does not matter that
/// others had made their steps.
fn ending_of(answers: &[Answer], failed: bool) -> Ending {
    let why = |why: &str| answers.iter().any(|answer| answer.why == why);
    if failed && answers.iter().any(|answer| answer.exception.is_some()) {
        Ending::Ended
    } else if why("steps") {
        Ending::Steps
    } else if why("seen") {
        Ending::Seen
    } else {
        Ending::Ended
    }
}

/// Waits for the end, or for a reason to end it.
fn follow(
    commands: &mut Commands,
    request: &Request,
    folder: &Folder,
    watch: &mut dyn FnMut(Option<Progress>) -> ControlFlow<()>,
) -> (Option<Ending>, Option<ExitStatus>) {
    let start = Instant::now();
    let mut seen = Seen::default();
    loop {
        if let Some(exit) = commands.ended() {
            // What it wrote last; it has ended, whatever the user wants.
            let _ended = watch(seen.look(folder));
            return (None, Some(exit));
        }
        let progress = seen.look(folder);
        if watch(progress).is_break() {
            return (Some(Ending::Interrupted), None);
        }
        if request.stop.time.is_some_and(|most| start.elapsed() >= most) {
            return (Some(Ending::Time), None);
        }
        if seen.all_ranks_are_done(commands.ranks()) && !folder.stop().exists() {
            // Where it cannot be written, each rank waits for as long as it does at most.
            let _waiting = std::fs::write(folder.stop(), "");
        }
        std::thread::sleep(PAUSE);
    }
}

/// What was seen of the answers so far.
#[derive(Default)]
struct Seen {
    /// When each file was written last, with what it says.
    files: HashMap<std::ffi::OsString, (SystemTime, Answer)>,
    steps: u64,
    done_since: Option<Instant>,
}

impl Seen {
    /// Reads what is new, and says how far the run is if that has changed.
    fn look(&mut self, folder: &Folder) -> Option<Progress> {
        let mut changed = false;
        for (name, written, path) in answers::files(folder, ".json") {
            if self.files.get(&name).is_some_and(|(before, _)| *before == written) {
                continue;
            }
            if let Some(answer) = answers::answer(&path) {
                self.files.insert(name, (written, answer));
                changed = true;
            }
        }
        let all = || self.files.values().map(|(_, answer)| answer);
        let steps = all().map(|answer| answer.steps).max().unwrap_or(0);
        if !changed || steps <= self.steps {
            return None;
        }
        let peak_allocated_bytes = all().flat_map(|answer| &answer.cards).map(|card| card.peak_allocated).max();
        self.steps = steps;
        Some(Progress::Step { steps, peak_allocated_bytes: peak_allocated_bytes.unwrap_or(0) })
    }

    /// Whether each rank has made its steps, or some have and the others do not follow.
    fn all_ranks_are_done(&mut self, started: Option<usize>) -> bool {
        let done = |answer: &&Answer| matches!(answer.why.as_str(), "steps" | "seen");
        let done: Vec<&Answer> = self.files.values().map(|(_, answer)| answer).filter(done).collect();
        let Some(world) = done.iter().map(|answer| answer.world).max() else { return false };
        let (count, world) = (done.len() as u64, started.map_or(world, |started| started as u64));
        let since = *self.done_since.get_or_insert_with(Instant::now);
        count >= world || since.elapsed() > RANKS_TIME
    }
}
