//! Elements or slices that are written, or added, to places that indices name. Values are computed on the host.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::reduce::sums_and_extremes::check_axis;
use crate::ops::shape::view::Dims;

/// Which elements of the source go where.
#[derive(Clone)]
struct Places {
    op: &'static str,
    axis: usize,
    /// Sizes of the tensor that is written to.
    dims: Dims,
    /// Sizes of the index of single elements; of a slice, those of the source.
    taken: Dims,
    /// True if each number of the index names one element, false if it names a whole slice.
    each: bool,
}

impl Places {
    /// Places of single elements: `x[…, index[…], …] = src`.
    fn of_elements(op: &'static str, x: &Tensor, axis: usize, index: &Tensor, src: Option<&Tensor>) -> Result<Self> {
        check_axis(op, x, axis)?;
        let fits = |other: &[usize], but_axis: bool| {
            let smaller = |(i, (&of, &there)): (usize, (&usize, &usize))| (but_axis && i == axis) || of <= there;
            index.rank() == other.len() && index.dims().iter().zip(other).enumerate().all(smaller)
        };
        let fit = fits(x.dims(), true) && src.is_none_or(|src| fits(src.dims(), false) && src.dtype() == x.dtype());
        if !fit || index.dtype() != DType::I64 {
            return Err(Error::shape(op, format!("{:?} by {} {:?}", x.dims(), index.dtype(), index.dims())));
        }
        Ok(Self { op, axis, dims: x.dims().into(), taken: index.dims().into(), each: true })
    }

    /// Places of slices along an axis: `x[:, index] = src`.
    fn of_slices(op: &'static str, x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Self> {
        check_axis(op, x, axis)?;
        let mut taken: Dims = x.dims().into();
        taken[axis] = index.numel();
        if index.rank() != 1 || index.dtype() != DType::I64 || src.dims() != &taken[..] || src.dtype() != x.dtype() {
            let detail = format!("{:?} by {} {:?} from {:?}", x.dims(), index.dtype(), index.dims(), src.dims());
            return Err(Error::shape(op, detail));
        }
        Ok(Self { op, axis, dims: x.dims().into(), taken, each: false })
    }

    /// Returns the number of elements that are written.
    fn count(&self) -> usize {
        self.taken.iter().product()
    }

    /// Returns the place of the `i`-th written element in the tensor, and in a source of these sizes.
    fn places(&self, i: usize, indices: &[f64], source: &[usize]) -> Result<[usize; 2]> {
        let (mut rest, mut at, mut step, mut from, mut source_step) = (i, 0, 1, 0, 1);
        for axis in (0..self.dims.len()).rev() {
            let place = rest % self.taken[axis];
            rest /= self.taken[axis];
            let target =
                if axis == self.axis { self.named(indices[if self.each { i } else { place }])? } else { place };
            at += step * target;
            step *= self.dims[axis];
            from += source_step * place;
            source_step *= source[axis];
        }
        Ok([at, from])
    }

    fn named(&self, number: f64) -> Result<usize> {
        let size = self.dims[self.axis];
        if (0.0..size as f64).contains(&number) {
            return Ok(number as usize);
        }
        Err(Error::shape(self.op, format!("index {number} of {size}")))
    }

    /// Writes into `out`, which has the values before: `written(former value, source element)` at each place.
    fn write(&self, out: &Array, index: &Array, src: Option<&Array>, written: impl Fn(f64, f64) -> f64) -> Result<()> {
        let dims: Dims = src.map_or_else(|| self.taken.clone(), |src| src.dims().into());
        let inputs: SmallVec<[&Array; 3]> = [out, index].into_iter().chain(src).collect();
        on_host::fill(out, &inputs, |values| {
            let mut after = values[0].clone();
            for i in 0..self.count() {
                let [at, from] = self.places(i, &values[1], &dims)?;
                after[at] = written(after[at], values.get(2).map_or(0.0, |src| src[from]));
            }
            Ok(after)
        })
    }

    /// Returns the gradient of what is written to: that of the result, with zeros where elements were replaced.
    fn of_target(&self, op: &'static str, kind: Kind, grad: &Array, index: &Array) -> Result<Array> {
        match kind {
            Kind::Added => Ok(grad.clone()),
            Kind::Replaced => context::within(op, || {
                let kept = grad.copied()?;
                self.write(&kept, index, None, |_, _| 0.0)?;
                Ok(kept)
            }),
        }
    }

