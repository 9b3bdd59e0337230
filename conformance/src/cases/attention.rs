//! Scaled dot-product attention, its gradients, rotary embedding.

use memcore::backend::kernel::{Attention, AttentionGrad, Rope};
use memcore::{DType, Layout};

use super::common::{FLOATS, MANY};
use crate::case::{Bound, Case, CaseBuilder};
use crate::data::Data::{self, Range, Values};
use crate::tolerance::Tolerance;

/// One attention: `q` `[b, h, t, d]`, `k` `[b, hk, s, d]`, `v` `[b, hk, s, dv]`.
#[derive(Clone, Copy)]
struct Problem {
    name: &'static str,
    /// b, h, hk, t, s, d, dv
    sizes: [usize; 7],
    causal: bool,
    mask: Mask,
    view: View,
    /// Layout of the mask's gradient, if backward computes it.
    mask_grad: Option<Pairs>,
    /// True if forward computes the logarithms of the denominators, which backward needs.
    denominators: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mask {
    None,
    /// A bias for every score.
    Full,
    /// One bias for all batches and heads, by strides of 0.
    Broadcast,
    /// Hides some keys, and every key from the first query.
    Hides,
    /// The lowest number of its type for every key of the first query: the keys are not hidden, but all have this
    /// score.
    Lowest,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Contiguous,
    Offset,
    /// Stored `[b, t, h, d]`, as a projection writes them.
    HeadsInside,
    /// q, k and v side by side in one buffer `[b, t, 3, h, d]`.
    Packed,
}

/// Layout of an operand with an element for every score.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    Contiguous,
    Offset,
    /// Stored `[b, t, h, s]`.
    HeadsInside,
    /// Stored `[b, h, s, t]`.
    KeysOutside,
    /// Rows an odd number of elements apart, with two unused elements between them.
    Gapped,
    /// Rows that begin at multiples of 16 elements, as in PyTorch.
    Aligned,
}

const BASE: [usize; 7] = [2, 4, 2, 5, 7, 6, 3];

fn problem(name: &'static str, sizes: [usize; 7]) -> Problem {
    let (mask, view) = (Mask::None, View::Contiguous);
    Problem { name, sizes, causal: false, mask, view, mask_grad: None, denominators: true }
}

