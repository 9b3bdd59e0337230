//! Pictures sampled at positions. Predicted only: no values are computed.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::predicted::predicted_only;
use crate::ops::shape::view::Dims;

/// Samples `[n, c, h, w]` at the positions `[n, oh, ow, 2]`, or a volume with one dimension more: `[n, c, oh, ow]`. Saves both. Predicted only.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::Invalid`] on a device that computes; errors of the device.
pub fn grid_sampler(x: &Tensor, grid: &Tensor) -> Result<Tensor> {
    const OP: &str = "grid_sampler";
    let axes = x.rank().saturating_sub(2);
    let fits = matches!(axes, 2 | 3) && grid.rank() == x.rank() && grid.dims()[0] == x.dims()[0];
    if !fits || grid.dims()[grid.rank() - 1] != axes || grid.dtype() != x.dtype() {
        return Err(Error::shape(OP, format!("{} {:?} at {} {:?}", x.dtype(), x.dims(), grid.dtype(), grid.dims())));
    }
    predicted_only(OP, x.device())?;
    let dims: Dims = x.dims()[..2].iter().chain(&grid.dims()[1..=axes]).copied().collect();
    let describe = |saved: &mut Recorder| {
        saved.save("grid", grid.array())?;
        saved.save("input", x.array())?;
        let name = if axes == 3 { "GridSampler3DBackward0" } else { "GridSampler2DBackward0" };
        Ok::<Box<dyn Function>, Error>(Box::new(SamplerBackward { name }))
    };
    record_inputs(&[x, grid], describe, || context::within(OP, || Array::empty(x.device(), &dims, x.dtype())))
}

struct SamplerBackward {
    name: &'static str,
}

impl Function for SamplerBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The gradient of the positions is made, whether it is needed or not.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (grid, x) = (saved.get(0)?, saved.get(1)?);
        if grads[0].is_none() {
            return Ok(Grads::new());
        }
        let _op = context::op("grid_sampler_backward");
        let of_x = if needs.input(0) { Some(x.empty_like()?) } else { None };
        let of_grid = grid.empty_like()?;
        drop((grid, x));
        saved.done();
        Ok(smallvec![of_x, needs.input(1).then_some(of_grid)])
    }
}

/// Positions `[n, ..size, d]` of an affine map `[n, d, d + 1]` for each of a picture's or a volume's elements, `size` of them. Saves nothing. Predicted
/// only.
///
/// # Errors
/// As [`grid_sampler`].
pub fn affine_grid(theta: &Tensor, size: &[usize], align_corners: bool) -> Result<Tensor> {
    const OP: &str = "affine_grid_generator";
    let axes = size.len();
    if !matches!(axes, 2 | 3) || theta.rank() != 3 || theta.dims()[1..] != [axes, axes + 1] || size.contains(&0) {
        return Err(Error::shape(OP, format!("{:?} over {size:?}", theta.dims())));
    }
    predicted_only(OP, theta.device())?;
    let plan = AffineBackward { dims: theta.dims().into(), size: size.into(), align_corners };
    let y = context::within(OP, || {
        let base = plan.base(theta.dtype(), theta.array())?;
        let dims: Dims = std::iter::once(theta.dims()[0]).chain(size.iter().copied()).chain([axes]).collect();
        let y = base.matmul(&theta.array().transpose(1, 2)?)?;
        drop(base);
        Ok::<_, Error>(y.view(&dims)?.keeping_base())
    })?;
    record(y, &[theta], |_| Ok(Box::new(plan)))
}

struct AffineBackward {
    /// Sizes of the maps.
    dims: Dims,
    size: Dims,
    align_corners: bool,
}

impl AffineBackward {
    /// Allocates the positions of the elements before the map, `[n, elements, d + 1]`, and what they are made of: for each axis, from the last to the
    /// first, numbers between −1 and 1, which are moved to the middle of the elements by a product and a quotient.
    fn base(&self, dtype: DType, like: &Array) -> Result<Array> {
        let dims = [self.dims[0], self.size.iter().product(), self.dims[2]];
        let base = Array::empty(like.device(), &dims, dtype)?;
        if like.device().profile().torch_temporaries {
            for &size in self.size.iter().rev() {
                let numbers = |op| context::within(op, || Array::empty(like.device(), &[size], dtype));
                let line = numbers("linspace")?;
                let moved = if self.align_corners { None } else { Some((numbers("mul")?, numbers("div")?)) };
                drop(line);
                drop(moved);
            }
        }
        Ok(base)
    }
}

impl Function for AffineBackward {
    fn name(&self) -> &'static str {
        "AffineGridGeneratorBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("affine_grid_generator_backward");
        let base = self.base(grad.dtype(), grad)?;
        let flat = grad.reshape(&[self.dims[0], self.size.iter().product(), self.dims[1]])?;
        let out = base.transpose(1, 2)?.matmul(&flat)?;
        drop(base);
        Ok(smallvec![Some(out.transpose(1, 2)?.keeping_base())])
    }
}
