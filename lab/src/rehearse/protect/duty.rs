//! What a keeper does, in its own process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::descendants::{Known, descendants, known, processes, stat_of};
use super::event::Event;
use super::filter::{self, Rule};
use super::inherited;
use super::landlock;
use super::namespace::{self, Entered};
use super::removal::remove_folder;
use super::rights;
use super::signals;
use super::supervisor::Supervisor;
use super::system::{adopt_orphans, ended_child, path_of, readable};
use super::title;
use super::veto::Veto;
use super::way::{Wanted, Way};

/// Milliseconds between two looks at the children.
const PAUSE: i32 = 20;

/// Maximum time for processes to end after they are killed.
const END_TIME: Duration = Duration::from_secs(5);

/// Byte by which this program says that the keeper is no longer needed.
pub(super) const DONE: u8 = b'd';

/// The keeper's ends of what joins it with this program.
pub(super) struct Ends {
    pub(super) events: File,
    pub(super) orders: File,
}

/// What the thread that starts the commands says.
enum Said {
    /// The filter, and what this thread could not give up.
    Filter(std::io::Result<OwnedFd>, Option<String>),
    /// The rights of this thread, and of all that it starts, cannot be taken away.
    Refused(std::io::Error),
    Started(usize, u32),
    NotStarted(usize, String),
}

/// Enters the protection, starts the commands, and stays until this program wants it no more, or is gone.
pub(super) fn run(way: Way, wanted: &Wanted, commands: Vec<Command>, ends: Ends) {
    let waits = (0..commands.len()).collect();
    let mut keeper = Duty { ends, waits, started: Vec::new(), groups: BTreeSet::new() };
    // Who kills all programs of this one's name means the run: the keeper is left, and ends it.
    title::replace();
    // Ctrl-C is for this program alone, and a message to a program that is gone must not end the keeper.
    let _group = rustix::process::setpgid(None, None);
    // SAFETY: sets how a signal is treated; commands get the default back when they are started.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    adopt_orphans();
    // Opened in the namespace that this process leaves: there it is writable.
    let around = wanted.run.parent().and_then(|folder| File::open(folder).ok());
    let entered = match way {
        Way::Namespace => namespace::enter(wanted),
        Way::Filter | Way::Landlock | Way::Library => Ok(Entered::default()),
    };
    let entered = match entered {
        Ok(entered) => entered,
        Err(error) => return keeper.tell(&Event::Refused(error.to_string())),
    };
    inherited::open_again(way);
    let (told, says) = channel();
    let (go, goes) = channel();
    let rules = rules(way, wanted.offline);
    if rules.is_empty() {
        return keeper.tell(&Event::Refused("not on this processor".into()));
    }
    let strict = way == Way::Filter;
    let confined = wanted.clone();
    thread::spawn(move || start(way, &confined, commands, &rules, (&told, &goes)));
    let (filter, kept) = match says.recv() {
        Ok(Said::Filter(filter, kept)) => (filter, kept),
        Ok(Said::Refused(error)) => return keeper.tell(&Event::Refused(error.to_string())),
        _ => return,
    };
    let mut lacks: Vec<String> = entered.lacks.iter().cloned().chain(kept).collect();
    let supervisor = match filter {
        Ok(listener) => Some(Supervisor::new(listener, wanted.offline, strict.then(|| Veto::from_wanted(wanted)))),
        Err(error) if strict || wanted.offline => {
            return keeper.tell(&Event::Refused(format!("no filter for system calls: {error}")));
        }
        Err(error) => {
            lacks.push(format!("no filter for system calls: {error}"));
            None
        }
    };
    keeper.tell(&Event::Ready { inside: entered.inside, trees: entered.trees, lacks });
    let _starts = go.send(());
    let is_wanted = keeper.follow(supervisor, &says);
    keeper.end_all();
    if !is_wanted && let Some((around, name)) = around.zip(wanted.run.file_name()) {
        remove_folder(&path_of(std::os::fd::AsFd::as_fd(&around)).join(name));
    }
}

/// Returns the system calls that this keeper answers; none if this way does not work here.
fn rules(way: Way, offline: bool) -> Vec<(libc::c_long, Rule)> {
    let network: Vec<_> =
        filter::rules(offline).into_iter().chain(signals::rules()).chain(signals::makes_groups()).collect();
    match way {
        Way::Namespace => filter::renames_and_links().into_iter().chain(filter::handles()).chain(network).collect(),
        Way::Landlock | Way::Library => network,
        Way::Filter => {
            let changes = Veto::rules();
            if changes.is_empty() { changes } else { changes.into_iter().chain(network).collect() }
        }
    }
}

/// Puts the filter on this thread, takes away its rights, and starts the commands, which inherit both.
fn start(
    way: Way,
    wanted: &Wanted,
    commands: Vec<Command>,
    rules: &[(libc::c_long, Rule)],
    (told, goes): (&Sender<Said>, &Receiver<()>),
) {
    let strict = way == Way::Filter;
    // Nobody answers this thread's own calls yet.
    if way != Way::Namespace {
        refuse_core_files();
    }
    let filter = filter::install(rules, strict).or_else(|_| {
        // Who may not filter programs of other users may filter those that cannot become such.
        rustix::thread::set_no_new_privs(true)?;
        filter::install(rules, strict)
    });
    let confined = match way {
        Way::Namespace => rights::give_up(),
        Way::Landlock => landlock::confine(wanted).map(|()| None),
        Way::Filter | Way::Library => Ok(None),
    };
    let _heard = told.send(confined.map_or_else(Said::Refused, |kept| Said::Filter(filter, kept)));
    if goes.recv().is_err() {
        return;
    }
    for (number, mut command) in commands.into_iter().enumerate() {
        title::end_with_this_thread(&mut command);
        let said = match command.spawn() {
            Ok(child) => Said::Started(number, child.id()),
            Err(error) => {
                let name = command.get_program().to_string_lossy().into_owned();
                Said::NotStarted(number, format!("{name} cannot be started: {error}"))
            }
        };
        let _heard = told.send(said);
    }
    // The commands end with this thread, so it ends with the keeper.
    loop {
        thread::park();
    }
}

