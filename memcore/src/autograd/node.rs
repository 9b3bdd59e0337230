//! The graph: nodes, edges, leaves.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use smallvec::SmallVec;

use super::saved::{Saved, SavedValue, Slots};
use crate::array::Array;
use crate::context;
use crate::device::Device;
use crate::error::Result;
use crate::memory::{Category, ScopeId};
use crate::tape::{Observed, TapeEntry};

/// Gradients: one per output (incoming) or per input (outgoing); `None` for an absent one.
pub type Grads = SmallVec<[Option<Array>; 4]>;

/// Which inputs want a gradient.
#[derive(Clone, Copy)]
pub struct Needs<'a>(&'a [Option<Edge>]);

impl Needs<'_> {
    /// Whether input `index` wants a gradient.
    pub fn input(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(Option::is_some)
    }
}

/// The backward half of an operation. Sizes and attributes live in `self`. Arrays live only among the saved values,
/// where they can be listed.
pub trait Function: Send + Sync {
    /// PyTorch's name for the node: `AddmmBackward0`.
    fn name(&self) -> &'static str;

    /// Returns the gradients of the inputs, given those of the outputs. The incoming gradients are owned: one that is
    /// passed on unchanged is moved, the others are released when this returns. Never called when all of them are
    /// `None`.
    ///
    /// # Errors
    /// Failures on the device; stale or released saved values.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads>;
}

/// One recorded operation.
pub struct Node {
    seq: u64,
    function: Box<dyn Function>,
    scope: ScopeId,
    outputs: u32,
    pub(super) next: SmallVec<[Option<Edge>; 3]>,
    saved: Mutex<Slots>,
    /// Leaves whose values a hook packed. In PyTorch the packed value of a leaf holds the leaf's gradient accumulator
    /// until the node is freed.
    packed_leaves: Vec<Arc<Leaf>>,
    /// The device whose tape observes the node, and the node's place on that tape.
    device: Device,
    tape_index: u32,
}

/// Host memory of one node, its two reference counts included.
const NODE_BYTES: u64 = (std::mem::size_of::<Node>() + 2 * std::mem::size_of::<usize>()) as u64;

/// The target of a gradient: an output of a node, or a leaf.
#[derive(Clone)]
pub enum Edge {
    /// Output number `.1` of a node.
    Node(Arc<Node>, u32),
    /// A leaf's gradient slot.
    Leaf(Arc<Leaf>),
}

/// A tensor into which gradients are accumulated: a parameter, or an input whose gradient is wanted.
pub struct Leaf {
    grad: Mutex<Option<Array>>,
    /// The value, which a graph keeps alive while it will accumulate gradients for it. Dropped after the gradient.
    _value: Array,
    scope: ScopeId,
    /// True if the program made this leaf; false if it stands in for a tensor with a history.
    original: bool,
    /// Called after each accumulation.
    hook: OnceLock<Box<GradHook>>,
}

/// Called with a leaf whose gradient has just been accumulated.
pub type GradHook = dyn Fn(&Leaf) -> Result<()> + Send + Sync;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

impl Node {
    /// Creates the next node. The device's tape observes it from here on.
    pub(super) fn new(
        device: Device,
        function: Box<dyn Function>,
        outputs: u32,
        next: SmallVec<[Option<Edge>; 3]>,
        packed_leaves: Vec<Arc<Leaf>>,
        saved: Vec<SavedValue>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Node>| Node {
            tape_index: device.tape().insert(this.clone(), NODE_BYTES),
            device,
            seq: SEQUENCE.fetch_add(1, Relaxed),
            function,
            scope: context::current_scope(),
            outputs,
            next,
            packed_leaves,
            saved: Mutex::new(Some(saved)),
        })
    }

    /// Position in the order of creation.
    #[doc(hidden)]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// PyTorch's name for the node.
    pub fn name(&self) -> &'static str {
        self.function.name()
    }

    /// The module that recorded it.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.outputs as usize
    }

    /// The targets of its input gradients.
    pub(crate) fn next_edges(&self) -> &[Option<Edge>] {
        &self.next
    }

    /// Its saved values; `None` once released.
    pub fn saved(&self) -> MutexGuard<'_, Option<Vec<SavedValue>>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run(&self, grads: Grads) -> Result<Grads> {
        let saved = Saved::new(self.name(), self.saved())?;
        self.function.backward(grads, &saved, Needs(&self.next))
    }

    pub(super) fn release_saved(&self) {
        let released = self.saved().take();
        drop(released); // outside the lock: dropping storages takes the device's
    }
}

