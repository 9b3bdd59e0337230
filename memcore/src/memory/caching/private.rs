//! The private pools of one allocator: their users, the open scopes, and the pools that lend.

use super::block::PoolIndex;
use crate::error::{Error, Result};
use crate::memory::slab::Slab;
use crate::memory::{Stat, Stats};

/// Id of a private pool; (0, 0) stands for the default pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub (u64, u64));

#[derive(Clone, Debug)]
pub(super) struct PrivatePool {
    pub(super) id: PoolId,
    pub(super) uses: u32,
    pub(super) large: PoolIndex,
    pub(super) small: PoolIndex,
    pub(super) no_split: bool,
    pub(super) lends: bool,
}

/// The private pools of one allocator.
#[derive(Clone, Debug)]
pub(super) struct PrivatePools {
    pub(super) pools: Slab<PrivatePool>,
    /// Indices of the pools with open scopes, outermost first.
    pub(super) scopes: Vec<u32>,
    /// Graph captures in progress.
    pub(super) captures: u32,
    /// Pairs of pools left by deleted private pools, for reuse.
    pub(super) vacant: Vec<[PoolIndex; 2]>,
    /// Pools that lend, in the order in which lending was turned on.
    pub(super) lenders: Vec<u32>,
}

impl Default for PrivatePools {
    fn default() -> Self {
        Self { pools: Slab::new(), scopes: Vec::new(), captures: 0, vacant: Vec::new(), lenders: Vec::new() }
    }
}

impl PrivatePools {
    /// The pool of the innermost scope, if one is open.
    #[inline]
    pub(super) fn scope(&self, small: bool) -> Option<PoolIndex> {
        let private = &self.pools[*self.scopes.last()?];
        Some(if small { private.small } else { private.large })
    }

    pub(super) fn id(&self, owner: u32) -> PoolId {
        self.pools[owner].id
    }

    /// The large and the small pool of a private pool.
    pub(super) fn pools(&self, owner: u32) -> [PoolIndex; 2] {
        [self.pools[owner].large, self.pools[owner].small]
    }

    pub(super) fn never_splits(&self, owner: u32) -> bool {
        self.pools[owner].no_split
    }

    /// Private pools without users: all of them, or the one with that id.
    pub(super) fn unused(&self, only: Option<PoolId>) -> Vec<u32> {
        let unused = self.pools.iter().filter(|(_, pool)| pool.uses == 0 && only.is_none_or(|id| pool.id == id));
        unused.map(|(owner, _)| owner).collect()
    }

    pub(super) fn find(&self, id: PoolId) -> Option<u32> {
        self.pools.iter().find(|(_, pool)| pool.id == id).map(|(owner, _)| owner)
    }

    pub(super) fn get(&mut self, id: PoolId) -> Result<&mut PrivatePool> {
        let owner = self.find(id).ok_or_else(|| unknown(id))?;
        Ok(&mut self.pools[owner])
    }

    /// Counts bytes taken for a private pool, if the followed release counts them.
    pub(super) fn reserve(&self, stats: &mut Stats, owner: Option<u32>, bytes: u64) {
        if let Some(stat) = self.counter(stats, owner) {
            stat.increase(bytes);
        }
    }

    /// The reverse of [`reserve`](Self::reserve).
    pub(super) fn unreserve(&self, stats: &mut Stats, owner: Option<u32>, bytes: u64) {
        if let Some(stat) = self.counter(stats, owner) {
            stat.decrease(bytes);
        }
    }

    fn counter<'a>(&self, stats: &'a mut Stats, owner: Option<u32>) -> Option<&'a mut Stat> {
        if !stats.newer_names {
            return None;
        }
        let id = self.pools[owner?].id.0;
        let counters = &mut stats.reserved_bytes_by_private_pools;
        let at = counters.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            counters.push((id, Stat::default()));
            counters.len() - 1
        });
        Some(&mut counters[at].1)
    }
}

pub(super) fn unknown(id: PoolId) -> Error {
    Error::invalid("private pool", format!("{:?} is not known", id.0))
}
