//! Products on software adapters, where a vector register stands behind a subgroup of eight.
//!
//! Such a driver reads memory lane by lane, workgroup memory too, at some nanoseconds each; arithmetic on whole subgroups costs next to
//! nothing beside that. So nothing goes through workgroup memory: each lane reads a column of `a` and its own columns of `b`, and what the
//! others need of `a` is broadcast from lane to lane. Per inner step a subgroup with 64 rows and 64 columns reads 16 vectors for 512 multiply-adds of vectors;
//! tiles in workgroup memory read as many for 64.

use std::fmt::Write;

use super::{Sizes, Stage};

/// Lanes of a subgroup, and of a workgroup.
pub(crate) const LANES: usize = 8;

/// Multiply-adds up to which a block is small, and from which it is large.
const LITTLE: usize = 1 << 21;
const MUCH: usize = 1 << 27;

/// Rows and columns of the result that a lane keeps: all rows of the subgroup's, and every eighth column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Block {
    /// For a product of these sizes; `None` for one so small that nothing is gained.
    pub(super) fn of(sizes: &Sizes) -> Option<Self> {
        if sizes.m * sizes.n < 256 || sizes.k < LANES {
            return None;
        }
        // Larger blocks read less and take longer to compile.
        let (rows, columns) = match sizes.m * sizes.n * sizes.k {
            ..LITTLE => (16, 4),
            LITTLE..MUCH => (32, 8),
            _ => (64, 8),
        };
        let fitting = |size: usize, most: usize| (1..=most).find(|t| t.is_power_of_two() && *t >= size).unwrap_or(most);
        Some(Self { rows: fitting(sizes.m, rows), columns: fitting(sizes.n.div_ceil(LANES), columns) })
    }

    pub(super) fn width(self) -> usize {
        LANES * self.columns
    }

    /// The kernel's main function, on the caller's `a_value`, `b_value` and `store`.
    pub(super) fn source(self, stage: Stage) -> String {
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
        // Beyond the edges the last row and column stand in, and are not stored.
        for i in 0..rows {
            let _ = writeln!(out, "    let row{i} = min(m0 + {i}u, p.m - 1u);");
        }
        for j in 0..columns {
            let _ = writeln!(out, "    let column{j} = min(n0 + lane + {}u, p.n - 1u);", LANES * j);
        }
        for (i, j) in self.places() {
            let _ = writeln!(out, "    var c{i}_{j} = 0.0;");
        }
        let _ = writeln!(out, "    for (var k0 = part * p.length; k0 < end; k0 += {LANES}u) {{");
        let _ = writeln!(out, "        let ka = min(k0 + lane, end - 1u);\n        let inside = k0 + lane < end;");
        for i in 0..rows {
            let _ = writeln!(out, "        let a{i} = select(0.0, a_value(z, row{i}, ka), inside);");
        }
        let _ = writeln!(
            out,
            "        for (var s = 0u; s < {LANES}u; s += 1u) {{\n            let k = min(k0 + s, end - 1u);\n            \
             let counts = k0 + s < end;"
        );
        for j in 0..columns {
            let _ = writeln!(out, "            let b{j} = select(0.0, b_value(z, k, column{j}), counts);");
        }
        for i in 0..rows {
            let _ = writeln!(out, "            {{\n                let x = subgroupShuffle(a{i}, s);");
            for j in 0..columns {
                let _ = writeln!(out, "                c{i}_{j} += x * b{j};");
            }
            out += "            }\n";
        }
        out += "        }\n";
        out += "    }\n";
        for (i, j) in self.places() {
            let _ = writeln!(out, "    tile[{}u + lane] = c{i}_{j};", i * width + LANES * j);
        }
        let put = match stage {
            Stage::Parts => "scratch_put(((part * p.batch + z) * p.m + m) * p.n + n, tile[e]);",
            _ => "store(z, m, n, tile[e]);",
        };
        let _ = writeln!(
            out,
            "    workgroupBarrier();\n    for (var e = lane; e < {}u; e += {LANES}u) {{\n        \
             let m = m0 + e / {width}u;\n        let n = n0 + e % {width}u;\n        \
             if (exists && m < p.m && n < p.n) {{ {put} }}\n    }}\n}}",
            rows * width,
        );
        out
    }

    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.rows).flat_map(move |i| (0..self.columns).map(move |j| (i, j)))
    }
}
