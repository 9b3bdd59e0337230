//! What is written in place through a view of a tensor with a history: the base gets a history of its own, `CopySlices`, and every view of it is
//! seen anew from there, as in PyTorch.

use std::sync::Arc;

use smallvec::smallvec;

use super::mode::is_grad_enabled;
use super::node::{Edge, Function, Grads, Needs, Node};
use super::record::record;
use super::saved::Saved;
use super::tensor::Tensor;
use crate::array::Array;
use crate::context;
use crate::error::{Error, Result};

/// The base after `written`, the result of an operator that wrote in the memory of a view of `base`: the same memory, with the operator applied to
/// that part of it. `base` must be contiguous and the view within it.
///
/// # Errors
/// [`Error::Invalid`] for a base that is a leaf which wants a gradient, or does not lie in order.
pub fn written_through(base: &Tensor, written: &Tensor) -> Result<Tensor> {
    if is_grad_enabled() && matches!(base.edge(), Some(Edge::Leaf(_))) {
        let problem = "a view of a leaf that requires grad is being used in an in-place operation";
        return Err(Error::invalid("CopySlices", problem));
    }
    let Some(Edge::Node(inner, 0)) = written.edge() else { return Ok(base.clone()) };
    if !base.array().layout().is_contiguous() {
        return Err(Error::invalid("CopySlices", "of a tensor that does not lie in row-major order is not supported"));
    }
    let others = inner.next_edges().iter().skip(1).cloned();
    let next = std::iter::once(base.edge().cloned()).chain(others).collect();
    let part = Part::new(base.array(), written.array());
    let function = CopySlices { part, inner: Arc::clone(inner) };
    let node = Node::new(base.device().clone(), Box::new(function), 1, next, Vec::new(), Vec::new());
    Ok(Tensor::with_edge(base.array().clone(), Edge::Node(node, 0)))
}

/// A view of `base` with the history of `base` as it is now.
///
/// # Errors
/// Those of recording.
pub fn seen_anew(base: &Tensor, view: &Array) -> Result<Tensor> {
    let part = Part::new(base.array(), view);
    let dims = base.dims().to_vec();
    record(view.clone(), &[base], |_| Ok(Box::new(AsStridedBackward { part, dims })))
}

/// Where a view lies in its base: an array of the same place in a base that starts at 0.
struct Part {
    view: crate::layout::Layout,
    start: usize,
}

impl Part {
    fn new(base: &Array, view: &Array) -> Self {
        Self { view: *view.layout(), start: view.start_after(base) }
    }
}

struct CopySlices {
    part: Part,
    inner: Arc<Node>,
}

impl Function for CopySlices {
    fn name(&self) -> &'static str {
        "CopySlices"
    }

    /// The gradient is copied; in the copy the view's part becomes what the operator's own node makes of it.
    fn backward(&self, grads: Grads, _: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let result = context::within("new_empty_strided", || grad.copied())?;
        let part = result.part(&self.part.view, self.part.start)?;
        let incoming = context::within("clone", || part.copied())?;
        let mut out = {
            let _node = context::op(self.inner.name());
            let made = self.inner.run(smallvec![Some(incoming)])?;
            self.inner.release_saved();
            made
        };
        if let Some(first) = out.first_mut().and_then(Option::take) {
            part.copy_(&first)?;
        } else {
            part.fill_(0.0)?;
        }
        drop(part);
        if out.is_empty() {
            out.push(None);
        }
        out[0] = needs.input(0).then_some(result);
        Ok(out)
    }
}

struct AsStridedBackward {
    part: Part,
    dims: Vec<usize>,
}

impl Function for AsStridedBackward {
    fn name(&self) -> &'static str {
        "AsStridedBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = context::within("new_zeros>new_empty", || Array::zeros(grad.device(), &self.dims, grad.dtype()))?;
        out.part(&self.part.view, self.part.start)?.copy_(grad)?;
        Ok(smallvec![Some(out)])
    }
}
