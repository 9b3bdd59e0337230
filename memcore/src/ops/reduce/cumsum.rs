//! Sums of the elements up to each place along an axis. Values are computed on the host.

use smallvec::smallvec;

use super::sums_and_extremes::check_axis;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full_type;
use crate::ops::index::temporaries;
use crate::ops::on_host;

/// Cumulative sum along `axis`, of floats in their own type, under autocast in float32. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn cumsum(x: &Tensor, axis: usize) -> Result<Tensor> {
    check_axis("cumsum", x, axis)?;
    let y = context::within("cumsum", || summed(x.array(), axis, full_type(x.dtype())))?;
    record(y, &[x], |_| Ok(Box::new(CumsumBackward { axis, input: x.dtype() })))
}

/// Cumulative sum along `axis` in a whole type, without history: of whole numbers, masks, or floats.
///
/// # Errors
/// As [`cumsum`]; [`Error::Invalid`] for another type than i32 and i64.
pub fn cumsum_whole(x: &Tensor, axis: usize, dtype: DType) -> Result<Tensor> {
    check_axis("cumsum", x, axis)?;
    if !matches!(dtype, DType::I32 | DType::I64) {
        return Err(Error::invalid("cumsum", format!("of {} into {dtype} is not supported", x.dtype())));
    }
    Ok(Tensor::from_array(context::within("cumsum", || summed(x.array(), axis, dtype))?))
}

/// Sums the elements up to each place. PyTorch converts the elements to another type first, and sums one long row with scratch.
fn summed(x: &Array, axis: usize, dtype: DType) -> Result<Array> {
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
