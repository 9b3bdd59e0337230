//! Indexing by index tensors, one for each of the first dimensions.

use smallvec::{SmallVec, smallvec};

use super::embedding_temporaries as temporaries;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

type Dims = SmallVec<[usize; 6]>;

/// Most indices that one block sorts, without scratch.
#[doc(hidden)]
pub const MAX_EACH: usize = 2048;

/// `x[first]` or `x[first, second]`: with indices (i64, contiguous, of one shape) into the first dimension, or the first two, `[..indices, ..rest]`.
/// Saves the indices.
/// The gradient is dense, of `x`'s size; the gradients of an index that occurs twice are added. PyTorch sorts the linear indices, and the
/// temporaries of the sort are made.
///
/// # Errors
/// [`Error::Shape`] for other than one or two tensors of one shape, more than `x` has dimensions, or an index outside `x`; errors of the device.
pub fn index_each(x: &Tensor, indices: &[&Tensor]) -> Result<Tensor> {
    let shape: Dims = indices.first().map_or(Dims::new(), |first| first.dims().into());
    let fits = matches!(indices.len(), 1 | 2) && indices.len() <= x.rank();
    let wrong = |index: &&Tensor| index.dims() != &shape[..] || index.dtype() != DType::I64;
    if !fits || indices.iter().any(|index| wrong(index) || !index.array().layout().is_contiguous()) {
        return Err(Error::shape("index", format!("{:?} by {} tensors of indices", x.dims(), indices.len())));
    }
    let n = shape.iter().product();
    let rest = &x.dims()[indices.len()..];
    let dims: Dims = shape.iter().chain(rest).copied().collect();
    let vectors: SmallVec<[Array; 2]> = indices.iter().map(|index| index.array().view(&[n])).collect::<Result<_>>()?;
    let compute = || {
        let _op = context::op("index");
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        let rows = y.view(&std::iter::once(n).chain(rest.iter().copied()).collect::<Dims>())?;
        for (i, part) in parts(x.array(), &vectors)?.into_iter().enumerate() {
            rows.select(0, i)?.copy_(&part)?;
        }
        Ok(y)
    };
    let describe = |saved: &mut Recorder| {
        for vector in &vectors {
            saved.save("indices", vector)?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(IndexBackward { dims: x.dims().into(), vectors: indices.len() }))
    };
    record_inputs(&[x], describe, compute)
}

/// Returns the parts that the indices name, in order. Empty on a device that computes nothing.
fn parts(x: &Array, vectors: &[Array]) -> Result<Vec<Array>> {
    if !x.device().computes() {
        return Ok(Vec::new());
    }
    let columns = vectors.iter().map(|vector| vector.to_vec::<i64>()).collect::<Result<Vec<_>>>()?;
    let part = |i: usize| {
        columns.iter().try_fold(x.clone(), |part, column| {
            let size = part.dims()[0];
            let at = usize::try_from(column[i]).ok().filter(|&at| at < size);
            part.select(0, at.ok_or_else(|| Error::shape("index", format!("{} of {size}", column[i])))?)
        })
    };
    (0..vectors[0].numel()).map(part).collect()
}

struct IndexBackward {
    dims: Dims,
    vectors: usize,
}

impl Function for IndexBackward {
    fn name(&self) -> &'static str {
        "IndexBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let vectors = (0..self.vectors).map(|i| saved.get(i)).collect::<Result<SmallVec<[_; 2]>>>()?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = {
            let _op = context::op("new_zeros>new_empty");
            Array::zeros(grad.device(), &self.dims, grad.dtype())?
        };
        if grad.device().profile().torch_temporaries {
            let rest: usize = self.dims[self.vectors..].iter().product();
            let rows = (self.dims.iter().product::<usize>() / rest.max(1)).max(1);
            sorted(&vectors[0], self.vectors, grad, rows)?;
        }
        if grad.device().computes() {
            let n = vectors[0].numel();
            let flat: Dims = std::iter::once(n).chain(self.dims[self.vectors..].iter().copied()).collect();
            let rows = grad.reshape(&flat)?;
            for (i, part) in parts(&out, &vectors)?.into_iter().enumerate() {
                part.add_(&rows.select(0, i)?)?;
            }
        }
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// Allocates the temporaries of `_index_put_impl_` when it accumulates: the linear indices, from remainders and products of each vector, then
/// the sorted indices and their original positions. A gradient that is not contiguous is copied before.
fn sorted(like: &Array, vectors: usize, grad: &Array, rows: usize) -> Result<()> {
    let words = |op: &'static str| {
        let _op = context::op(op);
        like.empty_like()
    };
    let product = || {
        let _remainder = words("_index_put_impl_>remainder")?;
        words("_index_put_impl_>mul")
    };
    let linear = product()?;
    for _ in 1..vectors {
        product()?;
    }
    let copy = if grad.layout().is_contiguous() {
        None
    } else {
        Some(context::within("_index_put_impl_>contiguous>clone", || grad.copied())?)
    };
    let keys = words("_index_put_impl_")?;
    let origins = words("_index_put_impl_")?;
    let range = words("_index_put_impl_>resize_")?;
    {
        // One block sorts a few indices without scratch; an empty scratch takes one byte.
        let sort = like.device().profile().index_sort;
        let n = like.numel();
        let scratch = if n <= MAX_EACH { 1 } else { temporaries::sort_of_needed_bits(n, rows - 1, sort) };
        let _op = context::op("_index_put_impl_");
        Array::empty(like.device(), &[scratch], DType::U8)?;
    }
    drop(range);
    drop((origins, keys));
    drop(copy);
    drop(linear);
    Ok(())
}
