//! Products of groups of rows, each with the matrix of its group: what the experts of a mixture compute. Values are computed on the host.
//!
//! How many rows a group has is in a tensor, and follows from values. The memory does not depend on it: all results have a row for each row.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::on_host;

/// `x[s] @ weight[g]` for rows `x` `[s, k]` and matrices `[g, k, n]`: group `g` has the rows from `ends[g - 1]` to `ends[g]` (i32). PyTorch's `_grouped_mm`,
/// which autocast does not cast for: no kernel of it is registered for `AutocastCUDA` (2.11). Saves each operand if the other one requires a gradient, and the
/// ends.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; [`Error::DType`] if their types differ; [`Error::Invalid`] for types or sizes that are not supported; errors of the device.
pub fn grouped_mm(x: &Tensor, weight: &Tensor, ends: &Tensor) -> Result<Tensor> {
    const OP: &str = "_grouped_mm";
    let groups = Groups::new(OP, x, weight, ends)?;
    // Rows begin at multiples of 16 bytes, in PyTorch by a check.
    let aligned = |size: usize| (size as u64 * x.dtype().size()).is_multiple_of(16);
    if !aligned(groups.inner) || !aligned(groups.columns) {
        return Err(Error::invalid(
            OP,
            format!("rows of {:?} and {:?} begin at multiples of 16 bytes", x.dims(), weight.dims()),
        ));
    }
    let y = context::within(OP, || Array::empty(x.device(), &[groups.rows, groups.columns], x.dtype()))?;
    scratch(&y, ends.array())?;
    groups.multiply(&y, [x.array(), weight.array(), ends.array()])?;
    record(y, &[x, weight], |saved| {
        let kept = [weight.requires_grad(), x.requires_grad()];
        // In the order of PyTorch's names, in which they are freed.
        if kept[1] {
            saved.save("mat2", weight.array())?;
        }
        saved.save("offs", ends.array())?;
        if kept[0] {
            saved.save("self", x.array())?;
        }
        Ok(Box::new(GroupedBackward { groups, kept, weight: *weight.array().layout() }))
    })
}

/// As [`grouped_mm`], as transformers computes it while PyTorch traces a network in another type than bfloat16: one product after the other. Saves both
/// operands. The ends live until the graph is dropped.
///
/// # Errors
/// As [`grouped_mm`].
pub fn grouped_mm_in_turn(x: &Tensor, weight: &Tensor, ends: &Tensor) -> Result<Tensor> {
    const OP: &str = "grouped_mm_fallback";
    let groups = Groups::new(OP, x, weight, ends)?;
    let y = context::within("grouped_mm_fallback>zeros", || {
        Array::zeros(x.device(), &[groups.rows, groups.columns], x.dtype())
    })?;
    groups.multiply(&y, [x.array(), weight.array(), ends.array()])?;
    record(y, &[x, weight], |saved: &mut Recorder| {
        saved.save("input", x.array())?;
        saved.save("weight", weight.array())?;
        Ok(Box::new(InTurnBackward { groups, ends: ends.array().clone() }))
    })
}

/// Sizes of products in groups.
#[derive(Clone, Copy)]
struct Groups {
    rows: usize,
    inner: usize,
    columns: usize,
}

impl Groups {
    fn new(op: &'static str, x: &Tensor, weight: &Tensor, ends: &Tensor) -> Result<Self> {
        let sizes = format!("{:?} @ {:?} to {:?}", x.dims(), weight.dims(), ends.dims());
        let ([rows, inner], [count, expected, columns]) = (x.dims(), weight.dims()) else {
            return Err(Error::shape(op, sizes));
        };
        if inner != expected || ends.dims() != [*count] {
            return Err(Error::shape(op, sizes));
        }
        if x.dtype() != weight.dtype() {
            return Err(Error::DType { op, operand: "mat2", found: weight.dtype(), expected: x.dtype().name() });
        }
        if !x.dtype().is_float() || ends.dtype() != DType::I32 {
            return Err(Error::invalid(op, format!("of {} and {} to {}", x.dtype(), weight.dtype(), ends.dtype())));
        }
        Ok(Self { rows: *rows, inner: *inner, columns: *columns })
    }

    /// Calls `of_row(row, group)` for every row that lies in a group.
    fn each(&self, ends: &[f64], mut of_row: impl FnMut(usize, usize)) -> Result<()> {
        let mut start = 0;
        for (group, &end) in ends.iter().enumerate() {
            if !(start as f64..=self.rows as f64).contains(&end) {
                return Err(Error::shape("grouped_mm", format!("a group from {start} to {end} of {} rows", self.rows)));
            }
            (start..end as usize).for_each(|row| of_row(row, group));
            start = end as usize;
        }
        Ok(())
    }

    /// Position of a matrix's element.
    fn at(&self, group: usize, k: usize, n: usize) -> usize {
        (group * self.inner + k) * self.columns + n
    }