fn problems() -> Vec<Problem> {
    let base = BASE;
    let square = [2, 3, 3, 5, 5, 4, 4];
    vec![
        Problem { mask: Mask::Full, mask_grad: Some(Pairs::Contiguous), ..problem("contiguous", base) },
        problem("plain", base),
        Problem { causal: true, ..problem("causal", base) },
        Problem { causal: true, ..problem("causal_square", [1, 2, 2, 33, 33, 8, 8]) },
        Problem { causal: true, ..problem("causal_more_queries", [1, 1, 1, 7, 4, 4, 4]) },
        Problem { mask: Mask::Broadcast, ..problem("mask_broadcast", base) },
        Problem { mask: Mask::Hides, ..problem("mask_hides", base) },
        Problem { mask: Mask::Broadcast, causal: true, ..problem("mask_causal", base) },
        Problem { denominators: false, mask: Mask::Lowest, ..problem("mask_lowest", base) },
        problem("one_key_head", [1, 4, 1, 3, 5, 4, 4]),
        Problem { view: View::Offset, ..problem("offset", base) },
        Problem { view: View::HeadsInside, ..problem("heads_inside", base) },
        Problem { view: View::Packed, causal: true, ..problem("packed", square) },
        problem("one", [1, 1, 1, 1, 1, 1, 1]),
        problem("empty_batch", [0, 2, 1, 3, 4, 2, 2]),
        problem("no_queries", [1, 2, 1, 0, 4, 2, 2]),
        problem("no_keys", [1, 2, 1, 3, 0, 2, 2]),
        problem("length_257", [1, 1, 1, 3, 257, 8, 8]),
        problem("queries_257", [1, 1, 1, 257, 3, 8, 8]),
        problem("wide_heads", [1, 2, 1, 4, 5, 128, 128]),
        // Several tiles on both sides, whole and partial; heads as wide as a tile, narrower and wider.
        Problem { causal: true, ..problem("causal_tiles", [1, 4, 2, 150, 150, 64, 64]) },
        Problem { mask: Mask::Hides, ..problem("masked_tiles", [1, 1, 1, 140, 100, 24, 40]) },
        Problem { causal: true, ..problem("causal_tiles_of_wide_heads", [1, 2, 2, 70, 75, 72, 104]) },
        Problem { view: View::HeadsInside, ..problem("tiles_of_inner_heads", [1, 2, 1, 70, 80, 32, 31]) },
        // One more than whole tiles of 32 and of 64, in quads; heads of 16, of 32, and the widest.
        problem("one_beyond_tiles", [1, 2, 1, 65, 97, 16, 16]),
        Problem { causal: true, ..problem("causal_one_beyond_tiles", [2, 4, 2, 129, 65, 32, 48]) },
        Problem { causal: true, ..problem("causal_tiles_of_widest_heads", [1, 2, 1, 40, 70, 256, 256]) },
        // Heads that no quad divides, of rows that begin anywhere.
        Problem { view: View::Offset, mask: Mask::Broadcast, ..problem("ragged_tiles", [1, 2, 2, 33, 66, 33, 130]) },
        // Tiles of 64 keys: one key less and one more than one and two of them have, and exactly as many.
        problem("keys_63", [1, 1, 1, 17, 63, 64, 64]),
        Problem { mask: Mask::Broadcast, ..problem("keys_64", [1, 2, 1, 5, 64, 128, 96]) },
        Problem { causal: true, ..problem("keys_65", [1, 1, 1, 129, 65, 128, 128]) },
        Problem { mask: Mask::Hides, ..problem("keys_128", [1, 1, 1, 65, 128, 40, 64]) },
        Problem { causal: true, view: View::HeadsInside, ..problem("keys_129", [1, 2, 2, 257, 129, 64, 64]) },
        Problem { view: View::Offset, ..problem("keys_129_singly", [1, 1, 1, 18, 129, 128, 128]) },
        // Of float32, too, tensor cores have these: rows that begin anywhere, masks, nothing to see.
        Problem { view: View::Offset, ..problem("rows_65_singly", [1, 2, 1, 65, 37, 33, 20]) },
        Problem { mask: Mask::Broadcast, causal: true, ..problem("masked_causal_rows_40", [1, 4, 2, 40, 66, 20, 12]) },
        Problem { denominators: false, mask: Mask::Lowest, ..problem("mask_lowest_rows_34", [1, 2, 1, 34, 9, 8, 8]) },
        problem("no_keys_rows_40", [1, 2, 1, 40, 0, 2, 2]),
        problem("many_heads", [MANY, 1, 1, 1, 2, 2, 2]),
        problem("many_queries", [1, 1, 1, MANY, 2, 2, 1]),
        Problem { denominators: false, mask: Mask::Hides, ..problem("result_only", base) },
        Problem { denominators: false, causal: true, ..problem("result_only_causal", [1, 2, 2, 33, 33, 8, 8]) },
        Problem { denominators: false, ..problem("result_only_no_queries", [1, 2, 1, 0, 4, 2, 2]) },
        Problem { denominators: false, ..problem("result_only_no_keys", [1, 2, 1, 3, 0, 2, 2]) },
    ]
}

