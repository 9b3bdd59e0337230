//! Tiles of scores: some rows, 32 columns, and a workgroup of 64 threads.
//!
//! Rows and columns are queries and keys, or keys and queries. Both are brought into workgroup memory 32 elements of the
//! head at a time, by loads in which eight neighbouring threads read 128 adjacent bytes. A thread multiplies some rows
//! with four columns and keeps the products. What becomes of them, the *weights*, goes back to workgroup memory, and is
//! multiplied with the values (or whatever belongs to the columns), which are brought there in the same way.
//!
//! Sums are *named scalars*, as in products. So templates have lines that stand for several: one with `$i` in it for
//! each of a thread's rows, with `$j` for each of its four columns, with `$n` for each of its quads of a result.

use crate::element::fill_in;
use crate::gpu::Gpu;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 32;
/// Threads that share a row; rows of neighbouring groups of them are adjacent.
const SHARE: usize = 8;
/// The most rows of a thread.
const MOST_ROWS: usize = 8;
/// Sums that a thread keeps at most: more than that, and a card holds too few threads at one time.
const MOST_SUMS: usize = 96;
/// Number of workgroups that keeps a card busy.
const ENOUGH: usize = 64;

/// A matrix of each head: the name of its operand, of its width, and of the number of its rows.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) name: &'static str,
    pub(super) width: &'static str,
    pub(super) rows: &'static str,
}

pub(super) const Q: Matrix = Matrix { name: "q", width: "d", rows: "t" };
pub(super) const K: Matrix = Matrix { name: "k", width: "d", rows: "s" };
pub(super) const V: Matrix = Matrix { name: "v", width: "dv", rows: "s" };
pub(super) const GRAD: Matrix = Matrix { name: "grad", width: "dv", rows: "t" };

/// What a pass computes: its rows in all heads, products of rows and columns, and the width of its result.
pub(super) struct Pass {
    pub(super) heads: usize,
    pub(super) rows: usize,
    pub(super) products: usize,
    pub(super) width: usize,
}

/// A tile, and the forms of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Rows of a thread: 1, 2, 4 or 8.
    rows: usize,
    /// Quads of a result that a thread has of each of its rows.
    quads: usize,
    /// True if all matrices can be read four elements at a time.
    wide: bool,
    /// True if the threads of a row are neighbours in a subgroup.
    subgroups: bool,
}

impl Tile {
    /// Chooses the height: as many rows as are there and a thread has room for, but enough workgroups for a card. A software driver compiles a tile of two
    /// rows a hundred times as long as one of one row (SwiftShader), so it gets taller ones only in many heads.
    pub(super) fn for_pass(gpu: &Gpu, pass: &Pass, wide: bool) -> Self {
        let quads = pass.width.div_ceil(COLUMNS).max(1);
        let fits = |rows: usize| rows * 4 * (pass.products + quads) <= MOST_SUMS;
        let busy = |rows: usize| pass.heads * pass.rows.div_ceil(SHARE * rows) >= ENOUGH;
        let mut rows = pass.rows.div_ceil(SHARE).next_power_of_two().min(MOST_ROWS);
        let least = if gpu.info.is_software { 1 } else { 2 };
        while rows > 1 && !fits(rows) || rows > least && !busy(rows) {
            rows /= 2;
        }
        Self { rows, quads, wide, subgroups: gpu.has_eights }
    }

    pub(super) fn height(self) -> usize {
        SHARE * self.rows
    }

    /// Seven bits for the variant of a source.
    pub(super) fn code(self) -> u64 {
        let (rows, quads) = (u64::from(self.rows.ilog2()), self.quads as u64 - 1);
        rows << 5 | quads << 2 | u64::from(self.wide) << 1 | u64::from(self.subgroups)
    }

    /// Workgroups for this many rows of all heads.
    pub(super) fn groups(self, pass: &Pass) -> u64 {
        (pass.heads * pass.rows.div_ceil(self.height())) as u64
    }

    /// Rounds of a thread's loops over a tile, with products of these widths.
    pub(super) fn rounds(widths: &[usize], width: usize) -> usize {
        let product = |width: &usize| width.div_ceil(COLUMNS) + width.div_ceil(4);
        1 + widths.iter().map(product).sum::<usize>() + width.div_ceil(COLUMNS) * (1 + SHARE)
    }

    /// The reads of four elements of these matrices, and the write of four of a result of this width (none if empty).
    pub(super) fn access(self, matrices: &[Matrix], written: &str) -> String {
        let readers: String = matrices.iter().map(|matrix| self.reader(matrix)).collect();
        if written.is_empty() { readers } else { readers + &self.writer(written) }
    }

    fn reader(self, matrix: &Matrix) -> String {
        let Matrix { name, width, .. } = matrix;
        if self.wide {
            return format!(
                "fn {name}_four(row: u32, e: u32) -> vec4<f32> {{ return {name}_at4((row + e) >> 2u); }}\n"
            );
        }
        let one = |lane: usize| format!("{name}_at(row + min(e + {lane}u, p.{width} - 1u))");
        format!(
            "fn {name}_four(row: u32, e: u32) -> vec4<f32> {{\n    \
             let four = vec4<f32>({}, {}, {}, {});\n    \
             return select(vec4<f32>(), four, vec4<u32>(e) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.{width}));\n}}\n",
            one(0),
            one(1),
            one(2),
            one(3),
        )
    }