    /// `y = x @ weight`, 0 in rows behind the last group.
    fn multiply(&self, y: &Array, inputs: [&Array; 3]) -> Result<()> {
        on_host::fill(y, &inputs, |values| {
            let mut out = vec![0.0; y.numel()];
            self.each(&values[2], |row, group| {
                for k in 0..self.inner {
                    let factor = values[0][row * self.inner + k];
                    (0..self.columns)
                        .for_each(|n| out[row * self.columns + n] += factor * values[1][self.at(group, k, n)]);
                }
            })?;
            Ok(out)
        })
    }

    /// `out = grad @ weightᵀ`.
    fn of_rows(&self, out: &Array, grad: &Array, weight: &Array, ends: &Array) -> Result<()> {
        on_host::fill(out, &[grad, weight, ends], |values| {
            let mut sums = vec![0.0; out.numel()];
            self.each(&values[2], |row, group| {
                for k in 0..self.inner {
                    let products =
                        (0..self.columns).map(|n| values[0][row * self.columns + n] * values[1][self.at(group, k, n)]);
                    sums[row * self.inner + k] = products.sum();
                }
            })?;
            Ok(sums)
        })
    }

    /// `out = xᵀ @ grad` for each group.
    fn of_weight(&self, out: &Array, x: &Array, grad: &Array, ends: &Array) -> Result<()> {
        on_host::fill(out, &[x, grad, ends], |values| {
            let mut sums = vec![0.0; out.numel()];
            self.each(&values[2], |row, group| {
                for k in 0..self.inner {
                    let factor = values[0][row * self.inner + k];
                    (0..self.columns)
                        .for_each(|n| sums[self.at(group, k, n)] += factor * values[1][row * self.columns + n]);
                }
            })?;
            Ok(sums)
        })
    }
}

/// Allocates what a kernel for all groups takes: of bfloat16 from compute capability 9.0 on, where every other type is multiplied group by group. It is told
/// of each group (sizes, strides, where operands lie), and has a workspace for each multiprocessor.
fn scratch(out: &Array, ends: &Array) -> Result<()> {
    let profile = out.device().profile();
    let is_one_kernel = profile.compute_capability.is_some_and(|sm| sm >= 90);
    let (Some(card), true) = (profile.multiprocessors, is_one_kernel && out.dtype() == DType::BF16) else {
        return Ok(());
    };
    let groups = ends.numel();
    let bytes = |n: usize| Array::empty(out.device(), &[n], DType::U8);
    let told = bytes(12 * groups + 3 * 8 * groups + 3 * (8 * groups).next_multiple_of(16))?;
    let workspace = bytes(512 * card.count)?;
    drop(workspace);
    drop(told);
    Ok(())
}

struct GroupedBackward {
    groups: Groups,
    /// Whether the rows and the matrices were saved.
    kept: [bool; 2],
    /// Layout of the matrices, which their gradient has, too.
    weight: Layout,
}

impl Function for GroupedBackward {
    fn name(&self) -> &'static str {
        "GroupedMmBackward0"
    }

    /// The gradient of the matrices is made first, as in PyTorch, and laid out as they are.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let [has_x, has_weight] = self.kept;
        let weight = has_weight.then(|| saved.get(0)).transpose()?;
        let ends = saved.get(usize::from(has_weight))?;
        let x = has_x.then(|| saved.get(1 + usize::from(has_weight))).transpose()?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        let _op = context::op("_grouped_mm");
        if let (true, Some(x)) = (needs.input(1), &x) {
            let made = Array::empty_for(x.device(), self.weight.dims(), &[&self.weight], x.dtype())?;
            scratch(&made, &ends)?;
            self.groups.of_weight(&made, x, grad, &ends)?;
            out[1] = Some(made);
        }
        if let (true, Some(weight)) = (needs.input(0), &weight) {
            let made = Array::empty(grad.device(), &[self.groups.rows, self.groups.inner], grad.dtype())?;
            scratch(&made, &ends)?;
            self.groups.of_rows(&made, grad, weight, &ends)?;
            out[0] = Some(made);
        }
        drop((weight, x));
        saved.done();
        Ok(out)
    }
}

struct InTurnBackward {
    groups: Groups,
    /// A Python node's attribute: it lives as long as the node.
    ends: Array,
}

impl Function for InTurnBackward {
    fn name(&self) -> &'static str {
        "GeneratedBackwardFor_transformers_grouped_mm_fallback_defaultBackward"
    }

    /// Makes both gradients, whether they are needed or not.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, weight) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("grouped_mm_fallback_backward>zeros_like");
        let of_x = Array::empty_for(x.device(), x.dims(), &[x.layout()], x.dtype())?;
        let of_weight = Array::empty_for(x.device(), weight.dims(), &[weight.layout()], x.dtype())?;
        self.groups.of_rows(&of_x, grad, &weight, &self.ends)?;
        self.groups.of_weight(&of_weight, &x, grad, &self.ends)?;
        saved.done();
        Ok(smallvec![needs.input(0).then_some(of_x), needs.input(1).then_some(of_weight)])
    }
}
