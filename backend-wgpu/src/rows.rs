//! Kernels that work row by row: the number of threads that share a row, and how they combine their parts.

use crate::element::{Width, fill_in};
use crate::job::Context;

/// Threads of a workgroup, if each has its own row.
const NARROW_ROWS: u64 = 64;
/// Threads of a workgroup on a software adapter, if each has its own row: the lanes of a vector register.
const FEW_ROWS: u64 = 8;

/// Number of columns that keeps a device busy with one thread each.
const MANY_COLUMNS: usize = 1 << 13;

/// Number of threads that share a row (1: each thread has its own row).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes {
    lanes: u32,
    /// Rows per workgroup.
    rows: u64,
}

impl Lanes {
    /// Chooses for `rows` rows of `n` elements. Synchronising threads is expensive on a software adapter, so each
    /// thread takes a row there, unless there are too few rows or they are too long for a loop.
    pub(crate) fn for_rows(cx: &Context<'_>, rows: usize, n: usize) -> Self {
        if cx.gpu.info.is_software && rows >= 2 * FEW_ROWS as usize && n <= 1 << 14 {
            return Lanes { lanes: 1, rows: FEW_ROWS };
        }
        match n {
            0..=32 => Lanes { lanes: 1, rows: NARROW_ROWS },
            33..=1024 => Lanes { lanes: 64, rows: 1 },
            _ => Lanes::WORKGROUP,
        }
    }

    /// Chooses for `columns` columns of `n` elements: one thread each if there are enough columns, so that neighbouring
    /// threads read adjacent elements.
    pub(crate) fn of_columns(cx: &Context<'_>, columns: usize, n: usize) -> Self {
        if cx.gpu.info.is_software || columns < MANY_COLUMNS {
            return Lanes::for_rows(cx, columns, n);
        }
        Lanes { lanes: 1, rows: NARROW_ROWS }
    }

    /// 256 threads for each row.
    pub(crate) const WORKGROUP: Lanes = Lanes { lanes: 256, rows: 1 };

    /// A number below 16 for the variant of a source.
    pub(crate) fn code(self) -> u64 {
        u64::from(self.lanes.ilog2()) + u64::from(self.rows == FEW_ROWS)
    }

    /// True if threads should read quads of rows with `n` elements: not if some threads of a row would have no work.
    pub(crate) fn takes_quads(self, n: usize) -> bool {
        n.is_multiple_of(4) && (self.lanes == 1 || n / 4 >= self.lanes as usize)
    }

    /// Number of workgroups for `rows` rows.
    pub(crate) fn groups(self, rows: usize) -> u64 {
        (rows as u64).div_ceil(self.rows)
    }

    fn threads(self) -> u64 {
        if self.lanes == 1 { self.rows } else { self.lanes.into() }
    }

    /// WGSL for `sum_of(lane, x)` and `max_of(lane, x)` over the threads of a row, with the result in all of them.
    pub(crate) fn functions(self) -> String {
        if self.lanes == 1 {
            return "fn sum_of(lane: u32, x: f32) -> f32 { return x; }\n\
                    fn max_of(lane: u32, x: f32) -> f32 { return x; }\n"
                .into();
        }
        let (lanes, half) = (format!("{}u", self.lanes), format!("{}u", self.lanes / 2));
        fill_in(include_str!("rows.wgsl"), &[("$LANES", &lanes), ("$HALF", &half)])
    }

    /// Fills a template of a row kernel. `$BEGIN` in it declares `row`, whether it `exists`, `lane` and `LANES`.
    pub(crate) fn fill(self, template: &str, texts: &[(&str, &str)]) -> String {
        let lanes = self.lanes;
        let (row, lane) = if lanes == 1 {
            (format!("group_of(grid) * {}u + grid.lane", self.rows), "0u")
        } else {
            ("group_of(grid)".to_string(), "grid.lane")
        };
        let begin = format!("let row = {row}; let exists = row < p.rows; let lane = {lane}; const LANES = {lanes}u;");
        let threads = format!("@compute @workgroup_size({})", self.threads());
        let mut all = vec![("$BEGIN", begin.as_str()), ("$KERNEL", threads.as_str())];
        all.extend_from_slice(texts);
        fill_in(template, &all)
    }
}

/// Template texts for one element or four at a time: `$4` is the suffix of `_at` and `_put`, `$T` the type, `$W` the
/// number of elements. `sum_in(x)` and `max_in(x)` are over the elements of one `$T`.
pub(crate) fn widths(wide: bool) -> (Width, &'static str, [(&'static str, &'static str); 3]) {
    if wide {
        let functions = "fn sum_in(x: vec4<f32>) -> f32 { return (x.x + x.y) + (x.z + x.w); }\n\
             fn max_in(x: vec4<f32>) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }\n";
        (Width::Four, functions, [("$4", "4"), ("$T", "vec4<f32>"), ("$W", "4u")])
    } else {
        let functions = "fn sum_in(x: f32) -> f32 { return x; }\nfn max_in(x: f32) -> f32 { return x; }\n";
        (Width::One, functions, [("$4", ""), ("$T", "f32"), ("$W", "1u")])
    }
}
