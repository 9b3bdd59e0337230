//! Pooling over windows of any shape along one to three axes: of volumes, and of parts as equal as they can be. Values are computed on the host.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::reduce::sums_and_extremes::mean_axes;
use crate::ops::shape::view::Dims;

/// Options of a pooling over volumes: along depth, height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool3dGeometry {
    /// Size of a window.
    pub window: [usize; 3],
    /// Elements from one window to the next.
    pub stride: [usize; 3],
    /// Elements added on each side.
    pub padding: [usize; 3],
}

/// Names of an operator: its own, its backward operator, and its node.
type Names = [&'static str; 3];

const MAX3D: Names = [
    "max_pool3d>max_pool3d_with_indices",
    "max_pool3d_with_indices_backward>zeros_like",
    "MaxPool3DWithIndicesBackward0",
];
const AVERAGE3D: Names = ["avg_pool3d", "avg_pool3d_backward", "AvgPool3DBackward0"];
const ADAPTIVE3D: Names = [
    "adaptive_avg_pool3d>_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward>zeros_like",
    "AdaptiveAvgPool3DBackward0",
];
const ADAPTIVE_MAX2D: Names = ["adaptive_max_pool2d", "adaptive_max_pool2d_backward", "AdaptiveMaxPool2DBackward0"];
const ADAPTIVE_MAX3D: Names = ["adaptive_max_pool3d", "adaptive_max_pool3d_backward", "AdaptiveMaxPool3DBackward0"];

/// Largest element of each window: `[n, c, d, h, w]` gives `[n, c, od, oh, ow]`. Saves its input and the place of each maximum (8 bytes).
///
/// # Errors
/// [`Error::Shape`] if the windows do not fit; errors of the device.
pub fn max_pool3d(x: &Tensor, geometry: Pool3dGeometry) -> Result<Tensor> {
    Ok(largest(x, Windows::of_volumes("max_pool3d", x, geometry)?, MAX3D)?.0)
}

/// Mean of each window, padding counted: `[n, c, d, h, w]` gives `[n, c, od, oh, ow]`. Saves its input.
///
/// # Errors
/// As [`max_pool3d`].
pub fn avg_pool3d(x: &Tensor, geometry: Pool3dGeometry) -> Result<Tensor> {
    averaged(x, Windows::of_volumes("avg_pool3d", x, geometry)?, AVERAGE3D)
}

/// Mean of `output` parts of a volume, as equal as they can be. One part is a mean, which saves nothing; otherwise saves its input.
///
/// # Errors
/// As [`max_pool3d`].
pub fn adaptive_avg_pool3d(x: &Tensor, output: [usize; 3]) -> Result<Tensor> {
    if output == [1; 3] && x.rank() == 5 {
        let _op = context::op("adaptive_avg_pool3d");
        return mean_axes(x, &[2, 3, 4], true);
    }
    averaged(x, Windows::of_parts("adaptive_avg_pool3d", x, &output)?, ADAPTIVE3D)
}

/// Largest element of each of `output` parts (height and width, or depth, too), as equal as they can be, and its place in the picture (i64, without
/// history). Saves its input and the places.
///
/// # Errors
/// As [`max_pool3d`].
pub fn adaptive_max_pool(x: &Tensor, output: &[usize]) -> Result<(Tensor, Tensor)> {
    let names = if output.len() == 3 { ADAPTIVE_MAX3D } else { ADAPTIVE_MAX2D };
    largest(x, Windows::of_parts("adaptive_max_pool", x, output)?, names)
}

/// Windows along the last axes of an array.
#[derive(Clone)]
struct Windows {
    /// Sizes of the input.
    dims: Dims,
    /// For each axis the windows: first element, end, and the size that a mean divides by.
    axes: SmallVec<[Vec<[usize; 3]>; 3]>,
}

impl Windows {
    fn of_volumes(op: &'static str, x: &Tensor, geometry: Pool3dGeometry) -> Result<Self> {
        let wrong = || Error::shape(op, format!("{:?} by {geometry:?}", x.dims()));
        let [_, _, size @ ..] = x.dims() else { return Err(wrong()) };
        if size.len() != 3 || x.numel() == 0 {
            return Err(wrong());
        }
        let mut axes = SmallVec::new();
        for (i, &size) in size.iter().enumerate() {
            let (window, stride, padding) = (geometry.window[i], geometry.stride[i], geometry.padding[i]);
            let room =
                (size + 2 * padding).checked_sub(window).filter(|_| stride > 0 && window >= 2 * padding && window > 0);
            let count = room.ok_or_else(wrong)? / stride + 1;
            let of = |k: usize| {
                let end = (k * stride + window).min(size + 2 * padding);
                [(k * stride).saturating_sub(padding), (end - padding).min(size), end - k * stride]
            };
            axes.push((0..count).map(of).collect());
        }
        Ok(Self { dims: x.dims().into(), axes })
    }

    fn of_parts(op: &'static str, x: &Tensor, output: &[usize]) -> Result<Self> {
        if x.rank() != 2 + output.len() || !matches!(output.len(), 2 | 3) || output.contains(&0) || x.numel() == 0 {
            return Err(Error::shape(op, format!("{:?} into {output:?} parts", x.dims())));
        }
        let parts = |(&size, &count): (&usize, &usize)| {
            let of = |k: usize| {
                let (start, end) = (k * size / count, ((k + 1) * size).div_ceil(count));
                [start, end, end - start]
            };
            (0..count).map(of).collect()
        };
        Ok(Self { dims: x.dims().into(), axes: x.dims()[2..].iter().zip(output).map(parts).collect() })
    }

    fn output(&self) -> Dims {
        self.dims[..2].iter().copied().chain(self.axes.iter().map(Vec::len)).collect()
    }

    fn plane(&self) -> usize {
        self.dims[2..].iter().product()
    }

    /// Calls `tell` with the position of each element of window `i`, and returns the size that a mean divides by.
    fn each(&self, i: usize, tell: &mut dyn FnMut(usize)) -> usize {
        let mut rest = i;
        let mut chosen: SmallVec<[[usize; 3]; 3]> = SmallVec::new();
        for windows in self.axes.iter().rev() {
            chosen.push(windows[rest % windows.len()]);
            rest /= windows.len();
        }
        chosen.reverse();
        let mut places: SmallVec<[usize; 32]> = smallvec![rest];
        for ([start, end, _], &size) in chosen.iter().zip(&self.dims[2..]) {
            places = places.iter().flat_map(|&before| (*start..*end).map(move |at| before * size + at)).collect();
        }
        places.into_iter().for_each(tell);
        chosen.iter().map(|window| window[2]).product()
    }

    /// Position in its plane of the largest element of window `i`; of equal elements, the first.
    fn largest(&self, values: &[f64], i: usize) -> f64 {
        let mut best: Option<usize> = None;
        self.each(i, &mut |at| {
            if best.is_none_or(|best| values[at] > values[best] || values[at].is_nan()) {
                best = Some(at);
            }
        });
        (best.unwrap_or(0) % self.plane()) as f64
    }

    /// Position of a place in the plane that result number `i` belongs to.
    fn at(&self, i: usize, place: f64) -> usize {
        let windows: usize = self.axes.iter().map(Vec::len).product();
        i / windows * self.plane() + place as usize
    }
}

fn largest(x: &Tensor, windows: Windows, names: Names) -> Result<(Tensor, Tensor)> {
    let dims = windows.output();
    let _op = context::op(names[0]);
    let y = Array::empty(x.device(), &dims, x.dtype())?;
    let indices = Array::empty(x.device(), &dims, DType::I64)?;
    let input = x.array().contiguous()?;
    on_host::fill(&indices, &[&input], |values| Ok((0..y.numel()).map(|i| windows.largest(&values[0], i)).collect()))?;
    on_host::fill(&y, &[&input, &indices], |values| {
        Ok(values[1].iter().enumerate().map(|(i, &place)| values[0][windows.at(i, place)]).collect())
    })?;
    drop(input);
    let y = record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("indices", &indices)?;
        Ok(Box::new(WindowsBackward { windows, names, chooses: true }))
    })?;
    Ok((y, Tensor::from_array(indices)))
}

