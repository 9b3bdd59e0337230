//! Indexing by vectors of numbers, one for each of the first dimensions.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

type Dims = SmallVec<[usize; 6]>;

/// Up to so many indices the temporaries of [`index_each`]'s gradient are recorded.
#[doc(hidden)]
pub const MAX_EACH: usize = 2048;

/// `x[first]` or `x[first, second]`: with indices `[n]` (i64) into the first dimension, or the first two, `[n, ..rest]`. Saves the indices.
///
/// The gradient is dense, of `x`'s size; indices that occur twice add up. PyTorch sorts the linear indices, with the temporaries that this
/// implies; those are recorded for up to [`MAX_EACH`] indices.
///
/// # Errors
/// [`Error::Shape`] for other than one or two vectors of one length, more than `x` has dimensions, or an index outside `x`; those of the device.
pub fn index_each(x: &Tensor, indices: &[&Tensor]) -> Result<Tensor> {
    let n = indices.first().map_or(0, |first| first.numel());
    let fits = matches!(indices.len(), 1 | 2) && indices.len() <= x.rank();
    if !fits || indices.iter().any(|index| index.dims() != [n] || index.dtype() != DType::I64) {
        return Err(Error::shape("index", format!("{:?} by {} vectors of indices", x.dims(), indices.len())));
    }
    let dims: Dims = std::iter::once(n).chain(x.dims()[indices.len()..].iter().copied()).collect();
    let vectors: SmallVec<[&Array; 2]> = indices.iter().map(|index| index.array()).collect();
    let compute = || {
        let _op = context::op("index");
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        for (i, part) in parts(x.array(), &vectors)?.into_iter().enumerate() {
            y.select(0, i)?.copy_(&part)?;
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

/// What the indices name, one part for each; none on a device that computes nothing.
fn parts(x: &Array, vectors: &[&Array]) -> Result<Vec<Array>> {
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
            sorted(&vectors[0], self.vectors)?;
        }
        let vectors: SmallVec<[&Array; 2]> = vectors.iter().collect();
        for (i, part) in parts(&out, &vectors)?.into_iter().enumerate() {
            part.add_(&grad.select(0, i)?)?;
        }
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// What `_index_put_impl_` makes to add up: the linear indices, of each vector's remainders and products; then these sorted, and where each was.
fn sorted(like: &Array, vectors: usize) -> Result<()> {
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
    let keys = words("_index_put_impl_")?;
    let origins = words("_index_put_impl_")?;
    let range = words("_index_put_impl_>resize_")?;
    {
        // So few are sorted by one block, which needs no scratch; a scratch of nothing is one byte.
        let _op = context::op("_index_put_impl_");
        Array::empty(like.device(), &[1], DType::U8)?;
    }
    drop((range, origins, keys, linear));
    Ok(())
}
