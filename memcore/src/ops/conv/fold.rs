//! Patches of a picture as columns, and columns added up to a picture. Values are computed on the host.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::Conv2dGeometry;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// The patches of `[n, c, h, w]` that a convolution with this window would multiply, as columns: `[n, c·kh·kw, positions]`. Saves nothing. PyTorch's
/// `im2col`.
///
/// # Errors
/// [`Error::Shape`] if no window fits; errors of the device.
pub fn unfold(x: &Tensor, window: [usize; 2], geometry: Conv2dGeometry) -> Result<Tensor> {
    let [n, c, h, w] = *x.dims() else {
        return Err(Error::shape("im2col", format!("{:?}: expected four dimensions", x.dims())));
    };
    let patches = Patches::new(n, c, [h, w], window, geometry)?;
    let y = context::within("im2col", || patches.columns(x.array()))?;
    record(y, &[x], |_| Ok(Box::new(Folding { patches, unfolds: true })))
}

/// The picture `[n, c, ..size]` whose elements are the sums of what stands for them in the columns `[n, c·kh·kw, positions]`. Saves nothing. PyTorch's
/// `col2im`, whose result keeps the memory of the columns.
///
/// # Errors
/// As [`unfold`], and if the columns are those of another size.
pub fn fold(x: &Tensor, size: [usize; 2], window: [usize; 2], geometry: Conv2dGeometry) -> Result<Tensor> {
    let wrong = || Error::shape("col2im", format!("{:?} to {size:?} with windows of {window:?}", x.dims()));
    let &[n, rows, positions] = x.dims() else { return Err(wrong()) };
    let area = window[0] * window[1];
    if area == 0 || !rows.is_multiple_of(area) {
        return Err(wrong());
    }
    let patches = Patches::new(n, rows / area, size, window, geometry)?;
    if patches.out[0] * patches.out[1] != positions {
        return Err(wrong());
    }
    let y = context::within("col2im", || patches.picture(x.array()))?;
    record(y, &[x], |_| Ok(Box::new(Folding { patches, unfolds: false })))
}

/// The patches of pictures.
#[derive(Clone, Copy)]
struct Patches {
    geometry: Conv2dGeometry,
    window: [usize; 2],
    /// Sizes of the pictures.
    picture: [usize; 4],
    /// Positions of the window.
    out: [usize; 2],
}

impl Patches {
    fn new(n: usize, c: usize, size: [usize; 2], window: [usize; 2], geometry: Conv2dGeometry) -> Result<Self> {
        let out = geometry.output_size(size, window)?;
        Ok(Self { geometry, window, picture: [n, c, size[0], size[1]], out })
    }

    /// Position in the pictures of element `i` of the columns; `None` in the border.
    fn source(&self, i: usize) -> Option<usize> {
        let [kh, kw] = self.window;
        let positions = self.out[0] * self.out[1];
        let (place, row) = (i % positions, i / positions);
        let at = [place / self.out[1], place % self.out[1]];
        let offset = [row / kw % kh, row % kw];
        let mut within = row / (kh * kw);
        for axis in 0..2 {
            let size = self.picture[2 + axis];
            let reached = at[axis] * self.geometry.stride[axis] + offset[axis] * self.geometry.dilation[axis];
            let inside = reached.checked_sub(self.geometry.padding[axis]).filter(|inside| *inside < size)?;
            within = within * size + inside;
        }
        Some(within)
    }

    fn tell(&self, i: usize, tell: &mut dyn FnMut(usize, f64)) {
        if let Some(source) = self.source(i) {
            tell(source, 1.0);
        }
    }

    /// The result has the memory of its input until it needs more.
    fn columns(&self, x: &Array) -> Result<Array> {
        let [n, c, ..] = self.picture;
        let dims = [n, c * self.window[0] * self.window[1], self.out[0] * self.out[1]];
        let y = x.empty_like()?.resized(&dims)?;
        let input = x.contiguous()?;
        on_host::apply(&y, &input, &|i, tell| self.tell(i, tell))?;
        drop(input);
        Ok(y)
    }

    fn picture(&self, x: &Array) -> Result<Array> {
        let y = x.empty_like()?.resized(&self.picture)?;
        let input = x.contiguous()?;
        on_host::apply_transposed(&y, &input, &|i, tell| self.tell(i, tell))?;
        drop(input);
        Ok(y)
    }
}

struct Folding {
    patches: Patches,
    /// True if pictures became columns, false if columns became pictures.
    unfolds: bool,
}

impl Function for Folding {
    fn name(&self) -> &'static str {
        if self.unfolds { "Im2ColBackward0" } else { "Col2ImBackward0" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(if self.unfolds {
            context::within("col2im", || self.patches.picture(grad))?
        } else {
            context::within("im2col", || self.patches.columns(grad))?
        })])
    }
}
