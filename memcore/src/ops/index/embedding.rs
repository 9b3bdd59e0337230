//! Rows by index: embedding tables and `index_select`.

use smallvec::{SmallVec, smallvec};

use super::temporaries;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::backend::kernel::{Gather, ScatterAdd};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::predicted::predicted_only;

type Dims = SmallVec<[usize; 6]>;

/// Returns rows of `weight` `[rows, n]` by `indices` (i64, any shape; at most 3072 of i32 in a dry run): `[..indices, n]`. Saves the indices.
///
/// The row `padding_idx` receives no gradient. The gradient is dense, of the table's size. Above 3072 indices PyTorch sorts them, and the
/// temporaries of the sort are made.
///
/// # Errors
/// [`Error::Shape`] if the table is not a matrix; [`Error::Invalid`] for i32 on a device that computes, or too many; errors of the device. An index
/// outside the table reads as NaN.
pub fn embedding(indices: &Tensor, weight: &Tensor, padding_idx: Option<usize>) -> Result<Tensor> {
    let [rows, n] = *weight.dims() else {
        return Err(Error::shape("embedding", format!("table {:?} is not a matrix", weight.dims())));
    };
    if padding_idx.is_some_and(|i| i >= rows) {
        return Err(Error::shape("embedding", format!("padding index {padding_idx:?} of {rows} rows")));
    }
    let _op = context::op("embedding>index_select>resize_");
    check_short(indices.array())?;
    let compute = || {
        // Rows of a transposed table are gathered where they are, as `index_select` does it.
        let table = weight.array();
        let flat = indices.array().reshape(&[indices.numel()])?;
        let dims: Dims = indices.dims().iter().copied().chain([n]).collect();
        let y = Array::empty(weight.device(), &dims, weight.dtype())?;
        let out = y.view(&[flat.numel(), n])?;
        if !is_short(&flat) {
            y.device().launch(Gather { table: table.operand(), indices: flat.operand(), out: out.operand() })?;
        }
        Ok(y)
    };
    let describe = |saved: &mut Recorder| {
        saved.save("indices", indices.array())?;
        let padding_idx = padding_idx.map(|i| i as i64);
        Ok::<Box<dyn Function>, Error>(Box::new(EmbeddingBackward { rows, padding_idx }))
    };
    record_inputs(&[weight], describe, compute)
}

/// Indices of 32 bits: PyTorch's kernels read them as they are, this program's read 64 bits.
fn is_short(indices: &Array) -> bool {
    indices.dtype() == DType::I32
}

/// Refuses indices of 32 bits on a device that computes, and so many that they are sorted, which was not measured.
fn check_short(indices: &Array) -> Result<()> {
    if !is_short(indices) {
        return Ok(());
    }
    predicted_only("embedding by int32 indices", indices.device())?;
    if indices.numel() <= temporaries::UNSORTED_INDICES {
        return Ok(());
    }
    let problem = format!("more than {} int32 indices are not supported", temporaries::UNSORTED_INDICES);
    Err(Error::invalid("embedding", problem))
}

struct EmbeddingBackward {
    rows: usize,
    padding_idx: Option<i64>,
}

impl Function for EmbeddingBackward {
    fn name(&self) -> &'static str {
        "EmbeddingBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let indices = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("embedding_backward");
        let flat = indices.contiguous()?.view(&[indices.numel()])?;
        let n = grad.dims()[grad.rank() - 1];
        let grad = grad.contiguous()?.view(&[flat.numel(), n])?;
        let sorted = grad.device().profile().torch_temporaries && flat.numel() > temporaries::UNSORTED_INDICES;
        let dense = context::op("embedding_dense_backward");
        let sort = if sorted { Some(temporaries::sort(&flat, self.rows)?) } else { None };
        drop(dense);
        let out = {
            let _op = context::op("zeros");
            Array::empty(grad.device(), &[self.rows, n], grad.dtype())?
        };
        let _dense = context::op("embedding_dense_backward");
        let segments = if sorted { Some(temporaries::segments(&flat, &out)?) } else { None };
        if !is_short(&flat) {
            out.device().launch(ScatterAdd {
                accumulate: false,
                padding_index: self.padding_idx,
                src: grad.operand(),
                indices: flat.operand(),
                out: out.operand(),
            })?;
        }
        drop(segments);
        drop(sort);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// Returns the parts of `x` along dimension `axis` that `indices` `[count]` (i64) names. Saves the indices.
///
/// Each index of the dimensions before `axis` costs a kernel launch; `axis` 0 costs one.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device. An index outside the dimension reads as NaN.
pub fn index_select(x: &Tensor, axis: usize, indices: &Tensor) -> Result<Tensor> {
    if axis >= x.rank() || indices.rank() != 1 {
        let detail = format!("axis {axis} of {:?} by indices {:?}", x.dims(), indices.dims());
        return Err(Error::shape("index_select", detail));
    }
    let _op = context::op("index_select");
    let slabs = Slabs::new(x.dims(), axis);
    let mut dims: Dims = x.dims().into();
    dims[axis] = indices.numel();
    let compute = || {
        let y = context::within("resize_", || Array::empty(x.device(), &dims, x.dtype()))?;
        let flat = indices.array().contiguous()?;
        for i in 0..slabs.count {
            let (table, out) = (slabs.slab(x.array(), i)?, slabs.slab(&y, i)?);
            y.device().launch(Gather { table: table.operand(), indices: flat.operand(), out: out.operand() })?;
        }
        Ok(y)
    };
    let describe = |saved: &mut Recorder| {
        saved.save("index", indices.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(IndexSelectBackward { slabs, dims: x.dims().into() }))
    };
    record_inputs(&[x], describe, compute)
}

/// A tensor cut at one axis: one slab for each index of the dimensions before it, each a matrix of rows of `inner` elements.
#[derive(Clone, Copy)]
struct Slabs {
    axis: usize,
    count: usize,
    inner: usize,
}

impl Slabs {
    fn new(dims: &[usize], axis: usize) -> Self {
        Self { axis, count: dims[..axis].iter().product(), inner: dims[axis + 1..].iter().product() }
    }

    /// Returns slab `i` of an array with any strides, copied if the dimensions after the axis cannot be joined.
    fn slab(&self, x: &Array, i: usize) -> Result<Array> {
        let (mut part, mut rest, mut slabs) = (x.clone(), i, self.count);
        for _ in 0..self.axis {
            slabs /= part.dims()[0];
            part = part.select(0, rest / slabs)?;
            rest %= slabs;
        }
        part.reshape(&[part.dims()[0], self.inner])
    }
}

struct IndexSelectBackward {
    slabs: Slabs,
    dims: Dims,
}

impl Function for IndexSelectBackward {
    fn name(&self) -> &'static str {
        "IndexSelectBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let indices = saved.get(0)?.contiguous()?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("index_select_backward");
        let out = context::within("new_empty", || Array::empty(grad.device(), &self.dims, grad.dtype()))?;
        for i in 0..self.slabs.count {
            let (src, into) = (self.slabs.slab(grad, i)?, self.slabs.slab(&out, i)?);
            out.device().launch(ScatterAdd {
                accumulate: false,
                padding_index: None,
                src: src.operand(),
                indices: indices.operand(),
                out: into.operand(),
            })?;
        }
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
