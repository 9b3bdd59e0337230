//! The views among a graph's values. A write in place through one of them is seen in all that share its memory, with PyTorch's autograd history.

use std::sync::Arc;

use memcore::autograd::{Edge, is_grad_enabled, seen_anew, written_through};
use memcore::{Result, Tensor};

use super::program::Slot;
use super::value::Value;

/// Base of a view.
struct Base {
    /// Slot that the base was made in.
    slot: Slot,
    tensor: Tensor,
}

/// The views among the values of a graph.
pub(super) struct Views {
    /// Base of the value in each slot; `None` if the value is not a view.
    bases: Vec<Option<Base>>,
    /// For each slot, the first slot that holds the same tensor.
    same: Vec<Slot>,
}

impl Views {
    pub(super) fn new(slots: usize) -> Self {
        Self { bases: (0..slots).map(|_| None).collect(), same: (0..slots).collect() }
    }

    /// Records the result `made` of a node; it is a view if it shares its memory with one of the arguments `given`.
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

    /// Forgets the base of a value that died.
    pub(super) fn died(&mut self, slot: Slot) {
        self.bases[slot] = None;
    }

    /// Forgets all that is known of these slots.
    pub(super) fn forget(&mut self, slots: &[Slot]) {
        slots.iter().for_each(|slot| (self.bases[*slot], self.same[*slot]) = (None, *slot));
    }

    /// Records a write in place into the value of `slot`: every value that shares its memory gets the history of the result `written`.
    ///
    /// # Errors
    /// The base is a leaf, or is not contiguous.
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

/// True if `a` and `b` are the same tensor: they have the same history and layout, and neither is a view of the other.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    let history = match (a.edge(), b.edge()) {
        (None, None) => true,
        (Some(Edge::Node(a, i)), Some(Edge::Node(b, k))) => Arc::ptr_eq(a, b) && i == k,
        (Some(Edge::Leaf(a)), Some(Edge::Leaf(b))) => Arc::ptr_eq(a, b),
        _ => false,
    };
    history && a.array().layout() == b.array().layout()
}
