//! The backward pass.
//!
//! As PyTorch's engine: a node becomes ready when every consumer of its outputs has run (their number is counted first); of the ready
//! ones the leaves' accumulations go first, then the node made last. Gradients that meet are added in place into the one that arrived first,
//! when nobody else holds its memory (a view of PyTorch's holds it twice, itself and in the tensor that it was taken from).

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

/// Sends `grad` into `root` and on to every leaf behind it.
///
/// # Errors
/// The first thing that fails; what was accumulated until then stays, and everything else is released.
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

/// A target: there is one for every node, so it is small.
#[derive(Default)]
struct Waiting {
    consumers: u32,
    /// Where in [`Arrived`] its gradients are, once there is news.
    place: Option<u32>,
}

/// Gradients of the few targets that some have reached and not all; their places are used again.
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
    /// Order of becoming ready, for ties.
    arrival: u64,
    target: Target,
    /// Where in [`Arrived`] its gradients are.
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
    /// Address of what the edge leads to: its identity for the length of a pass, which keeps every target alive.
    fn key(&self) -> usize {
        match self {
            Edge::Node(node, _) => Arc::as_ptr(node) as usize,
            Edge::Leaf(leaf) => Arc::as_ptr(leaf) as usize,
        }
    }
}

impl Pass {
    /// Counts, for everything that `root` leads to, the edges that lead there.
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

    /// A gradient, or the news that there is none, arrives over `edge`. The first one in its place is taken, one that is added to it is not.
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
        // What was added to another gradient lives until all are delivered, as in PyTorch's vector of outputs.
        drop(inputs);
        Ok(())
    }
}

/// Puts a gradient into a slot, or adds it to what already arrived there.
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
