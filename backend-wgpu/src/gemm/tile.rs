//! Products on graphics cards: tiles of the result, computed in steps of the inner size that are held in workgroup
//! memory.
//!
//! A thread keeps its part of the tile in *named scalars*, because arrays that are indexed in loops are slow on many
//! drivers. Of each step it reads runs of four adjacent elements, with one run of each neighbouring thread between
//! them: so the threads of a warp read without conflicts, and drivers make one load of four elements. Every tile size
//! adds in the order of the inner size, by `fma`: results do not depend on the tile.

use std::fmt::Write;

use super::product::{Digits, Feed, Gemm, Stage};
use crate::choice::{Sizes, Tile};

/// Loop rounds that are written out.
const UNROLL: usize = 2;
/// Words of workgroup memory that every adapter has for a tile.
const SHARED_WORDS: usize = 4096;

impl Tile {
    /// The usual tile for a result of these sizes: narrow results take narrow tiles.
    pub(super) fn for_sizes(sizes: &Sizes) -> Self {
        let fitting = |size: usize| match size {
            ..=8 => 1,
            9..=32 => 4,
            _ => 8,
        };
        Self { side: 8, rows: fitting(sizes.m), columns: fitting(sizes.n) }
    }

    /// Tiles that may be faster on some card, the usual choice first. All sizes between two powers of two have the same
    /// list.
    pub(super) fn candidates(sizes: &Sizes) -> Vec<Self> {
        let least = sizes.m.min(sizes.n);
        let mut all = vec![Self::for_sizes(sizes)];
        if least >= 64 {
            // The same tile with four times the threads, so that more of them wait for memory at the same time.
            all.push(Self { side: 16, rows: 4, columns: 4 });
            // More tiles, for cards with many units.
            all.push(Self { side: 8, rows: 4, columns: 4 });
        }
        if least >= 128 {
            // Each element that is read is used for twice as many products.
            all.push(Self { side: 16, rows: 8, columns: 8 });
        }
        all
    }

    pub(super) fn threads(self) -> usize {
        self.side * self.side
    }

    pub(super) fn height(self) -> usize {
        self.side * self.rows
    }

    pub(super) fn width(self) -> usize {
        self.side * self.columns
    }

    /// Inner size of a step.
    pub(super) fn depth(self) -> usize {
        if self.height() > 64 { 8 } else { 16 }
    }

    /// Rounds of a thread's loops for an inner size of `length`.
    pub(super) fn rounds(self, length: usize) -> usize {
        let loads = self.depth() * (self.height() + self.width()) / self.threads();
        length / self.depth() * ((loads + self.depth()).div_ceil(UNROLL) + 1)
    }

