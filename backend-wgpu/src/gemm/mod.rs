//! The product behind matrix multiplication and convolution: `out[z, m, n] = Σ_k a(z, m, k)·b(z, k, n)`, with what `a`, `b` and `out` are left
//! to the caller's functions.
//!
//! A workgroup of 8×8 threads makes a tile of the result, in steps of 16 of the inner size that it puts into workgroup memory first; each
//! thread keeps its part in *named scalars*, since arrays indexed in loops are slow on many drivers. The code is generated for the
//! tile's sizes: skinny products take tiles that are skinny too.
//!
//! A long inner size of a small result is cut into parts, whose products lie in the fixed scratch until a second launch adds them up in their
//! order.

mod lanes;

use std::fmt::Write;

use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::{Context, Job, SCRATCH_BYTES, Variant};
pub(crate) use lanes::LANES;

/// Threads along each side of a tile.
const SIDE: usize = 8;
/// Threads of a workgroup.
const THREADS: usize = SIDE * SIDE;
/// Rounds of a loop that are written out.
const UNROLL: usize = 2;
/// Inner size of a step.
const DEPTH: usize = 16;
/// Tiles that keep a device busy.
const ENOUGH: usize = 64;
/// A part of the inner size is at least so long.
const SHORTEST: usize = 512;
/// And at most so: some drivers stop a thread's loops after 65 535 rounds.
const LONGEST: usize = 1 << 15;

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
        let fitting = |size: usize| {
            if size <= SIDE {
                1
            } else if size <= 4 * SIDE {
                4
            } else {
                8
            }
        };
        Self { rows: fitting(sizes.m), columns: fitting(sizes.n) }
    }

    fn height(self) -> usize {
        SIDE * self.rows
    }

    fn width(self) -> usize {
        SIDE * self.columns
    }
}

/// Where a launch puts its products.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To the caller.
    Whole,
    /// Into the scratch, part by part.
    Parts,
    /// From the scratch to the caller.
    Join,
    /// To the caller, a thread for each element: for results too small for a tile.
    Alone,
}

impl Gemm {
    /// Launches it. The job has its operands bound, at most seven; `more` pushes parameters behind the sizes, declared as `fields`. `code`
    /// gives the operands' slots and WGSL with `a_value(z, m, k)`, `b_value(z, k, n)` and `store(z, m, n, value)`, which are called inside
    /// the sizes alone.
    pub(crate) fn run(
        &self,
        cx: &mut Context<'_>,
        mut job: Job,
        more: impl FnOnce(&mut Job),
        fields: &str,
        code: impl Fn() -> (Vec<Slot>, String),
    ) -> Result<()> {
        let Sizes { batch, m, n, k } = self.sizes;
        let tile = Tile::of(&self.sizes);
        let lanes = if cx.gpu.has_lanes { lanes::Block::of(&self.sizes) } else { None };
        let (height, width) = lanes.map_or((tile.height(), tile.width()), |block| (block.rows, block.width()));
        let (tiles_m, tiles_n) = (m.div_ceil(height), n.div_ceil(width));
        let tiles = batch * tiles_m * tiles_n;
        if tiles == 0 {
            return Ok(());
        }
        let (parts, length) = parts(k, tiles, batch * m * n);
        let loads = DEPTH * (tile.height() + tile.width()) / THREADS;
        cx.gpu.check_rounds(self.name, length / DEPTH * ((loads + DEPTH).div_ceil(UNROLL) + 1))?;
        job.bind_scratch();
        job.u(m).u(n).u(k).u(batch).u(tiles_m).u(tiles_n).u(parts).u(length);
        more(&mut job);
        let form = lanes.map_or([0, tile.rows, tile.columns], |block| [1, block.rows, block.columns]);
        let variant = self.variant.with(1, form[0] as u64);
        let variant = variant.with(3, form[1].ilog2().into()).with(3, form[2].ilog2().into());
        let variant = variant.with(1, self.a_along_k.into()).with(1, self.b_along_k.into());
        let mut launch = |stage: Stage, groups: usize| {
            cx.run(&job, variant.with(2, stage as u64).key(self.name), groups as u64, || {
                let (mut slots, code) = code();
                slots.push(Slot::write("scratch", Elem::F32));
                let fields = format!(
                    "m: u32, n: u32, k: u32, batch: u32, tiles_m: u32, tiles_n: u32, parts: u32, length: u32, {fields}"
                );
                let main = match stage {
                    Stage::Join => JOIN.to_string(),
                    Stage::Alone => ALONE.to_string(),
                    Stage::Whole | Stage::Parts => match lanes {
                        Some(block) => block.source(stage),
                        None => self.source(tile, stage),
                    },
                };
                declare(&slots, &fields) + &code + &main
            })
        };
        if m <= SIDE && n <= SIDE && k <= SHORTEST {
            return launch(Stage::Alone, (batch * m * n).div_ceil(THREADS));
        }
        if parts == 1 {
            return launch(Stage::Whole, tiles);
        }
        launch(Stage::Parts, tiles * parts)?;
        launch(Stage::Join, (batch * m * n).div_ceil(THREADS))
    }

