//! Batched matrix products: by cuBLASLt if it is present and accepts them, else by this backend's kernels.

use std::ffi::c_void;

use memcore::backend::Tf32;
use memcore::backend::kernel::{Matmul, MatmulInt8};
use memcore::{Layout, Result};

use crate::arguments::{Bits, arguments};
use crate::blaslt::{BlasLt, Places};
use crate::gemm::{self, Kernels, Sizes};
use crate::graphs::Work;
use crate::kernel::{PRODUCT, TENSOR_PRODUCT, kernels};
use crate::launch::{Context, Scratch};

arguments! { ARGUMENTS:
    struct MatmulArgs {
        sizes: Sizes,
        a: *const c_void,
        b: *const c_void,
        bias: *const c_void,
        out: *mut c_void,
        /// Batch, row, column.
        a_strides: [i64; 3],
        b_strides: [i64; 3],
        out_strides: [i64; 2],
        /// Scales of the columns of an int8 weight.
        scale: *const f32,
        alpha: f32,
        beta: f32,
    }
}

kernels! { KERNELS in Matmul:
    MATMUL: "matmul" FLOATS PRODUCT => MatmulArgs;
    MATMUL_TENSOR: "matmul" FLOATS TENSOR_PRODUCT => MatmulArgs;
    MATMUL_INT8: "matmul_int8" FLOATS PRODUCT => MatmulArgs;
    MATMUL_INT8_TENSOR: "matmul_int8" HALVES TENSOR_PRODUCT => MatmulArgs;
}

const PRODUCTS: Kernels<MatmulArgs> = Kernels { ordinary: MATMUL, tensor: Some(MATMUL_TENSOR), tf32: Tf32::All };
/// The kernel on tensor cores is only for 16-bit types.
const PRODUCTS_INT8: Kernels<MatmulArgs> =
    Kernels { ordinary: MATMUL_INT8, tensor: Some(MATMUL_INT8_TENSOR), tf32: Tf32::All };

fn sizes(k: &Matmul) -> [usize; 4] {
    let (batch, m, n, inner) = k.sizes();
    [m, n, inner, batch]
}

/// True if the kernels can count the sizes.
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

/// Queues the product. Returns false if the library does not accept it; nothing was queued then.
///
/// # Errors
/// [`Error::Backend`](memcore::Error::Backend) if the library fails at a product that it had accepted.
fn by_library(ctx: &Context<'_>, blas: &BlasLt, k: &Matmul) -> Result<bool> {
    let workspace = match &k.workspace {
        Some(own) => Scratch { address: ctx.at(own)?, bytes: own.region.len },
        None => ctx.scratch,
    };
    let (a, b, out) = (ctx.at(&k.a)?, ctx.at(&k.b)?, ctx.at(&k.out)?);
    let places = Places { a, b, bias: ctx.at_optional(&k.bias)?, out, workspace };
    let Some((product, ran)) = blas.product(k, places, ctx.tf32 == Some(Tf32::All)) else { return Ok(false) };
    if !ran {
        // Whether the library accepts it shows only when it runs: so it runs now, after the collected work, not with
        // it.
        ctx.hand_over()?;
        return blas.try_first(ctx.queue, &product);
    }
    if !ctx.collected(Work::Product(product))? {
        blas.run(ctx.queue, &product)?;
    }
    Ok(true)
}

/// `out = alpha·(a @ b) + beta·out + bias`.
pub(crate) fn matmul(ctx: &Context<'_>, k: &Matmul) -> Result<()> {
    if let Some(blas) = ctx.libraries.blas
        && k.out.numel() > 0
        && by_library(ctx, blas, k)?
    {
        return Ok(());
    }
    let (a, b, out) = (ctx.at(&k.a)?, ctx.at(&k.b)?, ctx.at(&k.out)?);
    let bias = ctx.at_optional(&k.bias)?;
    let to = strides(&k.out.layout);
    gemm::run(ctx, PRODUCTS, k.out.dtype, Sizes::new(sizes(k)), |sizes| MatmulArgs {
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
    gemm::run(ctx, PRODUCTS_INT8, k.out.dtype, Sizes::new([m, n, inner, 1]), |sizes| MatmulArgs {
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
