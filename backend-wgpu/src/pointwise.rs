//! The kernel behind every elementwise operation: one function of as many elements as there are inputs, over any strides.
//!
//! Dimensions that lie alike in all operands are merged. Where the innermost one is a multiple of four, and each operand either
//! runs along it or repeats one element, a thread takes four elements at once.

use memcore::backend::Operand;
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare};
use crate::job::{Context, Job, Variant};

/// Operands of one kernel, the output among them.
const MAX_OPERANDS: usize = 4;
const MAX_RANK: usize = memcore::MAX_RANK;
/// Threads of a workgroup.
const THREADS: u64 = 256;

const NAMES: [&str; MAX_OPERANDS] = ["out", "x", "y", "z"];

/// An elementwise kernel.
pub(crate) struct Pointwise<'a> {
    pub(crate) name: &'static str,
    /// Which function, below 256.
    pub(crate) op: u64,
    /// The output, then the inputs.
    pub(crate) operands: &'a [(&'a Operand, Elem)],
    /// Numbers that the function may use, as `p.a`, `p.b` (f32), `p.c` to `p.f` (u32).
    pub(crate) scalars: [u32; 6],
    /// Whether the function takes the last two indices as well, `row` and `column`; dimensions are not merged then.
    pub(crate) indexed: bool,
}

/// Sizes and strides of all operands, merged.
struct Walk {
    rank: usize,
    /// Outermost first.
    dims: [usize; MAX_RANK],
    strides: [[usize; MAX_RANK]; MAX_OPERANDS],
}

impl Walk {
    fn new(operands: &[(&Operand, Elem)], merge: bool) -> Self {
        let out = &operands[0].0.layout;
        let mut walk = Walk { rank: 0, dims: [1; MAX_RANK], strides: [[0; MAX_RANK]; MAX_OPERANDS] };
        for axis in 0..out.rank() {
            let size = out.dims()[axis];
            if merge && size == 1 {
                continue;
            }
            let stride = |i: usize| operands[i].0.layout.strides()[axis];
            let last = walk.rank.wrapping_sub(1);
            let fits = merge && walk.rank > 0 && (0..operands.len()).all(|i| walk.strides[i][last] == stride(i) * size);
            let at = if fits { last } else { walk.rank };
            walk.dims[at] = if fits { walk.dims[at] * size } else { size };
            for i in 0..operands.len() {
                walk.strides[i][at] = stride(i);
            }
            walk.rank = at + 1;
        }
        walk.rank = walk.rank.max(1);
        walk
    }
}

