//! The command: started once, or once for each of some ranks.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use lab_base::error::{Error, Result};

use super::environment::environment;
use super::folder::Folder;
use super::outputs;
use super::request::Request;
use super::world::free_port;

/// What was started, with how it ended.
pub(super) struct Commands {
    all: Vec<(Child, Option<ExitStatus>)>,
    /// Whether each is a rank.
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
            // Cards of another machine are other cards.
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
                    // It may have ended.
                    let _ended = child.kill();
                }
                let name = command.get_program().to_string_lossy().into_owned();
                return Err(Error::usage("COMMAND", format!("{name} cannot be started: {error}")));
            }
        }
        Ok(())
    }

    /// How it ended: once all have, or one has failed, for which the others would wait.
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

    /// How many ranks were started, where that is not the command's own affair.
    pub(super) fn ranks(&self) -> Option<usize> {
        self.are_ranks.then_some(self.all.len())
    }
}

fn command(request: &Request, folder: &Folder) -> Command {
    let mut command = Command::new(&request.command[0]);
    let own = request.environment.iter().map(|(name, value)| (name, value));
    command.args(&request.command[1..]).envs(own);
    command.envs(environment(request, folder)).envs(outputs::environment(folder));
    // A group of its own: Ctrl-C is for this program, which then asks for answers. So it cannot read from a terminal.
    command.process_group(0);
    if std::io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    // Standard output is for the answer.
    let errors = rustix::io::dup(rustix::stdio::stderr()).map(Stdio::from);
    match errors {
        Ok(errors) if !request.silent => command.stdout(errors),
        _ => command.stdout(Stdio::null()),
    };
    command
}