    fn writer(self, width: &str) -> String {
        let body = if self.wide {
            format!("if (e < p.{width}) {{ out_put4((row + e) >> 2u, v); }}")
        } else {
            format!(
                "for (var lane = 0u; lane < 4u; lane += 1u) {{\n        \
                 if (e + lane < p.{width}) {{ out_put(row + e + lane, v[lane]); }}\n    }}"
            )
        };
        format!("fn out_four(row: u32, e: u32, v: vec4<f32>) {{\n    {body}\n}}\n")
    }

    /// The beginning of a pass over these rows of these heads, of which a workgroup has a tile's: for all columns, or,
    /// if `pairs`, for 32 of them.
    pub(super) fn begin(self, rows: &str, heads: &str, pairs: bool) -> String {
        let (subgroup, lane) = if self.subgroups {
            (
                ", @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) size: u32, \
                 @builtin(subgroup_invocation_id) invocation: u32",
                "subgroup * size + invocation",
            )
        } else {
            ("", "grid.lane")
        };
        let (exists, head) = if pairs {
            ("group / blocks / (p.b * p.$HEADS) * 32u < p.s", "group / blocks % (p.b * p.$HEADS)")
        } else {
            ("group / blocks < p.b * p.$HEADS", "select(0u, group / blocks, exists)")
        };
        let (exists, head) = (exists.replace("$HEADS", heads), head.replace("$HEADS", heads));
        let height = format!("{}u", self.height());
        let texts = [
            ("$SUBGROUP", subgroup),
            ("$LANE", lane),
            ("$ROWS", rows),
            ("$HEIGHT", height.as_str()),
            ("$HEADS", heads),
            ("$EXISTS", exists.as_str()),
            ("$HEAD", head.as_str()),
        ];
        fill_in(include_str!("begin.wgsl"), &texts)
    }

    /// The products `sum` of the rows of `own` with columns of `other`.
    pub(super) fn product(self, sum: &str, own: &Matrix, other: &Matrix) -> String {
        let texts = [
            ("$SUM", sum),
            ("$OWN", own.name),
            ("$OTHER", other.name),
            ("$LENGTH", own.width),
            ("$COLUMNS", other.rows),
        ];
        fill_in(include_str!("product.wgsl"), &texts)
    }

    /// Adds to the results what the tile's weights make of `other`.
    pub(super) fn weighted(self, other: &Matrix) -> String {
        let one = |quad: usize| {
            let block = quad.to_string();
            let texts = [
                ("$BLOCK", block.as_str()),
                ("$OTHER", other.name),
                ("$LENGTH", other.width),
                ("$COLUMNS", other.rows),
            ];
            fill_in(include_str!("weighted.wgsl"), &texts)
        };
        (0..self.quads).map(one).collect()
    }

    /// Stores the results: some of this many rows of this head.
    pub(super) fn put(self, rows: &str, head: &str) -> String {
        format!(
            "    let out_base = place(b, {head}, 0u, 0u, p.out_strides);\n    \
             if (exists && r0 + ty + 8u * $iu < p.{rows}) {{ \
             out_four(out_base + row$i * p.out_strides.z, 32u * $nu + 4u * tx, o$i_$n); }}\n"
        )
    }

    /// Makes `name$i` the largest or the sum of what the threads of a row have in it: in the order of a tree, so that
    /// it is the same with subgroups and without.
    pub(super) fn over_row(self, name: &str, join: Join) -> String {
        let joined = |a: &str, b: &str| match join {
            Join::Largest => format!("max({a}, {b})"),
            Join::Sum => format!("({a} + {b})"),
        };
        if self.subgroups {
            let step = |far: usize| {
                let other = format!("subgroupShuffleXor({name}$i, {far}u)");
                format!("        {name}$i = {};\n", joined(&format!("{name}$i"), &other))
            };
            return [1, 2, 4].map(step).concat();
        }
        let at = |lane: usize| format!("lanes[64u * $iu + 8u * ty + {lane}u]");
        let two = |lane: usize| joined(&at(lane), &at(lane + 1));
        let four = |lane: usize| joined(&two(lane), &two(lane + 2));
        format!(
            "        lanes[64u * $iu + lane] = {name}$i;\n        workgroupBarrier();\n        {name}$i = {};\n",
            joined(&four(0), &four(4)),
        )
    }

    /// The whole text: the common functions, the pass, and every line as often as it is meant.
    pub(super) fn source(self, pass: &str, texts: &[(&str, &str)]) -> String {
        let own = (9 * self.height()).to_string();
        let mut all = vec![("$OWN_QUADS", own.as_str())];
        all.extend_from_slice(texts);
        let lanes = format!("var<workgroup> lanes: array<f32, {}>;\n", 64 * self.rows);
        let common = if self.subgroups { "" } else { &lanes };
        let text = fill_in(include_str!("tile.wgsl"), &all) + common + &fill_in(pass, &all);
        text.lines().map(|line| self.unrolled(line)).collect()
    }

    /// A line as often as it is meant.
    fn unrolled(self, line: &str) -> String {
        let mut lines = vec![line.to_string()];
        for (name, count) in [("$n", self.quads), ("$j", 4), ("$i", self.rows)] {
            if line.contains(name) {
                let each = |line: &String| (0..count).map(|at| line.replace(name, &at.to_string())).collect::<Vec<_>>();
                lines = lines.iter().flat_map(each).collect();
            }
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// How the threads of a row join what they have.
#[derive(Clone, Copy)]
pub(super) enum Join {
    Largest,
    Sum,
}
