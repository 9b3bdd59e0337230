//! Fill, and copy with its conversions.

use memcore::backend::kernel::{Copy, Fill};
use memcore::error::Result;

use super::{I64, bits_of, moved, typed};
use crate::element::Elem;
use crate::job::Context;
use crate::pointwise::Pointwise;

pub(crate) fn fill(cx: &mut Context<'_>, k: &Fill) -> Result<()> {
    let [low, high] = bits_of(k.value, k.out.dtype);
    let kernel =
        Pointwise { name: "fill", op: 0, operands: &[moved(&k.out)], scalars: [0, 0, low, high, 0, 0], indexed: false };
    kernel.run(cx, || match Elem::bits(k.out.dtype) {
        Elem::B8 => "fn op() -> vec2<u32> { return vec2<u32>(p.c, p.d); }".into(),
        _ => "fn op() -> u32 { return p.c; }".into(),
    })
}

pub(crate) fn copy(cx: &mut Context<'_>, k: &Copy) -> Result<()> {
    let alike = k.src.dtype == k.out.dtype;
    let operands = if alike { [moved(&k.out), moved(&k.src)] } else { [typed(&k.out), typed(&k.src)] };
    let kernel =
        Pointwise { name: "copy", op: u64::from(!alike), operands: &operands, scalars: [0; 6], indexed: false };
    kernel.run(cx, || {
        let (from, to) = (operands[1].1, operands[0].1);
        let body = if alike { "x" } else { conversion(from, to) };
        format!("{I64}fn op(x: {}) -> {} {{ return {body}; }}", from.wgsl(), to.wgsl())
    })
}

/// The expression that converts `x`.
fn conversion(from: Elem, to: Elem) -> &'static str {
    match (from.wgsl(), to.wgsl()) {
        ("f32", "f32") | ("vec2<u32>", "vec2<u32>") => "x",
        // Bool tests the value for 0 before truncation, not after.
        ("f32", "i32") if to == Elem::Bool => "select(1, 0, x == 0.0)",
        ("vec2<u32>", "i32") if to == Elem::Bool => "select(1, 0, (x.x | x.y) == 0u)",
        ("f32", "i32") => "i32(x)",
        ("f32", _) => "i64_of_f32(x)",
        ("i32", "f32") => "f32(x)",
        ("i32", "i32") => "x",
        ("i32", _) => "i64_of_i32(x)",
        (_, "f32") => "f32_of_i64(x)",
        _ => "bitcast<i32>(x.x)",
    }
}
