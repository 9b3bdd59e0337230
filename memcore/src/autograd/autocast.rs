//! Autocast: operators choose their type by themselves while a guard lives.
//!
//! - Products (`linear`, `mm`, `bmm`, `matmul`, `conv2d`, fused attention) cast their operands to the lower type, the last operand first.
//! - Losses, normalisation over rows, softmax, powers and logarithms compute in float32. Sums and the Euclidean norm give float32, but read the
//!   lower type; batch norm reads both types as they come.
//! - Everything else takes what comes; a sum of two types has the wider one.
//!
//! A parameter is cast once: the result is cached until the outermost guard goes, however often it is used.

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

/// A leaf and what became of it.
struct Cached {
    leaf: Arc<Leaf>,
    cast: Tensor,
}

/// While it lives, operators on this thread choose their type. The cached casts go with the outermost guard.
#[must_use = "autocast ends when the guard is dropped"]
pub struct Autocast {
    before: Option<DType>,
    /// A guard belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Autocast {
    /// Products in `dtype`, float16 or bfloat16.
    pub fn new(dtype: DType) -> Self {
        Self::enter(Some(dtype))
    }

    /// A region in which operators take what comes.
    pub fn off() -> Self {
        Self::enter(None)
    }

    /// A region with another state, which may be none: what a recomputation needs.
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

/// What a leaf was cast to since the outermost guard came.
pub(crate) fn cached_cast(leaf: &Arc<Leaf>, dtype: DType) -> Option<Tensor> {
    CACHE.with_borrow(|cache| {
        let cached = cache.iter().find(|cached| Arc::ptr_eq(&cached.leaf, leaf) && cached.cast.dtype() == dtype);
        cached.map(|cached| cached.cast.clone())
    })
}

/// Keeps a cast until the outermost guard goes.
pub(crate) fn cache_cast(leaf: &Arc<Leaf>, cast: &Tensor) {
    if DEPTH.get() > 0 {
        CACHE.with_borrow_mut(|cache| cache.push(Cached { leaf: leaf.clone(), cast: cast.clone() }));
    }
}
