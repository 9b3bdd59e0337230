//! Group normalisation.

use smallvec::smallvec;

use super::batch::check;
use super::rows::present;
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, LayerNorm, Matmul, ReduceOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::shape::view;
use crate::profile::GroupNorm;

/// Normalises each of `groups` groups of channels (dimension 1) of each example of `x` `[n, c, ..]`, then multiplies by weight and adds bias
/// (`[c]` each). Saves its input, the weight, and mean and reciprocal deviation of each group.
///
/// Autocast converts a 16-bit input to float32. Without autocast, mean and reciprocal deviation are kept in 16 bits too, as in PyTorch.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; [`Error::DType`] for parameters of another type; [`Error::Invalid`] for 16-bit floats without
/// parameters or with one position if PyTorch 2.11 is followed, which has no memory there that our kernel could compute in; errors of the
/// device.
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
    let x = &if shape.copies_inside() { x.clone() } else { view::contiguous(x)? };
    let (weight, bias) = (weight.as_ref(), bias.as_ref());
    let op = context::op("native_group_norm");
    let y = Array::empty(x.device(), x.dims(), x.dtype())?;
    let statistic = || Array::empty(x.device(), &[shape.n * groups], x.dtype());
    let (mean, rstd) = (statistic()?, statistic()?);
    let input = ordered(x.array())?;
    let scratch = ForwardScratch::new(&shape, x.array(), weight.is_some() || bias.is_some())?;
    let rows = [shape.n * groups, shape.per_group * shape.positions];
    let [exact_mean, exact_rstd] = scratch.statistics(&mean, &rstd)?;
    x.device().launch(LayerNorm {
        eps,
        x: input.view(&rows)?.operand(),
        weight: None,
        bias: None,
        out: y.view(&rows)?.operand(),
        mean: exact_mean.operand(),
        rstd: exact_rstd.operand(),
    })?;
    for (kept, exact) in [(&mean, exact_mean), (&rstd, exact_rstd)] {
        if kept.dtype() != exact.dtype() {
            kept.copy_(&exact)?;
        }
    }
    for (op, parameter) in [(BinaryOp::Mul, weight), (BinaryOp::ADD, bias)] {
        if let Some(parameter) = parameter {
            y.view(&shape.planes())?.binary_(op, &parameter.array().reshape(&[shape.c, 1])?)?;
        }
    }
    scratch.release();
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

/// Returns the same array if it is contiguous, else the copy that PyTorch makes inside an operator.
fn ordered(x: &Array) -> Result<Array> {
    if x.layout().is_contiguous() { Ok(x.clone()) } else { context::within("clone", || x.copied()) }
}

/// PyTorch's kernels for group normalisation. They differ in the memory that they need besides their results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernels {
    /// For channels whose positions are contiguous.
    Planes,
    /// For innermost channels, in 2.15. Pictures and volumes of one channel or one position count as such.
    Innermost,
    /// For examples of one position.
    OnePosition,
}

/// `[n, groups·per_group, positions]`
#[derive(Clone, Copy)]
struct GroupShape {
    n: usize,
    c: usize,
    groups: usize,
    per_group: usize,
    positions: usize,
    kernels: Kernels,
    /// Variant of the kernels.
    style: GroupNorm,
    /// True if PyTorch's temporaries are made.
    torch: bool,
}

impl GroupShape {
    fn new(x: &Tensor, groups: usize, parameters: [Option<&Tensor>; 2]) -> Result<Self> {
        let (n, c) = (x.dims()[0], x.dims()[1]);
        let positions = x.dims()[2..].iter().product();
        if groups == 0 || !c.is_multiple_of(groups) {
            return Err(Error::shape("group_norm", format!("{c} channels in {groups} groups")));
        }
        if positions == 0 {
            return Err(Error::shape("group_norm", format!("{:?}: examples without positions", x.dims())));
        }
        if let Some(other) = parameters.into_iter().flatten().find(|parameter| parameter.dtype() != x.dtype()) {
            let (op, operand, expected) = ("group_norm", "operand", x.dtype().name());
            return Err(Error::DType { op, operand, found: other.dtype(), expected });
        }
        let profile = x.device().profile();
        let (style, torch) = (profile.group_norm, profile.torch_temporaries);
        let innermost = style >= GroupNorm::ChannelsInnermost;
        let kernels = match positions {
            _ if innermost && matches!(x.rank(), 4 | 5) && (positions == 1 || c == 1) => Kernels::Innermost,
            1 => Kernels::OnePosition,
            _ => Kernels::Planes,
        };
        let shape = Self { n, c, groups, per_group: c / groups, positions, kernels, style, torch };
        let affine = parameters.iter().any(Option::is_some);
        if x.dtype().is_half() && torch && !shape.rounds_at_the_end() && !shape.has_factors(affine) {
            let problem = "16-bit floats without parameters, or of one position, are not supported as PyTorch before 2.13 computes them";
            return Err(Error::invalid("group_norm", problem));
        }
        Ok(shape)
    }

