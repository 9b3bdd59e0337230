//! Borders made of the elements beside them: mirrored at the edge, or the edge repeated. Values are computed on the host.

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::shape::view::Dims;

/// What a border is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The elements beside the edge, mirrored: `2 1 | 0 1 2 | 1 0`.
    Reflected,
    /// The element at the edge: `0 0 | 0 1 2 | 2 2`.
    Repeated,
}

/// Pads the last one to three axes, each with `[before, after]` elements. Saves its input.
///
/// # Errors
/// [`Error::Shape`] for other than one to three borders, fewer than two dimensions more, or a mirrored border as large as the axis; errors of the device.
pub fn pad_edges(x: &Tensor, borders: &[[usize; 2]], edge: Edge) -> Result<Tensor> {
    let names = Names::choose(edge, borders.len());
    let fits = |(size, border): (&usize, &[usize; 2])| {
        *size > 0 && (edge == Edge::Repeated || border.iter().all(|border| border < size))
    };
    let inner = x.rank().checked_sub(borders.len()).filter(|lead| *lead >= 1 && matches!(borders.len(), 1..=3));
    let Some(lead) = inner.filter(|lead| x.dims()[*lead..].iter().zip(borders).all(fits)) else {
        return Err(Error::shape("pad", format!("{:?} by {borders:?}", x.dims())));
    };
    let mut dims: Dims = x.dims().into();
    dims[lead..].iter_mut().zip(borders).for_each(|(size, [before, after])| *size += before + after);
    let map = Map { from: x.dims().into(), to: dims.clone(), borders: borders.into(), edge };
    let describe = |saved: &mut Recorder| {
        saved.save("self", x.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(PadBackward { names, map: map.clone() }))
    };
    record_inputs(&[x], describe, || {
        let _op = context::op(names.forward);
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        on_host::apply(&y, x.array(), &|i, tell| tell(map.source(i), 1.0))?;
        Ok(y)
    })
}

#[derive(Clone, Copy)]
struct Names {
    forward: &'static str,
    backward: &'static str,
    node: &'static str,
}

impl Names {
    fn choose(edge: Edge, axes: usize) -> Self {
        let [forward, backward, node] = match (edge, axes) {
            (Edge::Reflected, 1) => ["pad>reflection_pad1d", "reflection_pad1d_backward", "ReflectionPad1DBackward0"],
            (Edge::Reflected, 3) => ["pad>reflection_pad3d", "reflection_pad3d_backward", "ReflectionPad3DBackward0"],
            (Edge::Repeated, 3) => ["pad>replication_pad3d", "replication_pad3d_backward", "ReplicationPad3DBackward0"],
            (Edge::Reflected, _) => {
                ["pad>reflection_pad2d>resize_", "reflection_pad2d_backward>zeros_like", "ReflectionPad2DBackward0"]
            }
            (Edge::Repeated, 1) => ["pad>replication_pad1d", "replication_pad1d_backward", "ReplicationPad1DBackward0"],
            (Edge::Repeated, _) => {
                ["pad>replication_pad2d", "replication_pad2d_backward>empty_like", "ReplicationPad2DBackward0"]
            }
        };
        Self { forward, backward, node }
    }
}

/// Where each element of the result comes from.
#[derive(Clone)]
struct Map {
    from: Dims,
    to: Dims,
    borders: SmallVec<[[usize; 2]; 3]>,
    edge: Edge,
}

impl Map {
    fn source(&self, i: usize) -> usize {
        let lead = self.from.len() - self.borders.len();
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for axis in (0..self.from.len()).rev() {
            let (size, place) = (self.from[axis], rest % self.to[axis]);
            rest /= self.to[axis];
            at += step * if axis < lead { place } else { self.inside(place, self.borders[axis - lead][0], size) };
            step *= size;
        }
        at
    }

    /// Returns the place along a padded axis of the element that stands at `place` of the result.
    fn inside(&self, place: usize, before: usize, size: usize) -> usize {
        let last = size - 1;
        match self.edge {
            Edge::Reflected if place < before => before - place,
            Edge::Reflected if place - before > last => 2 * last - (place - before),
            _ => place.saturating_sub(before).min(last),
        }
    }
}

struct PadBackward {
    names: Names,
    map: Map,
}

impl Function for PadBackward {
    fn name(&self) -> &'static str {
        self.names.node
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = context::within(self.names.backward, || Array::empty(grad.device(), &self.map.from, grad.dtype()))?;
        on_host::apply_transposed(&out, grad, &|i, tell| tell(self.map.source(i), 1.0))?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
