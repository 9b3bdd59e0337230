//! Copies and fills. They happen immediately, as far as `values.rs` keeps contents.

use std::ffi::c_int;

use crate::answer::{Answer, Code, runtime};
use crate::argument::{In, Out};
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
fn now(rows: Rows, kind: c_int) -> c_int {
    runtime(check(kind).and_then(|()| {
        work().forbid_in_capture()?;
        rows.copy()
    }))
}

/// Runs a copy in the order of a stream.
fn in_order(rows: Rows, direction: c_int, stream: usize) -> c_int {
    runtime(
        check(direction).and_then(
            |()| {
                if work().capture_node(stream, kind::MEMCPY, None)? { Ok(()) } else { rows.copy() }
            },
        ),
    )
}

fn check(direction: c_int) -> Answer {
    context::used()?;
    if KINDS.contains(&direction) { Ok(()) } else { Err(Code(21)) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy(to: usize, from: usize, bytes: usize, kind: c_int) -> c_int {
    now(Rows::flat(to, from, bytes), kind)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: c_int, stream: usize) -> c_int {
    in_order(Rows::flat(to, from, bytes), kind, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyPeer(to: usize, _to_card: c_int, from: usize, _from_card: c_int, bytes: usize) -> c_int {
    now(Rows::flat(to, from, bytes), 3)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyPeerAsync(
    to: usize,
    _to_card: c_int,
    from: usize,
    _from_card: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    in_order(Rows::flat(to, from, bytes), 3, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpy2D(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    now(Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }, kind)
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
    in_order(Rows { to: (to, to_pitch), from: (from, from_pitch), width, height }, kind, stream)
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

#[unsafe(no_mangle)]
extern "C" fn cudaMemset(address: usize, byte: c_int, bytes: usize) -> c_int {
    runtime(fill(address, 0, byte, (bytes, 1), None))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemsetAsync(address: usize, byte: c_int, bytes: usize, stream: usize) -> c_int {
    runtime(fill(address, 0, byte, (bytes, 1), Some(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2D(address: usize, pitch: usize, byte: c_int, width: usize, height: usize) -> c_int {
    runtime(fill(address, pitch, byte, (width, height), None))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2DAsync(
    address: usize,
    pitch: usize,
    byte: c_int,
    width: usize,
    height: usize,
    stream: usize,
) -> c_int {
    runtime(fill(address, pitch, byte, (width, height), Some(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbol(symbol: usize, from: usize, bytes: usize, offset: usize, kind: c_int) -> c_int {
    symbols::place(symbol, offset).map_or_else(|code| runtime(Err(code)), |to| now(Rows::flat(to, from, bytes), kind))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: usize,
    from: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    symbols::place(symbol, offset)
        .map_or_else(|code| runtime(Err(code)), |to| in_order(Rows::flat(to, from, bytes), kind, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbol(to: usize, symbol: usize, bytes: usize, offset: usize, kind: c_int) -> c_int {
    symbols::place(symbol, offset).map_or_else(|code| runtime(Err(code)), |from| now(Rows::flat(to, from, bytes), kind))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbolAsync(
    to: usize,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    symbols::place(symbol, offset)
        .map_or_else(|code| runtime(Err(code)), |from| in_order(Rows::flat(to, from, bytes), kind, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolAddress(address: Out<usize>, symbol: usize) -> c_int {
    runtime(symbols::address(symbol).and_then(|(found, _)| address.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolSize(size: Out<usize>, symbol: usize) -> c_int {
    runtime(symbols::address(symbol).and_then(|(_, bytes)| size.set(bytes)))
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
