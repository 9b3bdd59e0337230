//! Channels as pixels, and pixels as channels.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::error::{Error, Result};

/// Rearranges `[n, c·r², h, w]` to `[n, c, h·r, w·r]`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for other dimensions, or channels that `r²` does not divide; errors of the device.
pub fn pixel_shuffle(x: &Tensor, r: usize) -> Result<Tensor> {
    let [_, channels, _, _] = *x.dims() else {
        return Err(Error::shape("pixel_shuffle", format!("{:?}: expected four dimensions", x.dims())));
    };
    if r == 0 || !channels.is_multiple_of(r * r) {
        return Err(Error::shape("pixel_shuffle", format!("{channels} channels by {r}")));
    }
    let y = context::within("pixel_shuffle>clone", || shuffled(x.array(), r))?;
    record(y, &[x], |_| Ok(Box::new(PixelBackward { shuffled: true, r })))
}

/// Rearranges `[n, c, h·r, w·r]` to `[n, c·r², h, w]`, in a copy. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] for other dimensions, or sizes that `r` does not divide; errors of the device.
pub fn pixel_unshuffle(x: &Tensor, r: usize) -> Result<Tensor> {
    let [_, _, h, w] = *x.dims() else {
        return Err(Error::shape("pixel_unshuffle", format!("{:?}: expected four dimensions", x.dims())));
    };
    if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
        return Err(Error::shape("pixel_unshuffle", format!("{h} × {w} by {r}")));
    }
    let y = context::within("pixel_unshuffle>clone", || unshuffled(x.array(), r))?;
    record(y, &[x], |_| Ok(Box::new(PixelBackward { shuffled: false, r })))
}

/// `[n, c·r², h, w]` as `[n, c, h·r, w·r]`.
fn shuffled(x: &Array, r: usize) -> Result<Array> {
    let (n, c, h, w) = (x.dims()[0], x.dims()[1] / (r * r), x.dims()[2], x.dims()[3]);
    let y = Array::empty(x.device(), &[n, c, h * r, w * r], x.dtype())?;
    y.view(&[n, c, h, r, w, r])?.copy_(&x.reshape(&[n, c, r, r, h, w])?.permute(&[0, 1, 4, 2, 5, 3])?)?;
    Ok(y)
}

/// `[n, c, h·r, w·r]` as `[n, c·r², h, w]`.
fn unshuffled(x: &Array, r: usize) -> Result<Array> {
    let (n, c, h, w) = (x.dims()[0], x.dims()[1], x.dims()[2] / r, x.dims()[3] / r);
    let y = Array::empty(x.device(), &[n, c * r * r, h, w], x.dtype())?;
    y.view(&[n, c, r, r, h, w])?.copy_(&x.reshape(&[n, c, h, r, w, r])?.permute(&[0, 1, 3, 5, 2, 4])?)?;
    Ok(y)
}

struct PixelBackward {
    /// True if the pixels were shuffled, false if they were put back.
    shuffled: bool,
    r: usize,
}

impl Function for PixelBackward {
    fn name(&self) -> &'static str {
        if self.shuffled { "PixelShuffleBackward0" } else { "PixelUnshuffleBackward0" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(if self.shuffled {
            context::within("pixel_unshuffle>clone", || unshuffled(grad, self.r))?
        } else {
            context::within("pixel_shuffle>clone", || shuffled(grad, self.r))?
        })])
    }
}
