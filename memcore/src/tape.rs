//! The observer of the autograd graph: the live nodes of a device, and the values that they keep. It owns nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::dtype::DType;
use crate::memory::{AllocId, ScopeId};

/// The view of a node that the tape has.
pub trait Observed: Send + Sync {
    /// The node's current state.
    fn entry(&self) -> TapeEntry;
}

/// The state of one live node.
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
    /// The allocation of each saved value; `None` for one that a hook keeps elsewhere, or that has no bytes.
    pub allocations: Vec<Option<AllocId>>,
    /// The nodes that its gradients go to, by `seq`.
    pub next: Vec<u64>,
    /// True if a backward pass released the saved values.
    pub released: bool,
}

/// A result of an operation that became part of the graph; of several results, the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeResult {
    /// The module that was running.
    pub scope: ScopeId,
    /// The node's name.
    pub name: &'static str,
    /// Sizes.
    pub dims: Vec<usize>,
    /// Type.
    pub dtype: DType,
}

/// The live nodes of one device: a slab of weak references whose entries are removed with their nodes.
#[derive(Default)]
pub struct Tape {
    slab: Mutex<Slab>,
}

#[derive(Default)]
struct Slab {
    nodes: Vec<Option<Weak<dyn Observed>>>,
    free: Vec<u32>,
    host_bytes: u64,
    /// Results so far; `None` if they are not kept.
    results: Option<Vec<TapeResult>>,
}

impl Tape {
    fn slab(&self) -> MutexGuard<'_, Slab> {
        self.slab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes a node that takes `host_bytes` of host memory, until [`Tape::remove`].
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

    /// Stops observing the node at `index`, which was dropped.
    pub(crate) fn remove(&self, index: u32, host_bytes: u64) {
        let slab = &mut *self.slab();
        slab.nodes[index as usize] = None;
        slab.free.push(index);
        slab.host_bytes -= host_bytes;
    }

    /// Keeps the sizes of what operations give, from now on.
    pub fn keep_results(&self) {
        self.slab().results.get_or_insert_default();
    }

    /// Notes the result of an operation, if results are kept.
    pub(crate) fn result(&self, make: impl FnOnce() -> TapeResult) {
        if let Some(results) = &mut self.slab().results {
            results.push(make());
        }
    }

    /// What operations gave since [`keep_results`](Self::keep_results), in order.
    pub fn results(&self) -> Vec<TapeResult> {
        self.slab().results.clone().unwrap_or_default()
    }

    /// Number of live nodes.
    pub fn len(&self) -> usize {
        let slab = self.slab();
        slab.nodes.len() - slab.free.len()
    }

    /// True if no node is alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Host memory of the graph itself: its nodes, without the functions' attributes and without saved values.
    pub fn host_bytes(&self) -> u64 {
        self.slab().host_bytes
    }

    /// The live nodes in order of creation.
    pub fn entries(&self) -> Vec<TapeEntry> {
        let nodes: Vec<Arc<dyn Observed>> = self.slab().nodes.iter().flatten().filter_map(Weak::upgrade).collect();
        let mut entries: Vec<TapeEntry> = nodes.iter().map(|node| node.entry()).collect();
        entries.sort_by_key(|e| e.seq);
        entries
    }
}
