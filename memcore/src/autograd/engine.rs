//! The backward pass.
//!
//! Follows PyTorch's engine. A node becomes ready when all consumers of its outputs have run; the consumers are counted
//! first. Among ready nodes the leaves' accumulations go first, then the node created last. A second gradient for the
//! same target is added in place to the first one if nobody else holds the first one's memory. (A view in PyTorch holds
//! it twice: by itself, and through its base tensor.)

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::mode::NoGrad;
use super::node::{Edge, Grads, Leaf, Node};
use crate::array::Array;
use crate::context;
use crate::error::Result;

/// Sends `grad` into `root` and on to every leaf that it depends on.
///
/// # Errors
/// The first failure. Gradients accumulated before it stay; everything else is released.
pub fn backward(root: &Edge, grad: Array, retain_graph: bool) -> Result<()> {
    let _no_grad = NoGrad::new();
    let mut pass = Pass {
        waiting: FxHashMap::default(),
        arrived: Arrived::default(),
        ready: BinaryHeap::new(),
        arrivals: 0,
        retain_graph,
    };
    pass.count_consumers(root);
    pass.deliver(root, &mut Some(grad.clone()))?;
    while let Some(task) = pass.ready.pop() {
        pass.run(task)?;
    }
    drop(grad); // the seed lives until the whole pass is over, as in PyTorch
    Ok(())
}

struct Pass {
    /// Targets that still wait for gradients, by address.
    waiting: FxHashMap<usize, Waiting>,
    arrived: Arrived,
    ready: BinaryHeap<Task>,
    arrivals: u64,
    retain_graph: bool,
}

/// A target that waits. There is one for every node, so it is small.
#[derive(Default)]
struct Waiting {
    consumers: u32,
    /// Index of its gradients in [`Arrived`], after the first has arrived.
    place: Option<u32>,
}

/// Gradients of the few targets that some consumers have reached, but not all. Places are reused.
#[derive(Default)]
struct Arrived {
    grads: Vec<Grads>,
    free: Vec<u32>,
}

impl Arrived {
    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.grads.push(Grads::new());
            self.grads.len() as u32 - 1
        })
    }

    fn take(&mut self, place: u32) -> Grads {
        self.free.push(place);
        std::mem::take(&mut self.grads[place as usize])
    }
}

enum Target {
    Node(Arc<Node>),
    Leaf(Arc<Leaf>),
}

struct Task {
    /// Sequence number; leaves come before all nodes.
    priority: u64,
    /// Order in which targets became ready, to break ties.
    arrival: u64,
    target: Target,
    /// Index of its gradients in [`Arrived`].
    place: u32,
}

impl Ord for Task {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(other.arrival.cmp(&self.arrival))
    }
}

impl PartialOrd for Task {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Task {}

impl Edge {
    /// Address of the edge's target. It identifies the target during one pass, which keeps all targets alive.
    fn key(&self) -> usize {
        match self {
            Edge::Node(node, _) => Arc::as_ptr(node) as usize,
            Edge::Leaf(leaf) => Arc::as_ptr(leaf) as usize,
        }
    }
}

impl Pass {
    /// Counts the edges that lead to each target reachable from `root`.
    fn count_consumers(&mut self, root: &Edge) {
        let mut pending: SmallVec<[&Edge; 16]> = SmallVec::new();
        self.waiting.entry(root.key()).or_default().consumers += 1;
        pending.push(root);
        while let Some(edge) = pending.pop() {
            let Edge::Node(node, _) = edge else { continue };
            for next in node.next_edges().iter().flatten() {
                let waiting = self.waiting.entry(next.key()).or_default();
                waiting.consumers += 1;
                if waiting.consumers == 1 {
                    pending.push(next);
                }
            }
        }
    }

    /// Delivers a gradient, or the news that there is none, over `edge`. The first gradient for a target is taken; one
    /// that is added to another is left in `grad`.
    fn deliver(&mut self, edge: &Edge, grad: &mut Option<Array>) -> Result<()> {
        let key = edge.key();
        let waiting = self.waiting.entry(key).or_default();
        let (slots, slot) = match edge {
            Edge::Node(node, slot) => (node.outputs(), *slot as usize),
            Edge::Leaf(_) => (1, 0),
        };
        let place = *waiting.place.get_or_insert_with(|| self.arrived.place());
        let grads = &mut self.arrived.grads[place as usize];
        grads.resize(slots, None);
        meet(&mut grads[slot], grad)?;
        waiting.consumers -= 1;
        if waiting.consumers == 0 {
            self.waiting.remove(&key);
            let (priority, target) = match edge {
                Edge::Node(node, _) => (node.seq(), Target::Node(node.clone())),
                Edge::Leaf(leaf) => (u64::MAX, Target::Leaf(leaf.clone())),
            };
            self.arrivals += 1;
            self.ready.push(Task { priority, arrival: self.arrivals, target, place });
        }
        Ok(())
    }

    fn run(&mut self, task: Task) -> Result<()> {
        let grads = self.arrived.take(task.place);
        match task.target {
            Target::Leaf(leaf) => {
                let _context = context::node("AccumulateGrad", leaf.scope());
                let mut any = false;
                for grad in grads.into_iter().flatten() {
                    leaf.accumulate(grad)?;
                    any = true;
                }
                if any { leaf.accumulated() } else { Ok(()) }
            }
            Target::Node(node) => self.run_node(&node, grads),
        }
    }

    fn run_node(&mut self, node: &Node, grads: Grads) -> Result<()> {
        let _context = context::node(node.name(), node.scope());
        let mut inputs = if grads.iter().all(Option::is_none) {
            Grads::new()
        } else {
            let allocations = grads.iter().flatten().filter_map(|grad| grad.storage().alloc_id()).collect();
            let _handed = context::handed(allocations);
            node.run(grads)?
        };
        let _around = context::op(context::AROUND);
        if !self.retain_graph {
            node.release_saved();
        }
        inputs.resize(node.next_edges().len(), None);
        for (edge, grad) in node.next_edges().iter().zip(&mut inputs) {
            if let Some(edge) = edge {
                self.deliver(edge, grad)?;
            }
        }
        // A gradient that was added to another one lives until all are delivered, as in PyTorch's vector of outputs.
        drop(inputs);
        Ok(())
    }
}

/// Puts a gradient into a slot, or adds it to the gradient already there.
fn meet(slot: &mut Option<Array>, grad: &mut Option<Array>) -> Result<()> {
    *slot = match (slot.take(), &*grad) {
        (None, _) => grad.take(),
        (Some(first), None) => Some(first),
        (Some(first), Some(grad)) if first.takes_sum_in_place() => {
            first.add_(grad)?;
            Some(first)
        }
        (Some(first), Some(grad)) => {
            let _op = context::op(".>add");
            Some(first.add(grad)?)
        }
    };
    Ok(())
}
