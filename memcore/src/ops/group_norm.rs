//! Normalisation over groups of channels.

use smallvec::smallvec;

use super::autocast::full;
use super::batch_norm::check;
use super::norm::present;
use super::shape;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, LayerNorm, Matmul, ReduceOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};

/// Each of `groups` of channels (dimension 1) of each example of `x` `[n, c, ..]` normalised, times weight, plus bias (`[c]` each). Saves its
/// input, the
/// weight, and mean and reciprocal deviation of each group.
///
/// In float32 or float64, to which autocast brings a 16-bit input; an example has more than one position.
///
/// # Errors
/// [`Error::Shape`] when the shapes do not fit; [`Error::DType`] for 16-bit floats and for parameters of another type; those of the device.
pub fn group_norm(
    x: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    check("group_norm", x, &[weight, bias])?;
    let _outer = context::op("group_norm");
    let bias = bias.map(full).transpose()?;
    let weight = weight.map(full).transpose()?;
    let x = &full(x)?;
    let shape = GroupShape::new(x, groups, [weight.as_ref(), bias.as_ref()])?;
    let inside = x.device().profile().group_norm_copies_inside;
    let x = &if inside { x.clone() } else { shape::contiguous(x)? };
    let (weight, bias) = (weight.as_ref(), bias.as_ref());
    let op = context::op("native_group_norm");
    let y = Array::empty(x.device(), x.dims(), x.dtype())?;
    let statistic = || Array::empty(x.device(), &[shape.n * groups], x.dtype());
    let (mean, rstd) = (statistic()?, statistic()?);
    let input = ordered(x.array())?;
    let affine = weight.is_some() || bias.is_some();
    // PyTorch has a factor and a summand for each channel of each example.
    let factors =
        if affine && shape.torch(x.array()) { Some([shape.channels(&y)?, shape.channels(&y)?]) } else { None };
    let rows = [shape.n * groups, shape.per_group * shape.positions];
    x.device().launch(LayerNorm {
        eps,
        x: input.view(&rows)?.operand(),
        weight: None,
        bias: None,
        out: y.view(&rows)?.operand(),
        mean: mean.operand(),
        rstd: rstd.operand(),
    })?;
    for (op, parameter) in [(BinaryOp::Mul, weight), (BinaryOp::ADD, bias)] {
        if let Some(parameter) = parameter {
            y.view(&shape.planes())?.binary_(op, &parameter.array().reshape(&[shape.c, 1])?)?;
        }
    }
    if let Some([scale, shift]) = factors {
        drop(shift);
        drop(scale);
    }
    drop(input);
    drop(op);
    let (inputs, slots) = present(x, &[weight, bias]);
    let y = record(y, &inputs, |saved| {
        saved.save("input", x.array())?;
        saved.save("mean", &mean)?;
        saved.save("rstd", &rstd)?;
        if let Some(weight) = weight {
            saved.save("weight", weight.array())?;
        }
        Ok(Box::new(GroupNormBackward { shape, slots }))
    })?;
    drop((mean, rstd));
    Ok(y)
}

/// The array itself where it is contiguous; PyTorch's copy inside of an operator.
fn ordered(x: &Array) -> Result<Array> {
    if x.layout().is_contiguous() { Ok(x.clone()) } else { context::within("clone", || x.copied()) }
}

/// `[n, groups·per_group, positions]`
#[derive(Clone, Copy)]
struct GroupShape {
    n: usize,
    c: usize,
    groups: usize,
    per_group: usize,
    positions: usize,
}

impl GroupShape {
    fn new(x: &Tensor, groups: usize, parameters: [Option<&Tensor>; 2]) -> Result<Self> {
        let (n, c) = (x.dims()[0], x.dims()[1]);
        let positions = x.dims()[2..].iter().product();
        if groups == 0 || !c.is_multiple_of(groups) {
            return Err(Error::shape("group_norm", format!("{c} channels in {groups} groups")));
        }
        if positions < 2 {
            let detail = format!("{:?}: an example of one position is not supported", x.dims());
            return Err(Error::shape("group_norm", detail));
        }
        let wide = |t: &&Tensor| t.dtype() != x.dtype() || t.dtype() != t.dtype().accumulator();
        if let Some(other) = [Some(x), parameters[0], parameters[1]].into_iter().flatten().find(wide) {
            let (op, operand, expected) = ("group_norm", "operand", x.dtype().accumulator().name());
            return Err(Error::DType { op, operand, found: other.dtype(), expected });
        }
        Ok(Self { n, c, groups, per_group: c / groups, positions })
    }

