//! Batched matrix product.

use memcore::DType::{self, F32};
use memcore::backend::kernel::Matmul;

use super::common::{FLOATS, MANY};
use crate::case::{Case, CaseBuilder};
use crate::data::Data::{Poison, Range};
use crate::tolerance::Tolerance;

/// Name, batch, m, n, k.
const SIZES: [(&str, [usize; 4]); 13] = [
    ("contiguous", [2, 5, 7, 6]),
    ("one", [1, 1, 1, 1]),
    ("row_vector", [1, 1, 33, 20]),
    ("column_vector", [1, 33, 1, 20]),
    ("outer_product", [1, 17, 19, 1]),
    ("length_257", [1, 3, 5, 257]),
    ("wide_257", [1, 257, 3, 5]),
    ("tiles", [1, 64, 64, 64]),
    ("beyond_tiles", [1, 65, 67, 33]),
    ("empty_batch", [0, 2, 3, 4]),
    ("empty_rows", [2, 0, 3, 4]),
    ("many_batches", [MANY, 1, 2, 1]),
    ("many_rows", [1, MANY, 2, 2]),
];

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![with_everything(F32)];
    for dtype in FLOATS {
        for (name, sizes) in SIZES.into_iter().filter(|s| dtype == F32 || s.1.iter().all(|&d| d < MANY)) {
            let case = operands(Case::on(dtype, name), sizes);
            out.push(finish(case, sizes, 1.0, 0.0));
        }
        out.extend(views(dtype));
        out.extend(eights(dtype));
        out.extend(scalars(dtype));
        out.extend(large_with_bias(dtype));
    }
    out
}

/// Products that libraries compute together with their bias, except where the bias is not aligned.
fn large_with_bias(dtype: DType) -> [Case; 2] {
    let sizes @ [_, _, n, _] = [1, 24, 40, 48];
    [("bias_of_one_product", 0), ("bias_of_one_product_unaligned", 1)].map(|(name, offset)| {
        let case = operands(Case::on(dtype, name), sizes).read("bias", &[n], Range(-1.0, 1.0));
        finish(if offset > 0 { case.offset(offset) } else { case }, sizes, 1.0, 0.0)
    })
}

fn operands(case: CaseBuilder, [batch, m, n, k]: [usize; 4]) -> CaseBuilder {
    let case = case.read("a", &[batch, m, k], Range(-1.0, 1.0)).read("b", &[batch, k, n], Range(-1.0, 1.0));
    case.write("out", &[batch, m, n])
}

fn finish(case: CaseBuilder, [.., k]: [usize; 4], alpha: f64, beta: f64) -> Case {
    let tolerance = Tolerance::sum(k + 2, 1.0, "a sum of k products up to 1, a bias and what was there");
    case.call(tolerance, move |o| Matmul {
        alpha,
        beta,
        a: o.at("a"),
        b: o.at("b"),
        bias: o.get("bias"),
        out: o.at("out"),
        workspace: None,
    })
}

fn with_everything(dtype: DType) -> Case {
    let case = Case::on(dtype, "with_everything").read("a", &[2, 5, 6], Range(-1.0, 1.0));
    let case = case.read("b", &[2, 6, 7], Range(-1.0, 1.0)).read("bias", &[7], Range(-1.0, 1.0));
    finish(case.read("out", &[2, 5, 7], Range(-1.0, 1.0)), [2, 5, 7, 6], 0.5, -0.5)
}

