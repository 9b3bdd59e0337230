//! The observer of the autograd graph: which nodes are alive on a device, and what they keep. It owns nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::memory::{AllocId, ScopeId};

/// What the tape can see of a node.
pub trait Observed: Send + Sync {
    /// What the node keeps now.
    fn entry(&self) -> TapeEntry;
}

/// What one living node keeps.
#[derive(Clone, Debug)]
pub struct TapeEntry {
    /// Position in the order of creation.
    pub seq: u64,
    /// The node's name.
    pub name: &'static str,
    /// The module that recorded it.
    pub scope: ScopeId,
    /// Role and bytes of each saved value (of its storage); `None` for one that a hook keeps elsewhere.
    pub saved: Vec<(&'static str, Option<u64>)>,
    /// The allocation behind each of them; `None` for one that a hook keeps elsewhere, or that has no bytes.
    pub allocations: Vec<Option<AllocId>>,
    /// The nodes that its gradients go to, by their `seq`.
    pub next: Vec<u64>,
    /// Whether the saved values were released by a backward pass.
    pub released: bool,
}

/// The nodes alive on one device: a slab of weak references whose entries go with their nodes.
#[derive(Default)]
pub struct Tape {
    slab: Mutex<Slab>,
}

#[derive(Default)]
struct Slab {
    nodes: Vec<Option<Weak<dyn Observed>>>,
    free: Vec<u32>,
    host_bytes: u64,
}

impl Tape {
    fn slab(&self) -> MutexGuard<'_, Slab> {
        self.slab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes a node that takes `host_bytes` of host memory; its place is given up by [`Tape::remove`].
    pub(crate) fn insert(&self, node: Weak<dyn Observed>, host_bytes: u64) -> u32 {
        let slab = &mut *self.slab();
        slab.host_bytes += host_bytes;
        match slab.free.pop() {
            Some(index) => {
                slab.nodes[index as usize] = Some(node);
                index
            }
            None => {
                slab.nodes.push(Some(node));
                slab.nodes.len() as u32 - 1
            }
        }
    }

    /// The node at `index` is gone.
    pub(crate) fn remove(&self, index: u32, host_bytes: u64) {
        let slab = &mut *self.slab();
        slab.nodes[index as usize] = None;
        slab.free.push(index);
        slab.host_bytes -= host_bytes;
    }

    /// Number of living nodes.
    pub fn len(&self) -> usize {
        let slab = self.slab();
        slab.nodes.len() - slab.free.len()
    }

    /// Whether no node is alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Host memory of the graph itself: its nodes, without functions' attributes, and without what they save.
    pub fn host_bytes(&self) -> u64 {
        self.slab().host_bytes
    }

    /// The living nodes in the order of their creation.
    pub fn entries(&self) -> Vec<TapeEntry> {
        let nodes: Vec<Arc<dyn Observed>> = self.slab().nodes.iter().flatten().filter_map(Weak::upgrade).collect();
        let mut entries: Vec<TapeEntry> = nodes.iter().map(|node| node.entry()).collect();
        entries.sort_by_key(|e| e.seq);
        entries
    }
}
