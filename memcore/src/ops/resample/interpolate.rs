//! Resizes pictures, sequences and volumes by interpolation along each axis: nearest, linear, cubic. Saves nothing except sizes. Values are computed on the
//! host.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::on_host;
use crate::ops::shape::view::Dims;

/// Rule for a value between two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element before the position.
    Nearest,
    /// A mean of the two elements, weighted by distance.
    Linear,
    /// A cubic through four elements (with −3/4, as in PyTorch).
    Cubic,
}

/// New size of an axis.
#[derive(Clone, Copy, Debug)]
pub struct ResizedAxis {
    /// Number of elements in the result.
    pub size: usize,
    /// The requested factor, if there is one. Otherwise the factor follows from the sizes.
    pub factor: Option<f64>,
}

/// Resizes the last axes, one to three, of `[n, c, ..axes]`. With `align_corners` the first and last elements stay in place.
///
/// # Errors
/// [`Error::Shape`] for other dimensions and for a size of 0; errors of the device.
pub fn interpolate(x: &Tensor, axes: &[ResizedAxis], mode: Interpolation, align_corners: bool) -> Result<Tensor> {
    let Some(names) = Names::choose(mode, axes.len()) else {
        return Err(Error::shape("interpolate", format!("{mode:?} over {} axes", axes.len())));
    };
    if x.rank() != 2 + axes.len() || axes.iter().any(|axis| axis.size == 0) || x.numel() == 0 {
        return Err(Error::shape(names.op, format!("{:?} to {axes:?}", x.dims())));
    }
    let _op = context::op(names.op);
    let x = &full(x)?;
    let mut dims: Dims = x.dims().into();
    for (dim, axis) in dims[2..].iter_mut().zip(axes) {
        *dim = axis.size;
    }
    let parts = x.dims()[2..].iter().zip(axes).map(|(&from, axis)| Weights::new(from, *axis, mode, align_corners));
    let resized = Resized { names, dims: x.dims().into(), parts: parts.collect() };
    let y = context::within(names.op, || Array::empty_in_format(x.array(), &dims))?;
    on_host::apply(&y, x.array(), &resized.sources())?;
    record(y, &[x], |_| Ok(Box::new(resized)))
}

#[derive(Clone, Copy)]
struct Names {
    op: &'static str,
    backward: &'static str,
    node: &'static str,
}

impl Names {
    fn choose(mode: Interpolation, axes: usize) -> Option<Self> {
        let (op, backward, node) = match (mode, axes) {
            (Interpolation::Nearest, 1) => {
                ("upsample_nearest1d", "upsample_nearest1d_backward", "UpsampleNearest1DBackward0")
            }
            (Interpolation::Nearest, 2) => {
                ("upsample_nearest2d", "upsample_nearest2d_backward", "UpsampleNearest2DBackward0")
            }
            (Interpolation::Linear, 1) => {
                ("upsample_linear1d", "upsample_linear1d_backward", "UpsampleLinear1DBackward0")
            }
            (Interpolation::Linear, 2) => {
                ("upsample_bilinear2d", "upsample_bilinear2d_backward", "UpsampleBilinear2DBackward0")
            }
            (Interpolation::Cubic, 2) => {
                ("upsample_bicubic2d", "upsample_bicubic2d_backward", "UpsampleBicubic2DBackward0")
            }
            (Interpolation::Nearest, 3) => {
                ("upsample_nearest3d", "upsample_nearest3d_backward", "UpsampleNearest3DBackward0")
            }
            (Interpolation::Linear, 3) => {
                ("upsample_trilinear3d", "upsample_trilinear3d_backward", "UpsampleTrilinear3DBackward0")
            }
            _ => return None,
        };
        Some(Self { op, backward, node })
    }
}

/// Elements of an axis from which each element of the result is made, with their weights.
struct Weights {
    from: usize,
    of: Vec<SmallVec<[(usize, f64); 4]>>,
}

impl Weights {
    fn new(from: usize, axis: ResizedAxis, mode: Interpolation, align_corners: bool) -> Self {
        let last = from - 1;
        let scale = match axis.factor {
            _ if align_corners && axis.size > 1 => last as f64 / (axis.size - 1) as f64,
            _ if align_corners => 0.0,
            Some(factor) => 1.0 / factor,
            None => from as f64 / axis.size as f64,
        };
        let clamped = |at: f64| at.clamp(0.0, last as f64) as usize;
        let weights = |i: usize| -> SmallVec<[(usize, f64); 4]> {
            let centre = if align_corners { i as f64 * scale } else { (i as f64 + 0.5) * scale - 0.5 };
            match mode {
                Interpolation::Nearest => smallvec![(clamped((i as f64 * scale).floor()), 1.0)],
                Interpolation::Linear => {
                    let at = centre.max(0.0);
                    let (low, part) = (at.floor(), at - at.floor());
                    smallvec![(clamped(low), 1.0 - part), (clamped(low + 1.0), part)]
                }
                Interpolation::Cubic => {
                    let (low, part) = (centre.floor(), centre - centre.floor());
                    (0..4).map(|k| (clamped(low - 1.0 + f64::from(k)), cubic(part + 1.0 - f64::from(k)))).collect()
                }
            }
        };
        Self { from, of: (0..axis.size).map(weights).collect() }
    }
}

/// Keys' cubic kernel with −3/4.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let x = distance.abs();
    if x <= 1.0 { ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0 } else { ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A }
}

struct Resized {
    names: Names,
    dims: Dims,
    parts: SmallVec<[Weights; 3]>,
}

impl Resized {
    fn sources(&self) -> impl Fn(usize, &mut dyn FnMut(usize, f64)) + '_ {
        move |i, tell| {
            let mut rest = i;
            let mut chosen: SmallVec<[&[(usize, f64)]; 3]> = SmallVec::new();
            for part in self.parts.iter().rev() {
                chosen.push(&part.of[rest % part.of.len()]);
                rest /= part.of.len();
            }
            chosen.reverse();
            along(&self.parts, &chosen, (rest, 1.0), tell);
        }
    }
}

/// Tells the elements that the axes `parts` choose, from the place and weight that the axes before have chosen.
fn along(
    parts: &[Weights],
    chosen: &[&[(usize, f64)]],
    (before, weight): (usize, f64),
    tell: &mut dyn FnMut(usize, f64),
) {
    let (Some((part, inner)), Some((first, rest))) = (parts.split_first(), chosen.split_first()) else {
        return tell(before, weight);
    };
    for (place, factor) in *first {
        along(inner, rest, (before * part.from + place, weight * factor), tell);
    }
}

impl Function for Resized {
    fn name(&self) -> &'static str {
        self.names.node
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.names.backward);
        let out = Array::empty_in_format(grad, &self.dims)?;
        let ordered = out.layout().is_contiguous() && !grad.layout().is_contiguous();
        let _copy = if ordered { Some(context::within("contiguous>clone", || grad.copied())?) } else { None };
        on_host::apply_transposed(&out, grad, &self.sources())?;
        Ok(smallvec![Some(out)])
    }
}
