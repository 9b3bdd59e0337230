//! Gather and scatter-add.

use memcore::DType::{self, BF16, Bool, F16, F32, F64, I8, I32, I64, U8};
use memcore::backend::kernel::{Gather, ScatterAdd};

use super::common::{FLOATS, MANY, is_for};
use crate::case::Case;
use crate::data::Data::{self, Ints, Poison, Range, Values};
use crate::tolerance::Tolerance;

const MOVES: Tolerance = Tolerance::exact("rows are moved, not computed");

/// Name, rows of the table, columns, indices, elements before the first one.
const SHAPES: [(&str, [usize; 3], usize); 9] = [
    ("contiguous", [5, 7, 9], 0),
    ("offset", [5, 7, 9], 3),
    ("one", [1, 1, 1], 0),
    ("empty", [5, 7, 0], 0),
    ("length_257", [257, 3, 257], 0),
    ("columns_257", [3, 257, 5], 0),
    ("crowded", [2, 3, 500], 0),
    ("many_rows", [11, 2, MANY], 0),
    ("many_table_rows", [MANY, 2, 9], 0),
];

/// Name and strides of the table, or of the source of a scatter, with sizes `[5, 8]`.
const STRIDED: [(&str, [usize; 2]); 4] =
    [("transposed", [1, 5]), ("gaps", [12, 1]), ("columns_apart", [16, 2]), ("one_row", [0, 1])];

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        for (name, sizes, lead) in shapes(dtype) {
            out.push(gather(dtype, name, sizes, lead, Ints(0, sizes[0] as i64)));
        }
        let outside = Values(vec![1.0, 5.0, -1.0, 4.0, 1e9]);
        out.push(gather(dtype, "outside", [5, 3, 5], 0, outside));
        out.extend(STRIDED.into_iter().map(|(name, strides)| gather_strided(dtype, name, strides)));
    }
    for dtype in FLOATS {
        for (name, sizes, lead) in shapes(dtype) {
            out.push(scatter(dtype, name, sizes, lead, Scatter::PLAIN));
        }
        out.push(scatter(dtype, "accumulate", [5, 7, 9], 0, Scatter { accumulate: true, ..Scatter::PLAIN }));
        out.push(scatter(dtype, "accumulate_nothing", [5, 7, 0], 0, Scatter { accumulate: true, ..Scatter::PLAIN }));
        out.push(scatter(dtype, "padding", [5, 7, 40], 0, Scatter { padding: Some(2), ..Scatter::PLAIN }));
        let both = Scatter { accumulate: true, padding: Some(0), outside: false };
        out.push(scatter(dtype, "accumulate_padding", [3, 2, 40], 0, both));
        out.extend(STRIDED.into_iter().map(|(name, strides)| scatter_strided(dtype, name, strides)));
        out.push(scatter(dtype, "outside", [5, 3, 5], 0, Scatter { outside: true, ..Scatter::PLAIN }));
    }
    out
}

fn shapes(dtype: DType) -> impl Iterator<Item = (&'static str, [usize; 3], usize)> {
    SHAPES.into_iter().filter(move |s| is_for(dtype, s.1[0].max(s.1[2])))
}

fn gather(dtype: DType, name: &str, [rows, n, count]: [usize; 3], lead: usize, indices: Data) -> Case {
    let data = if dtype.is_float() { Range(-2.0, 2.0) } else { Ints(0, 2) };
    let case = Case::on(dtype, name).read("table", &[rows, n], data).offset(lead);
    let case = case.read("indices", &[count], indices).typed(I64).offset(lead);
    let case = case.write("out", &[count, n]).offset(lead);
    // An index outside the table reads as NaN.
    let case = if name == "outside" { case.expecting_nan() } else { case };
    case.call(MOVES, |o| Gather { table: o.at("table"), indices: o.at("indices"), out: o.at("out") })
}

fn gather_strided(dtype: DType, name: &str, strides: [usize; 2]) -> Case {
    let data = if dtype.is_float() { Range(-2.0, 2.0) } else { Ints(0, 2) };
    let case = Case::on(dtype, name).read("table", &[5, 8], data).strides(&strides);
    let case = case.read("indices", &[9], Ints(0, 5)).typed(I64).write("out", &[9, 8]);
    case.call(MOVES, |o| Gather { table: o.at("table"), indices: o.at("indices"), out: o.at("out") })
}

fn scatter_strided(dtype: DType, name: &str, strides: [usize; 2]) -> Case {
    let case = Case::on(dtype, name).read("src", &[5, 8], Range(-1.0, 1.0)).strides(&strides);
    let case = case.read("indices", &[5], Values(vec![2.0, 0.0, 2.0, 1.0, 0.0])).typed(I64);
    let tolerance = Tolerance::sum(8, 1.0, "a sum of values up to 1, in order");
    case.read("out", &[3, 8], Poison).call(tolerance, |o| ScatterAdd {
        accumulate: false,
        padding_index: None,
        src: o.at("src"),
        indices: o.at("indices"),
        out: o.at("out"),
    })
}

/// Properties of a scatter case.
#[derive(Clone, Copy)]
struct Scatter {
    accumulate: bool,
    padding: Option<i64>,
    outside: bool,
}

impl Scatter {
    const PLAIN: Self = Self { accumulate: false, padding: None, outside: false };
}

fn scatter(dtype: DType, name: &str, [rows, n, count]: [usize; 3], lead: usize, how: Scatter) -> Case {
    let Scatter { accumulate, padding, outside } = how;
    let indices = if outside { Values(vec![1.0, 5.0, -1.0, 4.0, 1e9]) } else { Ints(0, rows as i64) };
    let case = Case::on(dtype, name).read("src", &[count, n], Range(-1.0, 1.0)).offset(lead);
    let case = case.read("indices", &[count], indices).typed(I64).offset(lead);
    let held = if accumulate { Range(-1.0, 1.0) } else { Poison };
    let case = case.read("out", &[rows, n], held).offset(lead);
    // In the order of the indices: the longest row adds its terms one after another.
    let terms = (count / rows.max(1)).clamp(8, 1 << 14);
    case.call(Tolerance::sum(terms, 1.0, "a sum of values up to 1, in order"), move |o| ScatterAdd {
        accumulate,
        padding_index: padding,
        src: o.at("src"),
        indices: o.at("indices"),
        out: o.at("out"),
    })
}