    fn rounds_at_the_end(&self) -> bool {
        self.style >= GroupNorm::RoundsAtTheEnd
    }

    fn copies_inside(&self) -> bool {
        self.style >= GroupNorm::CopiesInside
    }

    /// True if forward has a factor and a summand for each channel of each example.
    fn has_factors(&self, affine: bool) -> bool {
        match self.kernels {
            Kernels::Planes => affine,
            Kernels::Innermost => true,
            Kernels::OnePosition => false,
        }
    }

    fn planes(&self) -> [usize; 3] {
        [self.n, self.c, self.positions]
    }

    /// Sizes in groups: `[n, groups, per_group, positions]`.
    fn grouped(&self) -> [usize; 4] {
        [self.n, self.groups, self.per_group, self.positions]
    }

    /// Allocates a number for each channel of each example, never of 16 bits: `[n, groups, per_group, 1]`.
    fn channels(&self, x: &Array) -> Result<Array> {
        Array::empty(x.device(), &[self.n, self.groups, self.per_group, 1], x.dtype().accumulator())
    }

    /// Allocates a number for each group of each example, `[n, groups, 1, 1]`, in memory for numbers of at least 32 bits.
    fn group(&self, x: &Array) -> Result<Array> {
        let numbers = self.n * self.groups;
        let room = numbers * (x.dtype().accumulator().size() / x.dtype().size()) as usize;
        Array::empty(x.device(), &[room], x.dtype())?.narrow(0, 0, numbers)?.view(&[self.n, self.groups, 1, 1])
    }
}

/// Memory that forward allocates besides its results, in this order.
struct ForwardScratch {
    /// Mean and reciprocal deviation of each group before they are rounded to 16 bits.
    exact: Option<[Array; 2]>,
    /// A factor and a summand for each channel of each example.
    factors: Option<[Array; 2]>,
}

impl ForwardScratch {
    fn new(s: &GroupShape, x: &Array, affine: bool) -> Result<Self> {
        let make = |n: usize| Array::empty(x.device(), &[n], x.dtype().accumulator());
        let pair = |n: usize| Ok::<_, Error>([make(n)?, make(n)?]);
        let rounded = x.dtype().is_half() && (s.rounds_at_the_end() || !s.torch);
        let exact = rounded.then(|| pair(s.n * s.groups)).transpose()?;
        let factors = (s.torch && s.has_factors(affine)).then(|| pair(s.n * s.c)).transpose()?;
        Ok(Self { exact, factors })
    }

    /// Returns the memory for the kernel's statistics, which are not of 16 bits: that of the saved ones, or scratch.
    fn statistics(&self, mean: &Array, rstd: &Array) -> Result<[Array; 2]> {
        let groups = mean.numel();
        match self.exact.as_ref().or(self.factors.as_ref()) {
            Some([first, second]) if mean.dtype().is_half() => {
                Ok([first.narrow(0, 0, groups)?, second.narrow(0, 0, groups)?])
            }
            _ => Ok([mean.clone(), rstd.clone()]),
        }
    }

    fn release(self) {
        for [first, second] in [self.factors, self.exact].into_iter().flatten() {
            drop(second);
            drop(first);
        }
    }
}

struct GroupNormBackward {
    shape: GroupShape,
    slots: [Option<usize>; 2],
}

/// Memory that backward allocates besides the gradients, in this order.
struct Scratch {
    /// `Σ grad·x` and `Σ grad` of each channel of each example: `[n, groups, per_group, 1]`.
    sums: Option<[Array; 2]>,
    /// Numbers of each group for the input's gradient: `[n, groups, 1, 1]`.
    groups: Option<[Array; 2]>,
    /// A number for each channel of each example, for the input's gradient if there is a weight: `[n, groups, per_group, 1]`.
    scale: Option<Array>,
}

