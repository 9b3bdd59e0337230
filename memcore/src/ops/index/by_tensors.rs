//! Indexing by index tensors, one for each of some dimensions.

use smallvec::{SmallVec, smallvec};

use super::temporaries;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Layout, broadcast_dims};
use crate::profile::IndexSort;

type Dims = SmallVec<[usize; 6]>;

/// Most indices that one block sorts, without scratch: 256 threads take nine each (CUB's `SingleTilePolicy`). Measured with torch 2.11 on compute
/// capabilities 7.5, 8.0, 9.0, 10.0 and 12.0.
#[doc(hidden)]
pub const MAX_EACH: usize = 2304;

/// `x[first]` or `x[first, second]`: [`index_by`] with indices into the first dimensions.
///
/// # Errors
/// As [`index_by`].
pub fn index_each(x: &Tensor, indices: &[&Tensor]) -> Result<Tensor> {
    index_by(x, &indices.iter().map(|index| Some(*index)).collect::<SmallVec<[_; 6]>>())
}

/// `x[:, first, second]`: with indices (i64, broadcast against each other) for dimensions, and `None` for those that are taken whole, as are all that follow.
/// The dimensions of the indices stand where the indexed ones stood if these are next to each other, otherwise first. Saves the indices.
///
/// The gradient is dense, of `x`'s size; the gradients of an index that occurs twice are added. PyTorch sorts the linear indices, and the
/// temporaries of the sort are made.
///
/// # Errors
/// [`Error::Shape`] without indices, for more than `x` has dimensions, those of another type than i64 or that do not fit together, or an index
/// outside `x`; errors of the device.
pub fn index_by(x: &Tensor, indices: &[Option<&Tensor>]) -> Result<Tensor> {
    let places = Places::new(x, indices)?;
    let wide = indices.iter().flatten().map(|index| index.array().broadcast_to(&places.shape));
    let wide: SmallVec<[Array; 2]> = wide.collect::<Result<_>>()?;
    let compute = || {
        let _op = context::op("index");
        let ordered = in_order(&wide)?;
        let y = places.result(x.array(), ordered.as_deref().unwrap_or(&wide))?;
        if x.device().computes() {
            let (source, into) = (x.array().permute(&places.front)?, y.permute(&places.front_of_result())?);
            let columns = numbers(&wide)?;
            for i in 0..places.count() {
                places.chosen(&into, i)?.copy_(&places.named(&source, &columns, i)?)?;
            }
        }
        Ok(y)
    };
    let describe = |saved: &mut Recorder| {
        for index in indices.iter().flatten() {
            saved.save("indices", index.array())?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(IndexBackward { places: places.clone() }))
    };
    record_inputs(&[x], describe, compute)
}

/// Which dimensions are indexed, and where their elements go.
#[derive(Clone)]
struct Places {
    /// Sizes of the tensor that is indexed.
    dims: Dims,
    /// Its dimensions, the indexed ones first.
    front: Dims,
    /// Number of indexed dimensions.
    indexed: usize,
    /// Common sizes of the indices.
    shape: Dims,
    /// Dimensions of the result before those of the indices.
    before: usize,
    /// True if the indexed dimensions are next to each other.
    together: bool,
}

impl Places {
    fn new(x: &Tensor, indices: &[Option<&Tensor>]) -> Result<Self> {
        let wrong = || Error::shape("index", format!("{:?} by {} tensors of indices", x.dims(), indices.len()));
        let is_indexed = |axis: &usize| indices.get(*axis).is_some_and(Option::is_some);
        let mut front: Dims = (0..x.rank()).filter(is_indexed).collect();
        let indexed = front.len();
        if indexed == 0 || indices.len() > x.rank() {
            return Err(wrong());
        }
        let together = front[indexed - 1] - front[0] + 1 == indexed;
        let before = if together { front[0] } else { 0 };
        front.extend((0..x.rank()).filter(|axis| !is_indexed(axis)));
        let mut shape = Dims::new();
        for index in indices.iter().flatten() {
            if index.dtype() != DType::I64 {
                return Err(wrong());
            }
            shape = broadcast_dims(&shape, index.dims())?.into_iter().collect();
        }
        Ok(Self { dims: x.dims().into(), front, indexed, shape, before, together })
    }

    /// Number of indices.
    fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The dimensions that are taken whole.
    fn whole(&self) -> &[usize] {
        &self.front[self.indexed..]
    }

    /// Makes the result, whose memory has the order of the operands': the tensor's, with steps of 0 where it is indexed, then the indices'.
    fn result(&self, x: &Array, indices: &[Array]) -> Result<Array> {
        let (first, last) = self.whole().split_at(self.before);
        let around = |of: &dyn Fn(usize) -> usize, within: &[usize]| -> Dims {
            let first = first.iter().map(|&axis| of(axis));
            first.chain(within.iter().copied()).chain(last.iter().map(|&axis| of(axis))).collect()
        };
        let dims = around(&|axis| self.dims[axis], &self.shape);
        let strided = |strides: &[usize]| Layout::strided(&dims, strides);
        let steps = around(&|axis| x.layout().strides()[axis], &self.shape.iter().map(|_| 0).collect::<Dims>());
        let mut layouts: SmallVec<[Layout; 3]> = smallvec![strided(&steps)?];
        for index in indices {
            layouts.push(strided(&around(&|_| 0, index.layout().strides()))?);
        }
        Array::empty_for(x.device(), &dims, &layouts.iter().collect::<SmallVec<[_; 3]>>(), x.dtype())
    }

    /// The result's dimensions, those of the indices first.
    fn front_of_result(&self) -> Dims {
        let rank = self.shape.len() + self.whole().len();
        let of_indices = self.before..self.before + self.shape.len();
        of_indices.clone().chain((0..rank).filter(|axis| !of_indices.contains(axis))).collect()
    }