    /// The kernel's main function, which calls the caller's functions.
    pub(super) fn source(self, gemm: &Gemm, stage: Stage) -> String {
        let (height, width, depth, threads) = (self.height(), self.width(), self.depth(), self.threads());
        // Holds the operands' tiles, and later the result's if it fits.
        let gathers = height * width <= SHARED_WORDS;
        let shared = (depth * (height + width)).max(if gathers { height * width } else { 0 });
        let mut out = format!(
            "var<workgroup> tile: array<f32, {shared}>;\n\
             @compute @workgroup_size({threads})\nfn main(grid: Grid) {{\n    let lane = grid.lane;\n    \
             let n0 = group_of(grid) % p.tiles_n * {width}u;\n    var rest = group_of(grid) / p.tiles_n;\n    \
             let m0 = rest % p.tiles_m * {height}u;\n    rest = rest / p.tiles_m;\n    \
             let part = rest % p.parts;\n    rest = rest / p.parts;\n    \
             let exists = rest < p.batch;\n    let z = min(rest, p.batch - 1u);\n    \
             let ty = lane / {side}u * {}u;\n    let tx = lane % {side}u * {}u;\n    \
             let end = min((part + 1u) * p.length, p.k);\n",
            self.rows.min(4),
            self.columns.min(4),
            side = self.side,
        );
        for (i, j) in self.places() {
            let _ = writeln!(out, "    var c{i}_{j} = 0.0;");
        }
        let of_a = gemm.digits.filter(|digits| digits.in_a);
        let a = Side {
            name: "a",
            axis: "m",
            base: 0,
            length: height,
            feed: gemm.feed_a(),
            along_k: gemm.a_along_k,
            digits: of_a,
        };
        let b = Side {
            name: "b",
            axis: "n",
            base: depth * height,
            length: width,
            feed: gemm.feed_b(),
            along_k: gemm.b_along_k,
            digits: gemm.digits,
        };
        self.count(&mut out, &a);
        self.count(&mut out, &b);
        let _ = writeln!(out, "    for (var k0 = part * p.length; k0 < end; k0 += {depth}u) {{");
        self.load(&mut out, &a);
        self.load(&mut out, &b);
        let _ =
            writeln!(out, "        workgroupBarrier();\n        for (var s0 = 0u; s0 < {depth}u; s0 += {UNROLL}u) {{");
        for s in 0..UNROLL {
            let _ = writeln!(out, "          {{\n            let s = s0 + {s}u;");
            for i in 0..self.rows {
                let _ = writeln!(out, "            let a{i} = tile[s * {height}u + ty + {}u];", self.place(i));
            }
            for j in 0..self.columns {
                let _ = writeln!(
                    out,
                    "            let b{j} = tile[{}u + s * {width}u + tx + {}u];",
                    depth * height,
                    self.place(j)
                );
            }
            for (i, j) in self.places() {
                let _ = writeln!(out, "            c{i}_{j} = fma(a{i}, b{j}, c{i}_{j});");
            }
            out += "          }\n";
        }
        out += "        }\n        workgroupBarrier();\n    }\n";
        self.put(&mut out, stage, gathers);
        out
    }

