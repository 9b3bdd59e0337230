//! The kernel behind every elementwise operation: one function with as many arguments as inputs, over any strides.
//!
//! Dimensions with the same order in all operands are merged. If the innermost dimension is a multiple of four, and
//! each operand either has stride 1 along it or repeats one element, a thread takes four elements at once, or eight if
//! they are moved by 64 bits.

use memcore::backend::Operand;
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare};
use crate::job::{Context, Job};
use crate::key::Variant;

/// Maximum number of operands of one kernel, the output included.
const MAX_OPERANDS: usize = 4;
const MAX_RANK: usize = memcore::MAX_RANK;
/// Threads of a workgroup.
const THREADS: u64 = 256;

const NAMES: [&str; MAX_OPERANDS] = ["out", "x", "y", "z"];

/// An elementwise kernel.
pub(crate) struct Pointwise<'a> {
    pub(crate) name: &'static str,
    /// Number of the function, below 256.
    pub(crate) op: u64,
    /// The output, then the inputs.
    pub(crate) operands: &'a [(&'a Operand, Elem)],
    /// Numbers that the function may use, as `p.a`, `p.b` (f32), `p.c` to `p.f` (u32).
    pub(crate) scalars: [u32; 6],
    /// True if the function also takes the last two indices, `row` and `column`; dimensions are not merged then.
    pub(crate) indexed: bool,
}

/// A function of one f32 that is applied to the results of another function before they are stored.
#[derive(Clone, Copy)]
pub(crate) struct Then {
    /// Number of the function, below 256.
    pub(crate) op: u64,
    /// Its `p.a` and `p.b`.
    pub(crate) scalars: [u32; 2],
    /// An expression of `x` and `p`.
    pub(crate) body: &'static str,
}

impl Then {
    /// WGSL for `then_op`. Its input is first rounded as a store and a load would round it. XOR with a zero known only
    /// at run time keeps the compiler from fusing a product and a sum that two kernels would round separately.
    fn source(&self, elem: Elem) -> String {
        let stored = elem.decode(&format!("({} ^ p.zero)", elem.encode("v")));
        let body = self.body;
        format!(
            "\nstruct Scalars {{ a: f32, b: f32 }}\n\
             fn then_op(v: f32) -> f32 {{\n    let x = {stored};\n    let p = Scalars(p.then_a, p.then_b);\n    return {body};\n}}\n"
        )
    }
}

/// Sizes and strides of all operands, with dimensions merged.
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

/// Inputs of a kernel's source, besides its functions and types.
#[derive(Clone, Copy)]
struct Form {
    rank: usize,
    /// Elements per thread.
    width: Width,
    /// Inputs that repeat one element for all elements of a thread.
    repeats: [bool; MAX_OPERANDS],
}