/// Backward with the gradient of the mask; forward does not depend on it.
fn mask_grads() -> Vec<Problem> {
    let with = |name, sizes| Problem { mask: Mask::Full, mask_grad: Some(Pairs::Contiguous), ..problem(name, sizes) };
    let lying = |name, pairs| Problem { mask_grad: Some(pairs), ..with(name, BASE) };
    let causal = |name, sizes| Problem { causal: true, ..with(name, sizes) };
    vec![
        Problem { mask: Mask::Broadcast, ..with("mask_grad_broadcast", BASE) },
        Problem { mask: Mask::Hides, ..with("mask_grad_hides", BASE) },
        Problem { mask: Mask::Lowest, ..with("mask_grad_lowest", BASE) },
        Problem { mask: Mask::Lowest, ..problem("grad_of_lowest_mask", BASE) },
        Problem { mask: Mask::Hides, ..causal("mask_grad_hides_causal", BASE) },
        causal("mask_grad_causal", BASE),
        causal("mask_grad_causal_square", [1, 2, 2, 97, 97, 8, 8]),
        // Whole tiles that no query sees.
        causal("mask_grad_causal_length_257", [1, 2, 1, 3, 257, 8, 8]),
        causal("mask_grad_causal_more_queries", [1, 1, 1, 70, 33, 4, 4]),
        with("mask_grad_one", [1; 7]),
        with("mask_grad_empty_batch", [0, 2, 1, 3, 4, 2, 2]),
        with("mask_grad_no_queries", [1, 2, 1, 0, 4, 2, 2]),
        with("mask_grad_no_keys", [1, 2, 1, 3, 0, 2, 2]),
        with("mask_grad_length_257", [1, 1, 1, 3, 257, 8, 8]),
        with("mask_grad_queries_257", [1, 1, 1, 257, 3, 8, 8]),
        with("mask_grad_one_key_head", [1, 4, 1, 3, 5, 4, 4]),
        with("mask_grad_wide_heads", [1, 2, 1, 4, 5, 128, 128]),
        with("mask_grad_widest_heads", [1, 2, 1, 4, 5, 256, 200]),
        causal("mask_grad_tiles", [1, 2, 1, 70, 90, 40, 24]),
        with("mask_grad_many_heads", [MANY, 1, 1, 1, 2, 2, 2]),
        lying("mask_grad_offset", Pairs::Offset),
        lying("mask_grad_heads_inside", Pairs::HeadsInside),
        lying("mask_grad_keys_outside", Pairs::KeysOutside),
        lying("mask_grad_gapped", Pairs::Gapped),
        lying("mask_grad_aligned", Pairs::Aligned),
        Problem { causal: true, ..lying("mask_grad_aligned_causal", Pairs::Aligned) },
        Problem { view: View::HeadsInside, ..lying("mask_grad_of_inner_heads", Pairs::Aligned) },
    ]
}

/// So many heads that a backend which gives a thread more rows where workgroups are plenty gives it two, four and eight.
fn tall() -> [Problem; 3] {
    [
        problem("tiles_of_16_in_many_heads", [8, 8, 8, 13, 15, 8, 8]),
        Problem { mask: Mask::Broadcast, ..problem("tiles_of_32_in_many_heads", [8, 8, 8, 27, 30, 8, 8]) },
        Problem { causal: true, ..problem("tiles_of_64_in_many_heads", [8, 8, 8, 57, 61, 8, 8]) },
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut out: Vec<_> = tall().into_iter().flat_map(|p| [forward(DType::F32, p), backward(DType::F32, p)]).collect();
    for dtype in FLOATS {
        let fits = |p: &Problem| dtype == DType::F32 || p.sizes.iter().all(|&s| s < MANY);
        for problem in problems().into_iter().filter(fits) {
            out.push(forward(dtype, problem));
            if problem.denominators {
                out.push(backward(dtype, problem));
            }
        }
        out.extend(mask_grads().into_iter().filter(fits).map(|problem| backward(dtype, problem)));
        out.extend(ropes(dtype));
    }
    out
}

fn rows_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

fn scale(d: usize) -> f64 {
    1.0 / (d as f64).sqrt()
}

/// Adds q, k, v and the mask.
fn inputs(case: CaseBuilder, dtype: DType, p: Problem) -> CaseBuilder {
    let [b, h, hk, t, s, d, dv] = p.sizes;
    let data = || Range(-1.0, 1.0);
    let case = match p.view {
        View::Packed => {
            // Written into one buffer: the strides of [b, t, 3, h, d], seen as [b, h, t, d].
            let strides = [t * 3 * h * d, d, 3 * h * d, 1];
            let layout = |n: usize, len: usize| Layout::strided(&[b, h, len, n], &strides).expect("a layout");
            let case = case.read("q", &[b, h, t, d], data()).strides(&strides);
            let case = case.read_beside("q", "k", h * d, layout(d, s), data());
            case.read_beside("q", "v", 2 * h * d, layout(dv, s), data())
        }
        view => {
            let case = viewed(case.read("q", &[b, h, t, d], data()), view);
            let case = viewed(case.read("k", &[b, hk, s, d], data()), view);
            viewed(case.read("v", &[b, hk, s, dv], data()), view)
        }
    };
    let full = [b, h, t, s];
    match p.mask {
        Mask::None => case,
        Mask::Full => case.read("mask", &full, data()),
        Mask::Broadcast => case.read("mask", &[t, s], data()).broadcast(&full),
        Mask::Hides => case.read("mask", &[t, s], hiding(t, s)).broadcast(&full),
        Mask::Lowest => {
            let of = |at: usize| if at < s { lowest(dtype) } else { 0.25 };
            case.read("mask", &[t, s], Values((0..t * s).map(of).collect())).broadcast(&full)
        }
    }
}

fn viewed(case: CaseBuilder, view: View) -> CaseBuilder {
    match view {
        View::Offset => case.offset(3),
        View::HeadsInside => case.transposed(1, 2),
        View::Contiguous | View::Packed => case,
    }
}

/// Adds the gradient of the mask, poison until it is written.
fn mask_gradient(case: CaseBuilder, p: Problem) -> CaseBuilder {
    let [b, h, _, t, s, ..] = p.sizes;
    let Some(pairs) = p.mask_grad else { return case };
    let case = case.write("dmask", &[b, h, t, s]);
    match pairs {
        Pairs::Contiguous => case,
        Pairs::Offset => case.offset(3),
        Pairs::HeadsInside => case.transposed(1, 2),
        Pairs::KeysOutside => case.transposed(2, 3),
        Pairs::Gapped => case.gapped(2),
        Pairs::Aligned => case.gapped(s.next_multiple_of(16) - s),
    }
}

/// Hides every third key, and all keys from the first query.
fn hiding(t: usize, s: usize) -> Data {
    let hidden = |at: usize| at < s || at % 3 == 1;
    Values((0..t * s).map(|at| if hidden(at) { f64::NEG_INFINITY } else { 0.25 }).collect())
}

fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => half::bf16::MIN.to_f64(),
        DType::F32 => f32::MIN.into(),
        _ => f64::MIN,
    }
}

