//! Reorders elements, chooses them by index, or sums them up along an axis. Values are computed on the host.

use smallvec::smallvec;

use super::autocast::full_type;
use super::embedding_temporaries as temporaries;
use super::on_host;
use super::reduce::check_axis;
use super::shape::Dims;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Reverses the elements along `axes`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn flip(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_for_each(|&axis| check_axis("flip", x, axis))?;
    let y = context::within("flip>empty_like", || flipped(x.array(), axes))?;
    record(y, &[x], |_| Ok(Box::new(FlipBackward { axes: axes.into() })))
}

fn flipped(x: &Array, axes: &[usize]) -> Result<Array> {
    let y = Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype())?;
    let rows = Layout::contiguous(x.dims())?;
    on_host::apply(&y, x, &|i, tell| {
        let place = |(axis, (&dim, &stride)): (usize, (&usize, &usize))| {
            let at = i / stride % dim;
            (if axes.contains(&axis) { dim - 1 - at } else { at }) * stride
        };
        tell(rows.dims().iter().zip(rows.strides()).enumerate().map(place).sum(), 1.0);
    })?;
    Ok(y)
}

struct FlipBackward {
    axes: Dims,
}

impl Function for FlipBackward {
    fn name(&self) -> &'static str {
        "FlipBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("flip>empty_like", || flipped(grad, &self.axes))?)])
    }
}

/// Turns by 90 degrees from the first of two axes to the second, `turns` times, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for axes that do not exist or are the same one; errors of the device.
pub fn rot90(x: &Tensor, turns: i64, axes: [usize; 2]) -> Result<Tensor> {
    axes.iter().try_for_each(|&axis| check_axis("rot90", x, axis))?;
    if axes[0] == axes[1] {
        return Err(Error::shape("rot90", format!("axes {axes:?}")));
    }
    let y = context::within("rot90", || turned(x.array(), turns, axes))?;
    record(y, &[x], |_| Ok(Box::new(Rot90Backward { turns, axes })))
}

fn turned(x: &Array, turns: i64, [from, to]: [usize; 2]) -> Result<Array> {
    match turns.rem_euclid(4) {
        0 => x.copied(),
        1 => flipped(x, &[to])?.transpose(from, to).map(Array::keeping_base),
        2 => flipped(x, &[from, to]),
        _ => flipped(x, &[from])?.transpose(from, to).map(Array::keeping_base),
    }
}

struct Rot90Backward {
    turns: i64,
    axes: [usize; 2],
}

impl Function for Rot90Backward {
    fn name(&self) -> &'static str {
        "Rot90Backward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("rot90", || turned(grad, -self.turns, self.axes))?)])
    }
}

/// Rearranges `[n, c·r², h, w]` to `[n, c, h·r, w·r]`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for other dimensions, or channels that `r²` does not divide; errors of the device.
pub fn pixel_shuffle(x: &Tensor, r: usize) -> Result<Tensor> {
    let [_, channels, _, _] = *x.dims() else {
        return Err(Error::shape("pixel_shuffle", format!("{:?}: expected four dimensions", x.dims())));
    };
    if r == 0 || !channels.is_multiple_of(r * r) {
        return Err(Error::shape("pixel_shuffle", format!("{channels} channels by {r}")));
    }
    let y = context::within("pixel_shuffle>clone", || shuffled(x.array(), r))?;
    record(y, &[x], |_| Ok(Box::new(PixelBackward { shuffled: true, r })))
}

/// Rearranges `[n, c, h·r, w·r]` to `[n, c·r², h, w]`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for other dimensions, or sizes that `r` does not divide; errors of the device.
pub fn pixel_unshuffle(x: &Tensor, r: usize) -> Result<Tensor> {
    let [_, _, h, w] = *x.dims() else {
        return Err(Error::shape("pixel_unshuffle", format!("{:?}: expected four dimensions", x.dims())));
    };
    if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
        return Err(Error::shape("pixel_unshuffle", format!("{h} × {w} by {r}")));
    }
    let y = context::within("pixel_unshuffle>clone", || unshuffled(x.array(), r))?;
    record(y, &[x], |_| Ok(Box::new(PixelBackward { shuffled: false, r })))
}

