//! Compute-bound kernels: products, convolutions, attention, int8 weights.

use lab_base::error::Result;
use memcore::DType;
use memcore::backend::kernel::{
    Attention, AttentionGrad, Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad, DequantizeInt8, Matmul,
    MatmulInt8, QuantizeInt8, Rope,
};
use memcore::backend::{KernelCall, Operand};

use super::kernel::{F32, FLOATS, Kernel, Operands, ROWS, Size};

/// One side of a square.
const SQUARES: &[Size] = &[&[64], &[512], &[1024], &[2048], &[4096], &[8192]];
/// Types that include double precision.
const WITH_F64: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];
/// Types that networks are trained in.
const TRAINED: &[DType] = &[DType::F32, DType::BF16];
/// Examples, channels in and out, side; windows of 3 × 3.
const CONVOLUTIONS: &[Size] = &[&[1, 16, 16, 16], &[8, 64, 64, 28], &[16, 64, 64, 56]];
/// Batch, heads, tokens, width of a head.
const HEADS: &[Size] = &[&[1, 1, 16, 16], &[2, 4, 128, 64], &[4, 8, 512, 64], &[4, 16, 2048, 64], &[4, 16, 2048, 128]];
/// Rows, inner size, columns.
const QUANTIZED: &[Size] = &[&[16, 16, 16], &[128, 512, 512], &[512, 2048, 2048]];

const SAME: Conv2dGeometry = Conv2dGeometry { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { family: "matmul", name: "matmul", sizes: SQUARES, dtypes: WITH_F64, build: square },
    // One row: as many bytes as operations.
    Kernel {
        family: "matmul",
        name: "matmul_vector",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| product(o, [1, 1, d[0], d[1]]),
    },
    // Attention heads: many small products.
    Kernel {
        family: "matmul",
        name: "matmul_batched",
        sizes: &[&[4, 16], &[32, 64], &[256, 128]],
        dtypes: F32,
        build: |o, d| product(o, [d[0], d[1], d[1], 64]),
    },
    Kernel {
        family: "conv",
        name: "conv2d",
        sizes: CONVOLUTIONS,
        dtypes: FLOATS,
        build: |o, d| {
            let [x, weight, out] = convolved(d);
            let (x, weight, bias) = (o.read(&x)?, o.read(&weight)?, Some(o.read(&out[1..2])?));
            Ok(Conv2d { geometry: SAME, x, weight, bias, out: o.write(&out)?, workspace: None }.into())
        },
    },
    Kernel {
        family: "conv",
        name: "conv2d_input_grad",
        sizes: CONVOLUTIONS,
        dtypes: FLOATS,
        build: |o, d| {
            let [x, weight, out] = convolved(d);
            let (grad, weight, out) = (o.read(&out)?, o.read(&weight)?, o.write(&x)?);
            Ok(Conv2dInputGrad { geometry: SAME, grad, weight, out, workspace: None }.into())
        },
    },
    Kernel {
        family: "conv",
        name: "conv2d_weight_grad",
        sizes: CONVOLUTIONS,
        dtypes: FLOATS,
        build: |o, d| {
            let [x, weight, out] = convolved(d);
            let (x, grad, out) = (o.read(&x)?, o.read(&out)?, o.write(&weight)?);
            Ok(Conv2dWeightGrad { geometry: SAME, x, grad, out, workspace: None }.into())
        },
    },
    Kernel {
        family: "attention",
        name: "attention",
        sizes: HEADS,
        dtypes: FLOATS,
        build: |o, d| {
            let [q, k, v] = [o.read(d)?, o.read(d)?, o.read(d)?];
            let (out, logsumexp) = (o.write(d)?, o.write_as(o.dtype.accumulator(), &d[..3])?);
            Ok(Attention { scale: scale(d), causal: true, q, k, v, mask: None, out, logsumexp: Some(logsumexp) }.into())
        },
    },
    Kernel { family: "attention", name: "attention_grad", sizes: HEADS, dtypes: TRAINED, build: attention_grad },
    Kernel {
        family: "attention",
        name: "rope",
        sizes: &[&[1, 16, 1, 16], &[2, 128, 4, 64], &[8, 1024, 32, 64]],
        dtypes: FLOATS,
        build: |o, d| {
            let table = [d[1], d[3] / 2];
            let (x, cos, sin) = (o.read(d)?, o.statistic(&table)?, o.statistic(&table)?);
            Ok(Rope { inverse: false, x, cos, sin, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: "quant",
        name: "quantize_int8",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (x, out, scale) = (o.read(d)?, o.write_as(DType::I8, d)?, o.write_as(DType::F32, &d[..1])?);
            Ok(QuantizeInt8 { x, out, scale }.into())
        },
    },
    Kernel {
        family: "quant",
        name: "dequantize_int8",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (x, scale, out) = (o.full(DType::I8, d, 3.0)?, o.between(DType::F32, &d[..1], 0.5, 1.0)?, o.write(d)?);
            Ok(DequantizeInt8 { x, scale, out }.into())
        },
    },
    Kernel {
        family: "quant",
        name: "matmul_int8",
        sizes: QUANTIZED,
        dtypes: F32,
        build: |o, d| {
            let (x, weight) = (o.read(&d[..2])?, o.full(DType::I8, &[d[2], d[1]], 3.0)?);
            let scale = o.between(DType::F32, &d[2..], 0.5, 1.0)?;
            Ok(MatmulInt8 { x, weight, scale, bias: None, out: o.write(&[d[0], d[2]])? }.into())
        },
    },
];

fn square(o: &mut Operands, d: &[usize]) -> Result<KernelCall> {
    product(o, [1, d[0], d[0], d[0]])
}

/// A product of these sizes: batch, rows, columns, inner size.
fn product(o: &mut Operands, [batch, m, n, k]: [usize; 4]) -> Result<KernelCall> {
    let (a, b, out) = (o.read(&[batch, m, k])?, o.read(&[batch, k, n])?, o.write(&[batch, m, n])?);
    Ok(Matmul { alpha: 1.0, beta: 0.0, a, b, bias: None, out, workspace: None }.into())
}

/// Sizes of a convolution's input, weight and result.
fn convolved(d: &[usize]) -> [[usize; 4]; 3] {
    [[d[0], d[1], d[3], d[3]], [d[2], d[1], 3, 3], [d[0], d[2], d[3], d[3]]]
}

fn scale(d: &[usize]) -> f64 {
    1.0 / (d[3] as f64).sqrt()
}

fn attention_grad(o: &mut Operands, d: &[usize]) -> Result<KernelCall> {
    let statistic = o.dtype.accumulator();
    let [q, k, v] = [o.read(d)?, o.read(d)?, o.read(d)?];
    let [out, grad] = [o.read(d)?, o.read(d)?];
    // The log-sum-exp of rows with this many scores around 0.
    let logsumexp = o.full(statistic, &d[..3], (d[2] as f64).ln())?;
    let delta = o.write_as(statistic, &d[..3])?;
    let [dq, dk, dv]: [Operand; 3] = [o.write(d)?, o.write(d)?, o.write(d)?];
    let (scale, causal, mask, workspace) = (scale(d), true, None, None);
    Ok(AttentionGrad { scale, causal, q, k, v, mask, out, logsumexp, grad, delta, dq, dk, dv, dmask: None, workspace }
        .into())
}