/// Scores stay below 1 or so. Tensor cores take probabilities in 16 bits: their error is one unit of that type, in a
/// mean of values up to 1.
fn tolerance(p: Problem) -> Tolerance {
    let [_, _, _, _, s, d, _] = p.sizes;
    Tolerance::sum(s + d + 32, 1.0, "scores, exponentials, and a mean of values up to 1").half_intermediates(1.0, 1.0)
}

fn forward(dtype: DType, p: Problem) -> Case {
    let [b, h, _, t, _, d, dv] = p.sizes;
    let (scale, causal) = (scale(d), p.causal);
    let case = inputs(Case::on(dtype, p.name), dtype, p);
    let case = viewed(case.write("out", &[b, h, t, dv]), p.view);
    let case = if p.denominators { case.write("logsumexp", &[b, h, t]).typed(rows_dtype(dtype)) } else { case };
    case.call(tolerance(p), move |o| Attention {
        scale,
        causal,
        q: o.at("q"),
        k: o.at("k"),
        v: o.at("v"),
        mask: o.get("mask"),
        out: o.at("out"),
        logsumexp: o.get("logsumexp"),
    })
}

/// `out` and `logsumexp` may be any numbers of the right size: the kernel's formula uses them as given.
fn backward(dtype: DType, p: Problem) -> Case {
    let [b, h, hk, t, s, d, dv] = p.sizes;
    let (scale, causal) = (scale(d), p.causal);
    let case = inputs(Case::on(dtype, p.name), dtype, p);
    let case = viewed(case.read("out", &[b, h, t, dv], Range(-1.0, 1.0)), p.view);
    let mut case = case.read("logsumexp", &[b, h, t], logsumexp(p)).typed(rows_dtype(dtype));
    case = viewed(case.read("grad", &[b, h, t, dv], Range(-1.0, 1.0)), p.view);
    case = case.write("delta", &[b, h, t]).typed(rows_dtype(dtype));
    for (name, dims) in [("dq", [b, h, t, d]), ("dk", [b, hk, s, d]), ("dv", [b, hk, s, dv])] {
        case = viewed(case.write(name, &dims), p.view);
    }
    case = mask_gradient(case, p);
    // Sums over keys, over the queries of a group, and over the head: products up to dv.
    let terms = (s.max(t * h / hk.max(1)) + d + dv).min(4096);
    let tolerance = Tolerance::sum(terms + 32, 2.0, "sums over keys, queries and heads").half_intermediates(2.0, 2.0);
    let call = move |o: &Bound| AttentionGrad {
        scale,
        causal,
        q: o.at("q"),
        k: o.at("k"),
        v: o.at("v"),
        mask: o.get("mask"),
        out: o.at("out"),
        logsumexp: o.at("logsumexp"),
        grad: o.at("grad"),
        delta: o.at("delta"),
        dq: o.at("dq"),
        dk: o.at("dk"),
        dv: o.at("dv"),
        dmask: o.get("dmask"),
        workspace: None,
    };
    case.call(tolerance, call)
}

