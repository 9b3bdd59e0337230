//! The script's command: started once, or once for each requested rank, under a keeper.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use lab_base::error::Result;
use rustix::fs::OFlags;

use super::changed::Before;
use super::environment::environment;
use super::folder::Folder;
use super::open::Caches;
use super::outputs;
use super::progress::{Progress, Watch};
use super::promise;
use super::protect::{Keeper, Wanted, Way};
use super::request::Request;
use super::world::free_port;

/// Started commands.
pub(super) struct Commands {
    keeper: Keeper,
    /// True if each command is one rank, which this program started.
    are_ranks: bool,
}

impl Commands {
    /// Starts the commands under the best protection that works here.
    ///
    /// # Errors
    /// A command that cannot be started.
    pub(super) fn start(
        request: &Request,
        folder: &Folder,
        caches: &Caches,
        before: &Before,
        watch: &mut Watch,
    ) -> Result<Self> {
        let wanted = Wanted {
            run: folder.path().into(),
            layers: folder.layers(),
            working: caches.working().into(),
            reached: before.roots().iter().cloned().chain(caches.around()).filter(|path| path.is_dir()).collect(),
            caches: caches.folders().to_vec(),
            temporary: caches.temporary().to_vec(),
            since: caches.since(),
            offline: request.offline,
        };
        let keeper = Keeper::start(&wanted, &Way::tried(before.has_files_of_others())?, &mut |way| {
            if let Some(warning) = promise::warning(way) {
                // An interruption is seen when the command is followed.
                let _later = watch(Some(Progress::Unprotected { warning }));
            }
            all(request, folder, caches, way)
        })?;
        Ok(Self { keeper, are_ranks: request.world.is_some() })
    }

    /// Returns the process id of the keeper, which is not one of the script's processes.
    pub(super) fn keeper(&self) -> i32 {
        self.keeper.pid()
    }

    /// Returns the keeper, through which the files that were written are reached.
    pub(super) fn into_keeper(self) -> Keeper {
        self.keeper
    }

    /// Returns an exit status once all commands have ended, or one has failed: the others would wait for that one.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let ends = self.keeper.ends();
        let failed = ends.iter().flatten().find(|end| !end.success());
        failed.copied().or_else(|| ends.iter().copied().collect::<Option<Vec<ExitStatus>>>()?.last().copied())
    }

    /// Returns the number of started ranks; `None` if the command starts its ranks itself.
    pub(super) fn ranks(&mut self) -> Option<usize> {
        self.are_ranks.then(|| self.keeper.ends().len())
    }
}

/// Makes the command of each rank, or the one command.
fn all(request: &Request, folder: &Folder, caches: &Caches, way: Way) -> Result<Vec<Command>> {
    let variables = match way {
        Way::Namespace => Vec::new(),
        Way::Filter | Way::Library => outputs::environment(folder, caches, caches.temporary()),
        // What is old in such a folder cannot be told from what is new. So all of it is protected, and the run has a folder of its own.
        Way::Landlock => {
            let mut variables = outputs::environment(folder, caches, &[]);
            variables.push(("TMPDIR", folder.temporary().into()));
            variables
        }
    };
    let Some(world) = &request.world else { return Ok(vec![command(request, folder, caches, &variables)]) };
    let port = free_port()?;
    let of_rank = |rank: &u32| {
        let mut command = command(request, folder, caches, &variables);
        // Ranks of one machine share a file, because they share cards.
        let shared = folder.shared(rank / request.cards as u32);
        command.envs(world.environment(*rank, request.cards as u32, port, shared.into()));
        command
    };
    Ok(world.ranks.iter().map(of_rank).collect())
}

fn command(request: &Request, folder: &Folder, caches: &Caches, variables: &[(&'static str, OsString)]) -> Command {
    let mut command = Command::new(&request.command[0]);
    let own = request.environment.iter().map(|(name, value)| (name, value));
    command.args(&request.command[1..]).envs(caches.environment()).envs(own);
    command.envs(environment(request, folder)).envs(variables.iter().map(|(name, value)| (name, value)));
    // The command gets its own process group, so that Ctrl-C reaches only this program, which then asks for answers. A background group
    // that reads from the terminal would be stopped: it has the terminal, whose size scripts ask for (`stty size`), without the right to read.
    command.process_group(0);
    if std::io::stdin().is_terminal() {
        let not_its_own = OFlags::NOCTTY.bits().cast_signed();
        let terminal = OpenOptions::new().write(true).custom_flags(not_its_own).open("/proc/self/fd/0");
        command.stdin(terminal.map_or_else(|_| Stdio::null(), Stdio::from));
    }
    // Standard output is for this program's result, so the script prints to standard error. What is not closed when a command starts counts as
    // inherited, and a file that is inherited is opened again, under the protection.
    let errors = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0).map(Stdio::from);
    match errors {
        Ok(errors) if !request.silent => command.stdout(errors),
        _ => command.stdout(Stdio::null()),
    };
    command
}