    fn source(&self, tile: Tile, stage: Stage) -> String {
        let (height, width) = (tile.height(), tile.width());
        // The operands' tiles, later the result's.
        let shared = (DEPTH * (height + width)).max(height * width);
        let mut out = format!(
            "var<workgroup> tile: array<f32, {shared}>;\n\
             @compute @workgroup_size({THREADS})\nfn main(grid: Grid) {{\n    let lane = grid.lane;\n    \
             let n0 = group_of(grid) % p.tiles_n * {width}u;\n    var rest = group_of(grid) / p.tiles_n;\n    \
             let m0 = rest % p.tiles_m * {height}u;\n    rest = rest / p.tiles_m;\n    \
             let part = rest % p.parts;\n    rest = rest / p.parts;\n    \
             let exists = rest < p.batch;\n    let z = min(rest, p.batch - 1u);\n    \
             let ty = lane / {SIDE}u * {}u;\n    let tx = lane % {SIDE}u * {}u;\n    \
             let end = min((part + 1u) * p.length, p.k);\n",
            tile.rows, tile.columns,
        );
        for (i, j) in places(tile) {
            let _ = writeln!(out, "    var c{i}_{j} = 0.0;");
        }
        let _ = writeln!(out, "    for (var k0 = part * p.length; k0 < end; k0 += {DEPTH}u) {{");
        load(&mut out, 0, "m", height, self.a_along_k, "a_value(z, m0 + at, k0 + step)");
        load(&mut out, DEPTH * height, "n", width, self.b_along_k, "b_value(z, k0 + step, n0 + at)");
        let _ =
            writeln!(out, "        workgroupBarrier();\n        for (var s0 = 0u; s0 < {DEPTH}u; s0 += {UNROLL}u) {{");
        for s in 0..UNROLL {
            let _ = writeln!(out, "          {{\n            let s = s0 + {s}u;");
            for i in 0..tile.rows {
                let _ = writeln!(out, "            let a{i} = tile[s * {height}u + ty + {i}u];");
            }
            for j in 0..tile.columns {
                let _ = writeln!(out, "            let b{j} = tile[{}u + s * {width}u + tx + {j}u];", DEPTH * height);
            }
            for (i, j) in places(tile) {
                let _ = writeln!(out, "            c{i}_{j} += a{i} * b{j};");
            }
            out += "          }\n";
        }
        out += "        }\n        workgroupBarrier();\n    }\n";
        for (i, j) in places(tile) {
            let _ = writeln!(out, "    tile[(ty + {i}u) * {width}u + tx + {j}u] = c{i}_{j};");
        }
        let put = match stage {
            Stage::Parts => "scratch_put(((part * p.batch + z) * p.m + m) * p.n + n, tile[e]);",
            _ => "store(z, m, n, tile[e]);",
        };
        let _ = writeln!(
            out,
            "    workgroupBarrier();\n    for (var e = lane; e < {}u; e += {THREADS}u) {{\n        \
             let m = m0 + e / {width}u;\n        let n = n0 + e % {width}u;\n        \
             if (exists && m < p.m && n < p.n) {{ {put} }}\n    }}\n}}",
            height * width,
        );
        out
    }
}

/// Adds up the parts.
const JOIN: &str = "@compute @workgroup_size(64)
fn main(grid: Grid) {
    let at = group_of(grid) * 64u + grid.lane;
    let size = p.batch * p.m * p.n;
    if (at >= size) { return; }
    var sum = 0.0;
    for (var part = 0u; part < p.parts; part += 1u) { sum += scratch_at(part * size + at); }
    store(at / (p.m * p.n), at / p.n % p.m, at % p.n, sum);
}
";

/// A sum for each thread.
const ALONE: &str = "@compute @workgroup_size(64)
fn main(grid: Grid) {
    let at = group_of(grid) * 64u + grid.lane;
    if (at >= p.batch * p.m * p.n) { return; }
    let z = at / (p.m * p.n);
    let m = at / p.n % p.m;
    let n = at % p.n;
    var sum = 0.0;
    for (var k = 0u; k < p.k; k += 1u) { sum += a_value(z, m, k) * b_value(z, k, n); }
    store(z, m, n, sum);
}
";

/// Into how many parts the inner size is cut, and how long they are.
fn parts(k: usize, tiles: usize, results: usize) -> (usize, usize) {
    let wanted = (ENOUGH / tiles).max(k.div_ceil(LONGEST)).min(k / SHORTEST);
    let fitting = SCRATCH_BYTES as usize / 4 / results;
    let parts = wanted.min(fitting).max(1);
    let length = k.div_ceil(parts).next_multiple_of(DEPTH).max(DEPTH);
    (k.div_ceil(length).max(1), length)
}

fn places(tile: Tile) -> impl Iterator<Item = (usize, usize)> {
    (0..tile.rows).flat_map(move |i| (0..tile.columns).map(move |j| (i, j)))
}

/// Brings one operand's part of a step into workgroup memory behind `base`, `[step][at]`; 0 outside its sizes.
fn load(out: &mut String, base: usize, side: &str, length: usize, along_k: bool, value: &str) {
    let (step, at) = if along_k {
        (format!("e % {DEPTH}u"), format!("e / {DEPTH}u"))
    } else {
        (format!("e / {length}u"), format!("e % {length}u"))
    };
    let count = DEPTH * length;
    let unroll = (count / THREADS).min(UNROLL);
    let _ = writeln!(out, "        for (var e0 = lane; e0 < {count}u; e0 += {}u) {{", unroll * THREADS);
    for i in 0..unroll {
        let _ = writeln!(
            out,
            "          {{\n            let e = e0 + {}u;\n            let step = {step};\n            let at = {at};\n            \
             var v = 0.0;\n            if ({side}0 + at < p.{side} && k0 + step < end) {{ v = {value}; }}\n            \
             tile[{base}u + step * {length}u + at] = v;\n          }}",
            i * THREADS,
        );
    }
    *out += "        }\n";
}
