//! Puts pooled elements back to where they came from. Values are computed on the host.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::shape::view::Dims;

/// Zeros of pictures `[n, c, size]` with the elements of `x` `[n, c, h, w]` at the places in their picture that `indices` (i64) name. Saves the indices.
///
/// # Errors
/// [`Error::Shape`] if they do not fit, or for a place outside the picture; errors of the device.
pub fn max_unpool2d(x: &Tensor, indices: &Tensor, size: [usize; 2]) -> Result<Tensor> {
    let [n, c, ..] = *x.dims() else { return Err(Error::shape("max_unpool2d", format!("{:?}", x.dims()))) };
    if x.rank() != 4 || indices.dims() != x.dims() || indices.dtype() != DType::I64 {
        let problem = format!("{:?} by {} {:?}", x.dims(), indices.dtype(), indices.dims());
        return Err(Error::shape("max_unpool2d", problem));
    }
    let dims = [n, c, size[0], size[1]];
    let planes = Planes { dims: x.dims().into(), taken: x.dims()[2] * x.dims()[3], size: size[0] * size[1] };
    let describe = |saved: &mut Recorder| {
        saved.save("indices", indices.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(UnpoolBackward { planes: planes.clone() }))
    };
    record_inputs(&[x], describe, || {
        let _op = context::op("max_unpool2d");
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        on_host::fill(&y, &[x.array(), indices.array()], |values| {
            let mut out = vec![0.0; y.numel()];
            for (i, (value, place)) in values[0].iter().zip(&values[1]).enumerate() {
                out[planes.at(i, *place)?] = *value;
            }
            Ok(out)
        })?;
        Ok(y)
    })
}

#[derive(Clone)]
struct Planes {
    /// Sizes of what is put back.
    dims: Dims,
    /// Elements of it in a picture, and elements of the whole picture.
    taken: usize,
    size: usize,
}

impl Planes {
    /// Position of element number `i`, whose place in its picture is given.
    fn at(&self, i: usize, place: f64) -> Result<usize> {
        let inside = usize::try_from(place as i64).ok().filter(|place| *place < self.size);
        let place = inside.ok_or_else(|| Error::shape("max_unpool2d", format!("place {place} of {}", self.size)))?;
        Ok(i / self.taken * self.size + place)
    }
}

struct UnpoolBackward {
    planes: Planes,
}

impl Function for UnpoolBackward {
    fn name(&self) -> &'static str {
        "MaxUnpool2DBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let indices = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let ordered = context::within("contiguous>clone", || grad.contiguous())?;
        let out = context::within("gather", || Array::empty(grad.device(), &self.planes.dims, grad.dtype()))?;
        on_host::fill(&out, &[&ordered, &indices], |values| {
            let of = |(i, place): (usize, &f64)| Ok(values[0][self.planes.at(i, *place)?]);
            values[1].iter().enumerate().map(of).collect()
        })?;
        drop(ordered);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