/// Near the logarithm of the number of keys, so that probabilities add up to about 1. −inf for a query that sees no
/// key, and the nearest f32 if all its scores are the lowest number.
fn logsumexp(p: Problem) -> Data {
    let [b, h, _, t, s, ..] = p.sizes;
    let typical = (s.max(1) as f64).ln() + 0.1;
    let first = match p.mask {
        Mask::Hides => f64::NEG_INFINITY,
        Mask::Lowest => f64::from(f32::MIN),
        _ => return Range(typical, typical + 0.5),
    };
    let row = |at: usize| if at.is_multiple_of(t) { first } else { typical };
    Values((0..b * h * t).map(row).collect())
}

fn ropes(dtype: DType) -> Vec<Case> {
    let shapes: [(&str, [usize; 4]); 7] = [
        ("contiguous", [2, 5, 3, 8]),
        ("one", [1, 1, 1, 2]),
        ("empty", [0, 3, 2, 4]),
        ("no_dims", [1, 3, 2, 0]),
        ("length_257", [1, 257, 1, 2]),
        ("wide", [1, 2, 1, 128]),
        ("many_rows", [1, MANY, 1, 2]),
    ];
    let mut out = Vec::new();
    for inverse in [false, true] {
        let named = |name: &str| if inverse { format!("inverse_{name}") } else { name.to_string() };
        for (name, dims) in shapes.into_iter().filter(|s| dtype == DType::F32 || s.1[1] < MANY) {
            let case = Case::on(dtype, named(name)).read("x", &dims, Range(-2.0, 2.0));
            out.push(rope(tables(case, dtype, dims).write("out", &dims), inverse));
        }
        let dims = [2, 5, 3, 8];
        let x = |view: &str| Case::on(dtype, named(view)).read("x", &dims, Range(-2.0, 2.0));
        out.push(rope(tables(x("transposed").transposed(1, 2), dtype, dims).write("out", &dims), inverse));
        out.push(rope(tables(x("transposed_out"), dtype, dims).write("out", &dims).transposed(1, 2), inverse));
        out.push(rope(tables(x("inner_stride").transposed(2, 3), dtype, dims).write("out", &dims), inverse));
        out.push(rope(tables(x("offset").offset(3), dtype, dims).write("out", &dims).offset(1), inverse));
        out.push(rope(tables(x("gapped").gapped(2), dtype, dims).write("out", &dims).gapped(3), inverse));
    }
    out
}

fn tables(case: CaseBuilder, dtype: DType, dims: [usize; 4]) -> CaseBuilder {
    let half = [dims[1], dims[3] / 2];
    let case = case.read("cos", &half, Range(-1.0, 1.0)).typed(dtype.accumulator());
    case.read("sin", &half, Range(-1.0, 1.0)).typed(dtype.accumulator())
}

fn rope(case: CaseBuilder, inverse: bool) -> Case {
    case.call(Tolerance::arithmetic(4.0, "two products up to 2 and their sum"), move |o| Rope {
        inverse,
        x: o.at("x"),
        cos: o.at("cos"),
        sin: o.at("sin"),
        out: o.at("out"),
    })
}
