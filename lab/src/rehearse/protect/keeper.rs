//! The keeper as this program sees it: started, listened to, and ended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use lab_base::error::{Error, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::duty::{self, DONE, Ends};
use super::event::Event;
use super::namespace::upper;
use super::system::readable;
use super::way::{Wanted, Way};

/// Status of a command whose keeper was killed: that of a kill.
const KILLED: i32 = libc::SIGKILL;

/// A folder of the user's and the upper layer over it, which holds what the run wrote there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rehearse) struct Layer {
    pub(in crate::rehearse) tree: PathBuf,
    pub(in crate::rehearse) upper: PathBuf,
}

/// A process that keeps the user's files, and all commands of a run as its children.
pub(in crate::rehearse) struct Keeper {
    pid: Pid,
    events: Events,
    orders: Option<File>,
    way: Way,
    refused: Vec<String>,
    lacks: Vec<String>,
    layers: Vec<Layer>,
    ends: Vec<Option<ExitStatus>>,
    contacted: Vec<String>,
    vetoed: Vec<String>,
}

impl Keeper {
    /// Starts a keeper and, under it, the commands that `commands` makes for a way to protect files.
    ///
    /// # Errors
    /// A command that cannot be started; a system that cannot start processes.
    pub(in crate::rehearse) fn start(
        wanted: &Wanted,
        ways: &[Way],
        commands: &mut dyn FnMut(Way) -> Result<Vec<Command>>,
    ) -> Result<Self> {
        let mut refused = Vec::new();
        for way in ways {
            let commands = commands(*way)?;
            let mut keeper = Self::fork(*way, wanted, commands)?;
            match keeper.begin(&wanted.layers)? {
                None => {
                    keeper.refused = refused;
                    keeper.all_started()?;
                    return Ok(keeper);
                }
                Some(reason) => refused.push(format!("{}: {reason}", way.name())),
            }
        }
        Err(Error::host("the processes of a run", refused.join("; ")))
    }

    fn fork(way: Way, wanted: &Wanted, commands: Vec<Command>) -> Result<Self> {
        let cannot = |error: std::io::Error| Error::host("the processes of a run", error.to_string());
        let joined = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| cannot(error.into()));
        let ((events, told), (ordered, orders)) = (joined()?, joined()?);
        let ends = vec![None; commands.len()];
        // SAFETY: the child runs on with this thread alone. It uses nothing that another thread may hold but the memory allocator,
        // which the C library keeps usable, and it ends without running destructors of this process.
        match unsafe { libc::fork() } {
            0 => {
                drop((events, orders));
                let ends = Ends { events: told.into(), orders: ordered.into() };
                let duty = std::panic::AssertUnwindSafe(|| duty::run(way, wanted, commands, ends));
                let code = if std::panic::catch_unwind(duty).is_ok() { 0 } else { 101 };
                // SAFETY: ends this process at once.
                unsafe { libc::_exit(code) }
            }
            pid if pid > 0 => Ok(Self {
                pid: Pid::from_raw(pid).ok_or_else(|| cannot(std::io::ErrorKind::Other.into()))?,
                events: Events::read_from(events)?,
                orders: Some(orders.into()),
                way,
                refused: Vec::new(),
                lacks: Vec::new(),
                layers: Vec::new(),
                ends,
                contacted: Vec::new(),
                vetoed: Vec::new(),
            }),
            _ => Err(cannot(std::io::Error::last_os_error())),
        }
    }

    /// Waits until the protection holds. Returns the reason if it does not.
    fn begin(&mut self, layers: &Path) -> Result<Option<String>> {
        match self.events.next(-1) {
            Some(Event::Ready { inside, trees, lacks }) => {
                let layers = duty::layers_of(layers, self.pid.as_raw_nonzero().get(), inside);
                let layer = |(number, tree)| Layer { tree, upper: upper(&layers, number) };
                self.layers = trees.into_iter().enumerate().map(layer).collect();
                self.lacks = lacks;
                Ok(None)
            }
            Some(Event::Refused(reason)) => Ok(Some(reason)),
            _ => Ok(Some("its process ended".into())),
        }
    }

    /// Waits until all commands are started.
    fn all_started(&mut self) -> Result<()> {
        let mut waits = self.ends.len();
        while waits > 0 {
            match self.events.next(-1) {
                Some(Event::Started(_)) => waits -= 1,
                Some(Event::NotStarted(_, problem)) => return Err(Error::usage("COMMAND", problem)),
                Some(event) => self.note(event),
                None => return Err(Error::host("the processes of a run", "their keeper ended")),
            }
        }
        Ok(())
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Ended(number, status) => {
                if let Some(end) = self.ends.get_mut(number) {
                    *end = Some(ExitStatus::from_raw(status));
                }
            }
            Event::Contacted(address) => self.contacted.push(address),
            Event::Vetoed(path) => self.vetoed.push(path),
            Event::Ready { .. } | Event::Refused(_) | Event::Started(_) | Event::NotStarted(..) => {}
        }
    }

    /// Returns how each command ended; `None` for those that run.
    pub(in crate::rehearse) fn ends(&mut self) -> &[Option<ExitStatus>] {
        while let Some(event) = self.events.next(0) {
            self.note(event);
        }
        if self.events.closed {
            for end in self.ends.iter_mut().filter(|end| end.is_none()) {
                *end = Some(ExitStatus::from_raw(KILLED));
            }
        }
        &self.ends
    }

    /// Returns the keeper's process id.
    pub(in crate::rehearse) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns how files are protected.
    pub(in crate::rehearse) fn way(&self) -> Way {
        self.way
    }

    /// Returns why no better way works.
    pub(in crate::rehearse) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Returns what this way lacks here.
    pub(in crate::rehearse) fn lacks(&self) -> &[String] {
        &self.lacks
    }

    /// Returns what the run wrote, by folder.
    pub(in crate::rehearse) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns paths that processes tried to change past the library's copies.
    pub(in crate::rehearse) fn vetoed(&self) -> &[String] {
        &self.vetoed
    }

    /// Returns addresses beyond this machine that processes connected to.
    pub(in crate::rehearse) fn contacted(&self) -> &[String] {
        &self.contacted
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut orders) = self.orders.take() {
            // It may have ended.
            let _heard = orders.write_all(&[DONE]);
        }
        let _ended = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Lines that a keeper writes.
struct Events {
    file: File,
    rest: Vec<u8>,
    closed: bool,
}

impl Events {
    fn read_from(descriptor: OwnedFd) -> Result<Self> {
        // Commands must not hold it open.
        fcntl_setfd(&descriptor, FdFlags::CLOEXEC).map_err(|error| Error::host("a pipe", error.to_string()))?;
        Ok(Self { file: descriptor.into(), rest: Vec::new(), closed: false })
    }

    /// Returns the next event. Waits for it so many milliseconds, and without end if they are negative.
    fn next(&mut self, milliseconds: i32) -> Option<Event> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if let Ok(event) = serde_json::from_slice(&line) {
                    return Some(event);
                }
                continue;
            }
            let [ready] = readable([self.file.as_raw_fd()], milliseconds);
            if self.closed || ready == 0 && milliseconds >= 0 {
                return None;
            }
            let mut room = [0; 4096];
            match self.file.read(&mut room) {
                Ok(read) if read > 0 => self.rest.extend(&room[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => self.closed = true,
            }
        }
    }
}
