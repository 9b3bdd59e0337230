//! Elementwise kernels, and those that draw random numbers.

use memcore::DType;
use memcore::backend::kernel::{
    Binary, BinaryOp, Copy, Dropout, DropoutGrad, Fill, MaskedFill, Random, RandomKind, Select, Ternary, TernaryOp,
    Triangle, Unary, UnaryGrad, UnaryGradOp, UnaryOp,
};

use super::kernel::{ELEMENTS, F32, FLOATS, Kernel, ROWS};

const FAMILY: &str = "elementwise";

pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        family: FAMILY,
        name: "fill",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| Ok(Fill { value: 1.0, out: o.write(d)? }.into()),
    },
    Kernel {
        family: FAMILY,
        name: "copy",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| Ok(Copy { src: o.read(d)?, out: o.write(d)? }.into()),
    },
    Kernel {
        family: FAMILY,
        name: "copy_to_bf16",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| Ok(Copy { src: o.read(d)?, out: o.write_as(DType::BF16, d)? }.into()),
    },
    // Rows of a transposed matrix: every element is in another cache line.
    Kernel {
        family: FAMILY,
        name: "copy_transposed",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let mut src = o.read(&[d[1], d[0]])?;
            src.layout = memcore::Layout::strided(d, &[1, d[0]])?;
            Ok(Copy { src, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "unary_relu",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| Ok(Unary { op: UnaryOp::Relu, x: o.read(d)?, out: o.write(d)? }.into()),
    },
    Kernel {
        family: FAMILY,
        name: "unary_gelu",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| Ok(Unary { op: UnaryOp::Gelu, x: o.read(d)?, out: o.write(d)? }.into()),
    },
    Kernel {
        family: FAMILY,
        name: "unary_grad_gelu",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| {
            let (saved, grad) = (o.read(d)?, o.read(d)?);
            Ok(UnaryGrad { op: UnaryGradOp::Gelu, saved, grad, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "binary_add",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| Ok(Binary { op: BinaryOp::ADD, lhs: o.read(d)?, rhs: o.read(d)?, out: o.write(d)? }.into()),
    },
    // A bias: one row for all.
    Kernel {
        family: FAMILY,
        name: "binary_add_row",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| {
            let (lhs, mut rhs) = (o.read(d)?, o.read(&d[1..])?);
            rhs.layout = memcore::Layout::strided(d, &[0, 1])?;
            Ok(Binary { op: BinaryOp::ADD, lhs, rhs, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "ternary_addcmul",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let [a, b, c] = [o.read(d)?, o.read(d)?, o.read(d)?];
            Ok(Ternary { op: TernaryOp::Addcmul { value: 0.5 }, a, b, c, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "select",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let (mask, on_true, on_false) = (o.mask(d)?, o.read(d)?, o.read(d)?);
            Ok(Select { mask, on_true, on_false, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "masked_fill",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| Ok(MaskedFill { x: o.read(d)?, mask: o.mask(d)?, value: 0.0, out: o.write(d)? }.into()),
    },
    Kernel {
        family: FAMILY,
        name: "triangle",
        sizes: ROWS,
        dtypes: F32,
        build: |o, d| Ok(Triangle { upper: false, diagonal: 0, x: o.read(d)?, out: o.write(d)? }.into()),
    },
    Kernel {
        family: "random",
        name: "random",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let kind = RandomKind::Uniform { low: -1.0, high: 1.0 };
            Ok(Random { kind, seed: 7, offset: 0, out: o.write(d)? }.into())
        },
    },
    Kernel {
        family: "random",
        name: "dropout",
        sizes: ELEMENTS,
        dtypes: FLOATS,
        build: |o, d| {
            let (x, mask, out) = (o.read(d)?, o.write_as(DType::Bool, d)?, o.write(d)?);
            Ok(Dropout { p: 0.1, seed: 7, offset: 0, x, mask, out }.into())
        },
    },
    Kernel {
        family: "random",
        name: "dropout_grad",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| Ok(DropoutGrad { scale: 1.5, grad: o.read(d)?, mask: o.mask(d)?, out: o.write(d)? }.into()),
    },
];
