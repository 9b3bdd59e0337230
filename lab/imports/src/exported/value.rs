//! Values in the slots of a graph while it runs.

use std::sync::Arc;

use memcore::Tensor;

use super::adapted_weight::AdaptedWeight;

#[derive(Clone)]
pub(super) enum Value {
    Tensor(Tensor),
    /// The weight of a linear layer that has an adapter.
    Adapted(Arc<AdaptedWeight>),
    Int(i64),
    Float(f64),
    Bool(bool),
    None,
}

/// Results of an operator: one value for each output of its node.
pub(super) enum Made {
    One(Value),
    Many(Vec<Value>),
    Nothing,
}

impl Made {
    pub(super) fn tensor(tensor: Tensor) -> Self {
        Self::One(Value::Tensor(tensor))
    }

    /// Makes results of several tensors.
    pub(super) fn tensors(tensors: impl IntoIterator<Item = Tensor>) -> Self {
        Self::Many(tensors.into_iter().map(Value::Tensor).collect())
    }
}