impl Pointwise<'_> {
    /// Launches it. `function` is WGSL that declares `op`, a function of the inputs' values in their order.
    pub(crate) fn run(&self, cx: &mut Context<'_>, function: impl FnOnce() -> String) -> Result<()> {
        let numel = self.operands[0].0.numel();
        if numel == 0 {
            return Ok(());
        }
        let mut walk = Walk::new(self.operands, !self.indexed);
        let mut job = cx.job();
        for (operand, _) in self.operands {
            job.bind(operand);
        }
        let inner = walk.rank - 1;
        let wide = self.is_wide(&walk, &job);
        let mut variant = Variant::new().with(8, self.op).with(3, walk.rank as u64).with(1, wide.into());
        let mut repeats = [false; MAX_OPERANDS];
        for (i, (_, elem)) in self.operands.iter().enumerate() {
            repeats[i] = wide && walk.strides[i][inner] == 0;
            variant = variant.with(4, elem.code()).with(1, repeats[i].into());
        }
        let mut units = numel;
        if wide {
            walk.dims[inner] /= 4;
            units /= 4;
            for (strides, _) in walk.strides.iter_mut().zip(&repeats).filter(|(_, repeats)| !**repeats) {
                strides[..inner].iter_mut().for_each(|s| *s /= 4);
            }
        }
        self.push(&mut job, &walk, units);
        let groups = (units as u64).div_ceil(THREADS);
        let rank = walk.rank;
        cx.run(&job, variant.key(self.name), groups, || self.source(rank, wide, repeats, &function()))
    }

    /// Whether a thread may take four elements at once: each operand runs along the innermost dimension or, if it is an input, repeats there.
    fn is_wide(&self, walk: &Walk, job: &Job) -> bool {
        let inner = walk.rank - 1;
        let is_vector = |i: usize| {
            let strides = &walk.strides[i];
            let runs = strides[inner] == 1
                && strides[..inner].iter().all(|s| s.is_multiple_of(4))
                && job.first(i).is_multiple_of(4);
            self.operands[i].1.size() < 8 && (runs || (i > 0 && strides[inner] == 0))
        };
        !self.indexed && walk.dims[inner].is_multiple_of(4) && (0..self.operands.len()).all(is_vector)
    }

    /// The parameters, as `source` declares them.
    fn push(&self, job: &mut Job, walk: &Walk, units: usize) {
        job.u(units);
        for word in self.scalars {
            job.word(word);
        }
        job.u(0);
        let strides = walk.strides[..self.operands.len()].iter();
        for value in std::iter::once(&walk.dims).chain(strides).flat_map(|list| list.iter().copied().chain([0, 0])) {
            job.u(value);
        }
    }

    fn source(&self, rank: usize, wide: bool, repeats: [bool; MAX_OPERANDS], function: &str) -> String {
        let count = self.operands.len();
        let slots: Vec<Slot> = self
            .operands
            .iter()
            .enumerate()
            .map(|(i, (_, elem))| {
                let width = if wide && !repeats[i] { Width::Four } else { Width::One };
                Slot { name: NAMES[i], elem: *elem, width, writes: i == 0 }
            })
            .collect();
        let fields = "n: u32, a: f32, b: f32, c: u32, d: u32, e: u32, f: u32, pad: u32, \
             dims: array<vec4<u32>, 2>, strides: array<vec4<u32>, 8>";
        let mut out = declare(&slots, fields);
        out += function;
        out += &format!(
            "\n@compute @workgroup_size({THREADS})\nfn main(grid: Grid) {{\n    \
             let unit = group_of(grid) * {THREADS}u + grid.lane;\n    if (unit >= p.n) {{ return; }}\n"
        );
        out += &self.places(rank, wide, repeats);
        let mut arguments: Vec<String> = NAMES[1..count].iter().map(ToString::to_string).collect();
        for (i, name) in NAMES[..count].iter().enumerate().skip(1) {
            let load = if wide && !repeats[i] { "at4" } else { "at" };
            out += &format!("    let {name} = {name}_{load}(k_{name});\n");
        }
        if wide {
            let lane = |lane: &str| {
                let arguments: Vec<String> = (1..count)
                    .map(|i| if repeats[i] { NAMES[i].to_string() } else { format!("{}.{lane}", NAMES[i]) })
                    .collect();
                format!("op({})", arguments.join(", "))
            };
            let t = self.operands[0].1.wgsl();
            let (x, y, z, w) = (lane("x"), lane("y"), lane("z"), lane("w"));
            out += &format!("    out_put4(k_out, vec4<{t}>({x}, {y}, {z}, {w}));\n}}\n");
        } else {
            if self.indexed {
                arguments.push(format!("i{}", rank - 2));
                arguments.push(format!("i{}", rank - 1));
            }
            out += &format!("    out_put(k_out, op({}));\n}}\n", arguments.join(", "));
        }
        out
    }

    /// WGSL for the indices of a unit, `i0` and so on, and for where it lies in each operand, `k_out` and so on.
    fn places(&self, rank: usize, wide: bool, repeats: [bool; MAX_OPERANDS]) -> String {
        let count = self.operands.len();
        let mut out = String::new();
        let at = |base: usize, axis: usize, field: &str| {
            format!("p.{field}[{}].{}", base + axis / 4, ["x", "y", "z", "w"][axis % 4])
        };
        // Indices, innermost first.
        out += "    var rest = unit;\n";
        for axis in (0..rank).rev() {
            if axis == 0 {
                out += "    let i0 = rest;\n";
            } else {
                let size = at(0, axis, "dims");
                out += &format!("    let i{axis} = rest % {size}; rest = rest / {size};\n");
            }
        }
        for (i, name) in NAMES[..count].iter().enumerate() {
            let inner = rank - 1;
            let terms: Vec<String> = (0..rank)
                .filter(|&axis| !(wide && axis == inner && repeats[i]))
                .map(|axis| {
                    if wide && axis == inner {
                        format!("i{axis}")
                    } else {
                        format!("i{axis} * {}", at(2 * i, axis, "strides"))
                    }
                })
                .collect();
            let sum = if terms.is_empty() { "0u".to_string() } else { terms.join(" + ") };
            out += &format!("    let k_{name} = {sum};\n");
        }
        out
    }
}