impl Scratch {
    fn new(s: &GroupShape, x: &Array, input_wanted: bool, weighted: bool) -> Result<Self> {
        let pair = |make: &dyn Fn() -> Result<Array>| Ok::<_, Error>([make()?, make()?]);
        let without_sums = s.kernels == Kernels::OnePosition && s.copies_inside();
        let sums = (!without_sums).then(|| pair(&|| s.channels(x))).transpose()?;
        let groups = input_wanted.then(|| pair(&|| s.group(x))).transpose()?;
        let scaled = input_wanted && weighted && s.kernels == Kernels::Planes;
        let scale = scaled.then(|| context::within("resize_", || s.channels(x))).transpose()?;
        Ok(Self { sums, groups, scale })
    }

    fn release(self) {
        if let Some([slope, shift]) = self.groups {
            drop(shift);
            drop(slope);
        }
        drop(self.scale);
        if let Some([products, plain]) = self.sums {
            drop(plain);
            drop(products);
        }
    }
}

/// Values from which the gradients are computed: the contiguous input and its gradient, mean and reciprocal deviation as
/// `[n, groups, 1, 1]`, the weight as `[groups, per_group, 1]`.
struct Given<'a> {
    x: &'a Array,
    grad: &'a Array,
    mean: &'a Array,
    rstd: &'a Array,
    weight: Option<&'a Array>,
}

/// Gradients of weight and bias, `[c]` each, if required.
type ParameterGradients = [Option<Array>; 2];

impl GroupShape {
    /// Computes the gradients from sums over the positions of each channel. Everything else follows from them, except one pass over the
    /// input's gradient.
    fn gradients_by_channels(
        &self,
        given: &Given<'_>,
        out: Option<&Array>,
        parameters: &ParameterGradients,
        scratch: &Scratch,
        sums: &[Array; 2],
    ) -> Result<()> {
        self.sum_channels(given, sums)?;
        if let (Some(out), Some(groups)) = (out, &scratch.groups) {
            self.input_gradient(given, out, sums, groups, scratch.scale.as_ref())?;
        }
        let [products, plain] = sums;
        if let Some(out) = &parameters[0] {
            products.ternary_(TernaryOp::Addcmul { value: -1.0 }, plain, given.mean)?;
            products.binary_(BinaryOp::Mul, given.rstd)?;
            self.over_examples(products, 1, out)?;
        }
        if let Some(out) = &parameters[1] {
            self.over_examples(plain, 1, out)?;
        }
        Ok(())
    }

    /// `Σ grad·x` and `Σ grad` of each channel of each example.
    fn sum_channels(&self, given: &Given<'_>, [products, plain]: &[Array; 2]) -> Result<()> {
        let (rows, columns) = ([self.n * self.c, 1, self.positions], [self.n * self.c, self.positions, 1]);
        given.x.device().launch(Matmul {
            alpha: 1.0,
            beta: 0.0,
            a: given.grad.view(&rows)?.operand(),
            b: given.x.view(&columns)?.operand(),
            bias: None,
            out: products.view(&[self.n * self.c, 1, 1])?.operand(),
            workspace: None,
        })?;
        let grad = given.grad.view(&[self.n * self.c, self.positions])?;
        grad.reduce_axes_into(ReduceOp::Sum, &plain.view(&[self.n * self.c, 1])?)
    }

    /// With `A = Σ w·Σ grad·x` and `B = Σ w·Σ grad` over a group of `m` elements: the input is multiplied by `slope = (B·mean − A)·rstd³/m`, and
    /// `−slope·mean − B·rstd/m` is added to `grad·w·rstd`.
    fn input_gradient(
        &self,
        given: &Given<'_>,
        out: &Array,
        [products, plain]: &[Array; 2],
        [slope, shift]: &[Array; 2],
        scale: Option<&Array>,
    ) -> Result<()> {
        let Given { mean, rstd, .. } = *given;
        let count = (self.per_group * self.positions) as f64;
        for (of_channels, of_groups) in [(products, slope), (plain, shift)] {
            match (scale, given.weight) {
                (Some(scratch), Some(weight)) => {
                    of_channels.binary_into(BinaryOp::Mul, weight, scratch)?;
                    self.over_groups(ReduceOp::Sum, scratch, 1, of_groups)?;
                }
                _ => self.over_groups(ReduceOp::Sum, of_channels, 1, of_groups)?,
            }
        }
        let times = |x: &Array, mul| x.unary_(UnaryOp::Affine { mul, add: 0.0 });
        times(slope, -1.0)?;
        slope.ternary_(TernaryOp::Addcmul { value: 1.0 }, shift, mean)?;
        for _ in 0..3 {
            slope.binary_(BinaryOp::Mul, rstd)?;
        }
        times(slope, 1.0 / count)?;
        shift.binary_(BinaryOp::Mul, rstd)?;
        times(shift, -1.0 / count)?;
        shift.ternary_(TernaryOp::Addcmul { value: -1.0 }, slope, mean)?;
        if let (Some(scale), Some(weight)) = (scale, given.weight) {
            rstd.binary_into(BinaryOp::Mul, weight, scale)?;
        }
        let dims = self.grouped();
        let out = out.view(&dims)?;
        given.x.view(&dims)?.binary_into(BinaryOp::Mul, slope, &out)?;
        out.ternary_(TernaryOp::Addcmul { value: 1.0 }, &given.grad.view(&dims)?, scale.unwrap_or(rstd))?;
        out.binary_(BinaryOp::ADD, shift)
    }

