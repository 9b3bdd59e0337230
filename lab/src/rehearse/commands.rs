//! The script's command: started once, or once for each requested rank.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use lab_base::error::{Error, Result};

use super::environment::environment;
use super::folder::Folder;
use super::outputs;
use super::request::Request;
use super::world::free_port;

/// Started commands.
pub(super) struct Commands {
    all: Vec<(Child, Option<ExitStatus>)>,
    /// True if each command is one rank, which this program started.
    are_ranks: bool,
}

impl Commands {
    pub(super) fn start(request: &Request, folder: &Folder) -> Result<Self> {
        let mut started = Self { all: Vec::new(), are_ranks: request.world.is_some() };
        let Some(world) = &request.world else {
            started.add(command(request, folder))?;
            return Ok(started);
        };
        let port = free_port()?;
        for rank in &world.ranks {
            let mut command = command(request, folder);
            // Ranks of one machine share a file, because they share cards.
            let shared = folder.shared(rank / request.cards as u32);
            command.envs(world.environment(*rank, request.cards as u32, port, shared.into()));
            started.add(command)?;
        }
        Ok(started)
    }

    fn add(&mut self, mut command: Command) -> Result<()> {
        match command.spawn() {
            Ok(child) => self.all.push((child, None)),
            Err(error) => {
                for (child, _) in &mut self.all {
                    // The kill fails if the child has ended already.
                    let _ended = child.kill();
                }
                let name = command.get_program().to_string_lossy().into_owned();
                return Err(Error::usage("COMMAND", format!("{name} cannot be started: {error}")));
            }
        }
        Ok(())
    }

    /// Returns an exit status once all commands have ended, or one has failed: the others would wait for that one.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        for (child, end) in &mut self.all {
            if end.is_none() {
                *end = child.try_wait().ok().flatten();
            }
        }
        let ends = || self.all.iter().map(|(_, end)| *end);
        let failed = ends().flatten().find(|end| !end.success());
        failed.or_else(|| ends().collect::<Option<Vec<ExitStatus>>>()?.last().copied())
    }

    /// Returns the number of started ranks; `None` if the command starts its ranks itself.
    pub(super) fn ranks(&self) -> Option<usize> {
        self.are_ranks.then_some(self.all.len())
    }
}

fn command(request: &Request, folder: &Folder) -> Command {
    let mut command = Command::new(&request.command[0]);
    let own = request.environment.iter().map(|(name, value)| (name, value));
    command.args(&request.command[1..]).envs(own);
    command.envs(environment(request, folder)).envs(outputs::environment(folder));
    // The command gets its own process group, so that Ctrl-C reaches only this program, which then asks for answers. A background group
    // cannot read from a terminal: its standard input is empty then.
    command.process_group(0);
    if std::io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    // Standard output is for this program's result, so the script prints to standard error.
    let errors = rustix::io::dup(rustix::stdio::stderr()).map(Stdio::from);
    match errors {
        Ok(errors) if !request.silent => command.stdout(errors),
        _ => command.stdout(Stdio::null()),
    };
    command
}
