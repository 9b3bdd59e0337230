//! Losses of class indices: negative log-likelihood and cross entropy.

use smallvec::smallvec;

use super::weighted_classes::Weighted;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, Gather, NllLoss, NllLossGrad, Reduction};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::norm::softmax::in_own_type;
use crate::ops::pointwise::binary;
use crate::ops::pointwise::mask::masked_fill_;
use crate::ops::pointwise::unary;
use crate::ops::reduce::sums_and_extremes::sum_axes;
use crate::ops::shape::view;

/// Default class of targets that do not count, as in PyTorch.
pub const IGNORE_INDEX: i64 = -100;

/// Cross entropy of logits `[n, classes, ..]` against class indices `[n, ..]` (i64), or of `[classes]` against one index:
/// `nll_loss(log_softmax(x))`. Saves the log-probabilities, not the logits, and the 4-byte total weight.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn cross_entropy(logits: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    cross_entropy_counting(logits, target, reduction, Counting::ALL)
}

/// [`cross_entropy`] in which targets count as `counting` says.
///
/// # Errors
/// As [`cross_entropy`], and [`Error::Shape`] for weights that are not one for each class.
pub fn cross_entropy_counting(
    logits: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    counting: Counting<'_>,
) -> Result<Tensor> {
    let _op = context::op("cross_entropy_loss");
    let log_probs = in_own_type(logits, class_axis(logits))?;
    Ok(negative_log_likelihood(&log_probs, target, reduction, counting, true)?.0)
}

/// Which targets count, and how much.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    /// The class that does not count.
    pub ignored: i64,
    /// How much each class counts, in the type of the losses. The loss is then computed on the host.
    pub weight: Option<&'a Tensor>,
}

impl Counting<'_> {
    /// All classes count alike.
    pub const ALL: Counting<'static> = Counting { ignored: IGNORE_INDEX, weight: None };
}

/// [`cross_entropy`] with label smoothing: a share `s` = `smoothing` goes to all classes alike,
/// `(1 − s)·cross_entropy + s·mean over classes of −log_softmax(x)` (Szegedy et al., "Rethinking the Inception Architecture for
/// Computer Vision", 2016). It is composed of several operators, as in PyTorch, and also saves masks and counts.
///
/// # Errors
/// As [`cross_entropy`], and [`Error::Invalid`] for a share outside `0..=1`.
pub fn cross_entropy_smooth(logits: &Tensor, target: &Tensor, reduction: Reduction, smoothing: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(Error::invalid("cross_entropy", format!("label smoothing {smoothing}")));
    }
    if smoothing == 0.0 {
        return cross_entropy(logits, target, reduction);
    }
    let _op = context::op("cross_entropy_loss");
    let axis = class_axis(logits);
    let classes = logits.dims().get(axis).copied().unwrap_or(1);
    let log_probs = in_own_type(logits, axis)?;
    let (nll, total_weight) = negative_log_likelihood(&log_probs, target, reduction, Counting::ALL, true)?;
    let (smooth, mask) = {
        let sums = sum_axes(&log_probs, &[axis], false)?;
        let negated = unary::neg(&sums)?;
        nan_where_ignored(target.array(), classes, &total_weight, &sums, &negated)?;
        drop(sums);
        let ignored = context::within("eq", || negated.array().binary(BinaryOp::Ne, negated.array()))?;
        (masked_fill_(&negated, &Tensor::from_array(ignored.clone()), 0.0)?, ignored)
    };
    let all = match reduction {
        Reduction::None => smooth.clone(),
        Reduction::Sum => crate::ops::reduce::sums_and_extremes::sum(&smooth)?,
        Reduction::Mean => mean_of_counted(&smooth, &mask, &total_weight)?,
    };
    drop(mask);
    let scaled = |x: &Tensor, factor| unary::mul_by_scalar(x, factor);
    let for_all = scaled(&all, smoothing / classes as f64)?;
    let for_one = scaled(&nll, 1.0 - smoothing)?;
    let loss = binary::add(&for_one, &for_all)?;
    drop(for_one);
    drop(for_all);
    drop(all);
    drop(smooth);
    Ok(loss)
}

/// Axis of the classes: dimension 1, or the only dimension.
fn class_axis(x: &Tensor) -> usize {
    usize::from(x.rank() > 1)
}