    /// Computes the gradients element by element, in the memory of the input's gradient, `room`, and in the input's type: with
    /// `x̂ = (x − mean)·rstd` and `g = grad·w`, sums of `grad·x̂` and `grad`, and `rstd·(g − mean(g) − x̂·mean(g·x̂))`.
    fn gradients_by_elements(
        &self,
        given: &Given<'_>,
        room: &Array,
        parameters: &ParameterGradients,
        groups: Option<&[Array; 2]>,
    ) -> Result<()> {
        let dims = self.grouped();
        let (out, x, grad) = (room.view(&dims)?, given.x.view(&dims)?, given.grad.view(&dims)?);
        let normalise = || {
            x.binary_into(BinaryOp::Sub, given.mean, &out)?;
            out.binary_(BinaryOp::Mul, given.rstd)
        };
        normalise()?;
        out.binary_(BinaryOp::Mul, &grad)?;
        for (values, parameter) in [(&out, &parameters[0]), (&grad, &parameters[1])] {
            if let Some(parameter) = parameter {
                self.over_examples(values, self.positions, parameter)?;
            }
        }
        let Some([along, across]) = groups else { return Ok(()) };
        if let Some(weight) = given.weight {
            out.binary_(BinaryOp::Mul, weight)?;
        }
        self.over_groups(ReduceOp::Mean, &out, self.positions, along)?;
        match given.weight {
            Some(weight) => grad.binary_into(BinaryOp::Mul, weight, &out)?,
            None => out.copy_(&grad)?,
        }
        self.over_groups(ReduceOp::Mean, &out, self.positions, across)?;
        along.unary_(UnaryOp::Neg)?;
        normalise()?;
        out.binary_(BinaryOp::Mul, along)?;
        match given.weight {
            Some(weight) => out.ternary_(TernaryOp::Addcmul { value: 1.0 }, &grad, weight)?,
            None => out.binary_(BinaryOp::ADD, &grad)?,
        }
        out.binary_(BinaryOp::Sub, across)?;
        out.binary_(BinaryOp::Mul, given.rstd)
    }

    /// Reduces over the channels of a group. Each channel has `positions` numbers in `x`.
    fn over_groups(&self, op: ReduceOp, x: &Array, positions: usize, out: &Array) -> Result<()> {
        let rows = self.n * self.groups;
        x.view(&[rows, self.per_group * positions])?.reduce_axes_into(op, &out.view(&[rows, 1])?)
    }

    /// Sums over the examples, and over `positions` numbers of each channel in `x`.
    fn over_examples(&self, x: &Array, positions: usize, out: &Array) -> Result<()> {
        x.view(&[self.n, self.c, positions])?.reduce_axes_into(ReduceOp::Sum, &out.view(&[1, self.c, 1])?)
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
        let grad = if s.copies_inside() { grad.clone() } else { grad.contiguous()? };
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
        let scratch = Scratch::new(s, &x, out.is_some(), weight.is_some())?;
        let given = Given { x: &input, grad: &ordered_grad, mean: &mean, rstd: &rstd, weight: weight.as_ref() };
        let planes = s.kernels == Kernels::Planes || out.is_none();
        match (&scratch.sums, &out) {
            (Some(sums), out) if planes && !x.dtype().is_half() => {
                s.gradients_by_channels(&given, out.as_ref(), &parameters, &scratch, sums)?;
            }
            (_, Some(out)) => s.gradients_by_elements(&given, out, &parameters, scratch.groups.as_ref())?,
            // PyTorch has no memory of the input's size here; this memory is ours.
            (_, None) => s.gradients_by_elements(&given, &x.empty_like()?, &parameters, None)?,
        }
        scratch.release();
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
