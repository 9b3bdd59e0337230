//! Batched matrix products: cuBLASLt's where it is there and takes them, else our own.

use memcore::backend::Tf32;
use memcore::backend::kernel::{Matmul, MatmulInt8};
use memcore::{Layout, Result};

use crate::gemm::{self, Kernels, Sizes};
use crate::kernels::Kernel;
use crate::launch::{Bits, Context};

/// `MatmulArgs` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct MatmulArgs {
    sizes: Sizes,
    a: u64,
    b: u64,
    bias: u64,
    out: u64,
    a_strides: [i64; 3],
    b_strides: [i64; 3],
    out_strides: [i64; 2],
    scale: u64,
    alpha: Bits<f32>,
    beta: Bits<f32>,
}

const MATMUL: Kernels = Kernels { ordinary: Kernel::Matmul, tensor: Some(Kernel::MatmulTensor), tf32: Tf32::All };
/// Tensor cores' one is for 16-bit types alone.
const MATMUL_INT8: Kernels =
    Kernels { ordinary: Kernel::MatmulInt8, tensor: Some(Kernel::MatmulInt8Tensor), tf32: Tf32::All };

fn sizes(k: &Matmul) -> [usize; 4] {
    let (batch, m, n, inner) = k.sizes();
    [m, n, inner, batch]
}

/// What the kernels can count.
pub(crate) fn supports(k: &Matmul) -> bool {
    gemm::fits(sizes(k))
}

/// See [`supports`].
pub(crate) fn supports_int8(k: &MatmulInt8) -> bool {
    gemm::fits([k.x.dims()[0], k.weight.dims()[0], k.x.dims()[1], 1])
}

fn strides(layout: &Layout) -> [i64; 3] {
    std::array::from_fn(|axis| layout.strides()[axis] as i64)
}

/// `out = alpha·(a @ b) + beta·out + bias`.
pub(crate) fn matmul(ctx: &Context<'_>, k: &Matmul) -> Result<()> {
    if let Some(blas) = ctx.blas
        && k.out.numel() > 0
        && blas.matmul(ctx, k)?
    {
        return Ok(());
    }
    let (a, b, out) = (ctx.at(&k.a)?, ctx.at(&k.b)?, ctx.at(&k.out)?);
    let bias = ctx.at_optional(&k.bias)?;
    let to = strides(&k.out.layout);
    gemm::run(ctx, MATMUL, k.out.dtype, Sizes::new(sizes(k)), |sizes| MatmulArgs {
        sizes,
        a,
        b,
        bias,
        out,
        a_strides: strides(&k.a.layout),
        b_strides: strides(&k.b.layout),
        out_strides: [to[0], to[1]],
        scale: 0,
        alpha: Bits(k.alpha as f32),
        beta: Bits(k.beta as f32),
    })
}

/// `out = x @ (weight·scale)ᵀ + bias`.
pub(crate) fn matmul_int8(ctx: &Context<'_>, k: &MatmulInt8) -> Result<()> {
    let (m, inner, n) = (k.x.dims()[0], k.x.dims()[1], k.weight.dims()[0]);
    let (x, weight, out) = (ctx.at(&k.x)?, ctx.at(&k.weight)?, ctx.at(&k.out)?);
    let (bias, scale) = (ctx.at_optional(&k.bias)?, ctx.at(&k.scale)?);
    gemm::run(ctx, MATMUL_INT8, k.out.dtype, Sizes::new([m, n, inner, 1]), |sizes| MatmulArgs {
        sizes,
        a: x,
        b: weight,
        bias,
        out,
        a_strides: [0, inner as i64, 1],
        b_strides: [0, 1, inner as i64],
        out_strides: [0, n as i64],
        scale,
        alpha: Bits(1.0),
        beta: Bits(0.0),
    })
}
