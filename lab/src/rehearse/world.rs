//! Distributed runs of which some ranks are started: once for each of them, the command runs with the variables that torchrun would set.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::TcpListener;

use lab_base::error::{Error, Result};

/// Maximum number of ranks in a world, and of those that are started.
const MAX_RANKS: u32 = 65_536;
const MAX_STARTED: usize = 16;

/// World of ranks, and those of them that are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Number of ranks that train together.
    pub size: u32,
    /// Ranks that are started.
    pub ranks: Vec<u32>,
}

/// Variables that torchrun sets for each rank.
pub(super) const VARIABLES: [&str; 15] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "OMP_NUM_THREADS",
];

/// Usual number of cards of a machine with many.
const CARDS_OF_MACHINE: u32 = 8;

/// Returns how many cards a machine has, unless that is said: one for each rank of a world, 8 at most; without a world, one.
pub fn cards_of_a_machine(world: Option<u32>) -> usize {
    world.map_or(1, |size| size.min(CARDS_OF_MACHINE) as usize)
}

impl World {
    /// Makes a world. An empty `ranks` means all ranks.
    pub fn new(size: u32, ranks: Vec<u32>) -> Self {
        let ranks = if ranks.is_empty() { (0..size).collect() } else { ranks };
        Self { size, ranks }
    }

    /// Checks the size and the ranks.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size or a number of ranks out of range, a rank outside of the world, or a repeated rank.
    pub(super) fn check(&self) -> Result<()> {
        if self.size == 0 || self.size > MAX_RANKS {
            return Err(Error::usage("--world", format!("from 1 to {MAX_RANKS}, not {}", self.size)));
        }
        if self.ranks.is_empty() || self.ranks.len() > MAX_STARTED {
            let problem = format!("{} are to be started; name from 1 to {MAX_STARTED} of them", self.ranks.len());
            return Err(Error::usage("--ranks", problem));
        }
        if let Some(rank) = self.ranks.iter().find(|rank| **rank >= self.size) {
            let problem = format!("there is no rank {rank} among {}: they begin with 0", self.size);
            return Err(Error::usage("--ranks", problem));
        }
        if self.ranks.iter().collect::<BTreeSet<_>>().len() < self.ranks.len() {
            return Err(Error::usage("--ranks", "names a rank twice"));
        }
        Ok(())
    }

    /// Returns the environment variables of a rank, on machines with `cards` cards each. Ranks of one machine share its cards through the
    /// file `shared`.
    pub(super) fn environment(&self, rank: u32, cards: u32, port: u16, shared: OsString) -> Vec<(&str, OsString)> {
        let (machine, local) = (rank / cards, rank % cards);
        let machines = self.size.div_ceil(cards);
        let of_machine = cards.min(self.size - machine * cards);
        let threads = std::env::var_os("OMP_NUM_THREADS").unwrap_or_else(|| "1".into());
        let values: [OsString; VARIABLES.len()] = [
            rank.to_string().into(),
            local.to_string().into(),
            self.size.to_string().into(),
            of_machine.to_string().into(),
            machine.to_string().into(),
            machines.to_string().into(),
            rank.to_string().into(),
            "default".into(),
            self.size.to_string().into(),
            "127.0.0.1".into(),
            port.to_string().into(),
            "rehearsal".into(),
            "0".into(),
            "0".into(),
            threads,
        ];
        let started: Vec<String> = self.ranks.iter().map(u32::to_string).collect();
        let mut all: Vec<(&str, OsString)> = VARIABLES.into_iter().zip(values).collect();
        all.push(("VRAMLAB_REHEARSAL_STARTED", started.join(",").into()));
        all.push(("VRAMLAB_REHEARSAL_SHARED", shared));
        all
    }
}

/// Finds a free port, for scripts that need one.
pub(super) fn free_port() -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Error::host("a port of this machine", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_there_are_not_are_refused() {
        let refused = |size, ranks: &[u32]| World::new(size, ranks.to_vec()).check().unwrap_err().to_string();
        assert!(refused(0, &[0]).contains("from 1 to 65536"));
        assert!(refused(8, &[0, 8]).contains("no rank 8 among 8"));
        assert!(refused(8, &[3, 3]).contains("twice"));
        assert!(refused(64, &[]).contains("64 are to be started"));
        World::new(4, Vec::new()).check().unwrap();
    }
}