    fn torch(&self, x: &Array) -> bool {
        x.device().profile().torch_temporaries
    }

    fn planes(&self) -> [usize; 3] {
        [self.n, self.c, self.positions]
    }

    /// Sizes in groups: `[n, groups, per_group, positions]`.
    fn grouped(&self) -> [usize; 4] {
        [self.n, self.groups, self.per_group, self.positions]
    }

    /// A number for each channel of each example: `[n, groups, per_group, 1]`.
    fn channels(&self, x: &Array) -> Result<Array> {
        Array::empty(x.device(), &[self.n, self.groups, self.per_group, 1], x.dtype())
    }

    /// A number for each group of each example: `[n, groups, 1, 1]`.
    fn group(&self, x: &Array) -> Result<Array> {
        Array::empty(x.device(), &[self.n, self.groups, 1, 1], x.dtype())
    }
}

struct GroupNormBackward {
    shape: GroupShape,
    slots: [Option<usize>; 2],
}

/// What the pass for the input's gradient multiplies and adds, in PyTorch's order of making.
struct Factors {
    /// Of the input, of nothing: `[n, groups, 1, 1]`.
    slope: Array,
    shift: Array,
    /// Of the gradient, where there is a weight: `[n, groups, per_group, 1]`.
    scale: Option<Array>,
}

impl GroupNormBackward {
    /// `Σ grad·x` and `Σ grad` of each channel of each example.
    fn sums(&self, grad: &Array, x: &Array) -> Result<[Array; 2]> {
        let s = &self.shape;
        let (products, sums) = (s.channels(x)?, s.channels(x)?);
        let (rows, columns) = ([s.n * s.c, 1, s.positions], [s.n * s.c, s.positions, 1]);
        x.device().launch(Matmul {
            alpha: 1.0,
            beta: 0.0,
            a: grad.view(&rows)?.operand(),
            b: x.view(&columns)?.operand(),
            bias: None,
            out: products.view(&[s.n * s.c, 1, 1])?.operand(),
            workspace: None,
        })?;
        grad.view(&[s.n * s.c, s.positions])?.reduce_axes_into(ReduceOp::Sum, &sums.view(&[s.n * s.c, 1])?)?;
        Ok([products, sums])
    }

    /// With `A = Σ w·Σ grad·x` and `B = Σ w·Σ grad` over a group of `m` elements: the input is multiplied by `(B·mean − A)·rstd³/m`, and
    /// `−slope·mean − B·rstd/m` is added to `grad·w·rstd`.
    fn factors(
        &self,
        [products, sums]: &[Array; 2],
        mean: &Array,
        rstd: &Array,
        weight: Option<&Array>,
    ) -> Result<Factors> {
        let s = &self.shape;
        let count = (s.per_group * s.positions) as f64;
        let (slope, shift) = (s.group(mean)?, s.group(mean)?);
        let scale = weight.map(|_| context::within("resize_", || s.channels(mean))).transpose()?;
        for (of_channels, of_groups) in [(products, &slope), (sums, &shift)] {
            match (&scale, weight) {
                (Some(scratch), Some(weight)) => {
                    of_channels.binary_into(BinaryOp::Mul, weight, scratch)?;
                    self.over_groups(scratch, of_groups)?;
                }
                _ => self.over_groups(of_channels, of_groups)?,
            }
        }
        let times = |x: &Array, mul| x.unary_(UnaryOp::Affine { mul, add: 0.0 });
        times(&slope, -1.0)?;
        slope.ternary_(TernaryOp::Addcmul { value: 1.0 }, &shift, mean)?;
        for _ in 0..3 {
            slope.binary_(BinaryOp::Mul, rstd)?;
        }
        times(&slope, 1.0 / count)?;
        shift.binary_(BinaryOp::Mul, rstd)?;
        times(&shift, -1.0 / count)?;
        shift.ternary_(TernaryOp::Addcmul { value: -1.0 }, &slope, mean)?;
        if let (Some(scale), Some(weight)) = (&scale, weight) {
            rstd.binary_into(BinaryOp::Mul, weight, scale)?;
        }
        Ok(Factors { slope, shift, scale })
    }

