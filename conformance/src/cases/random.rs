//! Random words and uniforms, dropout.

use memcore::DType::{self, Bool, F32, I32};
use memcore::backend::kernel::{Dropout, DropoutGrad, Random, RandomKind};

use super::common::{FLOATS, MANY};
use super::form::Form;
use crate::case::Case;
use crate::data::Data::{Mask, Range};
use crate::tolerance::Tolerance;

const SAME_BITS: Tolerance = Tolerance::exact("random numbers have the same bits on every backend");
const SCALED: Tolerance = Tolerance::arithmetic(4.0, "one division or product");

/// Sizes: none, not a multiple of four, more counters than groups.
const SIZES: [(&str, &[usize], usize); 6] = [
    ("contiguous", &[5, 7], 0),
    ("offset", &[5, 7], 3),
    ("empty", &[0], 0),
    ("one", &[1], 0),
    ("length_257", &[257], 0),
    ("many_rows", &[MANY, 5], 0),
];

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    out.extend(uniforms(F32));
    for (name, dims, lead) in SIZES {
        out.push(random(I32, name, dims, lead, RandomKind::Words, 0, 0));
    }
    // Both words of the seed and of the counter are used, with a carry from one into the other.
    let high = 0x1234_5678_9abc_def0;
    out.push(random(I32, "high_seed", &[33], 0, RandomKind::Words, high, 0));
    out.push(random(I32, "high_counter", &[33], 0, RandomKind::Words, 7, high));
    out.push(random(I32, "counter_carry", &[33], 0, RandomKind::Words, 7, 0xFFFF_FFFE));
    for dtype in &FLOATS[1..] {
        out.extend(uniforms(*dtype));
    }
    for dtype in FLOATS {
        out.extend(dropouts(dtype));
        out.extend(dropout_grads(dtype));
    }
    out
}

fn random(dtype: DType, name: &str, dims: &[usize], lead: usize, kind: RandomKind, seed: u64, offset: u64) -> Case {
    let case = Case::on(dtype, name).write("out", dims).offset(lead);
    case.call(SAME_BITS, move |o| Random { kind, seed, offset, out: o.at("out") })
}

fn uniforms(dtype: DType) -> Vec<Case> {
    let unit = RandomKind::Uniform { low: 0.0, high: 1.0 };
    let sizes = SIZES.into_iter().filter(|size| dtype == F32 || size.0 != "many_rows");
    let mut out: Vec<Case> = sizes.map(|(name, dims, lead)| random(dtype, name, dims, lead, unit, 42, 5)).collect();
    // A power of two between the bounds: fused or not, the multiply-add rounds once.
    let symmetric = RandomKind::Uniform { low: -2.0, high: 2.0 };
    out.push(random(dtype, "symmetric", &[99], 0, symmetric, 42, 0));
    // Other bounds round twice; a fused multiply-add would give other bits.
    let bound = 1.0 / 3f64.sqrt();
    out.push(random(dtype, "kaiming", &[999], 0, RandomKind::Uniform { low: -bound, high: bound }, 1, 0));
    out
}

fn dropouts(dtype: DType) -> Vec<Case> {
    let sizes = SIZES.into_iter().filter(|size| dtype == F32 || size.0 != "many_rows");
    let with_p = |name: &str, dims: &[usize], lead: usize, p: f64| {
        let case = Case::on(dtype, name).read("x", dims, Range(-2.0, 2.0)).offset(lead);
        let case = case.write("mask", dims).typed(Bool).offset(lead).write("out", dims).offset(lead);
        case.call(SCALED, move |o| Dropout {
            p,
            seed: 9,
            offset: 3,
            x: o.at("x"),
            mask: o.at("mask"),
            out: o.at("out"),
        })
    };
    let mut out: Vec<Case> = sizes.map(|(name, dims, lead)| with_p(name, dims, lead, 0.3)).collect();
    out.push(with_p("keeps_all", &[99], 0, 0.0));
    out.push(with_p("drops_all", &[99], 0, 1.0));
    out
}

fn dropout_grads(dtype: DType) -> Vec<Case> {
    let call = |form: Form| {
        let case = form.read(Case::on(dtype, form.name()), "grad", Range(-2.0, 2.0), true);
        let case = form.read(case, "mask", Mask, true).typed(Bool);
        form.write(case, "out").call(SCALED, |o| DropoutGrad {
            scale: 1.0 / 0.7,
            grad: o.at("grad"),
            mask: o.at("mask"),
            out: o.at("out"),
        })
    };
    Form::forms(dtype).map(call).collect()
}
