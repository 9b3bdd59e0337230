//! Products on software adapters, where a subgroup of eight lanes is one vector register.
//!
//! Such a driver reads memory lane by lane, workgroup memory too: llvmpipe takes 57 ns for a word in every lane, 90 ns
//! for four words as two of 64 bits, and 0.3 ns for a multiply-add or a broadcast of a subgroup. So only the result
//! passes through workgroup memory, once. Lanes read different elements of `a` and `b`, in quads if possible, and the
//! elements of `a` that the other lanes need are broadcast from lane to lane.

use std::fmt::Write;

use super::product::{Feed, Gemm, Stage};
use crate::gpu::LANES;

/// Inner steps that are written out: those of a quad.
const STEPS: usize = 4;

/// Multiply-adds up to which blocks are small. From `MUCH` on they are large.
const LITTLE: usize = 1 << 20;
const MUCH: usize = 1 << 29;

/// Rows and columns of the result that a lane keeps: all rows of its subgroup, and an eighth of the subgroup's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Block {
    /// The block for a product of these sizes; `None` if the product is too small to gain from one.
    pub(super) fn for_gemm(gemm: &Gemm) -> Option<Self> {
        let sizes = &gemm.sizes;
        if sizes.m * sizes.n < 256 || sizes.k < LANES {
            return None;
        }
        // Larger blocks read less, and take longer to compile.
        let (rows, columns) = match sizes.m * sizes.n * sizes.k {
            ..LITTLE => (16, 4),
            LITTLE..MUCH => (32, 8),
            _ => (64, 8),
        };
        let fitting = |size: usize, most: usize| (1..=most).find(|t| t.is_power_of_two() && *t >= size).unwrap_or(most);
        let mut block = Self { rows: fitting(sizes.m, rows), columns: fitting(sizes.n.div_ceil(LANES), columns) };
        // A lane reads whole quads.
        if gemm.feed_a() == Feed::Across {
            block.rows = block.rows.max(4);
        }
        if gemm.feed_b() == Feed::Across {
            block.columns = block.columns.max(4);
        }
        Some(block)
    }

    pub(super) fn width(self) -> usize {
        LANES * self.columns
    }

    /// Rounds of a thread's loops.
    pub(super) fn rounds(self, length: usize) -> usize {
        length.div_ceil(STEPS) + self.rows * self.columns
    }

    /// The kernel's main function, which calls the caller's functions.
    pub(super) fn source(self, gemm: &Gemm, stage: Stage) -> String {
        let (rows, columns, width) = (self.rows, self.columns, self.width());
        let mut out = format!(
            "var<workgroup> tile: array<f32, {}>;\n\
             @compute @workgroup_size({LANES})\nfn main(grid: Grid, @builtin(subgroup_invocation_id) lane: u32) {{\n    \
             let n0 = group_of(grid) % p.tiles_n * {width}u;\n    var rest = group_of(grid) / p.tiles_n;\n    \
             let m0 = rest % p.tiles_m * {rows}u;\n    rest = rest / p.tiles_m;\n    \
             let part = rest % p.parts;\n    rest = rest / p.parts;\n    \
             let exists = rest < p.batch;\n    let z = min(rest, p.batch - 1u);\n    \
             let end = min((part + 1u) * p.length, p.k);\n",
            rows * width,
        );
        for (i, j) in self.places() {
            let _ = writeln!(out, "    var c{i}_{j} = 0.0;");
        }
        self.count(&mut out, gemm);
        let _ = writeln!(out, "    for (var k0 = part * p.length; k0 < end; k0 += {STEPS}u) {{");
        for s in 0..STEPS {
            // Steps beyond the end use the last index, and are multiplied by 0.
            let k = if gemm.is_ragged() { format!("min(k0 + {s}u, end - 1u)") } else { format!("k0 + {s}u") };
            let _ = writeln!(out, "        let k_{s} = {k};");
            if gemm.is_ragged() {
                let _ = writeln!(out, "        let inside{s} = k0 + {s}u < end;");
            }
            if let Some(digits) = gemm.digits {
                let place = gemm.counted(s, "k_now", "vec3<u32>()");
                let _ = writeln!(
                    out,
                    "        let k_digits{s} = {place};\n        k_now = advance(k_now, k_by, {});",
                    digits.k
                );
            }
        }
        self.load_a(&mut out, gemm);
        self.load_b(&mut out, gemm);
        // All steps of one sum together: the sums are in memory, because they are more than the registers.
        for i in 0..rows {
            out += "        {\n";
            for s in 0..STEPS {
                let _ = writeln!(out, "            let x{s} = {};", self.a_of(gemm, i, s));
            }
            for j in 0..columns {
                let sum =
                    (0..STEPS).fold(format!("c{i}_{j}"), |sum, s| format!("fma(x{s}, {}, {sum})", b_of(gemm, j, s)));
                let _ = writeln!(out, "            c{i}_{j} = {sum};");
            }
            out += "        }\n";
        }
        out += "    }\n";
        self.put(&mut out, gemm, stage);
        out
    }

    /// Declares the digits of the thread's columns and of its first step.
    fn count(self, out: &mut String, gemm: &Gemm) {
        let Some(digits) = gemm.digits else { return };
        for j in 0..self.columns {
            let column = format!("min(n0 + {}u + lane, p.n - 1u)", LANES * j);
            let _ = writeln!(out, "    let n_digits{j} = digits({column}, {});", digits.n);
        }
        let k = digits.k;
        let _ = writeln!(out, "    var k_now = digits(part * p.length, {k});\n    let k_by = digits(1u, {k});");
    }

    /// Reads the elements of `a` for a quad of steps; [`a_of`](Self::a_of) finds them again.
    fn load_a(self, out: &mut String, gemm: &Gemm) {
        let rows = self.rows;
        match gemm.feed_a() {
            Feed::AlongK => {
                let k = gemm.k_in_a("k0", 0);
                for g in 0..rows.div_ceil(LANES) {
                    let _ =
                        writeln!(out, "        let a{g} = a_quad(z, min(m0 + {}u + lane, p.m - 1u), {k});", LANES * g);
                }
            }
            Feed::Across if rows >= 4 * LANES => {
                for (s, h) in (0..STEPS).flat_map(|s| (0..rows / 32).map(move |h| (s, h))) {
                    let quad = format!("a_quad(z, min(m0 + {}u + 4u * lane, p.m - 4u), k_{s})", 32 * h);
                    let quad = gemm.counted(s, &quad, "vec4<f32>()");
                    let _ = writeln!(out, "        let a{s}_{h} = {quad};");
                }
            }
            // If there are fewer quads than lanes, the lanes divide the steps among them, too.
            Feed::Across => {
                let quads = rows / 4;
                let steps = LANES / quads;
                for load in 0..STEPS.div_ceil(steps) {
                    let k = format!("k0 + {}u + lane / {quads}u", load * steps);
                    let quad = format!("a_quad(z, min(m0 + lane % {quads}u * 4u, p.m - 4u), min({k}, end - 1u))");
                    let _ = writeln!(out, "        let a{load} = select(vec4<f32>(), {quad}, {k} < end);");
                }
            }
            Feed::Single => {
                for (s, g) in (0..STEPS).flat_map(|s| (0..rows.div_ceil(LANES)).map(move |g| (s, g))) {
                    let k = gemm.k_in_a(&format!("k_{s}"), s);
                    let value = format!("a_value(z, min(m0 + {}u + lane, p.m - 1u), {k})", LANES * g);
                    let _ = writeln!(out, "        let a{s}_{g} = {};", gemm.counted(s, &value, "0.0"));
                }
            }
        }
    }

    /// WGSL for row `i` of `a` at step `s`, in all lanes.
    fn a_of(self, gemm: &Gemm, i: usize, s: usize) -> String {
        let quads = self.rows / 4;
        let (value, lane) = match gemm.feed_a() {
            Feed::AlongK => (format!("a{}[{s}]", i / LANES), i % LANES),
            Feed::Across if self.rows >= 4 * LANES => (format!("a{s}_{}[{}]", i / 32, i % 4), i % 32 / 4),
            Feed::Across => {
                let steps = LANES / quads;
                (format!("a{}[{}]", s / steps, i % 4), s % steps * quads + i / 4)
            }
            Feed::Single => (format!("a{s}_{}", i / LANES), i % LANES),
        };
        format!("subgroupShuffle({value}, {lane}u)")
    }

    /// Reads the elements of `b` for a quad of steps; [`b_of`] finds them again.
    fn load_b(self, out: &mut String, gemm: &Gemm) {
        if gemm.feed_b() == Feed::AlongK {
            for j in 0..self.columns {
                let _ = writeln!(out, "        let b{j} = b_quad(z, k0, min(n0 + lane + {}u, p.n - 1u));", LANES * j);
            }
            return;
        }
        let across = gemm.feed_b() == Feed::Across;
        for s in 0..STEPS {
            for j in 0..if across { self.columns / 4 } else { self.columns } {
                let (value, zero) = if across {
                    let n = format!("min(n0 + {}u + 4u * lane, p.n - 4u)", 32 * j);
                    (format!("b_quad(z, k_{s}, {n})"), "vec4<f32>()")
                } else if gemm.digits.is_some() {
                    (format!("b_value(z, k_digits{s}, n_digits{j})"), "0.0")
                } else {
                    (format!("b_value(z, k_{s}, min(n0 + {}u + lane, p.n - 1u))", LANES * j), "0.0")
                };
                let _ = writeln!(out, "        let b{s}_{j} = {};", gemm.counted(s, &value, zero));
            }
        }
    }

    /// Stores the sums. Rows and columns beyond the edges, computed from the last ones, are skipped.
    fn put(self, out: &mut String, gemm: &Gemm, stage: Stage) {
        let (rows, columns) = (self.rows, self.columns);
        for (i, j) in self.places() {
            let _ = writeln!(out, "    tile[{}u + lane] = c{i}_{j};", (i * columns + j) * LANES);
        }
        let column = match gemm.feed_b() {
            Feed::Across => "j / 4u * 32u + 4u * lane + j % 4u",
            _ => "lane + 8u * j",
        };
        let put = match stage {
            Stage::Parts => "scratch_put(((part * p.batch + z) * p.m + m) * p.n + n, v);",
            _ => "store(z, m, n, v);",
        };
        let _ = writeln!(
            out,
            "    for (var e = 0u; e < {}u; e += 1u) {{\n        let v = tile[{LANES}u * e + lane];\n        \
             let m = m0 + e / {columns}u;\n        let j = e % {columns}u;\n        let n = n0 + {column};\n        \
             if (exists && m < p.m && n < p.n) {{ {put} }}\n    }}\n}}",
            rows * columns,
        );
    }

    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.rows).flat_map(move |i| (0..self.columns).map(move |j| (i, j)))
    }
}

/// WGSL for a lane's element of `b` in its column `j` at step `s`.
fn b_of(gemm: &Gemm, j: usize, s: usize) -> String {
    match gemm.feed_b() {
        Feed::AlongK => format!("b{j}[{s}]"),
        Feed::Across => format!("b{s}_{}[{}]", j / 4, j % 4),
        Feed::Single => format!("b{s}_{j}"),
    }
}

impl Gemm {
    /// WGSL for `k`, the index of step `s`, as the functions of `a` take it.
    fn k_in_a(&self, k: &str, s: usize) -> String {
        if self.digits.is_some_and(|digits| digits.in_a) { format!("k_digits{s}") } else { k.to_string() }
    }

    /// WGSL for `value` of step `s`, or `none` if the step is beyond the end.
    fn counted(&self, s: usize, value: &str, none: &str) -> String {
        if self.is_ragged() { format!("select({none}, {value}, inside{s})") } else { value.to_string() }
    }
}
