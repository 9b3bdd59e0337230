//! Variances and standard deviations, alone and with the mean. Values are computed on the host; gradients by kernels.

use smallvec::smallvec;

use super::sums_and_extremes::{check_axis, kept_dims};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, record_many};
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::shape::view::Dims;

/// Bytes of a partial result of PyTorch's kernel: mean, squares and two counts.
const PARTIAL: usize = 16;

/// Variance over `axes` (all axes if there are none), which stay with size 1 if `keepdim`: squares about the mean, over the number of elements
/// less `correction`. Saves its input.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist, [`Error::Invalid`] for whole numbers; errors of the device.
pub fn var(x: &Tensor, axes: &[usize], correction: f64, keepdim: bool) -> Result<Tensor> {
    let spread = Spread::new("var", x, axes, correction, false)?;
    let y = context::within("var", || spread.value(x.array(), keepdim))?;
    record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        Ok(Box::new(SpreadBackward { name: "VarBackward0", spread }))
    })
}

/// Standard deviation, as [`var`]. Saves input and result. Its gradient at 0 is 0.
pub fn std(x: &Tensor, axes: &[usize], correction: f64, keepdim: bool) -> Result<Tensor> {
    let spread = Spread::new("std", x, axes, correction, true)?;
    let y = context::within("std", || spread.value(x.array(), keepdim))?;
    record(y.clone(), &[x], |saved| {
        saved.save("result", &y)?;
        saved.save("self", x.array())?;
        Ok(Box::new(SpreadBackward { name: "StdBackward0", spread }))
    })
}

/// Variance and mean, as [`var`]. Saves its input.
pub fn var_mean(x: &Tensor, axes: &[usize], correction: f64, keepdim: bool) -> Result<[Tensor; 2]> {
    with_mean(x, Spread::new("var_mean", x, axes, correction, false)?, keepdim)
}

/// Standard deviation and mean, as [`std`](fn@std). Saves its input and the deviation.
pub fn std_mean(x: &Tensor, axes: &[usize], correction: f64, keepdim: bool) -> Result<[Tensor; 2]> {
    with_mean(x, Spread::new("std_mean", x, axes, correction, true)?, keepdim)
}

fn with_mean(x: &Tensor, spread: Spread, keepdim: bool) -> Result<[Tensor; 2]> {
    let _op = context::op(if spread.is_root { "std_mean" } else { "var_mean" });
    let (y, mean) = (spread.empty(x.array(), keepdim)?, spread.empty(x.array(), keepdim)?);
    spread.fill(x.array(), &y)?;
    // The kernel makes both: the mean is not a reduction of its own, and takes no temporaries.
    on_host::fill(&mean, &[x.array()], |values| Ok(spread.means(&values[0])))?;
    let name = if spread.is_root { "StdMeanBackward0" } else { "VarMeanBackward0" };
    let outputs = record_many(vec![y.clone(), mean], &[x], |saved| {
        if spread.is_root {
            saved.save("result0", &y)?;
        }
        saved.save("self", x.array())?;
        Ok(Box::new(SpreadBackward { name, spread }))
    })?;
    outputs.try_into().map_err(|_| Error::invalid("var_mean", "without its two results"))
}

/// A measure of how far elements lie apart.
struct Spread {
    axes: Dims,
    dims: Dims,
    /// Elements of a group, less the correction.
    divisor: f64,
    /// Elements of a group.
    group: f64,
    /// True for the standard deviation.
    is_root: bool,
}

impl Spread {
    fn new(op: &'static str, x: &Tensor, axes: &[usize], correction: f64, is_root: bool) -> Result<Self> {
        axes.iter().try_for_each(|&axis| check_axis(op, x, axis))?;
        if !x.dtype().is_float() {
            return Err(Error::invalid(op, format!("not defined for {}", x.dtype())));
        }
        let groups: usize = kept_dims(x.dims(), axes).iter().product();
        let group = x.numel() as f64 / groups.max(1) as f64;
        let divisor = (group - correction).max(0.0);
        Ok(Self { axes: axes.into(), dims: x.dims().into(), divisor, group, is_root })
    }

