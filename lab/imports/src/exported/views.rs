//! Which values of a graph are views of which, so that what is written in place through one is seen in all of them, with the history that PyTorch
//! gives it.

use std::sync::Arc;

use memcore::autograd::{Edge, is_grad_enabled, seen_anew, written_through};
use memcore::{Result, Tensor};

use super::program::Slot;
use super::value::Value;

/// What a value is a view of.
struct Base {
    /// The slot that the base was made in.
    slot: Slot,
    tensor: Tensor,
}

/// The views among the values of a graph.
pub(super) struct Views {
    /// Of each slot: its base, where it is a view.
    bases: Vec<Option<Base>>,
    /// Of each slot: the first one that holds the very same tensor.
    same: Vec<Slot>,
}

impl Views {
    pub(super) fn new(slots: usize) -> Self {
        Self { bases: (0..slots).map(|_| None).collect(), same: (0..slots).collect() }
    }

    /// A node gave `made`, which may share its memory with one of `given`.
    pub(super) fn made(&mut self, slot: Slot, made: &Tensor, given: impl Iterator<Item = Slot>, values: &[Value]) {
        for from in given {
            let Some(Value::Tensor(source)) = values.get(from) else { continue };
            if from == slot || !Arc::ptr_eq(source.array().storage(), made.array().storage()) {
                continue;
            }
            let base = match &self.bases[from] {
                Some(base) => Base { slot: base.slot, tensor: base.tensor.clone() },
                None => Base { slot: self.same[from], tensor: source.clone() },
            };
            if is_same(source, made) {
                self.same[slot] = self.same[from];
                self.bases[slot] = self.bases[from].is_some().then_some(base);
            } else {
                self.bases[slot] = Some(base);
            }
            return;
        }
    }

    /// A value died.
    pub(super) fn died(&mut self, slot: Slot) {
        self.bases[slot] = None;
    }

    /// What was written in place into the value of `slot`: all that share its memory get its history.
    ///
    /// # Errors
    /// A base that is a leaf, or that does not lie in order.
    pub(super) fn written(&mut self, slot: Slot, written: Tensor, values: &mut [Value]) -> Result<()> {
        if !written.requires_grad() || !is_grad_enabled() {
            values[slot] = Value::Tensor(written);
            return Ok(());
        }
        let (root, base) = match &self.bases[slot] {
            Some(base) => (base.slot, written_through(&base.tensor, &written)?),
            None => (self.same[slot], written),
        };
        for (other, held) in values.iter_mut().enumerate() {
            let Value::Tensor(value) = &*held else { continue };
            match &mut self.bases[other] {
                Some(seen) if seen.slot == root => {
                    seen.tensor = base.clone();
                    *held = Value::Tensor(seen_anew(&base, value.array())?);
                }
                None if self.same[other] == root => *held = Value::Tensor(base.clone()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether two are one tensor, and not one a view of the other.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    let history = match (a.edge(), b.edge()) {
        (None, None) => true,
        (Some(Edge::Node(a, i)), Some(Edge::Node(b, k))) => Arc::ptr_eq(a, b) && i == k,
        (Some(Edge::Leaf(a)), Some(Edge::Leaf(b))) => Arc::ptr_eq(a, b),
        _ => false,
    };
    history && a.array().layout() == b.array().layout()
}
