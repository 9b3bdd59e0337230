//! Discrete Fourier transforms. Predicted only: the memory is PyTorch's, and no values are computed.
//!
//! The allocations are those of `aten/src/ATen/native/cuda/SpectralOps.cpp` around cuFFT's calls, recorded with a stand-in for cuFFT whose plans want
//! no work area. The real cuFFT asks for one, a temporary of each call; its size is not known here.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::predicted::predicted_only;
use crate::ops::shape::view::Dims;

/// Dimensions that cuFFT transforms in one call, at most.
const AT_ONCE: usize = 3;

/// Axes of a transform.
type Axes = SmallVec<[usize; 6]>;

/// The transform of complex numbers along `axes`, forward or inverse alike. Saves nothing. Predicted only.
///
/// # Errors
/// [`Error::Shape`] for axes that `x` does not have; [`Error::Invalid`] on a device that computes, and for other element types; errors of the device.
pub fn fft_c2c(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    const OP: &str = "_fft_c2c";
    check(OP, x, DType::C64, axes)?;
    let y = context::within(OP, || complex_to_complex(x.array(), axes))?;
    record(y, &[x], |_| Ok(Box::new(C2cBackward { axes: axes.into() })))
}

/// The transform of float32 along `axes`. If `onesided`, of the last of them only the first half of the frequencies, `size / 2 + 1`; the others
/// follow from these. Saves `x`, of which the gradient needs only a size. Predicted only.
///
/// # Errors
/// As [`fft_c2c`].
pub fn fft_r2c(x: &Tensor, axes: &[usize], onesided: bool) -> Result<Tensor> {
    const OP: &str = "_fft_r2c";
    check(OP, x, DType::F32, axes)?;
    let y = context::within(OP, || real_to_complex(x.array(), axes, onesided))?;
    let size = x.dims()[axes[axes.len() - 1]];
    record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        Ok(Box::new(R2cBackward { axes: axes.into(), size, onesided }))
    })
}

/// The inverse of the onesided [`fft_r2c`]: float32, with `size` elements along the last of the axes. Saves nothing. Predicted only.
///
/// # Errors
/// As [`fft_c2c`], and [`Error::Shape`] if the frequencies do not fit `size`.
pub fn fft_c2r(x: &Tensor, axes: &[usize], size: usize) -> Result<Tensor> {
    const OP: &str = "_fft_c2r";
    check(OP, x, DType::C64, axes)?;
    let found = x.dims()[axes[axes.len() - 1]];
    if size == 0 || found != size / 2 + 1 {
        return Err(Error::shape(OP, format!("{found} frequencies of {size} elements")));
    }
    let y = context::within(OP, || complex_to_real(x.array(), axes, size))?;
    record(y, &[x], |_| Ok(Box::new(C2rBackward { axes: axes.into() })))
}

fn check(op: &'static str, x: &Tensor, dtype: DType, axes: &[usize]) -> Result<()> {
    predicted_only(op, x.device())?;
    let is_wrong = |(i, axis): (usize, &usize)| *axis >= x.rank() || axes[..i].contains(axis) || x.dims()[*axis] == 0;
    if axes.is_empty() || axes.iter().enumerate().any(is_wrong) {
        return Err(Error::shape(op, format!("along {axes:?} of {:?}", x.dims())));
    }
    if x.dtype() != dtype {
        return Err(Error::invalid(op, format!("of {} is not supported, of {dtype} is", x.dtype())));
    }
    Ok(())
}

/// Axes sorted by the strides of `x`, the largest first; equal ones stay in order.
fn sorted(x: &Array, axes: &[usize]) -> Axes {
    let strides = x.layout().strides();
    let mut sorted = Axes::from_slice(axes);
    sorted.sort_by_key(|axis| std::cmp::Reverse(strides[*axis]));
    sorted
}

/// True if one call of cuFFT does not do for a transform from or to real numbers.
fn takes_turns(axes: &[usize]) -> bool {
    axes.len() > AT_ONCE || axes.starts_with(&[0, 1])
}

fn complex_to_complex(x: &Array, axes: &[usize]) -> Result<Array> {
    let empty = || Array::empty(x.device(), x.dims(), DType::C64);
    let mut left = sorted(x, axes);
    let last = left.split_off_last();
    let y = transformed(x, &empty()?, x.dims(), &last)?;
    if left.is_empty() {
        return Ok(y);
    }
    // No tensor has so many dimensions that a third turn was needed.
    let other = empty()?;
    transformed(&y, &other, x.dims(), &sorted(&y, &left))
}

fn real_to_complex(x: &Array, axes: &[usize], onesided: bool) -> Result<Array> {
    let (last, rest) = axes.split_last().unwrap_or((&0, &[]));
    let mut dims = Dims::from_slice(x.dims());
    if onesided {
        dims[*last] = dims[*last] / 2 + 1;
    } else if takes_turns(axes) {
        return Err(Error::invalid("_fft_r2c", "of more dimensions than one, with all frequencies, is not supported"));
    }
    let empty = || Array::empty(x.device(), &dims, DType::C64);
    let y = empty()?;
    // cuFFT reads two floats at a time.
    let aligned = if x.starts_at_even() { x.clone() } else { copied_with_last(x, *last)? };
    if !takes_turns(axes) {
        let mut order = sorted(x, rest);
        order.push(*last);
        return transformed(&aligned, &y, &dims, &order);
    }
    let mut y = transformed(&aligned, &y, &dims, &[*last])?;
    let mut memory = empty()?;
    let mut left = Axes::from_slice(rest);
    while !left.is_empty() {
        left = sorted(&y, &left);
        let now = left.split_off_last();
        let next = transformed(&y, &memory, &dims, &now)?;
        memory = std::mem::replace(&mut y, next);
    }
    drop(memory);
    drop(aligned);
    Ok(y)
}