/// Sets each element of `x` to NaN if its target is not a class. Reading outside a table gives NaN: the table holds the number of counted targets
/// once for each class. `memory`, as large as `x`, is overwritten with the values read.
fn nan_where_ignored(target: &Array, classes: usize, counted: &Array, memory: &Tensor, x: &Tensor) -> Result<()> {
    let table = counted.view(&[1, 1])?.broadcast_to(&[classes, 1])?;
    let (indices, out) = (target.reshape(&[target.numel()])?, memory.array().view(&[target.numel(), 1])?);
    out.device().launch(Gather { table: table.operand(), indices: indices.operand(), out: out.operand() })?;
    x.array().binary_(BinaryOp::Add { alpha: 0.0 }, memory.array())
}

/// Sum of `smooth` over the number of counted targets. PyTorch counts them in i64, through the opposite of the mask.
fn mean_of_counted(smooth: &Tensor, mask: &Array, counted: &Array) -> Result<Tensor> {
    let device = smooth.device();
    let torch = device.profile().torch_temporaries;
    let opposite = if torch { Some(context::within("bitwise_not", || mask.empty_like())?) } else { None };
    let count = {
        let _op = context::op("sum");
        let count = Array::empty(device, &[], DType::I64)?;
        if torch {
            drop(context::within("_to_copy", || Array::empty(device, mask.dims(), DType::I64))?);
        }
        count.copy_(counted)?;
        count
    };
    let total = crate::ops::reduce::sums_and_extremes::sum(smooth)?;
    let mean = {
        let _op = context::op("div");
        let mean = total.array().binary(BinaryOp::Div, counted)?;
        record(mean, &[&total], |saved| {
            saved.save("other", &count)?;
            saved.save("counted", counted)?;
            Ok(Box::new(DivByCountBackward))
        })?
    };
    drop(total);
    drop(opposite);
    Ok(mean)
}

/// Backward of a quotient by a number of targets. The number exists as an integer and as a float.
struct DivByCountBackward;

impl Function for DivByCountBackward {
    fn name(&self) -> &'static str {
        "DivBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let counted = saved.get(1)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let out = context::within("div", || grad.binary(BinaryOp::Div, &counted))?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// `−log_probs[i, target[i, ..], ..]`, reduced; of `[n, classes, ..]` and `[n, ..]`, or of `[classes]` and one class. Targets of [`IGNORE_INDEX`]
/// do not count. More than two dimensions have a kernel and a node of their own in PyTorch.
pub fn nll_loss(log_probs: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    nll_loss_counting(log_probs, target, reduction, Counting::ALL)
}

/// [`nll_loss`] in which targets count as `counting` says.
///
/// # Errors
/// As [`cross_entropy_counting`].
pub fn nll_loss_counting(
    log_probs: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    counting: Counting<'_>,
) -> Result<Tensor> {
    Ok(negative_log_likelihood(log_probs, target, reduction, counting, false)?.0)
}

/// Returns the loss, and the number of counted targets.
fn negative_log_likelihood(
    log_probs: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    counting: Counting<'_>,
    of_logits: bool,
) -> Result<(Tensor, Array)> {
    let shape = ClassShape::new(log_probs, target)?;
    let [outer, op] = match (shape.is_plane, of_logits) {
        (false, true) => ["nll_loss_nd", "nll_loss_forward"],
        (false, false) => ["nll_loss_nd>nll_loss", "nll_loss_forward"],
        (true, _) => ["nll_loss_nd>nll_loss2d", "nll_loss2d_forward"],
    };
    let ordered = if shape.is_plane && !of_logits && log_probs.rank() != 4 {
        let _op = context::op("nll_loss_nd");
        view::contiguous(log_probs)?
    } else {
        log_probs.clone()
    };
    let _outer = context::op(outer);
    let log_probs = &full(&ordered)?;
    drop(ordered);
    let _op = context::op(op);
    let device = log_probs.device();
    let loss_dims = if reduction == Reduction::None { target.dims() } else { &[] };
    let empty = |dims: &[usize]| {
        context::within(if shape.is_plane { "resize_" } else { "" }, || Array::empty(device, dims, log_probs.dtype()))
    };
    let (y, total_weight) = if shape.is_plane {
        let total_weight = empty(&[])?;
        (empty(loss_dims)?, total_weight)
    } else {
        (empty(loss_dims)?, empty(&[])?)
    };
    filled(shape, [log_probs, target], counting, reduction, [&y, &total_weight])?;
    let y = record(y, &[log_probs], |saved| {
        saved.save("self", log_probs.array())?;
        saved.save("target", target.array())?;
        saved.save("total_weight", &total_weight)?;
        if let Some(weight) = counting.weight {
            saved.save("weight", weight.array())?;
        }
        Ok(Box::new(NllLossBackward {
            reduction,
            shape,
            ignored: counting.ignored,
            is_weighted: counting.weight.is_some(),
        }))
    })?;
    Ok((y, total_weight))
}

/// Computes the loss and the number of counted targets, or the sum of their weights.
fn filled(
    shape: ClassShape,
    [log_probs, target]: [&Tensor; 2],
    counting: Counting<'_>,
    reduction: Reduction,
    [y, total_weight]: [&Array; 2],
) -> Result<()> {
    let (input, classes) = (log_probs.array().contiguous()?, target.array().contiguous()?);
    match counting.weight {
        Some(weight) => {
            let weighted =
                Weighted::new([shape.classes, shape.inner], counting.ignored, weight.array(), &input, &classes)?;
            weighted.loss(reduction, y, total_weight)?;
        }
        None => y.device().launch(NllLoss {
            reduction,
            ignore_index: counting.ignored,
            log_probs: input.view(&shape.log_probs())?.operand(),
            target: classes.view(&shape.targets())?.operand(),
            out: shape.loss(y, reduction)?.operand(),
            total_weight: total_weight.operand(),
        })?,
    }
    Ok(())
}

/// Log-probabilities as `[n, classes, inner]`.
#[derive(Clone, Copy)]
struct ClassShape {
    n: usize,
    classes: usize,
    inner: usize,
    /// True if there are dimensions after the classes.
    is_plane: bool,
}

impl ClassShape {
    fn new(log_probs: &Tensor, target: &Tensor) -> Result<Self> {
        let (n, classes, behind) = match *log_probs.dims() {
            [classes] => (1, classes, &[][..]),
            [n, classes, ref behind @ ..] => (n, classes, behind),
            [] => return Err(Error::shape("nll_loss", "predictions without a dimension")),
        };
        let examples = if log_probs.rank() > 1 { &log_probs.dims()[..1] } else { &[] };
        if !target.dims().iter().eq(examples.iter().chain(behind)) {
            let (x, t) = (log_probs.dims(), target.dims());
            let detail = format!("predictions {x:?}, targets {t:?}: expected [n, classes, ..] and [n, ..]");
            return Err(Error::shape("nll_loss", detail));
        }
        Ok(Self { n, classes, inner: behind.iter().product(), is_plane: !behind.is_empty() })
    }

