//! Selection by a mask or by position: bits are moved, whatever they mean.

use memcore::backend::kernel::{MaskedFill, Select, Triangle};
use memcore::error::Result;

use super::{bits_of, moved};
use crate::element::Elem;
use crate::job::Context;
use crate::pointwise::Pointwise;

pub(crate) fn select(cx: &mut Context<'_>, k: &Select) -> Result<()> {
    let operands = [moved(&k.out), moved(&k.mask), moved(&k.on_true), moved(&k.on_false)];
    let kernel = Pointwise { name: "select", op: 0, operands: &operands, scalars: [0; 6], indexed: false };
    let t = operands[0].1.wgsl();
    kernel
        .run(cx, || format!("fn op(mask: u32, x: {t}, y: {t}) -> {t} {{ if (mask != 0u) {{ return x; }} return y; }}"))
}

pub(crate) fn masked_fill(cx: &mut Context<'_>, k: &MaskedFill) -> Result<()> {
    let [low, high] = bits_of(k.value, k.out.dtype);
    let operands = [moved(&k.out), moved(&k.mask), moved(&k.x)];
    let scalars = [0, 0, low, high, 0, 0];
    let kernel = Pointwise { name: "masked_fill", op: 0, operands: &operands, scalars, indexed: false };
    let t = operands[0].1.wgsl();
    let value = if operands[0].1 == Elem::B8 { "vec2<u32>(p.c, p.d)" } else { "p.c" };
    kernel.run(cx, || format!("fn op(mask: u32, x: {t}) -> {t} {{ if (mask != 0u) {{ return {value}; }} return x; }}"))
}

pub(crate) fn triangle(cx: &mut Context<'_>, k: &Triangle) -> Result<()> {
    // All diagonals beyond the matrix have the same effect.
    let diagonal = k.diagonal.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let operands = [moved(&k.out), moved(&k.x)];
    let scalars = [0, 0, diagonal as u32, 0, 0, 0];
    let kernel = Pointwise { name: "triangle", op: k.upper.into(), operands: &operands, scalars, indexed: true };
    let t = operands[0].1.wgsl();
    // The indices fit in i32, and so does their difference.
    let compare = if k.upper { ">=" } else { "<=" };
    kernel.run(cx, || {
        format!(
            "fn op(x: {t}, row: u32, column: u32) -> {t} {{\n    \
             if (i32(column) - i32(row) {compare} bitcast<i32>(p.c)) {{ return x; }}\n    return {t}();\n}}"
        )
    })
}
