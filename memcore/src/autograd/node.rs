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

/// Gradients, one per output (coming in) or per input (going out); `None` where there is none.
pub type Grads = SmallVec<[Option<Array>; 4]>;

/// Which inputs want a gradient.
#[derive(Clone, Copy)]
pub struct Needs<'a>(&'a [Option<Edge>]);

impl Needs<'_> {
    /// Whether input `index` wants one.
    pub fn input(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(Option::is_some)
    }
}

/// The backward half of an operation. Sizes and attributes live in `self`; arrays only among the saved values, where they can
/// be listed.
pub trait Function: Send + Sync {
    /// PyTorch's name for the node: `AddmmBackward0`.
    fn name(&self) -> &'static str;

    /// The inputs' gradients from the outputs'. The incoming ones are owned: what is passed on unchanged is moved, what is not is
    /// released when this returns. Never called when all of them are `None`.
    ///
    /// # Errors
    /// Whatever fails on the device; stale or released saved values.
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
    /// Leaves whose values a hook packed. PyTorch's packed value of a leaf holds where its gradient goes until the node itself does.
    packed_leaves: Vec<Arc<Leaf>>,
    /// The device whose tape observes the node, and its place there.
    device: Device,
    tape_index: u32,
}

/// Host memory of one node: itself and its reference counts.
const NODE_BYTES: u64 = (std::mem::size_of::<Node>() + 2 * std::mem::size_of::<usize>()) as u64;

/// Where a gradient goes: an output of a node, or a leaf.
#[derive(Clone)]
pub enum Edge {
    /// Output number `.1` of a node.
    Node(Arc<Node>, u32),
    /// A leaf's gradient slot.
    Leaf(Arc<Leaf>),
}

/// A tensor that gradients are accumulated into: a parameter, or an input whose gradient is wanted.
pub struct Leaf {
    grad: Mutex<Option<Array>>,
    /// The value, so that a graph keeps what it will accumulate gradients for. Goes after the gradient.
    _value: Array,
    scope: ScopeId,
    /// Whether it is what the program made, and not the stand-in of a tensor with a history.
    original: bool,
    /// Called after each accumulation.
    hook: OnceLock<Box<GradHook>>,
}

/// What is done with a leaf whose gradient has just been accumulated.
pub type GradHook = dyn Fn(&Leaf) -> Result<()> + Send + Sync;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

impl Node {
    /// The node made next, which its device's tape observes from here on.
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

    /// PyTorch's name for it.
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

    /// Where its input gradients go.
    pub(crate) fn next_edges(&self) -> &[Option<Edge>] {
        &self.next
    }

    /// Its saved values; `None` once released.
    pub fn saved(&self) -> MutexGuard<'_, Option<Vec<SavedValue>>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run(&self, grads: Grads) -> Result<Grads> {
        let saved = Saved::new(self.name(), self.saved());
        self.function.backward(grads, &saved, Needs(&self.next))
    }

    pub(super) fn release_saved(&self) {
        let released = self.saved().take();
        drop(released); // outside the lock: dropping storages takes the device's
    }
}

impl Node {
    /// Drops the saved values, and what comes before: what nobody else holds is left in `pending`.
    fn unlink(&mut self, pending: &mut SmallVec<[Edge; 8]>) {
        drop(self.saved.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        pending.extend(std::mem::take(&mut self.next).into_iter().flatten().filter(Edge::is_last));
        self.packed_leaves.clear();
    }
}

impl Edge {
    /// The node that it leads to, by its position in the order of creation; `None` for a leaf.
    fn node(&self) -> Option<u64> {
        match self {
            Edge::Node(node, _) => Some(node.seq),
            Edge::Leaf(_) => None,
        }
    }

    /// Whether nobody else leads there.
    fn is_last(&self) -> bool {
        match self {
            Edge::Node(node, _) => Arc::strong_count(node) == 1,
            Edge::Leaf(leaf) => Arc::strong_count(leaf) == 1,
        }
    }
}

/// A graph held across many steps is far deeper than the stack: unlink it iteratively, in PyTorch's order (`deleteNode`), a node's last input
/// first.
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

    /// In the place of a tensor with a history.
    pub(super) fn stand_in(value: Array) -> Self {
        Self { original: false, ..Self::new(value) }
    }

    /// Whether it is what the program made: autocast keeps the casts of such leaves.
    pub(crate) fn is_original(&self) -> bool {
        self.original
    }

    /// The module that the leaf was made in.
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

    /// Has `hook` called after each accumulation; `false` when there is a hook already.
    pub(super) fn set_hook(&self, hook: Box<GradHook>) -> bool {
        self.hook.set(hook).is_ok()
    }

    /// Calls the hook, if there is one.
    pub(super) fn accumulated(&self) -> Result<()> {
        self.hook.get().map_or(Ok(()), |hook| hook(self))
    }

    /// Adds a gradient, as PyTorch's `AccumulateGrad`: the first one is kept as it is when nobody else holds it and it is laid
    /// out as the leaf, copied otherwise; a later one is added in place.
    pub(super) fn accumulate(&self, grad: Array) -> Result<()> {
        let mut slot = self.slot();
        match &*slot {
            Some(sum) => sum.add_(&grad),
            None => {
                let grad = if grad.is_for_keeping() && grad.layout().is_contiguous() {
                    grad
                } else {
                    context::within("new_empty_strided", || grad.copied())?
                };
                *slot = Some(grad.with_category(Category::Gradient));
                Ok(())
            }
        }
    }
}
