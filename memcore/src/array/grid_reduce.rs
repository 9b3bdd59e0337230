//! Temporaries of PyTorch's reductions.
//!
//! If groups are large and few, several thread blocks work on one group and combine their results in global memory: a buffer of partial
//! values, and a counter per block column. The allocator gives both for the duration of the kernel. Their sizes, and whether they exist,
//! follow from the layout of the kernel's grid (`ReduceConfig` in PyTorch's `Reduce.cuh`), which is computed again here. The sizes agree
//! with those recorded from the unmodified wheel (bias gradients of products and convolutions, sums, norms).

use smallvec::SmallVec;

use super::Array;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::profile::Multiprocessors;

/// Most threads of a block.
const MAX_THREADS: usize = 512;
const WARP: usize = 32;
/// Elements that a thread reads or writes at one time, if alignment allows.
const VECTOR: usize = 4;
/// Fewest values per thread when a group is divided among blocks.
const MIN_VALUES_PER_THREAD: usize = 16;
/// Fewest values per thread from which a group is divided.
const MAX_VALUES_PER_THREAD: usize = 256;

/// Temporaries of a reduction. Dropping this frees them.
pub(crate) struct Scratch {
    // The fields are freed in this order.
    _semaphores: Array,
    _buffer: Array,
}

impl Scratch {
    /// Allocates the temporaries of PyTorch's reduction over `axes` of `x`, if the profile stands for PyTorch. `partial_bytes` is the size
    /// of a partial value.
    pub(super) fn new(x: &Array, axes: u8, partial_bytes: usize) -> Result<Option<Self>> {
        let Some(gpu) = x.device().profile().multiprocessors else { return Ok(None) };
        let Some(sizes) = sizes(x.layout(), x.offset, axes, partial_bytes, gpu) else { return Ok(None) };
        let buffer = Array::empty(x.device(), &[sizes.buffer], DType::U8)?;
        let semaphores = Array::empty(x.device(), &[sizes.semaphores], DType::U8)?;
        Ok(Some(Self { _semaphores: semaphores, _buffer: buffer }))
    }
}

/// Bytes of the two temporaries.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    buffer: usize,
    semaphores: usize,
}

/// One dimension of the loop: its size, and the strides of result and input in elements.
#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    out: usize,
    input: usize,
}

fn sizes(layout: &Layout, offset: usize, axes: u8, partial_bytes: usize, gpu: Multiprocessors) -> Option<Sizes> {
    let dims = loop_dims(layout, axes);
    let reduced = dims.iter().filter(|d| d.out == 0).count();
    let outputs: usize = dims.iter().filter(|d| d.out != 0).map(|d| d.size).product();
    let group: usize = dims.iter().filter(|d| d.out == 0).map(|d| d.size).product();
    if outputs == 0 || group < MAX_VALUES_PER_THREAD {
        return None;
    }
    let along_group = reduced == dims.len() || dims[0].input < dims[reduced].input;
    let fastest = if along_group { dims[0].input } else { dims[reduced].input };
    let (mut across, down) = if along_group { (group, outputs) } else { (outputs, group) };
    let mut out_vector = 1;
    if fastest == 1 && along_group && across > 128 && dims.len() == 1 {
        across /= VECTOR;
    } else if fastest == 1 && !along_group {
        out_vector = output_vector(&dims, reduced, offset);
        across /= out_vector;
    }
    let (width, height) = block(across, down, MAX_THREADS / out_vector);
    let mut input_step = if along_group { width } else { 1 };
    let mut output_step = if along_group { 1 } else { width };
    let values = |step: usize| group.div_ceil(step);
    let rows_share_group = values(input_step) >= height * 16 || values(input_step) >= MAX_VALUES_PER_THREAD;
    if rows_share_group {
        input_step *= height;
    } else {
        output_step *= height;
    }
    let columns = (outputs / out_vector).div_ceil(output_step);
    let target = gpu.count * (gpu.threads / (width * height));
    if !rows_share_group || values(input_step) < MAX_VALUES_PER_THREAD || columns > target {
        return None;
    }
    let blocks = target.div_ceil(columns).min(values(input_step).div_ceil(MIN_VALUES_PER_THREAD));
    let blocks = blocks.max(values(input_step).div_ceil(MAX_VALUES_PER_THREAD));
    let lanes = if along_group { 1 } else { width * out_vector };
    (blocks > 1).then(|| Sizes { buffer: partial_bytes * outputs * blocks * lanes, semaphores: 4 * columns })
}