    /// Offset of a thread's row or column `i` from its first one: runs of four, one run per thread.
    fn place(self, i: usize) -> usize {
        i / 4 * 4 * self.side + i % 4
    }

    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.rows).flat_map(move |i| (0..self.columns).map(move |j| (i, j)))
    }

    /// Loads one operand's part of a step into workgroup memory, `[step][at]`; 0 outside its sizes.
    fn load(self, out: &mut String, side: &Side) {
        let (depth, threads) = (self.depth(), self.threads());
        let Side { name, axis, base, length, .. } = *side;
        let quads = side.feed != Feed::Single;
        let count = depth * length / if quads { 4 } else { 1 };
        let [step, at] = side.unit("e", depth);
        // The distance of a unit's elements in the tile.
        let apart = if side.feed == Feed::AlongK { length } else { 1 };
        let counting = self.counting(side);
        let (k, column) = side.digits.map_or(("k0 + step", "n0 + at"), |_| (side.digits_of_k(), "b_n"));
        let (m, n) = if name == "a" { ("m0 + at", k) } else { (k, column) };
        let (value, zero) = if quads {
            (format!("{name}_quad(z, {m}, {n})"), "vec4<f32>()")
        } else {
            (format!("{name}_value(z, {m}, {n})"), "0.0")
        };
        let _ = writeln!(
            out,
            "{}        for (var e = lane; e < {count}u; e += {threads}u) {{\n            \
             let step = {step};\n            let at = {at};\n            var v = {zero};\n            \
             if ({axis}0 + at < p.{axis} && k0 + step < end) {{ v = {value}; }}",
            counting.before,
        );
        if quads {
            for c in 0..4 {
                let _ = writeln!(out, "            tile[{}u + step * {length}u + at] = v[{c}];", base + c * apart);
            }
        } else {
            let _ = writeln!(out, "            tile[{base}u + step * {length}u + at] = v;");
        }
        let _ = writeln!(out, "{}        }}\n{}", counting.each, counting.last);
    }

    /// Declares the digits with which a thread begins, and those that it counts up by.
    fn count(self, out: &mut String, side: &Side) {
        let Some(Digits { k, n, .. }) = side.digits else { return };
        let (depth, threads, name) = (self.depth(), self.threads(), side.name);
        let [step, at] = side.unit("lane", depth);
        let by = if side.along_k { depth } else { threads / side.length };
        let _ = writeln!(
            out,
            "    var {name}_k = digits(part * p.length + {step}, {k});\n    let {name}_k_by = digits({by}u, {k});"
        );
        if name == "b" {
            let first = if side.along_k { "b_n_first" } else { "b_n" };
            let _ = writeln!(out, "    let {first} = digits(n0 + {at}, {n});");
        }
        if name == "b" && side.along_k {
            let _ = writeln!(out, "    let b_n_by = digits({}u, {n});", threads / depth);
        }
    }

    /// How a thread counts its digits up while it loads. Threads are a multiple of the units along the faster axis: so
    /// the other axis alone changes from unit to unit.
    fn counting(self, side: &Side) -> Counting {
        let Some(Digits { k, n, .. }) = side.digits else { return Counting::default() };
        let name = side.name;
        let next_k = format!("{name}_k = advance({name}_k, {name}_k_by, {k});\n");
        if !side.along_k {
            return Counting { each: format!("            {next_k}"), ..Counting::default() };
        }
        let last = format!("        {next_k}");
        if name == "a" {
            return Counting { last, ..Counting::default() };
        }
        let each = format!("            b_n = advance(b_n, b_n_by, {n});\n");
        Counting { before: "        var b_n = b_n_first;\n".into(), each, last }
    }

    /// Stores the sums: through workgroup memory, so that neighbouring threads write adjacent elements, or directly.
    fn put(self, out: &mut String, stage: Stage, gathers: bool) {
        let (height, width, threads) = (self.height(), self.width(), self.threads());
        let put = |v: &str| match stage {
            Stage::Parts => format!("scratch_put(((part * p.batch + z) * p.m + m) * p.n + n, {v});"),
            _ => format!("store(z, m, n, {v});"),
        };
        if gathers {
            for (i, j) in self.places() {
                let (i_at, j_at) = (self.place(i), self.place(j));
                let _ = writeln!(out, "    tile[(ty + {i_at}u) * {width}u + tx + {j_at}u] = c{i}_{j};");
            }
            let _ = writeln!(
                out,
                "    workgroupBarrier();\n    for (var e = lane; e < {}u; e += {threads}u) {{\n        \
                 let m = m0 + e / {width}u;\n        let n = n0 + e % {width}u;\n        \
                 if (exists && m < p.m && n < p.n) {{ {} }}\n    }}\n}}",
                height * width,
                put("tile[e]"),
            );
            return;
        }
        for (i, j) in self.places() {
            let _ = writeln!(
                out,
                "    {{\n        let m = m0 + ty + {}u;\n        let n = n0 + tx + {}u;\n        \
                 if (exists && m < p.m && n < p.n) {{ {} }}\n    }}",
                self.place(i),
                self.place(j),
                put(&format!("c{i}_{j}")),
            );
        }
        *out += "}\n";
    }
}

/// An operand in workgroup memory.
struct Side {
    name: &'static str,
    /// Its axis in the result.
    axis: &'static str,
    /// Its start in workgroup memory.
    base: usize,
    /// Number of its elements in a step.
    length: usize,
    feed: Feed,
    along_k: bool,
    /// The digits of its indices, if its function takes those.
    digits: Option<Digits>,
}

impl Side {
    /// WGSL for the step and the place of unit `e` of a tile's load.
    fn unit(&self, e: &str, depth: usize) -> [String; 2] {
        let (length, quads, steps) = (self.length, self.length / 4, depth / 4);
        match (self.feed, self.along_k) {
            (Feed::AlongK, _) => [format!("{e} % {steps}u * 4u"), format!("{e} / {steps}u")],
            (Feed::Across, _) => [format!("{e} / {quads}u"), format!("{e} % {quads}u * 4u")],
            (Feed::Single, true) => [format!("{e} % {depth}u"), format!("{e} / {depth}u")],
            (Feed::Single, false) => [format!("{e} / {length}u"), format!("{e} % {length}u")],
        }
    }

    fn digits_of_k(&self) -> &'static str {
        if self.name == "a" { "a_k" } else { "b_k" }
    }
}

/// WGSL before, in each round of, and after the loop of a load.
#[derive(Default)]
struct Counting {
    before: String,
    each: String,
    last: String,
}