    /// Fills `out` with the elements of `x` at the places.
    fn read(&self, out: &Array, index: &Array, x: &Array) -> Result<()> {
        let dims: Dims = out.dims().into();
        on_host::fill(out, &[x, index], |values| {
            let mut read = vec![0.0; out.numel()];
            for i in 0..self.count() {
                let [at, from] = self.places(i, &values[1], &dims)?;
                read[from] = values[0][at];
            }
            Ok(read)
        })
    }
}

/// What happens at the places.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Replaced,
    Added,
}

/// Returns where the result lies: in the memory of `x`, or in a copy that the operator makes.
fn target(x: &Tensor, op: &'static str, in_place: bool) -> Result<Array> {
    if in_place {
        x.may_change_in_place(op)?;
        return Ok(x.array().clone());
    }
    let out = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
    out.copy_(x.array())?;
    Ok(out)
}

/// A copy of `x` where the elements that `index` (i64) names along `axis` are those of `src`: `x[i][index[i][j]] = src[i][j]` for axis 1. Saves the
/// index.
///
/// # Errors
/// [`Error::Shape`] if they do not fit, or for an index that does not exist; errors of the device.
pub fn scatter(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    elements("scatter", Kind::Replaced, [x, index, src], axis, false)
}

/// As [`scatter`], with one number for all named elements.
pub fn scatter_value(x: &Tensor, axis: usize, index: &Tensor, value: f64) -> Result<Tensor> {
    let places = Places::of_elements("scatter", x, axis, index, None)?;
    let y = context::within("scatter", || target(x, "scatter", false))?;
    places.write(&y, index.array(), None, |_, _| value)?;
    record(y, &[x], |saved| {
        saved.save("index", index.array())?;
        Ok(Box::new(ScatterBackward { name: "ScatterBackward1", places, kind: Kind::Replaced, source: Dims::new() }))
    })
}

/// As [`scatter`], added to what is there.
pub fn scatter_add(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    elements("scatter_add", Kind::Added, [x, index, src], axis, false)
}

/// [`scatter_add`] in the memory of `x`. Use only the returned tensor afterwards, not `x`.
///
/// # Errors
/// As [`scatter`], and [`Error::Invalid`] for a leaf that requires a gradient.
pub fn scatter_add_(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    elements("scatter_add_", Kind::Added, [x, index, src], axis, true)
}

fn elements(
    op: &'static str,
    kind: Kind,
    [x, index, src]: [&Tensor; 3],
    axis: usize,
    in_place: bool,
) -> Result<Tensor> {
    let places = Places::of_elements(op, x, axis, index, Some(src))?;
    let y = context::within(op, || target(x, op, in_place))?;
    places.write(&y, index.array(), Some(src.array()), move |before, new| match kind {
        Kind::Replaced => new,
        Kind::Added => before + new,
    })?;
    let name = if kind == Kind::Added { "ScatterAddBackward0" } else { "ScatterBackward0" };
    record(y, &[x, src], |saved| {
        saved.save("index", index.array())?;
        Ok(Box::new(ScatterBackward { name, places, kind, source: src.dims().into() }))
    })
}

/// Backward of elements that were written.
struct ScatterBackward {
    name: &'static str,
    places: Places,
    kind: Kind,
    /// Sizes of the source.
    source: Dims,
}

impl Function for ScatterBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The source gets the gradient at its places.
    fn backward(&self, mut grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let index = saved.get(0)?;
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            out[0] = Some(self.places.of_target("scatter", self.kind, &grad, &index)?);
        }
        if needs.input(1) {
            // PyTorch gathers by the index; a larger source has no gradient beyond it, and is refused in PyTorch.
            if self.source != self.places.taken {
                return Err(Error::shape(self.places.op, "the gradient of a source larger than the index"));
            }
            let read = context::within("gather", || Array::empty(grad.device(), &self.places.taken, grad.dtype()))?;
            self.places.read(&read, &index, &grad)?;
            out[1] = Some(read);
        }
        saved.done();
        Ok(out)
    }
}

/// A copy of `x` with `alpha·src` added to the slices along `axis` that `index` (i64) names; a slice that is named twice gets both. Saves the index, and
/// keeps the source alive as PyTorch does.
///
/// # Errors
/// As [`scatter`].
pub fn index_add(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor, alpha: f64) -> Result<Tensor> {
    slices("index_add", Kind::Added, [x, index, src], axis, alpha, false)
}