    fn kept(&self) -> Dims {
        kept_dims(&self.dims, &self.axes)
    }

    /// Allocates a result.
    fn empty(&self, x: &Array, keepdim: bool) -> Result<Array> {
        let kept = |i: &usize| keepdim || !(self.axes.is_empty() || self.axes.contains(i));
        let dims: Dims = (0..self.dims.len()).filter(kept).map(|i| self.kept()[i]).collect();
        context::within("resize_", || Array::empty(x.device(), &dims, x.dtype()))
    }

    fn value(&self, x: &Array, keepdim: bool) -> Result<Array> {
        let y = self.empty(x, keepdim)?;
        self.fill(x, &y)?;
        Ok(y)
    }

    fn fill(&self, x: &Array, y: &Array) -> Result<()> {
        let _scratch = x.scratch_of_partials(&self.axes, PARTIAL)?;
        on_host::fill(y, &[x], |values| {
            let means = self.means(&values[0]);
            let square = |value: f64, group: usize| (value - means[group]).powi(2);
            let squares = on_host::group_sums(&values[0], &self.dims, &self.kept(), square);
            let of = |squares: f64| if self.is_root { (squares / self.divisor).sqrt() } else { squares / self.divisor };
            Ok(squares.into_iter().map(of).collect())
        })
    }

    /// Returns the mean of each group.
    fn means(&self, values: &[f64]) -> Vec<f64> {
        on_host::group_sums(values, &self.dims, &self.kept(), |value, _| value / self.group)
    }

    /// Returns the gradient `2/divisor · grad · (x − mean)` of the variance.
    fn gradient(&self, grad: &Array, x: &Array) -> Result<Array> {
        let mean = context::within("mean", || x.reduce(ReduceOp::Mean, &self.axes, true))?;
        let difference = context::within("sub", || x.binary(BinaryOp::Sub, &mean))?;
        let scaled = context::within("mul", || grad.view(&self.kept())?.affine(2.0 / self.divisor, 0.0))?;
        let out = context::within("mul", || scaled.mul(&difference))?;
        drop(scaled);
        drop(difference);
        drop(mean);
        Ok(out)
    }

    /// Returns the gradient of the variance from that of its root: `grad/(2·root)`, 0 where the root is 0.
    fn of_square(&self, grad: &Array, root: &Array) -> Result<Array> {
        let twice = context::within("mul", || root.affine(2.0, 0.0))?;
        let out = context::within("div", || grad.binary(BinaryOp::Div, &twice))?;
        let is_zero = context::within("eq", || root.unary(UnaryOp::IsZero))?;
        out.masked_fill_(&is_zero, 0.0)?;
        drop(is_zero);
        drop(twice);
        Ok(out)
    }
}

struct SpreadBackward {
    name: &'static str,
    spread: Spread,
}

impl Function for SpreadBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let spread = &self.spread;
        let (root, x) = if spread.is_root { (Some(saved.get(0)?), saved.get(1)?) } else { (None, saved.get(0)?) };
        let mut out = match (grads[0].as_ref(), &root) {
            (Some(grad), Some(root)) => Some(spread.gradient(&spread.of_square(grad, root)?, &x)?),
            (Some(grad), None) => Some(spread.gradient(grad, &x)?),
            (None, _) => None,
        };
        if let Some(grad) = grads.get(1).and_then(Option::as_ref) {
            let wide = grad.view(&spread.kept())?.broadcast_to(&spread.dims)?;
            let of_mean = context::within("div", || wide.affine(1.0 / spread.group, 0.0))?;
            out = Some(match out {
                Some(of_spread) => {
                    let sum = context::within("add", || of_spread.add(&of_mean))?;
                    drop(of_spread);
                    drop(of_mean);
                    sum
                }
                None => of_mean,
            });
        }
        saved.done();
        Ok(smallvec![out])
    }
}
