//! Kernels that work row by row: how many threads share a row, and how they put their parts together.

use crate::element::fill_in;

/// Threads of a workgroup whose rows have one each.
const NARROW_ROWS: u64 = 64;

/// Threads that share a row (1: each has its own).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes(pub(crate) u32);

impl Lanes {
    /// For rows of `n` elements.
    pub(crate) fn of(n: usize) -> Self {
        match n {
            0..=32 => Lanes(1),
            33..=1024 => Lanes(64),
            _ => Lanes(256),
        }
    }

    pub(crate) fn code(self) -> u64 {
        self.0.ilog2().into()
    }

    /// Workgroups for so many rows.
    pub(crate) fn groups(self, rows: usize) -> u64 {
        if self.0 == 1 { (rows as u64).div_ceil(NARROW_ROWS) } else { rows as u64 }
    }

    fn threads(self) -> u32 {
        if self.0 == 1 { NARROW_ROWS as u32 } else { self.0 }
    }

    /// `sum_of(lane, x)`, `max_of(lane, x)`: over the threads of a row, the result in all of them.
    pub(crate) fn functions(self) -> String {
        if self.0 == 1 {
            return "fn sum_of(lane: u32, x: f32) -> f32 { return x; }\n\
                    fn max_of(lane: u32, x: f32) -> f32 { return x; }\n"
                .into();
        }
        let (lanes, half) = (format!("{}u", self.0), format!("{}u", self.0 / 2));
        fill_in(include_str!("rows.wgsl"), &[("$LANES", &lanes), ("$HALF", &half)])
    }

    /// A row kernel of this template. `$BEGIN` in it declares `row`, whether it `exists`, `lane` and `LANES`.
    pub(crate) fn fill(self, template: &str, texts: &[(&str, &str)]) -> String {
        let lanes = self.0;
        let (row, lane) = if lanes == 1 {
            (format!("group_of(grid) * {NARROW_ROWS}u + grid.lane"), "0u")
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
