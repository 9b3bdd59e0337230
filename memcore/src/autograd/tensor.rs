//! Tensors: an array and its history.

use std::fmt;
use std::sync::Arc;

use super::engine;
use super::node::{Edge, GradHook, Leaf};
use crate::array::{Array, HostElement};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// A value with its history, a [`Node`](super::Node). Cloning shares both.
///
/// ```
/// use memcore::autograd::Edge;
/// use memcore::prelude::*;
///
/// # fn main() -> Result<()> {
/// let device = Device::meta("torch-2.11-sm90")?;
/// let x = Tensor::leaf(Array::empty(&device, &[64, 256], DType::F32)?);
/// let y = x.gelu()?.sum()?;
/// let Some(Edge::Node(node, _)) = y.edge() else { panic!("a result has a node") };
/// assert_eq!(node.name(), "SumBackward0");
/// y.backward(false)?;
/// assert_eq!(x.grad().map(|grad| grad.dims().to_vec()), Some(vec![64, 256]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tensor {
    // The history is dropped before the value, as in PyTorch.
    edge: Option<Edge>,
    array: Array,
}

impl Tensor {
    /// A tensor without history: data, or a result that nothing will be differentiated through.
    pub fn from_array(array: Array) -> Self {
        Self { array, edge: None }
    }

    /// Creates a leaf: gradients that reach it are accumulated, see [`Tensor::grad`].
    pub fn leaf(array: Array) -> Self {
        let leaf = Leaf::new(array.clone());
        Self { array, edge: Some(Edge::Leaf(Arc::new(leaf))) }
    }

    /// Creates a leaf that stands in for a tensor with a history.
    pub(super) fn stand_in(array: Array) -> Self {
        let leaf = Leaf::stand_in(array.clone());
        Self { array, edge: Some(Edge::Leaf(Arc::new(leaf))) }
    }

    pub(super) fn with_edge(array: Array, edge: Edge) -> Self {
        Self { array, edge: Some(edge) }
    }

    /// Copies host values to a device; the tensor has no history.
    pub fn from_slice<T: HostElement>(device: &Device, dims: &[usize], values: &[T]) -> Result<Self> {
        Ok(Self::from_array(Array::from_slice(device, dims, values)?))
    }

    /// The value.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns the value and drops the history.
    pub fn into_array(self) -> Array {
        self.array
    }

    /// Target of this tensor's gradients.
    pub fn edge(&self) -> Option<&Edge> {
        self.edge.as_ref()
    }

    /// Whether gradients flow through it.
    pub fn requires_grad(&self) -> bool {
        self.edge.is_some()
    }

    /// Whether this is a leaf, where gradients are accumulated. A tensor without history counts as one.
    pub fn is_leaf(&self) -> bool {
        !matches!(self.edge, Some(Edge::Node(..)))
    }

    /// The same value without history.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self::from_array(self.array.clone())
    }

    /// Fails for a leaf that requires a gradient while history is recorded: backward would need the value from before
    /// the change.
    pub(crate) fn may_change_in_place(&self, op: &'static str) -> Result<()> {
        if super::is_grad_enabled() && matches!(self.edge, Some(Edge::Leaf(_))) {
            return Err(Error::invalid(op, "a leaf that requires grad is being used in an in-place operation"));
        }
        Ok(())
    }

    /// The gradient accumulated in a leaf.
    pub fn grad(&self) -> Option<Array> {
        match &self.edge {
            Some(Edge::Leaf(leaf)) => leaf.grad(),
            _ => None,
        }
    }

    /// Replaces a leaf's gradient; nothing happens for other tensors.
    pub fn set_grad(&self, grad: Option<Array>) {
        if let Some(Edge::Leaf(leaf)) = &self.edge {
            leaf.set_grad(grad);
        }
    }

    /// Registers `hook`, which backward calls each time it has accumulated a gradient in this leaf: PyTorch's
    /// `register_post_accumulate_grad_hook`. The hook may replace or drop the gradient. It must not hold the leaf
    /// itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a tensor that is not a leaf with a gradient, and for a second hook.
    pub fn register_post_accumulate_grad_hook(&self, hook: Box<GradHook>) -> Result<()> {
        let registered = match &self.edge {
            Some(Edge::Leaf(leaf)) => leaf.set_hook(hook),
            _ => return Err(Error::invalid("register_post_accumulate_grad_hook", "not a leaf that wants a gradient")),
        };
        if registered {
            return Ok(());
        }
        Err(Error::invalid("register_post_accumulate_grad_hook", "this leaf has a hook already"))
    }

    /// Runs backward from this scalar and accumulates gradients in the leaves that it depends on. With `retain_graph`
    /// the saved values stay for another pass.
    ///
    /// # Errors
    /// [`Error::NotScalar`], [`Error::NoHistory`], and any failure on the way; gradients accumulated before it stay.
    pub fn backward(&self, retain_graph: bool) -> Result<()> {
        if self.array.numel() != 1 {
            return Err(Error::NotScalar { dims: self.dims().to_vec() });
        }
        let seed = crate::context::within("ones_like", || Array::ones(self.device(), self.dims(), self.dtype()))?;
        self.backward_with(seed, retain_graph)
    }

    /// Like [`Tensor::backward`], starting with a given gradient of this tensor's shape and type.
    ///
    /// # Errors
    /// Like [`Tensor::backward`], and [`Error::Shape`].
    pub fn backward_with(&self, grad: Array, retain_graph: bool) -> Result<()> {
        let edge = self.edge.as_ref().ok_or(Error::NoHistory { op: "backward" })?;
        if grad.dims() != self.dims() {
            return Err(Error::shape("backward", format!("gradient {:?} of a tensor {:?}", grad.dims(), self.dims())));
        }
        engine::backward(edge, grad, retain_graph)
    }

    /// Sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.array.dims()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.array.rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.array.numel()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.array.dtype()
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        self.array.device()
    }

    /// Copies the values to the host, in row-major order.
    pub fn to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        self.array.to_vec()
    }

    /// Returns the value of a scalar.
    ///
    /// # Errors
    /// [`Error::NotScalar`]; errors of [`Array::to_f64`].
    pub fn item(&self) -> Result<f64> {
        match self.array.to_f64()?.as_slice() {
            [value] => Ok(*value),
            _ => Err(Error::NotScalar { dims: self.dims().to_vec() }),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = match &self.edge {
            None => "no history",
            Some(Edge::Leaf(_)) => "leaf",
            Some(Edge::Node(node, _)) => node.name(),
        };
        write!(f, "Tensor({} {:?}, {history})", self.dtype(), self.dims())
    }
}