    /// Fills `out` with the gradient of the input; what it needed is returned, to be let go in PyTorch's order.
    fn input_gradient(
        &self,
        out: &Array,
        input: &Array,
        grad: &Array,
        sums: &[Array; 2],
        [mean, rstd]: [&Array; 2],
        weight: Option<&Array>,
    ) -> Result<Factors> {
        let factors = self.factors(sums, mean, rstd, weight)?;
        let dims = self.shape.grouped();
        let out = out.view(&dims)?;
        input.view(&dims)?.binary_into(BinaryOp::Mul, &factors.slope, &out)?;
        let scale = factors.scale.as_ref().unwrap_or(rstd);
        out.ternary_(TernaryOp::Addcmul { value: 1.0 }, &grad.view(&dims)?, scale)?;
        out.binary_(BinaryOp::ADD, &factors.shift)?;
        Ok(factors)
    }

    /// Fills the gradients of weight and bias: `Σ (Σ grad·x − mean·Σ grad)·rstd` and `Σ grad` over the examples. Overwrites the products.
    fn parameter_gradients(
        &self,
        parameters: &[Option<Array>; 2],
        [products, plain]: &[Array; 2],
        [mean, rstd]: [&Array; 2],
    ) -> Result<()> {
        if let Some(out) = &parameters[0] {
            products.ternary_(TernaryOp::Addcmul { value: -1.0 }, plain, mean)?;
            products.binary_(BinaryOp::Mul, rstd)?;
            self.over_examples(products, out)?;
        }
        if let Some(out) = &parameters[1] {
            self.over_examples(plain, out)?;
        }
        Ok(())
    }

    /// The sum over the channels of a group.
    fn over_groups(&self, channels: &Array, out: &Array) -> Result<()> {
        let rows = self.shape.n * self.shape.groups;
        channels.view(&[rows, self.shape.per_group])?.reduce_axes_into(ReduceOp::Sum, &out.view(&[rows, 1])?)
    }

    /// The sum over the examples.
    fn over_examples(&self, channels: &Array, out: &Array) -> Result<()> {
        let s = &self.shape;
        channels.view(&[s.n, s.c])?.reduce_axes_into(ReduceOp::Sum, &out.view(&[1, s.c])?)
    }
}

impl Function for GroupNormBackward {
    fn name(&self) -> &'static str {
        "NativeGroupNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (x, mean, rstd) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let s = &self.shape;
        let weight = if self.slots[0].is_some() { Some(saved.get(3)?) } else { None };
        let weight = weight.map(|w| w.reshape(&[s.groups, s.per_group, 1])).transpose()?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let inside = x.device().profile().group_norm_copies_inside;
        let grad = if inside { grad.clone() } else { grad.contiguous()? };
        let op = context::op("native_group_norm_backward");
        let (input, ordered_grad) = (ordered(&x)?, ordered(&grad)?);
        let wanted = |slot: Option<usize>| slot.is_some_and(|slot| needs.input(slot));
        let out = if needs.input(0) { Some(Array::empty(x.device(), x.dims(), x.dtype())?) } else { None };
        let parameter = |slot| -> Result<Option<Array>> {
            wanted(slot).then(|| Array::empty(x.device(), &[s.c], x.dtype())).transpose()
        };
        let parameters = [parameter(self.slots[0])?, parameter(self.slots[1])?];
        let [mean, rstd] = [mean, rstd].map(|statistic| statistic.view(&[s.n, s.groups, 1, 1]));
        let (mean, rstd) = (mean?, rstd?);
        let sums = self.sums(&ordered_grad, &input)?;
        let factors = match &out {
            Some(out) => {
                Some(self.input_gradient(out, &input, &ordered_grad, &sums, [&mean, &rstd], weight.as_ref())?)
            }
            None => None,
        };
        self.parameter_gradients(&parameters, &sums, [&mean, &rstd])?;
        if let Some(Factors { slope, shift, scale }) = factors {
            drop(shift);
            drop(slope);
            drop(scale);
        }
        let [products, plain] = sums;
        drop(plain);
        drop(products);
        drop(ordered_grad);
        drop(input);
        drop(op);
        drop(grad);
        drop((x, mean, rstd));
        saved.done();
        let mut all: Grads = smallvec![out];
        for (slot, parameter) in self.slots.into_iter().zip(parameters) {
            if slot.is_some() {
                all.push(parameter);
            }
        }
        Ok(all)
    }
}
