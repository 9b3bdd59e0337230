//! Private pools, which `torch.cuda.MemPool` and CUDA graphs use.
//!
//! A private pool follows all the rules inside its own small and large pool. Requests go to the innermost open scope.
//! The pool is deleted when it has no users and its last segment has been given back to the driver.

use super::block::PoolIndex;
use super::config::TorchVersion;
use super::pool::Pool;
use super::private::{PoolId, PrivatePool, unknown};
use super::{Caching, Driver, Request, sizes};
use crate::error::{Error, Result};

impl Caching {
    /// True during a graph capture. In 2.11 every open scope of a private pool counts as one.
    #[inline]
    pub(super) fn captures(&self) -> bool {
        let private = &self.private;
        private.captures > 0 || (self.config.version < TorchVersion::V2_15 && !private.scopes.is_empty())
    }

    /// Notes that a graph capture begins on this device.
    pub fn mark_capture_begin(&mut self) {
        self.private.captures += 1;
    }

    /// Notes that a graph capture ends.
    pub fn mark_capture_end(&mut self) {
        self.private.captures = self.private.captures.saturating_sub(1);
    }

    /// Adds a user to a private pool, which is created if it does not exist.
    pub fn create_or_incref_pool(&mut self, id: PoolId) {
        if let Some(owner) = self.private.find(id) {
            self.private.pools[owner].uses += 1;
            return;
        }
        let [large, small] = self.private.vacant.pop().unwrap_or_else(|| {
            let first = self.pools.len() as PoolIndex;
            self.pools.extend([Pool::new(false, None), Pool::new(true, None)]);
            [first, first + 1]
        });
        let pool = PrivatePool { id, uses: 1, large, small, no_split: false, lends: false };
        let owner = self.private.pools.insert(pool);
        self.pools[large as usize] = Pool::new(false, Some(owner));
        self.pools[small as usize] = Pool::new(true, Some(owner));
    }

    /// Directs requests to this private pool from here on, and adds a user to it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its scope is open already.
    pub fn begin_allocate_to_pool(&mut self, id: PoolId) -> Result<()> {
        if let Some(owner) = self.private.find(id)
            && self.private.scopes.contains(&owner)
        {
            return Err(Error::invalid("private pool", "beginAllocateToPool: already recording to mempool_id"));
        }
        self.create_or_incref_pool(id);
        let owner = self.private.find(id).ok_or_else(|| unknown(id))?;
        self.private.scopes.push(owner);
        Ok(())
    }

    /// Closes the scope of a private pool. The user that it added remains until [`release_pool`](Self::release_pool).
    ///
    /// # Errors
    /// [`Error::Invalid`] if no such scope is open.
    pub fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<()> {
        let owner = self.private.find(id);
        match self.private.scopes.iter().rposition(|scope| Some(*scope) == owner) {
            Some(at) => {
                self.private.scopes.remove(at);
                Ok(())
            }
            None => Err(Error::invalid("private pool", "endAllocatePool: not currently recording to mempool_id")),
        }
    }

    /// Removes a user of a private pool. Once it has none, emptying the cache gives its free memory back.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pool that does not exist or has no users.
    pub fn release_pool(&mut self, id: PoolId) -> Result<()> {
        let pool = self.private.get(id)?;
        pool.uses = pool.uses.checked_sub(1).ok_or_else(|| Error::invalid("private pool", "has no users"))?;
        Ok(())
    }

    /// Forbids splitting blocks of this private pool.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pool that does not exist.
    pub fn set_no_split(&mut self, id: PoolId) -> Result<()> {
        self.private.get(id)?.no_split = true;
        Ok(())
    }

    /// Lets free blocks of this private pool serve requests of the default pool that the driver refuses.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pool that does not exist.
    pub fn set_use_on_oom(&mut self, id: PoolId) -> Result<()> {
        let pool = self.private.get(id)?;
        if !std::mem::replace(&mut pool.lends, true) {
            let owner = self.private.find(id).ok_or_else(|| unknown(id))?;
            self.private.lenders.push(owner);
        }
        Ok(())
    }

    /// Gives the free memory of one private pool back, if it has no users.
    pub fn empty_pool_cache(&mut self, id: PoolId, driver: Driver<'_>) {
        self.release_cached(Some(id), driver);
    }

    /// Takes a free block of a pool that lends, for a request of a default pool. The request then belongs to the
    /// lending pool, and the block is split like any other.
    pub(super) fn borrow_from_lender(&mut self, request: &mut Request) -> Option<u32> {
        if self.pools[request.pool as usize].owner.is_some() {
            return None;
        }
        for at in 0..self.private.lenders.len() {
            let [large, small] = self.private.pools(self.private.lenders[at]);
            let pool = if request.bytes <= sizes::SMALL_BYTES { small } else { large };
            let attempt = Request { pool, expandable: false, ..*request };
            if let Some(found) = self.search(&attempt) {
                *request = attempt;
                return Some(found);
            }
        }
        None
    }

    /// Deletes a private pool that has no users and no segments. (PyTorch counts driver calls instead and can delete a
    /// pool with live expandable blocks; that defect is not reproduced.)
    pub(super) fn delete_if_empty(&mut self, owner: u32) {
        let pools = self.private.pools(owner);
        let holds = self.segments.iter().any(|(_, segment)| pools.contains(&self.nodes[segment.first].pool));
        if !holds {
            self.private.pools.remove(owner);
            self.private.lenders.retain(|lender| *lender != owner);
            self.private.vacant.push(pools);
        }
    }
}
