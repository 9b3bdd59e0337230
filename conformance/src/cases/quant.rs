//! int8 with one scale per row.

use memcore::DType::{self, F32, I8};
use memcore::backend::kernel::{DequantizeInt8, MatmulInt8, QuantizeInt8};

use super::common::{FLOATS, MANY, ROWS, is_for};
use crate::case::Case;
use crate::data::Data::{self, Ints, Range, Values};
use crate::tolerance::Tolerance;

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for (name, dims, lead) in ROWS.into_iter().filter(|row| is_for(dtype, row.1[0])) {
            out.push(quantize(dtype, name, dims, lead, Range(-3.0, 3.0)));
            out.push(dequantize(dtype, name, dims, lead));
        }
        // Rows of zeros, whose scale is 1; ties, which go to the even neighbour.
        out.push(quantize(dtype, "zeros", [3, 5], 0, Data::Constant(0.0)));
        out.push(quantize(dtype, "ties", [1, 5], 0, Values(vec![127.0, 2.5, 3.5, -2.5, -63.5])));
        out.extend(products(dtype));
    }
    out
}

fn quantize(dtype: DType, name: &str, dims: [usize; 2], lead: usize, data: Data) -> Case {
    let case = Case::on(dtype, name).read("x", &dims, data).offset(lead);
    let case = case.write("out", &dims).typed(I8).offset(lead).write("scale", &[dims[0]]).typed(F32);
    // x/scale close to a tie may round to either side; exact ties (scale 1) may not.
    let tolerance = Tolerance::arithmetic(0.0, "a quotient by 127; another that may lie next to a tie");
    let tolerance = if name == "ties" { tolerance } else { tolerance.integer_steps(1) };
    case.call(tolerance, |o| QuantizeInt8 { x: o.at("x"), out: o.at("out"), scale: o.at("scale") })
}

fn dequantize(dtype: DType, name: &str, dims: [usize; 2], lead: usize) -> Case {
    let case = Case::on(dtype, name).read("x", &dims, Ints(-127, 128)).typed(I8).offset(lead);
    let case = case.read("scale", &[dims[0]], Range(0.01, 0.1)).typed(F32).write("out", &dims).offset(lead);
    case.call(Tolerance::arithmetic(0.0, "one product"), |o| DequantizeInt8 {
        x: o.at("x"),
        scale: o.at("scale"),
        out: o.at("out"),
    })
}

/// Name, m, n, k, elements before the first one.
const SIZES: [(&str, [usize; 3], usize); 11] = [
    ("contiguous", [5, 7, 6], 0),
    ("offset", [5, 7, 6], 3),
    ("one", [1, 1, 1], 0),
    ("row_vector", [1, 33, 20], 0),
    ("length_257", [3, 5, 257], 0),
    ("beyond_tiles", [33, 65, 67], 0),
    ("eights", [24, 136, 40], 0),
    ("eights_unaligned", [24, 136, 40], 3),
    ("empty", [0, 3, 4], 0),
    ("empty_inner", [2, 3, 0], 0),
    ("many_rows", [MANY, 2, 2], 0),
];

fn products(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (name, [m, n, k], lead) in SIZES.into_iter().filter(|s| is_for(dtype, s.1[0])) {
        for bias in [true, false] {
            let name = if bias { name.to_string() } else { format!("{name}_without_bias") };
            let case = Case::on(dtype, name).read("x", &[m, k], Range(-1.0, 1.0)).offset(lead);
            let case = case.read("weight", &[n, k], Ints(-127, 128)).typed(I8).offset(lead);
            let case = case.read("scale", &[n], Range(0.001, 0.01)).typed(F32).offset(lead);
            let case = case.read_if(bias, "bias", &[n], Range(-1.0, 1.0)).write("out", &[m, n]).offset(lead);
            let tolerance = Tolerance::sum(k + 1, 1.3, "a sum of k products up to 127·0.01 and a bias");
            out.push(case.call(tolerance, |o| MatmulInt8 {
                x: o.at("x"),
                weight: o.at("weight"),
                scale: o.at("scale"),
                bias: o.get("bias"),
                out: o.at("out"),
            }));
        }
    }
    out
}