    fn log_probs(&self) -> [usize; 3] {
        [self.n, self.classes, self.inner]
    }

    fn targets(&self) -> [usize; 2] {
        [self.n, self.inner]
    }

    /// Returns a loss, or its gradient, in the shape that the kernels take.
    fn loss(&self, x: &Array, reduction: Reduction) -> Result<Array> {
        if reduction == Reduction::None { x.reshape(&self.targets()) } else { Ok(x.clone()) }
    }
}

struct NllLossBackward {
    reduction: Reduction,
    shape: ClassShape,
    ignored: i64,
    is_weighted: bool,
}

impl Function for NllLossBackward {
    fn name(&self) -> &'static str {
        if self.shape.is_plane { "NllLoss2DBackward0" } else { "NllLossBackward0" }
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (log_probs, target, total_weight) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(if self.shape.is_plane { "nll_loss2d_backward" } else { "nll_loss_backward" });
        let out = log_probs.empty_like()?;
        // PyTorch makes the input contiguous, although only its sizes are needed.
        let ordered = out.device().profile().torch_temporaries && !log_probs.layout().is_contiguous();
        let input = if ordered { Some(context::within("contiguous>clone", || log_probs.empty_like())?) } else { None };
        // The kernel for more dimensions reads the gradient in its own layout.
        let grad = if self.shape.is_plane { grad.clone() } else { grad.contiguous()? };
        let target = target.contiguous()?;
        if self.is_weighted {
            let weight = saved.get(3)?;
            let weighted =
                Weighted::new([self.shape.classes, self.shape.inner], self.ignored, &weight, &log_probs, &target)?;
            weighted.slope(self.reduction, &grad, &total_weight, &out)?;
        } else {
            out.device().launch(NllLossGrad {
                reduction: self.reduction,
                ignore_index: self.ignored,
                grad: self.shape.loss(&grad, self.reduction)?.operand(),
                target: target.view(&self.shape.targets())?.operand(),
                total_weight: total_weight.operand(),
                out: out.view(&self.shape.log_probs())?.operand(),
            })?;
        }
        drop((target, grad, input));
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
