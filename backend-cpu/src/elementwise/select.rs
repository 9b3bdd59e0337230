//! Kernels that choose elements and compute nothing. They move bits of any type.

use memcore::backend::kernel::{MaskedFill, Select, Triangle};
use memcore::error::Result;

use super::{Bits, bits_type, scalar_bits};
use crate::simd::{Isa, simd};
use crate::stream::{Block, Reader, Writer, for_blocks};
use crate::view::Context;

/// `out = mask ? on_true : on_false`.
pub(crate) fn select(ctx: &Context<'_>, k: &Select) -> Result<()> {
    bits_type!(k.out.dtype, U => run_select::<U>(ctx, k))
}

fn run_select<U: Bits>(ctx: &Context<'_>, k: &Select) -> Result<()> {
    let mask = Reader::<u8>::bits(ctx, &k.mask, &k.out)?;
    let on_true = Reader::<U>::bits(ctx, &k.on_true, &k.out)?;
    let on_false = Reader::<U>::bits(ctx, &k.on_false, &k.out)?;
    let out = Writer::<U>::bits(ctx, &k.out)?;
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut m, mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let mask = mask.read(start, len, &mut m);
            let on_true = on_true.read(start, len, &mut a);
            let on_false = on_false.read(start, len, &mut b);
            out.write(start, len, &mut o, |out| choose(mask, on_true, on_false, out));
        }
    });
    Ok(())
}

/// `out = mask ? value : x`.
pub(crate) fn masked_fill(ctx: &Context<'_>, k: &MaskedFill) -> Result<()> {
    bits_type!(k.out.dtype, U => run_masked_fill::<U>(ctx, k))
}

fn run_masked_fill<U: Bits>(ctx: &Context<'_>, k: &MaskedFill) -> Result<()> {
    let value = U::low(scalar_bits(k.out.dtype, k.value));
    let mask = Reader::<u8>::bits(ctx, &k.mask, &k.out)?;
    let x = Reader::<U>::bits(ctx, &k.x, &k.out)?;
    let out = Writer::<U>::bits(ctx, &k.out)?;
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut m, mut a, mut o) = (Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let mask = mask.read(start, len, &mut m);
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| replace(mask, x, value, out));
        }
    });
    Ok(())
}

simd! {
    fn choose<U: Bits>(mask: &[u8], on_true: &[U], on_false: &[U], out: &mut [U]) = choose_body;
    fn replace<U: Bits>(mask: &[u8], x: &[U], value: U, out: &mut [U]) = replace_body;
}

#[inline(always)]
fn choose_body<S: Isa, U: Bits>(mask: &[u8], on_true: &[U], on_false: &[U], out: &mut [U]) {
    for (((o, &m), &a), &b) in out.iter_mut().zip(mask).zip(on_true).zip(on_false) {
        *o = if m != 0 { a } else { b };
    }
}

#[inline(always)]
fn replace_body<S: Isa, U: Bits>(mask: &[u8], x: &[U], value: U, out: &mut [U]) {
    for ((o, &m), &x) in out.iter_mut().zip(mask).zip(x) {
        *o = if m != 0 { value } else { x };
    }
}

/// `out = x` inside the triangle, 0 outside.
pub(crate) fn triangle(ctx: &Context<'_>, k: &Triangle) -> Result<()> {
    bits_type!(k.out.dtype, U => run_triangle::<U>(ctx, k))
}

fn run_triangle<U: Bits>(ctx: &Context<'_>, k: &Triangle) -> Result<()> {
    let [.., rows, columns] = *k.out.dims() else { return Ok(()) };
    let x = Reader::<U>::bits(ctx, &k.x, &k.out)?;
    let out = Writer::<U>::bits(ctx, &k.out)?;
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut o) = (Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| keep_triangle(k, rows, columns, start, x, out));
        }
    });
    Ok(())
}

/// Handles the part of a triangle that a block covers. In each row, the kept elements are one run.
fn keep_triangle<U: Bits>(k: &Triangle, rows: usize, columns: usize, start: usize, x: &[U], out: &mut [U]) {
    let mut done = 0;
    while done < x.len() {
        let at = start + done;
        let (i, j) = (at / columns % rows, at % columns);
        let n = (columns - j).min(x.len() - done);
        // First column above the lower triangle, or first column of the upper one.
        let border = (i as i64).saturating_add(k.diagonal).saturating_add(if k.upper { 0 } else { 1 });
        let border = (border.clamp(j as i64, (j + n) as i64) - j as i64) as usize;
        let (keep, zero) = if k.upper { (border..n, 0..border) } else { (0..border, border..n) };
        let (x, out) = (&x[done..done + n], &mut out[done..done + n]);
        out[keep.clone()].copy_from_slice(&x[keep]);
        out[zero].fill(U::default());
        done += n;
    }
}
