//! Products and extremes of the elements up to each place along an axis. Values are computed on the host.

use smallvec::smallvec;

use super::sums_and_extremes::check_axis;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full_type;
use crate::ops::index::gather::{ChosenBackward, Places};
use crate::ops::on_host;

/// The elements that share all places with element `i` but that along `axis`, as positions.
fn line(dims: &[usize], axis: usize, i: usize) -> impl Iterator<Item = usize> + use<> {
    let (size, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let start = i / (size * inner) * size * inner + i % inner;
    (0..size).map(move |at| start + at * inner)
}

/// Returns a value for each element, from the value of the one before it along `axis`, if there is one, and from its position.
fn running(dims: &[usize], axis: usize, of: impl Fn(Option<f64>, usize) -> f64) -> Vec<f64> {
    let (size, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let mut out: Vec<f64> = Vec::new();
    for i in 0..dims.iter().product() {
        let before = (i / inner % size > 0).then(|| out[i - inner]);
        out.push(of(before, i));
    }
    out
}

/// Product of the elements up to each place along `axis`, of floats. Saves its input and its result.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist, [`Error::Invalid`] for one that is all of the array, for other than floats, and for 16 bits under
/// autocast, which are not supported; errors of the device.
pub fn cumprod(x: &Tensor, axis: usize) -> Result<Tensor> {
    check_axis("cumprod", x, axis)?;
    if !x.dtype().is_float() || x.numel() == x.dims()[axis] {
        return Err(Error::invalid("cumprod", "of whole numbers, or along all elements, is not supported"));
    }
    if full_type(x.dtype()) != x.dtype() {
        return Err(Error::invalid("cumprod", format!("of {} under autocast is not supported", x.dtype())));
    }
    let _op = context::op("cumprod");
    let y = Array::empty(x.device(), x.dims(), x.dtype())?;
    // The scan reads contiguous elements.
    drop(x.array().contiguous()?);
    on_host::fill(&y, &[x.array()], |values| {
        Ok(running(x.dims(), axis, |before, i| before.unwrap_or(1.0) * values[0][i]))
    })?;
    record(y.clone(), &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("result", &y)?;
        Ok(Box::new(CumprodBackward { axis }))
    })
}

struct CumprodBackward {
    axis: usize,
}

impl Function for CumprodBackward {
    fn name(&self) -> &'static str {
        "CumprodBackward0"
    }

    /// The sums from each place on of `result · grad`, divided by the input. PyTorch asks whether an element is zero, and computes otherwise where one
    /// is; it assumes that no element is zero.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, y) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let made = |op, dims: &[usize], dtype| context::within(op, || Array::empty(x.device(), dims, dtype));
        let like = |op| made(op, x.dims(), x.dtype());
        let torch = x.device().profile().torch_temporaries;
        let mut kept = Vec::new();
        if torch {
            kept.push(like("mul")?);
            kept.push(made("eq", x.dims(), DType::Bool)?);
            drop(made("any", &[], DType::Bool)?);
            let turned = like("flip>empty_like")?;
            let sums = like("cumsum")?;
            kept.push(like("flip>empty_like")?);
            drop(sums);
            drop(turned);
        }
        let out = like("div")?;
        on_host::fill(&out, &[&x, &y, grad], |values| {
            let product = |at: usize| values[1][at] * values[2][at];
            let inner: usize = x.dims()[self.axis + 1..].iter().product();
            let of = |i: usize| {
                let from = i / inner % x.dims()[self.axis];
                // The product without this element, whatever it is.
                let of_others = |to: usize| {
                    let places = line(x.dims(), self.axis, i).take(to + 1).enumerate();
                    places.filter(|(at, _)| *at != from).map(|(_, at)| values[0][at]).product::<f64>()
                };
                if values[0][i] == 0.0 {
                    let after = line(x.dims(), self.axis, i).enumerate().skip(from);
                    return after.map(|(to, at)| values[2][at] * of_others(to)).sum();
                }
                line(x.dims(), self.axis, i).skip(from).map(product).sum::<f64>() / values[0][i]
            };
            Ok((0..out.numel()).map(of).collect())
        })?;
        // The quotient is made before what it is made of is freed.
        while kept.pop().is_some() {}
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// The largest element up to each place along `axis`, and its place (i64, without history); of equal elements, the last. Saves the places.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; errors of the device.
pub fn cummax(x: &Tensor, axis: usize) -> Result<(Tensor, Tensor)> {
    extremes(x, axis, true)
}

/// The smallest element up to each place along `axis`, as [`cummax`].
///
/// # Errors
/// As [`cummax`].
pub fn cummin(x: &Tensor, axis: usize) -> Result<(Tensor, Tensor)> {
    extremes(x, axis, false)
}

fn extremes(x: &Tensor, axis: usize, largest: bool) -> Result<(Tensor, Tensor)> {
    let (op, name) = if largest { ("cummax", "CummaxBackward0") } else { ("cummin", "CumminBackward0") };
    check_axis(op, x, axis)?;
    let _op = context::op(op);
    let y = Array::empty(x.device(), x.dims(), x.dtype())?;
    let indices = Array::empty(x.device(), x.dims(), DType::I64)?;
    // The scan reads contiguous elements.
    let ordered = x.array().contiguous()?;
    let dims = x.dims();
    on_host::fill(&indices, &[x.array()], |values| {
        let better = |a: f64, b: f64| a == b || a.is_nan() || if largest { a > b } else { a < b };
        let (size, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
        Ok(running(dims, axis, |best, i| {
            let place = i / inner % size;
            let best = best.filter(|&best| !better(values[0][i], values[0][i - (place - best as usize) * inner]));
            best.unwrap_or(place as f64)
        }))
    })?;
    let places = Places { axis, dims: dims.into(), taken: dims.into() };
    places.fill(&y, x.array(), &indices)?;
    drop(ordered);
    let y = record(y, &[x], |saved| {
        saved.save("indices", &indices)?;
        Ok(Box::new(ChosenBackward { name, made_by: "zeros", places }))
    })?;
    Ok((y, Tensor::from_array(indices)))
}
