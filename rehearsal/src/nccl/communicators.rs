//! Communicators: their members, and the names under which their ranks meet (`exchange.rs`).

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::members;
use crate::settings::settings;
use crate::{exchange, handles, log};

/// A communicator, as seen by one rank.
#[derive(Clone, Debug)]
pub(super) struct Communicator {
    pub(super) ranks: c_int,
    pub(super) rank: c_int,
    pub(super) card: c_int,
    /// Name that all ranks share, and no other communicator has.
    pub(super) name: String,
    /// Numbers of its ranks in the whole run, if they were reported.
    members: Option<Vec<u32>>,
    /// Number of communicators that were made of it. All ranks make them in the same order.
    children: u32,
    /// Ranks to which it sends, or from which it receives, one by one.
    peers: HashSet<c_int>,
}

/// Events: how many communicators a process has for a card, and to how many ranks these are connected one by one.
const COMMUNICATORS: &str = "communicators";
const PEERS: &str = "peers";

static ALL: LazyLock<Mutex<HashMap<usize, Communicator>>> = LazyLock::new(Mutex::default);

fn communicators() -> MutexGuard<'static, HashMap<usize, Communicator>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn found(handle: usize) -> Option<Communicator> {
    communicators().get(&handle).cloned()
}

/// Makes a communicator. `None` for a rank that is not among the ranks.
pub(super) fn create(name: String, ranks: c_int, rank: c_int, card: c_int) -> Option<usize> {
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return None;
    }
    let made = handles::new();
    let members = members::members(&name).filter(|members| members.len() == ranks as usize);
    let peers = HashSet::new();
    let count = {
        let mut all = communicators();
        all.insert(made, Communicator { ranks, rank, card, name, members, children: 0, peers });
        all.values().filter(|other| other.card == card).count()
    };
    log::once(COMMUNICATORS, &count.to_string());
    Some(made)
}

pub(super) fn destroy(handle: usize) {
    communicators().remove(&handle);
}

/// Connects a communicator to one of its ranks, for what they send each other alone.
pub(super) fn connect(handle: usize, peer: c_int) {
    let count = {
        let mut all = communicators();
        let Some(one) = all.get_mut(&handle) else { return };
        if !one.peers.insert(peer) {
            return;
        }
        let card = one.card;
        all.values().filter(|other| other.card == card).map(|other| other.peers.len()).sum::<usize>()
    };
    log::once(PEERS, &count.to_string());
}

impl Communicator {
    /// Name of the channel to which a rank writes its contributions.
    pub(super) fn channel(&self, rank: c_int) -> String {
        format!("{}-{rank}", self.name)
    }

    /// Name of the channel from one rank to another.
    pub(super) fn channel_between(&self, from: c_int, to: c_int) -> String {
        format!("{}-{from}-to-{to}", self.name)
    }

    /// True if a rank was not started.
    pub(super) fn is_absent(&self, rank: c_int) -> bool {
        let Some(started) = &settings().started else { return false };
        let member = self.members.as_ref().and_then(|members| members.get(usize::try_from(rank).ok()?));
        member.is_some_and(|member| !started.contains(member))
    }

    fn has_absent(&self) -> bool {
        (0..self.ranks).any(|rank| self.is_absent(rank))
    }

    /// Returns the part of this communicator that chose the same color, ordered by key: its name, its number of ranks, and
    /// this rank in it. If ranks cannot meet, the part is assumed to be as large as the whole, and that is reported. If its
    /// members were reported beforehand, no rank is asked: ranks that were not started choose nothing.
    pub(super) fn part(&self, child: u32, color: c_int, key: c_int) -> (String, c_int, c_int) {
        let name = format!("{}.{child}.{color}", self.name);
        if let Some(told) = members::take_part() {
            let ranks = told.len() as c_int;
            members::tell(name.clone(), told);
            return (name, ranks, key);
        }
        let Some(chosen) = self.chosen(child, color, key) else {
            log::once("not_exact", "ncclCommSplit");
            return (name, self.ranks, self.rank);
        };
        let same_color = chosen.iter().zip(0..).filter(|((other, _), _)| *other == color);
        let mut part: Vec<(c_int, c_int)> = same_color.map(|((_, key), rank)| (*key, rank)).collect();
        part.sort_unstable();
        let rank = part.iter().position(|(_, rank)| *rank == self.rank).unwrap_or_default();
        (name, part.len() as c_int, rank as c_int)
    }

    /// Exchanges color and key with all ranks.
    pub(super) fn chosen(&self, child: u32, color: c_int, key: c_int) -> Option<Vec<(c_int, c_int)>> {
        if !exchange::is_possible() || self.has_absent() {
            return None;
        }
        let channel = |rank| format!("{}.{child}-{rank}", self.name);
        exchange::send(&channel(self.rank), Some([color.to_ne_bytes(), key.to_ne_bytes()].as_flattened()));
        let pair = |bytes: Vec<u8>| {
            let (color, key) = bytes.split_at_checked(size_of::<c_int>())?;
            Some((c_int::from_ne_bytes(color.try_into().ok()?), c_int::from_ne_bytes(key.try_into().ok()?)))
        };
        (0..self.ranks).map(|rank| pair(exchange::receive(&channel(rank), 0)?)).collect()
    }
}

/// Numbers the next communicator that is made of this one.
pub(super) fn next_child(handle: usize) -> Option<(Communicator, u32)> {
    let mut all = communicators();
    let whole = all.get_mut(&handle)?;
    whole.children += 1;
    Some((whole.clone(), whole.children))
}
