//! Memory of the host that a program keeps copies of a device's tensors in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Kind of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Memory of `malloc`, freed with the copy.
    Pageable,
    /// Page-locked memory of PyTorch's host allocator: the next power of two, kept for the next copy of that size.
    Pinned,
}

/// Bytes of copies on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUsage {
    /// Bytes of all copies now.
    pub copies: u64,
    /// The most bytes that copies had at once.
    pub copies_peak: u64,
    /// Bytes of pinned blocks, those without a copy too: PyTorch never gives one back.
    pub pinned: u64,
}

/// The ledger of a device's copies on the host. Clones share it.
#[derive(Clone, Default)]
pub struct Host(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    usage: HostUsage,
    /// Free pinned blocks by their size.
    free: BTreeMap<u64, usize>,
}

/// Host memory of one copy, given back when this is dropped.
pub(crate) struct HostBlock {
    host: Host,
    bytes: u64,
    kind: HostKind,
}

impl Host {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes host memory for a copy of so many bytes.
    pub(crate) fn take(&self, bytes: u64, kind: HostKind) -> HostBlock {
        let mut state = self.state();
        state.usage.copies += bytes;
        state.usage.copies_peak = state.usage.copies_peak.max(state.usage.copies);
        if kind == HostKind::Pinned && bytes > 0 {
            let size = bytes.next_power_of_two();
            match state.free.get_mut(&size).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => state.usage.pinned += size,
            }
        }
        HostBlock { host: self.clone(), bytes, kind }
    }

    /// Bytes of the copies so far.
    pub fn usage(&self) -> HostUsage {
        self.state().usage
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        let mut state = self.host.state();
        state.usage.copies -= self.bytes;
        if self.kind == HostKind::Pinned && self.bytes > 0 {
            *state.free.entry(self.bytes.next_power_of_two()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_blocks_are_powers_of_two_that_stay() {
        let host = Host::default();
        let first = host.take(600, HostKind::Pinned);
        assert_eq!(host.usage(), HostUsage { copies: 600, copies_peak: 600, pinned: 1024 });
        drop(first);
        let again = host.take(1000, HostKind::Pinned);
        let other = host.take(1025, HostKind::Pinned);
        assert_eq!(host.usage(), HostUsage { copies: 2025, copies_peak: 2025, pinned: 3072 });
        drop((again, other));
        drop(host.take(7, HostKind::Pageable));
        assert_eq!(host.usage(), HostUsage { copies: 0, copies_peak: 2025, pinned: 3072 });
    }
}