impl Node {
    /// Drops the saved values and the edges. Edges that nobody else holds are moved to `pending`.
    fn unlink(&mut self, pending: &mut SmallVec<[Edge; 8]>) {
        drop(self.saved.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        pending.extend(std::mem::take(&mut self.next).into_iter().flatten().filter(Edge::is_last));
        self.packed_leaves.clear();
    }
}

impl Edge {
    /// Position in the order of creation of the node that the edge leads to; `None` for a leaf.
    fn node(&self) -> Option<u64> {
        match self {
            Edge::Node(node, _) => Some(node.seq),
            Edge::Leaf(_) => None,
        }
    }

    /// Whether this is the last edge to its target.
    fn is_last(&self) -> bool {
        match self {
            Edge::Node(node, _) => Arc::strong_count(node) == 1,
            Edge::Leaf(leaf) => Arc::strong_count(leaf) == 1,
        }
    }
}

/// A graph held across many steps is far deeper than the stack. Nodes are therefore unlinked iteratively, in PyTorch's
/// order (`deleteNode`): a node's last input first.
impl Drop for Node {
    fn drop(&mut self) {
        let mut pending: SmallVec<[Edge; 8]> = SmallVec::new();
        self.unlink(&mut pending);
        while let Some(edge) = pending.pop() {
            if let Edge::Node(node, _) = edge
                && let Some(mut node) = Arc::into_inner(node)
            {
                node.unlink(&mut pending);
            }
        }
        self.device.tape().remove(self.tape_index, NODE_BYTES);
    }
}

impl Observed for Node {
    fn entry(&self) -> TapeEntry {
        let saved = self.saved();
        let sizes = |s: &SavedValue| (s.role(), s.array().map(|a| a.storage().requested_bytes()));
        TapeEntry {
            seq: self.seq,
            name: self.name(),
            scope: self.scope,
            saved: saved.iter().flatten().map(sizes).collect(),
            allocations: saved.iter().flatten().map(|s| s.array().and_then(|a| a.storage().alloc_id())).collect(),
            next: self.next.iter().flatten().filter_map(Edge::node).collect(),
            released: saved.is_none(),
        }
    }
}

impl Leaf {
    pub(super) fn new(value: Array) -> Self {
        let scope = context::current_scope();
        Self { grad: Mutex::new(None), _value: value, scope, original: true, hook: OnceLock::new() }
    }

    /// Creates a leaf that stands in for a tensor with a history.
    pub(super) fn stand_in(value: Array) -> Self {
        Self { original: false, ..Self::new(value) }
    }

    /// True if the program made this leaf: autocast caches the casts of such leaves.
    pub(crate) fn is_original(&self) -> bool {
        self.original
    }

    /// The module in which the leaf was made.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    fn slot(&self) -> MutexGuard<'_, Option<Array>> {
        self.grad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Array> {
        self.slot().clone()
    }

    /// Replaces the gradient.
    pub fn set_grad(&self, grad: Option<Array>) {
        let before = std::mem::replace(&mut *self.slot(), grad);
        drop(before);
    }

    /// Registers `hook` to be called after each accumulation; `false` if there is a hook already.
    pub(super) fn set_hook(&self, hook: Box<GradHook>) -> bool {
        self.hook.set(hook).is_ok()
    }

    /// Calls the hook, if there is one.
    pub(super) fn accumulated(&self) -> Result<()> {
        self.hook.get().map_or(Ok(()), |hook| hook(self))
    }

    /// Adds a gradient, as PyTorch's `AccumulateGrad` does. The first one is kept as it is if nobody else holds it and
    /// it has the leaf's layout, and copied otherwise. A later one is added in place.
    pub(super) fn accumulate(&self, grad: Array) -> Result<()> {
        let mut slot = self.slot();
        match &*slot {
            Some(sum) => sum.add_(&grad),
            None => {
                let grad = if grad.is_for_keeping() && grad.layout().suits(self._value.layout()) {
                    grad
                } else {
                    context::within("new_empty_strided", || grad.copied_as(self._value.layout()))?
                };
                *slot = Some(grad.with_category(Category::Gradient));
                Ok(())
            }
        }
    }
}