/// [`index_add`] in the memory of `x`. Use only the returned tensor afterwards, not `x`.
///
/// # Errors
/// As [`scatter_add_`].
pub fn index_add_(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor, alpha: f64) -> Result<Tensor> {
    slices("index_add_", Kind::Added, [x, index, src], axis, alpha, true)
}

/// A copy of `x` whose slices along `axis` that `index` (i64) names are those of `src`. Saves the index, and keeps the source alive as PyTorch does.
///
/// # Errors
/// As [`scatter`].
pub fn index_copy(x: &Tensor, axis: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    slices("index_copy", Kind::Replaced, [x, index, src], axis, 1.0, false)
}

fn slices(
    op: &'static str,
    kind: Kind,
    [x, index, src]: [&Tensor; 3],
    axis: usize,
    alpha: f64,
    in_place: bool,
) -> Result<Tensor> {
    let places = Places::of_slices(op, x, axis, index, src)?;
    let y = context::within(op, || target(x, op, in_place))?;
    places.write(&y, index.array(), Some(src.array()), move |before, new| match kind {
        Kind::Replaced => new,
        Kind::Added => before + alpha * new,
    })?;
    record(y, &[x, src], |saved| {
        saved.save("index", index.array())?;
        if src.requires_grad() {
            saved.save("source", src.array())?;
        }
        Ok(Box::new(SlicesBackward { places, kind, alpha }))
    })
}

/// Backward of slices that were written.
struct SlicesBackward {
    places: Places,
    kind: Kind,
    alpha: f64,
}

impl Function for SlicesBackward {
    fn name(&self) -> &'static str {
        if self.kind == Kind::Added { "IndexAddBackward0" } else { "IndexCopyBackward0" }
    }

    fn backward(&self, mut grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let index = saved.get(0)?;
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            out[0] = Some(self.places.of_target("index_fill>clone", self.kind, &grad, &index)?);
        }
        if needs.input(1) {
            let read = context::within("index_select>resize_", || {
                Array::empty(grad.device(), &self.places.taken, grad.dtype())
            })?;
            self.places.read(&read, &index, &grad)?;
            out[1] =
                Some(if self.alpha == 1.0 { read } else { context::within("mul", || read.affine(self.alpha, 0.0))? });
        }
        saved.done();
        Ok(out)
    }
}

/// A copy of `x` whose rows, along the first axis, that `index` (i64) names are those of `src`. Saves the index. It is [`index_copy`] as PyTorch's
/// indexing makes it.
///
/// # Errors
/// As [`scatter`].
pub fn index_put(x: &Tensor, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    rows_put("index_put>clone", [x, index, src], false)
}

/// [`index_put`] in the memory of `x`: `x[index] = src`. Use only the returned tensor afterwards, not `x`.
///
/// # Errors
/// As [`scatter_add_`].
pub fn index_put_(x: &Tensor, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    rows_put("index_put_", [x, index, src], true)
}

fn rows_put(op: &'static str, [x, index, src]: [&Tensor; 3], in_place: bool) -> Result<Tensor> {
    let places = Places::of_slices("index_put", x, 0, index, src)?;
    let y = context::within(op, || target(x, op, in_place))?;
    places.write(&y, index.array(), Some(src.array()), |_, new| new)?;
    record(y, &[x, src], |saved| {
        saved.save("indices", index.array())?;
        Ok(Box::new(RowsBackward { places }))
    })
}

/// Backward of rows that were put.
struct RowsBackward {
    places: Places,
}

impl Function for RowsBackward {
    fn name(&self) -> &'static str {
        "IndexPutBackward0"
    }

    fn backward(&self, mut grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let index = saved.get(0)?;
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let of_rows = |op| context::within(op, || Array::empty(grad.device(), &self.places.taken, grad.dtype()));
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let zeros = if grad.device().profile().torch_temporaries { Some(of_rows("zeros")?) } else { None };
            let kept = context::within("index_put>clone", || grad.copied())?;
            self.places.write(&kept, &index, None, |_, _| 0.0)?;
            drop(zeros);
            out[0] = Some(kept);
        }
        if needs.input(1) {
            let read = of_rows("index")?;
            self.places.read(&read, &index, &grad)?;
            out[1] = Some(read);
        }
        saved.done();
        Ok(out)
    }
}
