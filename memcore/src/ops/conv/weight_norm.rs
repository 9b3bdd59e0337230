//! Weight normalisation: length and direction of a weight are parameters of their own.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::on_host;

/// `g · v/‖v‖`, with the norms over all axes except `axis`, which is the first or the last one: PyTorch's `_weight_norm`. Saves both operands
/// and the norms, in float32. Values are computed on the host.
///
/// # Errors
/// [`Error::Shape`] unless `g` has `v`'s size in that axis and 1 in all others; errors of the device.
pub fn weight_norm(v: &Tensor, g: &Tensor, axis: usize) -> Result<Tensor> {
    const OP: &str = "_weight_norm";
    let kept = v.dims().iter().enumerate().map(|(i, &size)| if i == axis { size } else { 1 });
    if v.rank() == 0 || !(axis == 0 || axis + 1 == v.rank()) || !kept.eq(g.dims().iter().copied()) {
        return Err(Error::shape(OP, format!("{:?} and {:?} over axis {axis}", v.dims(), g.dims())));
    }
    let _op = context::op("_weight_norm>_weight_norm_interface");
    let dtype = if v.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let y = context::within("empty_like", || Array::empty(v.device(), v.dims(), v.dtype()))?;
    let norms = context::within("empty_strided", || Array::empty(v.device(), g.dims(), dtype))?;
    let groups = Groups::new(v.dims(), axis);
    on_host::fill(&norms, &[v.array()], |values| Ok(groups.sums(&values[0], |v| v * v).map(f64::sqrt).collect()))?;
    on_host::fill(&y, &[v.array(), g.array(), &norms], |values| {
        let of = |(i, v): (usize, &f64)| v * values[1][groups.of_element(i)] / values[2][groups.of_element(i)];
        Ok(values[0].iter().enumerate().map(of).collect())
    })?;
    record(y, &[v, g], |saved| {
        saved.save("g", g.array())?;
        saved.save("v", v.array())?;
        saved.save("result1", &norms)?;
        Ok(Box::new(WeightNormBackward { groups }))
    })
}

/// Assignment of elements to groups.
#[derive(Clone, Copy)]
struct Groups {
    count: usize,
    inner: usize,
}

impl Groups {
    fn new(dims: &[usize], axis: usize) -> Self {
        Self { count: dims[axis], inner: dims[axis + 1..].iter().product() }
    }

    fn of_element(self, i: usize) -> usize {
        i / self.inner.max(1) % self.count.max(1)
    }

    fn sums(self, values: &[f64], of: impl Fn(f64) -> f64) -> impl Iterator<Item = f64> {
        let mut sums = vec![0.0; self.count];
        for (i, value) in values.iter().enumerate() {
            sums[self.of_element(i)] += of(*value);
        }
        sums.into_iter()
    }
}

struct WeightNormBackward {
    groups: Groups,
}

impl Function for WeightNormBackward {
    fn name(&self) -> &'static str {
        "WeightNormInterfaceBackward0"
    }

    /// With `s = Σ v·grad`: `g/‖v‖·(grad − v·s/‖v‖²)`, and `s/‖v‖`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (g, v, norms) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("_weight_norm_interface_backward>empty_like");
        let of_v = Array::empty(v.device(), v.dims(), v.dtype())?;
        let of_g = Array::empty(g.device(), g.dims(), g.dtype())?;
        let groups = self.groups;
        let products = |v: &[f64], grad: &[f64]| -> Vec<f64> {
            let all: Vec<f64> = v.iter().zip(grad).map(|(v, grad)| v * grad).collect();
            groups.sums(&all, |product| product).collect()
        };
        on_host::fill(&of_v, &[&v, grad, &g, &norms], |values| {
            let sums = products(&values[0], &values[1]);
            let of = |i: usize| {
                let group = groups.of_element(i);
                let norm = values[3][group];
                values[2][group] / norm * (values[1][i] - values[0][i] * sums[group] / (norm * norm))
            };
            Ok((0..values[0].len()).map(of).collect())
        })?;
        on_host::fill(&of_g, &[&v, grad, &norms], |values| {
            let sums = products(&values[0], &values[1]);
            Ok(sums.iter().zip(&values[2]).map(|(sum, norm)| sum / norm).collect())
        })?;
        saved.done();
        Ok(smallvec![Some(of_v), Some(of_g)])
    }
}
