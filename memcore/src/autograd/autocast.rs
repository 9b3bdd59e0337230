//! Autocast: while a guard lives, operators choose their element type.
//!
//! - Products (`linear`, `mm`, `bmm`, `matmul`, `conv2d`, fused attention) cast their operands to the lower type, the last operand first.
//! - Losses, normalisation over rows, softmax, powers and logarithms compute in float32. Sums and the Euclidean norm give float32, but read the
//!   lower type; batch norm reads both types as they come.
//! - Everything else takes its operands as they come; a sum of two types has the wider one.
//!
//! A parameter is cast once, however often it is used: the cast is cached until the outermost guard is dropped.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use super::node::Leaf;
use super::tensor::Tensor;
use crate::dtype::DType;

thread_local! {
    static DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CACHE: RefCell<Vec<Cached>> = const { RefCell::new(Vec::new()) };
}

/// A leaf and its cached cast.
struct Cached {
    leaf: Arc<Leaf>,
    cast: Tensor,
}

/// While a guard lives, operators on its thread choose their element type. Cached casts are dropped with the outermost
/// guard.
#[must_use = "autocast ends when the guard is dropped"]
pub struct Autocast {
    before: Option<DType>,
    /// Makes the guard `!Send`: it belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Autocast {
    /// Enters a region whose products are computed in `dtype` (float16 or bfloat16).
    pub fn new(dtype: DType) -> Self {
        Self::enter(Some(dtype))
    }

    /// Enters a region without autocast.
    pub fn off() -> Self {
        Self::enter(None)
    }

    /// Enters a region with the given state, which may be off: recomputation needs that.
    pub(crate) fn enter(dtype: Option<DType>) -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { before: DTYPE.replace(dtype), _here: PhantomData }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        DTYPE.set(self.before);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            let cached = CACHE.take();
            drop(cached);
        }
    }
}

/// The type that products are computed in; `None` outside autocast.
pub fn autocast_dtype() -> Option<DType> {
    DTYPE.get()
}

/// Returns the cast of `leaf` to `dtype` that was cached since the outermost guard began.
pub(crate) fn cached_cast(leaf: &Arc<Leaf>, dtype: DType) -> Option<Tensor> {
    CACHE.with_borrow(|cache| {
        let cached = cache.iter().find(|cached| Arc::ptr_eq(&cached.leaf, leaf) && cached.cast.dtype() == dtype);
        cached.map(|cached| cached.cast.clone())
    })
}

/// Caches a cast until the outermost guard is dropped.
pub(crate) fn cache_cast(leaf: &Arc<Leaf>, cast: &Tensor) {
    if DEPTH.get() > 0 {
        CACHE.with_borrow_mut(|cache| cache.push(Cached { leaf: leaf.clone(), cast: cast.clone() }));
    }
}
