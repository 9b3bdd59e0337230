//! Max pooling whose last windows may reach beyond the border (`ceil_mode`). Values are computed on the host.

use smallvec::smallvec;

use super::pool2d::max_pool2d;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::Pool2dGeometry;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// [`max_pool2d`] with every window that begins inside the picture or in the border before it: `⌈(in + 2·padding − window)/stride⌉ + 1` windows,
/// less one that begins in the border after it. Saves its input and the position of each maximum.
///
/// # Errors
/// [`Error::Shape`] if the windows do not fit; errors of the device.
pub fn max_pool2d_ceil(x: &Tensor, geometry: Pool2dGeometry) -> Result<Tensor> {
    let [n, c, h, w] = *x.dims() else {
        return Err(Error::shape("max_pool2d", format!("{:?}: expected four dimensions", x.dims())));
    };
    let floor = geometry.output_size([h, w])?;
    let size = [h, w];
    let out = [0, 1].map(|i| {
        let more = (size[i] + 2 * geometry.padding[i] - geometry.window[i]).div_ceil(geometry.stride[i]) + 1;
        if (more - 1) * geometry.stride[i] >= size[i] + geometry.padding[i] { more - 1 } else { more }
    });
    if out == floor {
        return max_pool2d(x, geometry);
    }
    x.array().refuse_channels_last("max_pool2d")?;
    let _outer = context::op("max_pool2d");
    let _op = context::op("max_pool2d_with_indices");
    let dims = [n, c, out[0], out[1]];
    let y = Array::empty(x.device(), &dims, x.dtype())?;
    let indices = Array::empty(x.device(), &dims, DType::I64)?;
    let windows = Windows { geometry, size, out };
    on_host::fill(&indices, &[x.array()], |values| {
        Ok((0..y.numel()).map(|i| windows.largest(&values[0], i)).collect())
    })?;
    on_host::fill(&y, &[x.array(), &indices], |values| {
        Ok((0..y.numel()).map(|i| values[0][windows.plane(i) + values[1][i] as usize]).collect())
    })?;
    record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        saved.save("indices", &indices)?;
        Ok(Box::new(CeilBackward { windows }))
    })
}

#[derive(Clone, Copy)]
struct Windows {
    geometry: Pool2dGeometry,
    size: [usize; 2],
    out: [usize; 2],
}

impl Windows {
    /// Start of the plane to which result number `i` belongs.
    fn plane(&self, i: usize) -> usize {
        i / (self.out[0] * self.out[1]) * self.size[0] * self.size[1]
    }

    /// Position in its plane of the largest element of window `i`; of equal elements, the first.
    fn largest(&self, values: &[f64], i: usize) -> f64 {
        let at = [i / self.out[1] % self.out[0], i % self.out[1]];
        let range = |axis: usize| {
            let start = (at[axis] * self.geometry.stride[axis]) as i64 - self.geometry.padding[axis] as i64;
            let end = (start + self.geometry.window[axis] as i64).min(self.size[axis] as i64);
            (start.max(0) as usize, end as usize)
        };
        let ((top, bottom), (left, right)) = (range(0), range(1));
        let plane = self.plane(i);
        let mut best = top * self.size[1] + left;
        for row in top..bottom {
            for column in left..right {
                let place = row * self.size[1] + column;
                if values[plane + place] > values[plane + best] || values[plane + place].is_nan() {
                    best = place;
                }
            }
        }
        best as f64
    }
}

struct CeilBackward {
    windows: Windows,
}

impl Function for CeilBackward {
    fn name(&self) -> &'static str {
        "MaxPool2DWithIndicesBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (x, indices) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("max_pool2d_with_indices_backward");
        let out = x.empty_like()?;
        on_host::fill(&out, &[grad, &indices], |values| {
            let mut sums = vec![0.0; out.numel()];
            for (i, value) in values[0].iter().enumerate() {
                sums[self.windows.plane(i) + values[1][i] as usize] += value;
            }
            Ok(sums)
        })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
