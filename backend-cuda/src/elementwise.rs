//! Fill, copy, arithmetic, selection.

use std::ffi::c_void;

use memcore::backend::Operand;
use memcore::backend::kernel::{
    Binary, BinaryOp, Copy, Fill, MaskedFill, Select, Ternary, TernaryOp, Triangle, Unary, UnaryGrad, UnaryGradOp,
    UnaryOp,
};
use memcore::{DType, Result};

use crate::arguments::{Bits, arguments};
use crate::fills;
use crate::kernel::{Kernel, ONE_FORM, ONE_WIDE, Tag, kernels};
use crate::launch::{Context, ONE, WIDE};
use crate::walk::{Dims, Walk};

arguments! { ARGUMENTS:
    struct FillArgs {
        walk: Walk<1>,
        out: *mut c_void,
        bits: u64,
    }

    struct FillEachArgs {
        out: [*mut c_void; fills::MOST],
        bits: [u64; fills::MOST],
        count: u64,
    }

    /// Operand 0 is always the result.
    struct CopyArgs {
        walk: Walk<2>,
        out: *mut c_void,
        src: *const c_void,
        /// Type of the source, for casts.
        from: u32,
        unused: u32,
    }

    struct SelectArgs {
        walk: Walk<4>,
        out: *mut c_void,
        mask: *const u8,
        on_true: *const c_void,
        on_false: *const c_void,
    }

    struct MaskedFillArgs {
        walk: Walk<3>,
        out: *mut c_void,
        x: *const c_void,
        mask: *const u8,
        bits: u64,
    }

    /// The last two dimensions are the walk's first two; they are never merged.
    struct TriangleArgs {
        walk: Walk<2>,
        out: *mut c_void,
        x: *const c_void,
        diagonal: i64,
        upper: u32,
        unused: u32,
    }

    struct UnaryArgs {
        walk: Walk<2>,
        out: *mut c_void,
        x: *const c_void,
        op: u32,
        unused: u32,
        scalars: [f64; 2],
    }

    struct BinaryArgs {
        walk: Walk<3>,
        out: *mut c_void,
        lhs: *const c_void,
        rhs: *const c_void,
        op: u32,
        unused: u32,
        scalar: f64,
        second: f64,
    }

    struct TernaryArgs {
        walk: Walk<4>,
        out: *mut c_void,
        a: *const c_void,
        b: *const c_void,
        c: *const c_void,
        op: u32,
        scalar: f32,
    }
}

kernels! { KERNELS in Elementwise:
    FILL: "fill" BITS ONE_WIDE => FillArgs;
    FILL_EACH: "fill_each" BITS ONE_FORM => FillEachArgs;
    COPY: "copy" BITS ONE_WIDE => CopyArgs;
    CAST: "cast" ALL ONE_WIDE => CopyArgs;
    SELECT: "select" BITS ONE_WIDE => SelectArgs;
    MASKED_FILL: "masked_fill" BITS ONE_WIDE => MaskedFillArgs;
    TRIANGLE: "triangle" BITS ONE_FORM => TriangleArgs;
    UNARY: "unary" NUMBERS ONE_WIDE => UnaryArgs;
    BINARY: "binary" NUMBERS ONE_WIDE => BinaryArgs;
    COMPARE: "compare" ALL ONE_WIDE => BinaryArgs;
    UNARY_GRAD: "unary_grad" FLOATS ONE_WIDE => BinaryArgs;
    TERNARY: "ternary" FLOATS ONE_WIDE => TernaryArgs;
}

/// Goes over `operands`, the result first, in the widest form that they allow. `launch` gets the walk, the addresses
/// and the form.
pub(crate) fn walk<const N: usize>(
    ctx: &Context<'_>,
    operands: [&Operand; N],
    pack: u64,
    mut launch: impl FnMut(Walk<N>, [u64; N], usize) -> Result<()>,
) -> Result<()> {
    if operands[0].numel() == 0 {
        return Ok(());
    }
    let mut bases = [0; N];
    for (base, operand) in bases.iter_mut().zip(operands) {
        *base = ctx.at(operand)?;
    }
    let sizes = operands.map(|operand| operand.dtype.size());
    let dims = Dims::merged(operands.map(|operand| &operand.layout));
    let (form, pack) = if dims.packs(bases, sizes, pack) { (WIDE, pack) } else { (ONE, 1) };
    dims.each_walk(pack, &mut |walk, offsets| {
        launch(*walk, std::array::from_fn(|k| bases[k] + offsets[k] * sizes[k]), form)
    })
}