/// Returns the dimensions in the order of the kernel's loop: reduced dimensions first, then by stride. Neighbours are joined if their
/// elements follow each other.
fn loop_dims(layout: &Layout, axes: u8) -> SmallVec<[Dim; 6]> {
    let reduced = |i: usize| axes >> i & 1 == 1;
    let mut dims: SmallVec<[Dim; 6]> = SmallVec::new();
    let mut out = 1;
    for i in (0..layout.rank()).rev() {
        let size = layout.dims()[i];
        let dim = Dim { size, out: if reduced(i) { 0 } else { out }, input: layout.strides()[i] };
        if !reduced(i) {
            out *= size.max(1);
        }
        dims.push(dim);
    }
    for i in 1..dims.len() {
        let mut moving = i;
        for before in (0..i).rev() {
            match order(&dims[before], &dims[moving]) {
                1 => {
                    dims.swap(before, moving);
                    moving = before;
                }
                -1 => break,
                _ => {}
            }
        }
    }
    let mut joined: SmallVec<[Dim; 6]> = SmallVec::new();
    for dim in dims {
        match joined.last_mut() {
            Some(last) if dim.size == 1 || last.size == 1 || follows(last, &dim) => {
                if last.size == 1 {
                    (last.out, last.input) = (dim.out, dim.input);
                }
                last.size *= dim.size;
            }
            _ => joined.push(dim),
        }
    }
    joined
}

/// Returns 1 if `a` belongs after `b` in the loop, -1 if before, and 0 if the order does not matter.
fn order(a: &Dim, b: &Dim) -> i8 {
    if (a.out == 0) != (b.out == 0) {
        return if b.out == 0 { 1 } else { -1 };
    }
    for (x, y) in [(a.out, b.out), (a.input, b.input)] {
        match (x, y) {
            (0, _) | (_, 0) => {}
            _ if x < y => return -1,
            _ if x > y || a.size > b.size => return 1,
            _ => {}
        }
    }
    0
}

fn follows(last: &Dim, next: &Dim) -> bool {
    last.size * last.out == next.out && last.size * last.input == next.input
}

/// Number of neighbouring results that a thread makes at one time.
fn output_vector(dims: &[Dim], reduced: usize, offset: usize) -> usize {
    let others = dims.iter().enumerate().filter(|(i, _)| *i != reduced).map(|(_, d)| d.input);
    [offset, dims[reduced].size].into_iter().chain(others).fold(VECTOR, |mut vector, n| {
        while n % vector != 0 {
            vector /= 2;
        }
        vector
    })
}

/// Returns width and height of a thread block for `across` values side by side and `down` values one below the other.
fn block(across: usize, down: usize, max_threads: usize) -> (usize, usize) {
    let fitting = |n: usize| if n < max_threads { last_power_of_two(n) } else { max_threads };
    let (across, down) = (fitting(across), fitting(down));
    let width = across.min(WARP);
    let height = down.min(max_threads / width);
    (across.min(max_threads / height), height)
}

fn last_power_of_two(n: usize) -> usize {
    if n < 2 { 1 } else { 1 << n.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM90: Multiprocessors = Multiprocessors { count: 132, threads: 2048 };

    fn scratch(dims: &[usize], axes: u8) -> Option<(usize, usize)> {
        let sizes = sizes(&Layout::contiguous(dims).unwrap(), 0, axes, 4, SM90);
        sizes.map(|s| (s.buffer, s.semaphores))
    }

    /// Sizes recorded from the unmodified torch 2.11.0+cu130 wheel, compute capability 9.0.
    #[test]
    fn agrees_with_the_recording() {
        assert_eq!(scratch(&[4096, 1024], 0b11), Some((2048, 4)), "sum of 4 Mi elements");
        assert_eq!(scratch(&[512, 256], 0b11), Some((64, 4)), "norm of a weight");
        assert_eq!(scratch(&[512, 512], 0b11), Some((128, 4)), "norm of a weight");
        assert_eq!(scratch(&[128, 16, 32, 32], 0b1101), Some((1024, 64)), "bias gradient of a convolution, batch 128");
        assert_eq!(scratch(&[32, 16, 32, 32], 0b1101), None, "the same, batch 32");
        assert_eq!(scratch(&[1024, 1024], 0b01), Some((8_388_608, 32)), "bias gradient of a linear layer");
        assert_eq!(scratch(&[4096, 1024], 0b01), Some((33_554_432, 32)), "bias gradient of a linear layer");
        assert_eq!(scratch(&[1024, 768], 0b01), Some((6_291_456, 24)), "BERT and GPT-2, 8 × 128 tokens");
        assert_eq!(
            scratch(&[1024, 2304], 0b01),
            Some((18_874_368, 72)),
            "GPT-2's projection to queries, keys and values"
        );
        assert_eq!(scratch(&[1024, 3072], 0b01), Some((25_165_824, 96)), "their feed-forward layer");
        assert_eq!(scratch(&[1024, 30522], 0b01), None, "BERT's vocabulary");
        assert_eq!(scratch(&[128, 3072], 0b01), None, "one sequence of 128 tokens");
        assert_eq!(scratch(&[4, 64, 224, 224], 0b1101), Some((2304, 256)), "VGG-16's first convolution, batch 4");
        assert_eq!(scratch(&[4, 128, 112, 112], 0b1101), None, "its third");
        assert_eq!(scratch(&[64, 256], 0b01), None);
        assert_eq!(scratch(&[64, 256], 0b11), None);
    }

    #[test]
    fn nothing_and_single_elements_take_nothing() {
        for dims in [&[][..], &[1], &[0, 512], &[512, 0], &[1, 1, 1]] {
            for axes in 0..1 << dims.len() {
                assert_eq!(scratch(dims, axes), None, "{dims:?} {axes:b}");
            }
        }
    }
}