/// `[n, c·r², h, w]` as `[n, c, h·r, w·r]`.
fn shuffled(x: &Array, r: usize) -> Result<Array> {
    let (n, c, h, w) = (x.dims()[0], x.dims()[1] / (r * r), x.dims()[2], x.dims()[3]);
    let y = Array::empty(x.device(), &[n, c, h * r, w * r], x.dtype())?;
    y.view(&[n, c, h, r, w, r])?.copy_(&x.reshape(&[n, c, r, r, h, w])?.permute(&[0, 1, 4, 2, 5, 3])?)?;
    Ok(y)
}

/// `[n, c, h·r, w·r]` as `[n, c·r², h, w]`.
fn unshuffled(x: &Array, r: usize) -> Result<Array> {
    let (n, c, h, w) = (x.dims()[0], x.dims()[1], x.dims()[2] / r, x.dims()[3] / r);
    let y = Array::empty(x.device(), &[n, c * r * r, h, w], x.dtype())?;
    y.view(&[n, c, r, r, h, w])?.copy_(&x.reshape(&[n, c, h, r, w, r])?.permute(&[0, 1, 3, 5, 2, 4])?)?;
    Ok(y)
}

struct PixelBackward {
    /// True if the pixels were shuffled, false if they were put back.
    shuffled: bool,
    r: usize,
}

impl Function for PixelBackward {
    fn name(&self) -> &'static str {
        if self.shuffled { "PixelShuffleBackward0" } else { "PixelUnshuffleBackward0" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(if self.shuffled {
            context::within("pixel_unshuffle>clone", || unshuffled(grad, self.r))?
        } else {
            context::within("pixel_shuffle>clone", || shuffled(grad, self.r))?
        })])
    }
}

/// Returns for each place the element along `axis` that `index` names (i64, as many dimensions as `x`, and no larger in the others). Saves
/// the indices, and its input as PyTorch does, which needs only the sizes.
///
/// # Errors
/// [`Error::Shape`] if they do not fit, or for an index that does not exist; errors of the device.
pub fn gather(x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
    check_axis("gather", x, axis)?;
    let smaller = |(i, (&of, &in_x)): (usize, (&usize, &usize))| i == axis || of <= in_x;
    let fits = index.rank() == x.rank() && index.dims().iter().zip(x.dims()).enumerate().all(smaller);
    if !fits || index.dtype() != DType::I64 {
        return Err(Error::shape("gather", format!("{:?} by {} {:?}", x.dims(), index.dtype(), index.dims())));
    }
    let places = Places { axis, dims: x.dims().into(), taken: index.dims().into() };
    let describe = |saved: &mut crate::autograd::Recorder| {
        saved.save("index", index.array())?;
        saved.save("self", x.array())?;
        let (name, made_by) = ("GatherBackward0", "gather_backward>new_zeros>new_empty");
        Ok::<Box<dyn Function>, Error>(Box::new(ChosenBackward { name, made_by, places: places.clone() }))
    };
    record_inputs(&[x], describe, || {
        let _op = context::op("gather");
        let y = Array::empty(x.device(), index.dims(), x.dtype())?;
        places.fill(&y, x.array(), index.array())?;
        Ok(y)
    })
}

/// Positions of the elements that indices along an axis name.
#[derive(Clone)]
pub(super) struct Places {
    pub axis: usize,
    /// Sizes of the tensor that is read.
    pub dims: Dims,
    /// Sizes of the index.
    pub taken: Dims,
}

impl Places {
    /// Fills `y` with the elements of `x` that `indices` name.
    pub(super) fn fill(&self, y: &Array, x: &Array, indices: &Array) -> Result<()> {
        on_host::fill(y, &[x, indices], |values| {
            (0..y.numel()).map(|i| Ok(values[0][self.of(i, values[1][i])?])).collect()
        })
    }

    /// Returns the sums of the gradients at the places that `indices` name.
    pub(super) fn sums(&self, grads: &[f64], indices: &[f64]) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; self.dims.iter().product()];
        for (i, grad) in grads.iter().enumerate() {
            sums[self.of(i, indices[i])?] += grad;
        }
        Ok(sums)
    }

    /// Returns the position of element number `i` of the index, which names `number` along the axis.
    pub(super) fn of(&self, i: usize, number: f64) -> Result<usize> {
        let size = self.dims[self.axis];
        if !(0.0..size as f64).contains(&number) {
            return Err(Error::shape("gather", format!("index {number} of {size}")));
        }
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for (axis, (&size, &taken)) in self.dims.iter().zip(&self.taken).enumerate().rev() {
            at += step * if axis == self.axis { number as usize } else { rest % taken };
            rest /= taken;
            step *= size;
        }
        Ok(at)
    }
}