fn complex_to_real(x: &Array, axes: &[usize], size: usize) -> Result<Array> {
    let (last, rest) = axes.split_last().unwrap_or((&0, &[]));
    let mut dims = Dims::from_slice(x.dims());
    dims[*last] = size;
    let y = Array::empty(x.device(), &dims, DType::F32)?;
    // cuFFT overwrites what it reads.
    if takes_turns(axes) {
        let others = context::within("_fft_c2c", || complex_to_complex(x, rest))?;
        return transformed(&others, &y, &dims, &[*last]);
    }
    let copy = context::within("clone", || x.copied())?;
    let mut order = sorted(x, rest);
    order.push(*last);
    transformed(&copy, &y, &dims, &order)
}

/// Returns a copy in row-major order, but with this axis innermost.
fn copied_with_last(x: &Array, axis: usize) -> Result<Array> {
    let mut order: Axes = (0..x.rank()).filter(|other| *other != axis).collect();
    order.push(axis);
    let copy = context::within("clone", || x.permute(&order)?.copied())?;
    let mut back = Axes::from_elem(0, x.rank());
    order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
    copy.permute(&back)
}

/// A call of cuFFT (`_exec_fft`): transforms `x` along `axes`, in their order, into `memory`, and returns the result with these sizes. The other
/// dimensions become one, the batch; where that is not a view, or cuFFT cannot read it, `x` is copied.
fn transformed(x: &Array, memory: &Array, dims: &[usize], axes: &[usize]) -> Result<Array> {
    let mut order = batch_axes(x, axes);
    let batch = order.len();
    order.extend_from_slice(axes);
    let ordered = x.permute(&order)?;
    let of_batch: usize = ordered.dims()[..batch].iter().product();
    let flat_dims: Dims = std::iter::once(of_batch).chain(ordered.dims()[batch..].iter().copied()).collect();
    let flat = context::within("reshape>clone", || ordered.reshape(&flat_dims))?;
    let copy = if is_readable(flat.layout()) { None } else { Some(context::within("clone", || flat.copied())?) };
    drop(copy);
    drop(flat);
    let mut strides = Dims::from_elem(0, x.rank());
    let mut stride = 1;
    for axis in order.iter().rev() {
        strides[*axis] = stride;
        stride *= dims[*axis];
    }
    memory.part(&Layout::strided(dims, &strides)?, 0)
}

/// The axes that are not transformed: partitioned as `std::partition` of the C++ library does it, then sorted by the strides of `x`, the largest
/// first. Of equal strides the order before decides.
fn batch_axes(x: &Array, axes: &[usize]) -> Axes {
    let mut order: Axes = (0..x.rank()).collect();
    let (mut first, mut last) = (0, order.len());
    loop {
        while first < last && !axes.contains(&order[first]) {
            first += 1;
        }
        while first < last && axes.contains(&order[last - 1]) {
            last -= 1;
        }
        if first >= last {
            break;
        }
        last -= 1;
        order.swap(first, last);
        first += 1;
    }
    order.truncate(first);
    sorted(x, &order)
}

/// True if cuFFT can read a batch of signals that lie so (`as_cufft_embed`): each stride is a multiple of the next one.
fn is_readable(flat: &Layout) -> bool {
    let (dims, strides) = (flat.dims(), flat.strides());
    let signal = dims.len() - 1;
    let mut inner = strides[signal];
    if inner == 0 || (dims[0] != 1 && strides[0] == 0) {
        return false;
    }
    for axis in (1..signal).rev().filter(|axis| dims[*axis] != 1) {
        if strides[axis] == 0 || strides[axis] % inner != 0 {
            return false;
        }
        inner = strides[axis];
    }
    true
}

/// The last axes of a list, which one call of cuFFT transforms; the others stay.
trait SplitOffLast {
    fn split_off_last(&mut self) -> Axes;
}

impl SplitOffLast for Axes {
    fn split_off_last(&mut self) -> Axes {
        self.drain(self.len().saturating_sub(AT_ONCE)..).collect()
    }
}

struct C2cBackward {
    axes: Axes,
}

impl Function for C2cBackward {
    fn name(&self) -> &'static str {
        "FftC2CBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("_fft_c2c", || complex_to_complex(grad, &self.axes))?)])
    }
}

struct R2cBackward {
    axes: Axes,
    /// Elements of the input along the last axis.
    size: usize,
    onesided: bool,
}

impl R2cBackward {
    /// Returns the gradient with zeros for the frequencies that the forward transform leaves out.
    fn full(&self, grad: &Array) -> Result<Array> {
        let axis = self.axes[self.axes.len() - 1];
        if !self.onesided || grad.dims()[axis] == self.size {
            return Ok(grad.clone());
        }
        let mut dims = Dims::from_slice(grad.dims());
        dims[axis] = self.size;
        let full = context::within("new_zeros", || Array::zeros(grad.device(), &dims, DType::C64))?;
        full.narrow(axis, 0, grad.dims()[axis])?.copy_(grad)?;
        Ok(full)
    }
}

impl Function for R2cBackward {
    fn name(&self) -> &'static str {
        "FftR2CBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        // Unpacked as PyTorch does: what a checkpoint freed is computed again.
        let x = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let full = self.full(grad)?;
        let out = context::within("_fft_c2c", || complex_to_complex(&full, &self.axes))?;
        drop(full);
        drop(x);
        saved.done();
        Ok(smallvec![Some(out.real()?)])
    }
}

struct C2rBackward {
    axes: Axes,
}

impl Function for C2rBackward {
    fn name(&self) -> &'static str {
        "FftC2RBackward0"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("_fft_r2c", || real_to_complex(grad, &self.axes, true))?)])
    }
}
