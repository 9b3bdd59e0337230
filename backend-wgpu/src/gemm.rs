//! The product behind matrix multiplication and convolution: `out[z, m, n] = Σ_k a(z, m, k)·b(z, k, n)`, with what `a`, `b` and `out` are left
//! to the caller's functions.
//!
//! A workgroup of 8×8 threads makes a tile of the result, in steps of 16 of the inner size that it puts into workgroup memory first; each
//! thread keeps its part in *named scalars*, since arrays indexed in loops are slow on many drivers. The code is generated for the
//! tile's sizes: skinny products take tiles that are skinny too.

use std::fmt::Write;

use memcore::error::Result;

use crate::element::{Slot, declare};
use crate::job::{Context, Job, Variant};

/// Threads along each side of a tile.
const SIDE: usize = 8;
/// Inner size of a step.
const DEPTH: usize = 16;

/// What a product is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// A product.
pub(crate) struct Gemm {
    pub(crate) name: &'static str,
    /// What the caller's functions were generated from.
    pub(crate) variant: Variant,
    pub(crate) sizes: Sizes,
    /// Whether elements of `a` that follow each other in memory differ in `k` (else in `m`), so that neighbouring threads read them.
    pub(crate) a_along_k: bool,
    /// The same for `b` and `n`.
    pub(crate) b_along_k: bool,
}

/// Rows and columns of the result that a thread makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    columns: usize,
}

impl Tile {
    fn of(sizes: &Sizes) -> Self {
        let fitting = |size: usize| [1, 2, 4].into_iter().find(|&t| size <= SIDE * t).unwrap_or(8);
        Self { rows: fitting(sizes.m), columns: fitting(sizes.n) }
    }

    fn height(self) -> usize {
        SIDE * self.rows
    }

    fn width(self) -> usize {
        SIDE * self.columns
    }
}

impl Gemm {
    /// Launches it. The job has its operands bound; `more` pushes parameters behind the sizes, declared as `fields`. `code` gives the operands'
    /// slots and WGSL with `a_value(z, m, k)`, `b_value(z, k, n)` and `store(z, m, n, value)`, which are called inside the sizes alone.
    pub(crate) fn run(
        &self,
        cx: &mut Context<'_>,
        mut job: Job,
        more: impl FnOnce(&mut Job),
        fields: &str,
        code: impl FnOnce() -> (Vec<Slot>, String),
    ) -> Result<()> {
        let Sizes { batch, m, n, k } = self.sizes;
        let tile = Tile::of(&self.sizes);
        let (tiles_m, tiles_n) = (m.div_ceil(tile.height()), n.div_ceil(tile.width()));
        job.u(m).u(n).u(k).u(batch).u(tiles_m).u(tiles_n);
        more(&mut job);
        let variant = self.variant.with(2, tile.rows.ilog2().into()).with(2, tile.columns.ilog2().into());
        let variant = variant.with(1, self.a_along_k.into()).with(1, self.b_along_k.into());
        cx.run(&job, variant.key(self.name), (batch * tiles_m * tiles_n) as u64, || {
            let (slots, code) = code();
            let fields =
                format!("m: u32, n: u32, k: u32, batch: u32, tiles_m: u32, tiles_n: u32, {fields}");
            declare(&slots, &fields) + &code + &self.source(tile)
        })
    }

    fn source(&self, tile: Tile) -> String {
        let (height, width) = (tile.height(), tile.width());
        let mut out = format!(
            "var<workgroup> a_tile: array<f32, {}>;\nvar<workgroup> b_tile: array<f32, {}>;\n\
             @compute @workgroup_size({})\nfn main(grid: Grid) {{\n    let lane = grid.lane;\n    \
             let group = group_of(grid);\n    let rest = group / p.tiles_n;\n    \
             let m0 = rest % p.tiles_m * {height}u;\n    let n0 = group % p.tiles_n * {width}u;\n    \
             let exists = rest / p.tiles_m < p.batch;\n    let z = min(rest / p.tiles_m, p.batch - 1u);\n    \
             let ty = lane / {SIDE}u * {}u;\n    let tx = lane % {SIDE}u * {}u;\n",
            DEPTH * height,
            DEPTH * width,
            SIDE * SIDE,
            tile.rows,
            tile.columns,
        );
        for (i, j) in places(tile) {
            let _ = writeln!(out, "    var c{i}_{j} = 0.0;");
        }
        let _ = writeln!(out, "    for (var k0 = 0u; k0 < p.k; k0 += {DEPTH}u) {{");
        load(&mut out, "a", "m", height, self.a_along_k, "a_value(z, m0 + at, k0 + step)");
        load(&mut out, "b", "n", width, self.b_along_k, "b_value(z, k0 + step, n0 + at)");
        let _ = writeln!(out, "        workgroupBarrier();\n        for (var s = 0u; s < {DEPTH}u; s += 1u) {{");
        for i in 0..tile.rows {
            let _ = writeln!(out, "            let a{i} = a_tile[s * {height}u + ty + {i}u];");
        }
        for j in 0..tile.columns {
            let _ = writeln!(out, "            let b{j} = b_tile[s * {width}u + tx + {j}u];");
        }
        for (i, j) in places(tile) {
            let _ = writeln!(out, "            c{i}_{j} += a{i} * b{j};");
        }
        out += "        }\n        workgroupBarrier();\n    }\n    if (!exists) { return; }\n";
        for (i, j) in places(tile) {
            let (m, n) = (format!("m0 + ty + {i}u"), format!("n0 + tx + {j}u"));
            let _ = writeln!(out, "    if ({m} < p.m && {n} < p.n) {{ store(z, {m}, {n}, c{i}_{j}); }}");
        }
        out + "}\n"
    }
}

fn places(tile: Tile) -> impl Iterator<Item = (usize, usize)> {
    (0..tile.rows).flat_map(move |i| (0..tile.columns).map(move |j| (i, j)))
}

/// Brings one operand's part of a step into workgroup memory, `[step][at]`; 0 outside its sizes.
fn load(out: &mut String, name: &str, side: &str, length: usize, along_k: bool, value: &str) {
    let threads = SIDE * SIDE;
    for round in 0..DEPTH * length / threads {
        let (step, at) = if along_k {
            (format!("e % {DEPTH}u"), format!("e / {DEPTH}u"))
        } else {
            (format!("e / {length}u"), format!("e % {length}u"))
        };
        let _ = writeln!(
            out,
            "        {{\n            let e = lane + {}u;\n            let step = {step};\n            let at = {at};\n            \
             var v = 0.0;\n            if ({side}0 + at < p.{side} && k0 + step < p.k) {{ v = {value}; }}\n            \
             {name}_tile[step * {length}u + at] = v;\n        }}",
            round * threads,
        );
    }
}
