//! Elements of one tensor that are written, one after the other, to where a mask is set in another. Values are computed on the host.

use smallvec::{SmallVec, smallvec};

use super::temporaries;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;

type Dims = SmallVec<[usize; 6]>;

/// `x` with the elements of `source`, in order, where `mask` is set; the mask is broadcast to `x`. Saves the mask.
///
/// How many elements the mask chooses is a value. A device that computes nothing assumes as many as `source` has.
///
/// # Errors
/// [`Error::Shape`] for a mask or a type that does not fit; [`Error::Invalid`] for a mask that chooses another number of elements than `source` has;
/// errors of the device.
pub fn masked_scatter(x: &Tensor, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
    let wide = mask.array().broadcast_to(x.dims())?;
    if mask.dtype() != DType::Bool || source.dtype() != x.dtype() || source.numel() > x.numel() {
        let detail = format!("{:?} of {} by {} from {:?}", x.dims(), x.dtype(), mask.dtype(), source.dims());
        return Err(Error::shape("masked_scatter", detail));
    }
    let y = context::within("masked_scatter>clone", || x.array().copied())?;
    let take = || {
        let _places = running_numbers(&wide)?;
        source.array().contiguous().map(drop)
    };
    context::within("masked_scatter>masked_scatter_", take)?;
    on_host::fill(&y, &[x.array(), &wide, source.array()], |values| {
        let chosen = values[1].iter().filter(|set| **set != 0.0).count();
        if chosen != source.numel() {
            let problem = format!("the mask chooses {chosen} elements, and the source has {}", source.numel());
            return Err(Error::invalid("masked_scatter", problem));
        }
        let mut next = values[2].iter();
        let after = values[0].iter().zip(&values[1]);
        Ok(after.map(|(kept, set)| if *set == 0.0 { *kept } else { next.next().copied().unwrap_or(*kept) }).collect())
    })?;
    let backward = MaskedScatterBackward { source: source.dims().into(), dims: x.dims().into() };
    record(y, &[x, source], |saved| {
        saved.save("mask", mask.array())?;
        Ok(Box::new(backward))
    })
}

/// The number of each element among those that are chosen, which PyTorch keeps while it writes them, and the mask in its full size.
fn running_numbers(wide: &Array) -> Result<SmallVec<[Array; 2]>> {
    let profile = wide.device().profile();
    if !profile.torch_temporaries || wide.numel() == 0 {
        return Ok(SmallVec::new());
    }
    let numbers = Array::empty(wide.device(), wide.dims(), DType::I64)?;
    let mask = wide.contiguous()?;
    let bytes = temporaries::running_sums(wide.numel(), DType::I64, profile.index_sort);
    drop(Array::empty(wide.device(), &[bytes], DType::U8)?);
    // Freed from the first on.
    Ok(smallvec![mask, numbers])
}

struct MaskedScatterBackward {
    source: Dims,
    dims: Dims,
}

impl Function for MaskedScatterBackward {
    fn name(&self) -> &'static str {
        "MaskedScatterBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let mask = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let _op = context::op("masked_fill>clone");
            out[0] = Some(grad.masked_fill(&mask, 0.0)?);
        }
        if needs.input(1) {
            out[1] = Some(self.selected(grad, &mask.broadcast_to(&self.dims)?)?);
        }
        saved.done();
        Ok(out)
    }
}

impl MaskedScatterBackward {
    /// The elements of a gradient where the mask is set, in the sizes of the source.
    fn selected(&self, grad: &Array, wide: &Array) -> Result<Array> {
        let _op = context::op("masked_scatter_backward>masked_select");
        let count: usize = self.source.iter().product();
        let places = context::within("nonzero", || places_of(wide, count))?;
        let selected = context::within("index", || Array::empty(grad.device(), &self.source, grad.dtype()))?;
        drop(places);
        on_host::fill(&selected, &[grad, wide], |values| {
            let each = values[0].iter().zip(&values[1]);
            Ok(each.filter(|(_, set)| **set != 0.0).map(|(value, _)| *value).collect())
        })?;
        Ok(selected)
    }
}

/// The places of `count` elements of a mask, as PyTorch's `nonzero` makes them: it counts them first.
fn places_of(wide: &Array, count: usize) -> Result<Option<Array>> {
    let device = wide.device();
    if !device.profile().torch_temporaries || wide.numel() == 0 {
        return Ok(None);
    }
    let empty = |dims: &[usize], dtype| Array::empty(device, dims, dtype);
    let mask = wide.contiguous()?;
    let number = empty(&[1], DType::I32)?;
    drop(empty(&[temporaries::sum_bytes(wide.numel(), device.profile())], DType::U8)?);
    let places = empty(&[wide.dims().len(), count], DType::I64)?;
    drop(empty(&[temporaries::selection_bytes(wide.numel(), device.profile())], DType::U8)?);
    drop(number);
    drop(mask);
    Ok(Some(places))
}