    /// Returns the part of a result, with the dimensions of the indices first, that belongs to index number `i`.
    fn chosen(&self, front: &Array, i: usize) -> Result<Array> {
        let (mut part, mut rest, mut count) = (front.clone(), i, self.count());
        for size in &self.shape {
            count /= size;
            part = part.select(0, rest / count)?;
            rest %= count;
        }
        Ok(part)
    }

    /// Returns the part of a tensor, with the indexed dimensions first, that index number `i` names.
    fn named(&self, front: &Array, columns: &[Vec<i64>], i: usize) -> Result<Array> {
        columns.iter().try_fold(front.clone(), |part, column| {
            let size = part.dims()[0];
            let counted = if column[i] < 0 { column[i] + size as i64 } else { column[i] };
            let at = usize::try_from(counted).ok().filter(|&at| at < size);
            part.select(0, at.ok_or_else(|| Error::shape("index", format!("{} of {size}", column[i])))?)
        })
    }
}

/// Reads the indices.
fn numbers(indices: &[Array]) -> Result<Vec<Vec<i64>>> {
    indices.iter().map(|index| index.contiguous()?.to_vec::<i64>()).collect()
}

/// Makes the contiguous copies of indices that PyTorch makes on a GPU if they have different strides.
fn in_order(indices: &[Array]) -> Result<Option<SmallVec<[Array; 2]>>> {
    let strides = |array: &Array| array.layout().strides().to_vec();
    if indices.windows(2).all(|pair| strides(&pair[0]) == strides(&pair[1])) {
        return Ok(None);
    }
    let _op = context::op("contiguous>clone");
    indices.iter().map(Array::contiguous).collect::<Result<_>>().map(Some)
}

struct IndexBackward {
    places: Places,
}

impl Function for IndexBackward {
    fn name(&self) -> &'static str {
        "IndexBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let places = &self.places;
        let indices = (0..places.indexed).map(|i| saved.get(i)).collect::<Result<SmallVec<[_; 2]>>>()?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = {
            let _op = context::op("new_zeros>new_empty");
            Array::zeros(grad.device(), &places.dims, grad.dtype())?
        };
        if grad.device().profile().torch_temporaries {
            sorted(places, grad, &out)?;
        }
        if grad.device().computes() {
            let wide = indices.iter().map(|index| index.broadcast_to(&places.shape));
            let columns = numbers(&wide.collect::<Result<SmallVec<[_; 2]>>>()?)?;
            let (into, source) = (out.permute(&places.front)?, grad.permute(&places.front_of_result())?);
            for i in 0..places.count() {
                places.named(&into, &columns, i)?.add_(&places.chosen(&source, i)?)?;
            }
        }
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// Allocates the temporaries of `_index_put_impl_` when it accumulates: the linear indices, from remainders and products of each vector, then
/// the sorted indices and their original positions. A gradient that is not contiguous is copied before, and so is `out` if the indexed dimensions are
/// not next to each other.
fn sorted(places: &Places, grad: &Array, out: &Array) -> Result<()> {
    let n = places.count();
    let words = |op: &'static str| context::within(op, || Array::empty(grad.device(), &[n], DType::I64));
    let product = || {
        let _remainder = words("_index_put_impl_>remainder")?;
        words("_index_put_impl_>mul")
    };
    let linear = product()?;
    for _ in 1..places.indexed {
        product()?;
    }
    let copied = |x: &Array, needed: bool| {
        let _op = context::op("_index_put_impl_>contiguous>clone");
        if needed { Ok(Some(Array::empty(x.device(), x.dims(), x.dtype())?)) } else { Ok::<_, Error>(None) }
    };
    let copy = copied(grad, !grad.layout().is_contiguous())?;
    let in_front = copied(out, !places.together)?;
    let keys = words("_index_put_impl_")?;
    let origins = words("_index_put_impl_")?;
    let range = words("_index_put_impl_>resize_")?;
    {
        let sort = grad.device().profile().index_sort;
        let slice = if places.together { &places.whole()[places.before..] } else { places.whole() };
        let slice: usize = slice.iter().map(|&axis| places.dims[axis]).product();
        let rows = (places.dims.iter().product::<usize>() / slice.max(1)).max(1);
        let scratch = scratch(n, rows - 1, sort);
        let _op = context::op("_index_put_impl_");
        Array::empty(grad.device(), &[scratch], DType::U8)?;
    }
    drop(range);
    drop((origins, keys));
    drop(in_front);
    drop(copy);
    drop(linear);
    Ok(())
}

/// Bytes of scratch for the sort of `n` indices, each at most `largest`. An empty scratch takes one byte.
fn scratch(n: usize, largest: usize, sort: IndexSort) -> usize {
    if n <= MAX_EACH { 1 } else { temporaries::sort_of_needed_bits(n, largest, sort) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    /// What `index_put_` with `accumulate=True` allocated for its sort among 40 rows; torch 2.11, rounded to 512 bytes.
    #[test]
    fn one_block_sorts_2304_indices_without_scratch() {
        for (sm, recorded) in [
            (75, [512, 512, 3584, 4608, 4608]),
            (80, [512, 512, 3584, 3584, 4608]),
            (90, [512, 512, 3584, 3584, 3584]),
            (100, [512, 512, 3584, 3584, 3584]),
            (120, [512, 512, 3584, 3584, 3584]),
        ] {
            let sort = Profile::torch_2_11(sm).index_sort;
            let ours = [2049, 2304, 2305, 3072, 4096].map(|n| scratch(n, 39, sort).next_multiple_of(512));
            assert_eq!(ours, recorded, "compute capability {sm}");
        }
    }
}
