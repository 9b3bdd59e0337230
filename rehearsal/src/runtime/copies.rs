//! Copies and fills. They happen immediately, as far as `values.rs` keeps contents.

use std::ffi::c_int;

use crate::answer::{Answer, Code, runtime};
use crate::argument::{In, Out};
use crate::exports::exports;
use crate::work::{kind, work};
use crate::{context, space, symbols, values};

/// Directions of a copy, as `cudaMemcpyKind` numbers them.
const KINDS: std::ops::RangeInclusive<c_int> = 0..=4;

/// A block of rows, each with its pitch.
#[derive(Clone, Copy)]
struct Rows {
    to: (usize, usize),
    from: (usize, usize),
    width: usize,
    height: usize,
}

impl Rows {
    fn flat(to: usize, from: usize, bytes: usize) -> Self {
        Self { to: (to, bytes), from: (from, bytes), width: bytes, height: 1 }
    }

    fn copy(self) -> Answer {
        let Self { to, from, width, height } = self;
        if width == 0 || height == 0 {
            return Ok(());
        }
        if height > 1 && (width > to.1 || width > from.1) {
            return Err(Code(12));
        }
        if to.0 == 0 || from.0 == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for row in 0..height {
            let at = |(start, pitch): (usize, usize)| start.wrapping_add(row.wrapping_mul(pitch));
            values::copy(at(to), at(from), width);
        }
        Ok(())
    }
}

/// Runs a copy for which the program waits.
fn now(rows: Rows, kind: c_int) -> Answer {
    check(kind)?;
    work().forbid_in_capture()?;
    rows.copy()
}

/// Runs a copy in the order of a stream.
fn in_order(rows: Rows, direction: c_int, stream: usize) -> Answer {
    check(direction)?;
    let is_captured = work().capture_node(stream, kind::MEMCPY, None)?;
    if is_captured { Ok(()) } else { rows.copy() }
}

fn check(direction: c_int) -> Answer {
    context::used()?;
    if KINDS.contains(&direction) { Ok(()) } else { Err(Code(21)) }
}

/// Fills rows, in the order of a stream if one is given.
fn fill(address: usize, pitch: usize, byte: c_int, (width, height): (usize, usize), stream: Option<usize>) -> Answer {
    context::used()?;
    let is_captured = match stream {
        Some(stream) => work().capture_node(stream, kind::MEMSET, None)?,
        None => {
            work().forbid_in_capture()?;
            false
        }
    };
    if is_captured || width == 0 || height == 0 {
        return Ok(());
    }
    let is_known = space::card_of(address).is_some() || crate::host_memory::find(address).is_some();
    if !is_known {
        return Err(Code::INVALID_VALUE);
    }
    for row in 0..height {
        values::fill(address.wrapping_add(row.wrapping_mul(pitch)), &[byte as u8], width);
    }
    Ok(())
}

exports! {
    runtime cudaMemcpy(to: usize, from: usize, bytes: usize, kind: c_int) {
        now(Rows::flat(to, from, bytes), kind)
    }

    runtime cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: c_int, stream: usize) {
        in_order(Rows::flat(to, from, bytes), kind, stream)
    }

    runtime cudaMemcpyPeer(to: usize, _to_card: c_int, from: usize, _from_card: c_int, bytes: usize) {
        now(Rows::flat(to, from, bytes), 3)
    }

    runtime cudaMemcpyPeerAsync(
        to: usize, _to_card: c_int, from: usize, _from_card: c_int, bytes: usize, stream: usize,
    ) {
        in_order(Rows::flat(to, from, bytes), 3, stream)
    }

    runtime cudaMemcpy2D(
        to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, kind: c_int,
    ) {
        now(Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }, kind)
    }

    runtime cudaMemcpyToSymbol(symbol: usize, from: usize, bytes: usize, offset: usize, kind: c_int) {
        now(Rows::flat(symbols::place(symbol, offset)?, from, bytes), kind)
    }

    runtime cudaMemcpyToSymbolAsync(
        symbol: usize, from: usize, bytes: usize, offset: usize, kind: c_int, stream: usize,
    ) {
        in_order(Rows::flat(symbols::place(symbol, offset)?, from, bytes), kind, stream)
    }

    runtime cudaMemcpyFromSymbol(to: usize, symbol: usize, bytes: usize, offset: usize, kind: c_int) {
        now(Rows::flat(to, symbols::place(symbol, offset)?, bytes), kind)
    }

    runtime cudaMemcpyFromSymbolAsync(
        to: usize, symbol: usize, bytes: usize, offset: usize, kind: c_int, stream: usize,
    ) {
        in_order(Rows::flat(to, symbols::place(symbol, offset)?, bytes), kind, stream)
    }

    runtime cudaGetSymbolAddress(address: Out<usize>, symbol: usize) {
        address.set(symbols::address(symbol)?.0)
    }

    runtime cudaGetSymbolSize(size: Out<usize>, symbol: usize) {
        size.set(symbols::address(symbol)?.1)
    }

    runtime cudaMemset(address: usize, byte: c_int, bytes: usize) {
        fill(address, 0, byte, (bytes, 1), None)
    }

    runtime cudaMemsetAsync(address: usize, byte: c_int, bytes: usize, stream: usize) {
        fill(address, 0, byte, (bytes, 1), Some(stream))
    }

    runtime cudaMemset2D(address: usize, pitch: usize, byte: c_int, width: usize, height: usize) {
        fill(address, pitch, byte, (width, height), None)
    }

    runtime cudaMemset2DAsync(
        address: usize, pitch: usize, byte: c_int, width: usize, height: usize, stream: usize,
    ) {
        fill(address, pitch, byte, (width, height), Some(stream))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy2DAsync(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    runtime(in_order(Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }, kind, stream))
}

/// Copies many ranges. CUDA 12 has one more argument before the stream.
fn batch(to: In<usize>, from: In<usize>, sizes: In<usize>, count: usize, stream: usize) -> Answer {
    for index in 0..count {
        let rows = Rows::flat(to.get_at(index)?, from.get_at(index)?, sizes.get_at(index)?);
        if !work().capture_node(stream, kind::MEMCPY, None)? {
            rows.copy()?;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyBatchAsync(
    to: In<usize>,
    from: In<usize>,
    sizes: In<usize>,
    count: usize,
    _attributes: usize,
    _indices: usize,
    _attribute_count: usize,
    eighth: usize,
    ninth: usize,
) -> c_int {
    let stream = if crate::wheel::is_cuda_12() { ninth } else { eighth };
    runtime(batch(to, from, sizes, count, stream))
}