impl Pointwise<'_> {
    /// Launches the kernel. `function` is WGSL that declares `op`, a function of the inputs' values in their order.
    pub(crate) fn run(&self, cx: &mut Context<'_>, function: impl FnOnce() -> String) -> Result<()> {
        self.run_then(cx, None, function)
    }

    /// Launches the kernel with a second function of the result of `op`, for results in f32.
    pub(crate) fn run_then(
        &self,
        cx: &mut Context<'_>,
        then: Option<Then>,
        function: impl FnOnce() -> String,
    ) -> Result<()> {
        let numel = self.operands[0].0.numel();
        if numel == 0 {
            return Ok(());
        }
        let mut walk = Walk::new(self.operands, !self.indexed);
        let mut job = cx.job();
        for (operand, _) in self.operands {
            job.bind(operand);
        }
        let form = self.form(&walk, &job, cx.gpu.by_64);
        let (inner, count) = (form.rank - 1, form.width.count());
        let mut variant = Variant::new().with(8, self.op).with(3, form.rank as u64).with(2, form.width as u64);
        for ((_, elem), repeats) in self.operands.iter().zip(form.repeats) {
            variant = variant.with(4, elem.code()).with(1, repeats.into());
        }
        if let Some(then) = &then {
            // Longer than the variant without it, so never the same.
            variant = variant.with(8, then.op);
        }
        walk.dims[inner] /= count;
        for (strides, _) in walk.strides.iter_mut().zip(form.repeats).filter(|(_, repeats)| !repeats) {
            strides[..inner].iter_mut().for_each(|s| *s /= count);
        }
        let units = numel / count;
        self.push(&mut job, &walk, units, then);
        let groups = (units as u64).div_ceil(THREADS);
        cx.run(&job, variant.key(self.name), groups, || self.source(form, then, &function()))
    }

    /// Chooses the number of elements per thread. Each operand must have stride 1 along the innermost dimension or, if
    /// it is an input, repeat there.
    fn form(&self, walk: &Walk, job: &Job, by_64: bool) -> Form {
        let inner = walk.rank - 1;
        let repeating = |i: usize| i > 0 && walk.strides[i][inner] == 0;
        let fits = |width: Width| {
            let whole = |n: usize| n.is_multiple_of(width.count());
            let runs = |i: usize| {
                let strides = &walk.strides[i];
                strides[inner] == 1 && strides[..inner].iter().all(|s| whole(*s)) && whole(job.first(i) as usize)
            };
            whole(walk.dims[inner])
                && (0..self.operands.len()).all(|i| self.operands[i].1.size() < 8 && (runs(i) || repeating(i)))
        };
        let width = match self.indexed {
            false if by_64 && fits(Width::Eight) => Width::Eight,
            false if fits(Width::Four) => Width::Four,
            _ => Width::One,
        };
        let repeats = std::array::from_fn(|i| width != Width::One && i < self.operands.len() && repeating(i));
        Form { rank: walk.rank, width, repeats }
    }

    /// Pushes the parameters, as `source` declares them.
    fn push(&self, job: &mut Job, walk: &Walk, units: usize, then: Option<Then>) {
        job.u(units);
        for word in self.scalars {
            job.word(word);
        }
        let [then_a, then_b] = then.map_or([0; 2], |then| then.scalars);
        job.u(0).word(then_a).word(then_b).u(0).u(0);
        let strides = walk.strides[..self.operands.len()].iter();
        for value in std::iter::once(&walk.dims).chain(strides).flat_map(|list| list.iter().copied().chain([0, 0])) {
            job.u(value);
        }
    }

    fn source(&self, form: Form, then: Option<Then>, function: &str) -> String {
        let slot = |(i, (_, elem)): (usize, &(&Operand, Elem))| {
            let width = if form.repeats[i] { Width::One } else { form.width };
            Slot { name: NAMES[i], elem: *elem, width, writes: i == 0 }
        };
        let slots: Vec<Slot> = self.operands.iter().enumerate().map(slot).collect();
        let fields = "n: u32, a: f32, b: f32, c: u32, d: u32, e: u32, f: u32, zero: u32, \
             then_a: f32, then_b: f32, pad0: u32, pad1: u32, dims: array<vec4<u32>, 2>, strides: array<vec4<u32>, 8>";
        let mut out = declare(&slots, fields);
        out += function;
        out += &then.map_or(String::new(), |then| then.source(self.operands[0].1));
        out += &format!(
            "\n@compute @workgroup_size({THREADS})\nfn main(grid: Grid) {{\n    \
             let unit = group_of(grid) * {THREADS}u + grid.lane;\n    if (unit >= p.n) {{ return; }}\n"
        );
        out += &self.places(form);
        for slot in &slots[1..] {
            let (name, width) = (slot.name, slot.width.suffix());
            out += &format!("    let {name} = {name}_at{width}(k_{name});\n");
        }
        out + &format!("    out_put{}(k_out, {});\n}}\n", form.width.suffix(), self.values(form, then.is_some()))
    }

    /// WGSL for the values that a thread stores, given the inputs that it has read.
    fn values(&self, form: Form, has_then: bool) -> String {
        // `lane` is the WGSL index of one of a thread's elements.
        let value = |lane: &str| {
            let name = |i: usize| format!("{}{}", NAMES[i], if form.repeats[i] { "" } else { lane });
            let mut arguments: Vec<String> = (1..self.operands.len()).map(name).collect();
            if self.indexed {
                arguments.extend([form.rank - 2, form.rank - 1].map(|axis| format!("i{axis}")));
            }
            let value = format!("op({})", arguments.join(", "));
            if has_then { format!("then_op({value})") } else { value }
        };
        let t = self.operands[0].1.wgsl();
        let quad = |of: &str| {
            let lanes = ["x", "y", "z", "w"].map(|lane| value(&format!("{of}.{lane}")));
            format!("vec4<{t}>({})", lanes.join(", "))
        };
        match form.width {
            Width::One => value(""),
            Width::Four => quad(""),
            Width::Eight => format!("array<vec4<{t}>, 2>({}, {})", quad("[0]"), quad("[1]")),
        }
    }

    /// WGSL for the indices of a unit, `i0` and so on, and for its position in each operand, `k_out` and so on.
    fn places(&self, form: Form) -> String {
        let (rank, is_wide) = (form.rank, form.width != Width::One);
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
        for (i, name) in NAMES[..self.operands.len()].iter().enumerate() {
            let inner = rank - 1;
            let mut terms: Vec<String> = (0..rank)
                .filter(|&axis| !(axis == inner && form.repeats[i]))
                .map(|axis| {
                    if is_wide && axis == inner {
                        format!("i{axis}")
                    } else {
                        format!("i{axis} * {}", at(2 * i, axis, "strides"))
                    }
                })
                .collect();
            if form.width == Width::Eight && !form.repeats[i] {
                terms.push(format!("{name}_first8()"));
            }
            let sum = if terms.is_empty() { "0u".to_string() } else { terms.join(" + ") };
            out += &format!("    let k_{name} = {sum};\n");
        }
        out
    }
}
