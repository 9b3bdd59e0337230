//! Elements that indices along an axis name. Values are computed on the host.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::reduce::sums_and_extremes::check_axis;
use crate::ops::shape::view::Dims;

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
    let describe = |saved: &mut Recorder| {
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
pub(in crate::ops) struct Places {
    pub axis: usize,
    /// Sizes of the tensor that is read.
    pub dims: Dims,
    /// Sizes of the index.
    pub taken: Dims,
}

impl Places {
    /// Fills `y` with the elements of `x` that `indices` name.
    pub(in crate::ops) fn fill(&self, y: &Array, x: &Array, indices: &Array) -> Result<()> {
        on_host::fill(y, &[x, indices], |values| {
            (0..y.numel()).map(|i| Ok(values[0][self.position(i, values[1][i])?])).collect()
        })
    }

    /// Returns the sums of the gradients at the places that `indices` name.
    pub(in crate::ops) fn sums(&self, grads: &[f64], indices: &[f64]) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; self.dims.iter().product()];
        for (i, grad) in grads.iter().enumerate() {
            sums[self.position(i, indices[i])?] += grad;
        }
        Ok(sums)
    }

    /// Returns the position of element number `i` of the index, which names `number` along the axis.
    pub(in crate::ops) fn position(&self, i: usize, number: f64) -> Result<usize> {
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
pub(in crate::ops) struct ChosenBackward {
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