fn views(dtype: DType) -> Vec<Case> {
    let sizes @ [batch, m, n, k] = [2, 5, 7, 6];
    let (a_dims, b_dims, out_dims) = ([batch, m, k], [batch, k, n], [batch, m, n]);
    let a = |name: &str| Case::on(dtype, name).read("a", &a_dims, Range(-1.0, 1.0));
    let b = |case: CaseBuilder| case.read("b", &b_dims, Range(-1.0, 1.0));
    let out = |case: CaseBuilder| case.write("out", &out_dims);
    let one_matrix =
        |case: CaseBuilder, name, d: [usize; 3]| case.read(name, &[1, d[1], d[2]], Range(-1.0, 1.0)).broadcast(&d);
    [
        out(b(a("transposed_a").transposed(1, 2))),
        out(b(a("transposed_b")).transposed(1, 2)),
        out(b(a("transposed_both").transposed(1, 2)).transposed(1, 2)),
        out(b(one_matrix(Case::on(dtype, "broadcast_a"), "a", a_dims))),
        out(one_matrix(a("broadcast_b"), "b", b_dims)),
        out(b(a("offset").offset(3)).offset(5)).offset(1),
        // Leading dimensions larger than the row.
        out(b(a("gapped").gapped(3)).gapped(2)).gapped(4),
        out(b(a("gapped_transposed").transposed(1, 2)).strides(&[80, 1, 9])),
        // Heads side by side in one row, as in attention without a fused kernel: the batch has the inner stride.
        out(b(a("interleaved_batch").transposed(0, 1)).transposed(0, 1)).transposed(0, 1),
    ]
    .map(|case| finish(case, sizes, 1.0, 0.0))
    .into()
}

/// Sizes larger than a tile, with rows that can be read eight elements at a time; also where that ends early or is
/// impossible.
fn eights(dtype: DType) -> Vec<Case> {
    let case = |name: &str, [batch, m, n, k]: [usize; 4], view: fn(CaseBuilder) -> CaseBuilder| {
        let a = view(Case::on(dtype, format!("eights{name}")).read("a", &[batch, m, k], Range(-1.0, 1.0)));
        let b = view(a.read("b", &[batch, k, n], Range(-1.0, 1.0)));
        finish(b.write("out", &[batch, m, n]), [batch, m, n, k], 1.0, 0.0)
    };
    vec![
        case("", [2, 72, 136, 48], |x| x),
        case("_transposed", [2, 72, 136, 48], |x| x.transposed(1, 2)),
        case("_ended_early", [2, 20, 36, 44], |x| x.gapped(4)),
        case("_unaligned", [2, 24, 40, 48], |x| x.offset(3)),
        case("_odd_rows", [1, 24, 41, 47], |x| x),
    ]
}

fn scalars(dtype: DType) -> Vec<Case> {
    let sizes = [2, 5, 7, 6];
    let named = |name: &str| {
        Case::on(dtype, name).read("a", &[2, 5, 6], Range(-1.0, 1.0)).read("b", &[2, 6, 7], Range(-1.0, 1.0))
    };
    let accumulated = |name: &str| named(name).read("out", &[2, 5, 7], Range(-1.0, 1.0));
    let none = |name: &str| Case::on(dtype, name).read("a", &[2, 5, 0], Poison).read("b", &[2, 0, 7], Poison);
    let empty = [2, 5, 7, 0];
    vec![
        finish(named("alpha").write("out", &[2, 5, 7]), sizes, -0.25, 0.0),
        finish(named("bias").read("bias", &[7], Range(-1.0, 1.0)).write("out", &[2, 5, 7]), sizes, 1.0, 0.0),
        finish(accumulated("accumulate"), sizes, 1.0, 1.0),
        finish(accumulated("accumulate_scaled"), sizes, 0.5, -0.5),
        finish(accumulated("accumulate_gapped").gapped(2), sizes, 1.0, 1.0),
        finish(none("empty_inner").write("out", &[2, 5, 7]), empty, 1.0, 0.0),
        finish(none("empty_inner_accumulate").read("out", &[2, 5, 7], Range(-1.0, 1.0)), empty, 1.0, 0.5),
        finish(none("empty_inner_bias").read("bias", &[7], Range(-1.0, 1.0)).write("out", &[2, 5, 7]), empty, 1.0, 0.0),
    ]
}