/// Number of elements in 16 bytes.
pub(crate) fn wide(dtype: DType) -> u64 {
    16 / dtype.size()
}

/// `out = value`.
pub(crate) fn fill(ctx: &Context<'_>, k: &Fill) -> Result<()> {
    let bits = scalar_bits(k.out.dtype, k.value);
    walk(ctx, [&k.out], wide(k.out.dtype), |walk, [out], form| {
        let args = FillArgs { walk, out, bits };
        ctx.launch(FILL, Tag::bits(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// Lets a fill of one element wait for others. Returns false if it has more or fewer elements.
///
/// # Errors
/// A failure of fills that waited before.
pub(crate) fn postpone_fill(ctx: &Context<'_>, k: &Fill) -> Result<bool> {
    if k.out.numel() != 1 {
        return Ok(false);
    }
    let (address, tag) = (ctx.at(&k.out)?, Tag::bits(k.out.dtype));
    if !ctx.fills().has_room_for(tag, address) {
        launch_fills(ctx)?;
    }
    ctx.fills().push(tag, address, scalar_bits(k.out.dtype, k.value));
    Ok(true)
}

/// Queues the fills that wait.
///
/// # Errors
/// [`Error::Backend`](memcore::Error::Backend), also of fills that waited before.
pub(crate) fn launch_fills(ctx: &Context<'_>) -> Result<()> {
    let Some((tag, elements)) = ctx.fills().take()? else { return Ok(()) };
    let mut args = FillEachArgs { out: [0; fills::MOST], bits: [0; fills::MOST], count: elements.len() as u64 };
    for ((out, bits), element) in args.out.iter_mut().zip(&mut args.bits).zip(elements) {
        (*out, *bits) = element;
    }
    ctx.launch(FILL_EACH, tag, 0, ctx.grid(args.count), &args)
}

/// Like [`launch_fills`], for callers that cannot return an error: the next call returns it.
pub(crate) fn launch_fills_quietly(ctx: &Context<'_>) {
    if let Err(error) = launch_fills(ctx) {
        ctx.fills().fail(error);
    }
}

/// `out = src`.
pub(crate) fn copy(ctx: &Context<'_>, k: &Copy) -> Result<()> {
    let (from, to) = (k.src.dtype, k.out.dtype);
    let (kernel, tag, pack) = if from == to { (COPY, Tag::bits(to), wide(to)) } else { (CAST, Tag::tag_of(to), 4) };
    walk(ctx, [&k.out, &k.src], pack, |walk, [out, src], form| {
        let args = CopyArgs { walk, out, src, from: type_number(from), unused: 0 };
        ctx.launch(kernel, tag, form, ctx.grid(walk.packs), &args)
    })
}

/// Number of the type in the kernels' enum `Type`.
pub(crate) fn type_number(dtype: DType) -> u32 {
    match dtype {
        DType::F32 | DType::F64 | DType::C64 => 0,
        DType::F16 => 1,
        DType::BF16 => 2,
        DType::I64 => 3,
        DType::I32 => 4,
        DType::I8 => 5,
        DType::U8 => 6,
        DType::Bool => 7,
    }
}

/// `out = mask ? on_true : on_false`.
pub(crate) fn select(ctx: &Context<'_>, k: &Select) -> Result<()> {
    let operands = [&k.out, &k.mask, &k.on_true, &k.on_false];
    walk(ctx, operands, wide(k.out.dtype), |walk, [out, mask, on_true, on_false], form| {
        let args = SelectArgs { walk, out, mask, on_true, on_false };
        ctx.launch(SELECT, Tag::bits(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// `out = mask ? value : x`.
pub(crate) fn masked_fill(ctx: &Context<'_>, k: &MaskedFill) -> Result<()> {
    let bits = scalar_bits(k.out.dtype, k.value);
    walk(ctx, [&k.out, &k.x, &k.mask], wide(k.out.dtype), |walk, [out, x, mask], form| {
        let args = MaskedFillArgs { walk, out, x, mask, bits };
        ctx.launch(MASKED_FILL, Tag::bits(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// `out = x` inside the triangle, 0 outside.
pub(crate) fn triangle(ctx: &Context<'_>, k: &Triangle) -> Result<()> {
    if k.out.numel() == 0 {
        return Ok(());
    }
    let (out, x, size) = (ctx.at(&k.out)?, ctx.at(&k.x)?, k.out.dtype.size());
    // The kernel needs row and column numbers, so dimensions are not merged. A launch that is too long would be cut in
    // the longest dimension, and its row numbers would be wrong: `supports` refuses that many elements.
    Dims::plain([&k.out.layout, &k.x.layout]).each_walk(1, &mut |walk, [to, from]| {
        let (out, x) = (out + to * size, x + from * size);
        let args = TriangleArgs { walk: *walk, out, x, diagonal: k.diagonal, upper: k.upper.into(), unused: 0 };
        ctx.launch(TRIANGLE, Tag::bits(k.out.dtype), 0, ctx.grid(walk.packs), &args)
    })
}

/// True if the kernels can count the elements in 32 bits.
pub(crate) fn supports_triangle(k: &Triangle) -> bool {
    k.out.numel() < 1 << 31
}

/// Integers have only the functions with integer results.
pub(crate) fn supports_unary(k: &Unary) -> bool {
    use UnaryOp::{Abs, Affine, Clamp, IsZero, Neg, Relu, Sign, Square};
    let integral = matches!(k.op, Neg | Abs | Sign | Square | Relu | Affine { .. } | Clamp { .. });
    k.x.dtype.is_float() || k.op == IsZero || (integral && k.x.dtype != DType::Bool)
}

/// `out = op(x)`.
pub(crate) fn unary(ctx: &Context<'_>, k: &Unary) -> Result<()> {
    if k.op == UnaryOp::IsZero {
        const IS_ZERO: u32 = 6;
        return binary_kernel(ctx, COMPARE, [&k.out, &k.x, &k.x], IS_ZERO, 0.0);
    }
    let (op, scalars) = unary_number(k.op);
    walk(ctx, [&k.out, &k.x], wide(k.x.dtype), |walk, [out, x], form| {
        let args = UnaryArgs { walk, out, x, op, unused: 0, scalars: scalars.map(Bits) };
        ctx.launch(UNARY, Tag::tag_of(k.x.dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// Number of the function in the kernels' enum `Unary`, with its scalars.
fn unary_number(op: UnaryOp) -> (u32, [f64; 2]) {
    match op {
        UnaryOp::Neg => (0, [0.0; 2]),
        UnaryOp::Abs => (1, [0.0; 2]),
        UnaryOp::Sign => (2, [0.0; 2]),
        UnaryOp::Exp => (3, [0.0; 2]),
        UnaryOp::Log => (4, [0.0; 2]),
        UnaryOp::Sqrt => (5, [0.0; 2]),
        UnaryOp::Rsqrt => (6, [0.0; 2]),
        UnaryOp::Reciprocal => (7, [0.0; 2]),
        UnaryOp::Square => (8, [0.0; 2]),
        UnaryOp::Sin => (9, [0.0; 2]),
        UnaryOp::Cos => (10, [0.0; 2]),
        UnaryOp::Tanh => (11, [0.0; 2]),
        UnaryOp::Sigmoid => (12, [0.0; 2]),
        UnaryOp::Relu => (13, [0.0; 2]),
        UnaryOp::LeakyRelu { slope } => (14, [slope, 0.0]),
        UnaryOp::Gelu => (15, [0.0; 2]),
        UnaryOp::GeluTanh => (16, [0.0; 2]),
        UnaryOp::Silu => (17, [0.0; 2]),
        UnaryOp::Elu { alpha } => (21, [alpha, 0.0]),
        UnaryOp::Softplus => (22, [0.0; 2]),
        UnaryOp::LogSigmoid => (23, [0.0; 2]),
        UnaryOp::Mish => (24, [0.0; 2]),
        UnaryOp::Hardsigmoid => (25, [0.0; 2]),
        UnaryOp::Hardswish => (26, [0.0; 2]),
        UnaryOp::Huber { delta } => (27, [delta, 0.0]),
        UnaryOp::Affine { mul, add } => (18, [mul, add]),
        UnaryOp::Pow { exponent } => (19, [exponent, 0.0]),
        // `IsZero` runs as a comparison.
        UnaryOp::Clamp { min, max } => (20, [min, max]),
        UnaryOp::IsZero => (20, [0.0; 2]),
    }
}

/// `out = grad · f′`.
pub(crate) fn unary_grad(ctx: &Context<'_>, k: &UnaryGrad) -> Result<()> {
    let (op, scalars) = match k.op {
        UnaryGradOp::Relu => (0, [0.0; 2]),
        UnaryGradOp::LeakyRelu { slope } => (1, [slope, 0.0]),
        UnaryGradOp::Gelu => (2, [0.0; 2]),
        UnaryGradOp::GeluTanh => (3, [0.0; 2]),
        UnaryGradOp::Silu => (4, [0.0; 2]),
        UnaryGradOp::Tanh => (5, [0.0; 2]),
        UnaryGradOp::Sigmoid => (6, [0.0; 2]),
        UnaryGradOp::Elu { alpha } => (7, [alpha, 0.0]),
        UnaryGradOp::Softplus => (8, [0.0; 2]),
        UnaryGradOp::LogSigmoid => (9, [0.0; 2]),
        UnaryGradOp::Mish => (10, [0.0; 2]),
        UnaryGradOp::Hardsigmoid => (11, [0.0; 2]),
        UnaryGradOp::Hardswish => (12, [0.0; 2]),
        UnaryGradOp::Hardtanh { min, max } => (13, [min, max]),
    };
    pair_kernel(ctx, UNARY_GRAD, [&k.out, &k.saved, &k.grad], op, scalars)
}

/// Integers have no division and no powers.
pub(crate) fn supports_binary(k: &Binary) -> bool {
    let integral = !matches!(k.op, BinaryOp::Div | BinaryOp::Pow) && k.lhs.dtype != DType::Bool;
    k.lhs.dtype.is_float() || k.op.is_comparison() || integral
}

/// `out = op(lhs, rhs)`.
pub(crate) fn binary(ctx: &Context<'_>, k: &Binary) -> Result<()> {
    let (kernel, op, scalar) = match k.op {
        BinaryOp::Add { alpha } => (BINARY, 0, alpha),
        BinaryOp::Sub => (BINARY, 1, 0.0),
        BinaryOp::Mul => (BINARY, 2, 0.0),
        BinaryOp::Div => (BINARY, 3, 0.0),
        BinaryOp::Maximum => (BINARY, 4, 0.0),
        BinaryOp::Minimum => (BINARY, 5, 0.0),
        BinaryOp::Pow => (BINARY, 6, 0.0),
        BinaryOp::SquaredDifference => (BINARY, 7, 0.0),
        BinaryOp::Eq => (COMPARE, 0, 0.0),
        BinaryOp::Ne => (COMPARE, 1, 0.0),
        BinaryOp::Lt => (COMPARE, 2, 0.0),
        BinaryOp::Le => (COMPARE, 3, 0.0),
        BinaryOp::Gt => (COMPARE, 4, 0.0),
        BinaryOp::Ge => (COMPARE, 5, 0.0),
    };
    binary_kernel(ctx, kernel, [&k.out, &k.lhs, &k.rhs], op, scalar)
}

fn binary_kernel(
    ctx: &Context<'_>,
    kernel: Kernel<BinaryArgs>,
    operands: [&Operand; 3],
    op: u32,
    scalar: f64,
) -> Result<()> {
    pair_kernel(ctx, kernel, operands, op, [scalar, 0.0])
}

fn pair_kernel(
    ctx: &Context<'_>,
    kernel: Kernel<BinaryArgs>,
    operands: [&Operand; 3],
    op: u32,
    scalars: [f64; 2],
) -> Result<()> {
    let dtype = operands[1].dtype;
    walk(ctx, operands, wide(dtype), |walk, [out, lhs, rhs], form| {
        let [scalar, second] = scalars.map(Bits);
        let args = BinaryArgs { walk, out, lhs, rhs, op, unused: 0, scalar, second };
        ctx.launch(kernel, Tag::tag_of(dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// `out = op(a, b, c)`.
pub(crate) fn ternary(ctx: &Context<'_>, k: &Ternary) -> Result<()> {
    let (op, scalar) = match k.op {
        TernaryOp::Lerp { weight } => (0, weight),
        TernaryOp::Addcmul { value } => (1, value),
        TernaryOp::Addcdiv { value } => (2, value),
        TernaryOp::MseGrad { scale } => (3, scale),
    };
    walk(ctx, [&k.out, &k.a, &k.b, &k.c], wide(k.out.dtype), |walk, [out, a, b, c], form| {
        let args = TernaryArgs { walk, out, a, b, c, op, scalar: Bits(scalar as f32) };
        ctx.launch(TERNARY, Tag::tag_of(k.out.dtype), form, ctx.grid(walk.packs), &args)
    })
}

/// The bits of `value` as an element of `dtype`, in the low bytes. 16-bit floats round once, from f64.
pub(crate) fn scalar_bits(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F64 | DType::C64 => value.to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F16 => u64::from(half::f16::from_f64(value).to_bits()),
        DType::BF16 => u64::from(half::bf16::from_f64(value).to_bits()),
        DType::I64 => value as i64 as u64,
        DType::I32 => u64::from(value as i32 as u32),
        DType::I8 => u64::from(value as i8 as u8),
        DType::U8 => u64::from(value as u8),
        DType::Bool => u64::from(value != 0.0),
    }
}
