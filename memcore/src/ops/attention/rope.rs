//! Rotary position embedding.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::Rope;
use crate::context;
use crate::error::{Error, Result};

/// Rotates `x` `[b, t, h, d]` by angles that grow with the position, by half-rotation as in Llama. `cos` and `sin` are tables `[t, d/2]` in
/// the accumulator type of `x`. Saves the tables.
///
/// PyTorch has no such operator: models write it out in several operators, with temporaries of their own.
///
/// # Errors
/// [`Error::Shape`] if the tables do not fit; errors of the device.
pub fn rope(x: &Tensor, cos: &Array, sin: &Array) -> Result<Tensor> {
    let fits = match *x.dims() {
        [_, t, _, d] => d % 2 == 0 && cos.dims() == [t, d / 2] && sin.dims() == [t, d / 2],
        _ => false,
    };
    if !fits {
        let detail = format!("{:?} with tables {:?} and {:?}", x.dims(), cos.dims(), sin.dims());
        return Err(Error::shape("rope", detail));
    }
    let _op = context::op("rope");
    let y = turned(x.array(), cos, sin, false)?;
    record(y, &[x], |saved| {
        saved.save("cos", cos)?;
        saved.save("sin", sin)?;
        Ok(Box::new(RopeBackward))
    })
}

fn turned(x: &Array, cos: &Array, sin: &Array, inverse: bool) -> Result<Array> {
    let out = x.empty_like()?;
    let (cos, sin) = (cos.operand(), sin.operand());
    x.device().launch(Rope { inverse, x: x.operand(), cos, sin, out: out.operand() })?;
    Ok(out)
}

struct RopeBackward;

impl Function for RopeBackward {
    fn name(&self) -> &'static str {
        "RopeBackward0"
    }

    /// The transpose of a rotation is its inverse.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (cos, sin) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("rope_backward");
        let out = turned(grad, &cos, &sin, true)?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