/// Keeps the system from writing the memory of a program that crashes into a file, in the folder where the program runs: no call does that.
fn refuse_core_files() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // To lower a limit is always allowed.
    let _done = rustix::process::setrlimit(rustix::process::Resource::Core, none);
}

struct Duty {
    ends: Ends,
    /// Commands of which the thread that starts them has said nothing yet.
    waits: BTreeSet<usize>,
    /// Commands by number, with their process ids.
    started: Vec<(usize, i32)>,
    /// Groups of processes that the run made.
    groups: BTreeSet<i32>,
}

impl Duty {
    fn tell(&mut self, event: &Event) {
        let mut line = serde_json::to_string(event).unwrap_or_default();
        line.push('\n');
        // If this program is gone, the orders say so.
        let _heard = self.ends.events.write_all(line.as_bytes());
    }

    /// Answers calls and collects ended processes. Returns true if this program wants an end, and false if it is gone.
    fn follow(&mut self, mut supervisor: Option<Supervisor>, says: &Receiver<Said>) -> bool {
        let mut early: Vec<(i32, i32)> = Vec::new();
        loop {
            let asks = supervisor.as_ref().map_or(-1, Supervisor::descriptor);
            let [asked, ordered] = readable([asks, self.ends.orders.as_raw_fd()], PAUSE);
            if asked & libc::POLLIN != 0 {
                let mut told = Vec::new();
                if let Some(supervisor) = &mut supervisor {
                    supervisor.answer(&mut |event| told.push(event));
                }
                told.iter().for_each(|event| self.tell(event));
            } else if asked != 0 {
                // No process has the filter any more.
                self.groups.extend(supervisor.take().iter().flat_map(Supervisor::groups));
            }
            self.hear_all(says);
            // The standard library waits for the process of a command that cannot be started, and panics if it was collected here.
            if self.waits.is_empty() {
                early.extend(std::iter::from_fn(ended_child));
            }
            early.retain(|(pid, status)| !self.ended(*pid, *status));
            if ordered != 0 {
                self.groups.extend(supervisor.iter().flat_map(Supervisor::groups));
                let mut order = [0];
                return self.ends.orders.read(&mut order).is_ok_and(|read| read == 1) && order[0] == DONE;
            }
        }
    }

    /// Hears of the commands. Those of which the thread that starts them can say nothing any more are not started.
    fn hear_all(&mut self, says: &Receiver<Said>) {
        loop {
            match says.try_recv() {
                Ok(said) => self.hear(said),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        while let Some(number) = self.waits.first().copied() {
            self.hear(Said::NotStarted(number, "the command cannot be started".into()));
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Started(number, pid) => {
                self.waits.remove(&number);
                self.groups.insert(pid as i32);
                self.started.push((number, pid as i32));
                self.tell(&Event::Started(number));
            }
            Said::NotStarted(number, problem) => {
                self.waits.remove(&number);
                self.tell(&Event::NotStarted(number, problem));
            }
            Said::Filter(..) | Said::Refused(_) => {}
        }
    }

    /// Tells the end of a command. False if the process is not known, or not yet.
    fn ended(&mut self, pid: i32, status: i32) -> bool {
        let Some(at) = self.started.iter().position(|(_, started)| *started == pid) else { return false };
        let (number, _) = self.started.swap_remove(at);
        self.tell(&Event::Ended(number, status));
        true
    }

    /// Kills all processes of the run.
    fn end_all(&mut self) {
        let start = Instant::now();
        loop {
            let left = descendants();
            end_groups(self.groups.iter().copied().chain(left.iter().filter_map(|pid| Some(stat_of(*pid)?.group))));
            for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
                // It may have ended meanwhile.
                let _ended = kill_process(pid, Signal::KILL);
            }
            while ended_child().is_some() {}
            if left.is_empty() || start.elapsed() > END_TIME {
                return;
            }
            thread::sleep(Duration::from_millis(PAUSE as u64));
        }
    }
}

/// Kills groups of processes, each at once, but for those with members that are not of the run. A process that goes on in a child, and the
/// child in another one, is never there any more when it is to be killed by itself.
fn end_groups(groups: impl Iterator<Item = i32>) {
    let mut groups: BTreeSet<i32> = groups.collect();
    for (pid, group) in processes() {
        if groups.contains(&group) && (pid == std::process::id() as i32 || known(pid) == Known::Outside) {
            groups.remove(&group);
        }
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // It may have ended.
        let _ended = kill_process_group(group, Signal::KILL);
    }
}

/// Returns the path of a keeper's layers, as this program reaches it.
pub(super) fn layers_of(layers: &Path, keeper: i32, inside: bool) -> PathBuf {
    if inside {
        let below = layers.strip_prefix("/").unwrap_or(layers);
        return Path::new("/proc").join(keeper.to_string()).join("root").join(below);
    }
    layers.into()
}