/// Backward of elements that were chosen along an axis: they get their gradients, the others 0. The first saved array has their indices.
pub(super) struct ChosenBackward {
    pub name: &'static str,
    /// The operator that makes the gradient's memory.
    pub made_by: &'static str,
    pub places: Places,
}

impl Function for ChosenBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let indices = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.made_by);
        let out = Array::zeros(grad.device(), &self.places.dims, grad.dtype())?;
        on_host::fill(&out, &[grad, &indices], |values| self.places.sums(&values[0], &values[1]))?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// Cumulative sum along `axis`, of floats in their own type, under autocast in float32. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn cumsum(x: &Tensor, axis: usize) -> Result<Tensor> {
    check_axis("cumsum", x, axis)?;
    let y = context::within("cumsum", || running(x.array(), axis, full_type(x.dtype())))?;
    record(y, &[x], |_| Ok(Box::new(CumsumBackward { axis, input: x.dtype() })))
}

/// Cumulative sum along `axis` in a whole type, without history: of whole numbers, masks, or floats.
///
/// # Errors
/// As [`cumsum`]; [`Error::Invalid`] for another type than i32 and i64.
pub fn cumsum_whole(x: &Tensor, axis: usize, dtype: DType) -> Result<Tensor> {
    check_axis("cumsum", x, axis)?;
    if !matches!(dtype, DType::I32 | DType::I64) {
        return Err(Error::invalid("cumsum", format!("of {} into {dtype} is not represented", x.dtype())));
    }
    Ok(Tensor::from_array(context::within("cumsum", || running(x.array(), axis, dtype))?))
}

/// Sums the elements up to each place. PyTorch converts the elements to another type first, and sums one long row with scratch.
fn running(x: &Array, axis: usize, dtype: DType) -> Result<Array> {
    let y = Array::empty(x.device(), x.dims(), dtype)?;
    let converted = if x.dtype() == dtype {
        None
    } else {
        Some(context::within("to>_to_copy", || Array::empty(x.device(), x.dims(), dtype))?)
    };
    scratch_of_row(&y, axis)?;
    drop(converted);
    fill_sums(&y, x, axis, false)?;
    Ok(y)
}

/// Allocates the scratch of sums over one row that is the whole array.
fn scratch_of_row(y: &Array, axis: usize) -> Result<()> {
    let profile = y.device().profile();
    if !profile.torch_temporaries || y.numel() != y.dims()[axis] || y.numel() == 0 {
        return Ok(());
    }
    let bytes = temporaries::running_sums(y.numel(), y.dtype(), profile.index_sort);
    drop(Array::empty(y.device(), &[bytes], DType::U8)?);
    Ok(())
}

/// Fills `y` with the sums of the elements up to each place, or from each place on.
fn fill_sums(y: &Array, x: &Array, axis: usize, from_there: bool) -> Result<()> {
    let (size, inner) = (x.dims()[axis], x.dims()[axis + 1..].iter().product::<usize>());
    on_host::apply(y, x, &|i, tell| {
        let at = i / inner % size;
        let places = if from_there { at..size } else { 0..at + 1 };
        places.for_each(|place| tell(i + place * inner - at * inner, 1.0));
    })
}

struct CumsumBackward {
    axis: usize,
    /// Type of the input, and so of its gradient.
    input: DType,
}

impl Function for CumsumBackward {
    fn name(&self) -> &'static str {
        "CumsumBackward0"
    }

    /// PyTorch flips the gradient, takes its cumulative sum, and flips it back.
    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let grad = &context::within("to>_to_copy", || grad.cast(self.input))?;
        let like = |op| context::within(op, || Array::empty(grad.device(), grad.dims(), grad.dtype()));
        if !grad.device().profile().torch_temporaries {
            let out = like("cumsum")?;
            fill_sums(&out, grad, self.axis, true)?;
            return Ok(smallvec![Some(out)]);
        }
        let turned = like("flip>empty_like")?;
        let sums = like("cumsum")?;
        context::within("cumsum", || scratch_of_row(&sums, self.axis))?;
        let out = like("flip>empty_like")?;
        fill_sums(&out, grad, self.axis, true)?;
        drop(sums);
        drop(turned);
        Ok(smallvec![Some(out)])
    }
}