fn averaged(x: &Tensor, windows: Windows, names: Names) -> Result<Tensor> {
    let dims = windows.output();
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        let windows = windows.clone();
        Ok::<Box<dyn Function>, Error>(Box::new(WindowsBackward { windows, names, chooses: false }))
    };
    record_inputs(&[x], describe, || {
        let _op = context::op(names[0]);
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        let input = x.array().contiguous()?;
        on_host::fill(&y, &[&input], |values| {
            let mean = |i: usize| {
                let mut sum = 0.0;
                let size = windows.each(i, &mut |at| sum += values[0][at]);
                sum / size as f64
            };
            Ok((0..y.numel()).map(mean).collect())
        })?;
        drop(input);
        Ok(y)
    })
}

struct WindowsBackward {
    windows: Windows,
    names: Names,
    /// True if the largest element of a window gets its gradient, false if all get an equal share.
    chooses: bool,
}

impl Function for WindowsBackward {
    fn name(&self) -> &'static str {
        self.names[2]
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(0)?;
        let indices = if self.chooses { Some(saved.get(1)?) } else { None };
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.names[1]);
        let out = x.empty_like()?;
        let grad = grad.contiguous()?;
        let inputs: SmallVec<[&Array; 2]> = std::iter::once(&grad).chain(indices.as_ref()).collect();
        on_host::fill(&out, &inputs, |values| {
            let mut sums = vec![0.0; out.numel()];
            for (i, grad) in values[0].iter().enumerate() {
                if self.chooses {
                    sums[self.windows.at(i, values[1][i])] += grad;
                    continue;
                }
                let mut places: SmallVec<[usize; 32]> = SmallVec::new();
                let size = self.windows.each(i, &mut |at| places.push(at));
                places.into_iter().for_each(|at| sums[at] += grad / size as f64);
            }
            Ok(sums)
        })?;
        drop(inputs);
        drop(grad);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
