//! Distribution of a reduction over threads.

use memcore::MAX_RANK;
use memcore::backend::kernel::Reduce;

use crate::job::SCRATCH_BYTES;

/// A set of axes, merged where their order is the same in all operands. Outermost first.
#[derive(Clone, Copy, Default)]
pub(super) struct Merged {
    pub(super) rank: usize,
    pub(super) dims: [usize; MAX_RANK],
    /// Strides of the argument.
    pub(super) strides: [usize; MAX_RANK],
    /// Strides of the result.
    pub(super) out: [usize; MAX_RANK],
}

impl Merged {
    fn push(&mut self, size: usize, stride: usize, out: usize) {
        if size == 1 {
            return;
        }
        let last = self.rank.wrapping_sub(1);
        let fits = self.rank > 0 && self.strides[last] == stride * size && self.out[last] == out * size;
        let at = if fits { last } else { self.rank };
        self.dims[at] = if fits { self.dims[at] * size } else { size };
        self.strides[at] = stride;
        self.out[at] = out;
        self.rank = at + 1;
    }

    fn numel(&self) -> usize {
        self.dims[..self.rank].iter().product()
    }

    /// WGSL for `name(i)`: the position of element `i` of these axes, from the sizes and strides in two parameters.
    pub(super) fn offset(&self, name: &str, sizes: &str, strides: &str) -> String {
        let at = |list: &str, axis: usize| format!("p.{list}[{}].{}", axis / 4, ["x", "y", "z", "w"][axis % 4]);
        let mut out = format!("fn {name}(i: u32) -> u32 {{\n    var rest = i;\n    var k = 0u;\n");
        for axis in (0..self.rank).rev() {
            if axis > 0 {
                let size = at(sizes, axis);
                out += &format!("    k += rest % {size} * {}; rest = rest / {size};\n", at(strides, axis));
            } else {
                out += &format!("    k += rest * {};\n", at(strides, axis));
            }
        }
        out + "    return k;\n}\n"
    }
}

/// The axes of a reduction.
pub(super) struct Axes {
    pub(super) kept: Merged,
    pub(super) reduced: Merged,
}

impl Axes {
    pub(super) fn new(k: &Reduce) -> Self {
        let mut axes = Self { kept: Merged::default(), reduced: Merged::default() };
        for (axis, &size) in k.x.dims().iter().enumerate() {
            let stride = k.x.layout.strides()[axis];
            if k.reduces(axis) {
                axes.reduced.push(size, stride, 0);
            } else {
                axes.kept.push(size, stride, k.out.layout.strides()[axis]);
            }
        }
        axes
    }

    /// Number of groups.
    pub(super) fn outs(&self) -> usize {
        self.kept.numel()
    }

    /// Number of elements in a group.
    pub(super) fn total(&self) -> usize {
        self.reduced.numel()
    }

    /// True if neighbouring groups are adjacent in memory, so that each may have its own thread.
    fn is_columns(&self) -> bool {
        self.kept.rank > 0 && self.kept.strides[self.kept.rank - 1] == 1
    }
}

/// Threads and parts.
pub(super) struct Plan {
    /// True if a workgroup reduces one group together.
    pub(super) together: bool,
    /// Number of parts of each group.
    pub(super) parts: usize,
    /// Number of elements in a part.
    pub(super) length: usize,
}

/// Number of partial results that keeps a device busy.
const ENOUGH: usize = 4096;
/// Minimum length of a part.
const SHORTEST: usize = 256;
/// Bytes of a partial result.
const PARTIAL_BYTES: usize = 12;

impl Plan {
    pub(super) fn new(axes: &Axes, is_software: bool) -> Self {
        let (outs, total) = (axes.outs(), axes.total());
        // Synchronising threads is expensive on a software adapter.
        let alone = axes.is_columns() || (is_software && outs >= 128 && total <= 1 << 14);
        let together = total > 64 && !alone;
        // A workgroup counts as its 64 threads.
        let (workers, shortest) = if together { (outs * 64, 64 * SHORTEST) } else { (outs, SHORTEST) };
        let fitting = SCRATCH_BYTES as usize / PARTIAL_BYTES / outs;
        let parts = (ENOUGH / workers).min(total / shortest).min(fitting).max(1);
        let length = total.div_ceil(parts).max(1);
        Self { together, parts: total.div_ceil(length).max(1), length }
    }
}
