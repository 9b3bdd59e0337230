//! Batched matrix product.

use memcore::backend::Operand;
use memcore::backend::kernel::Matmul;
use memcore::error::Result;

use crate::choice::Sizes;
use crate::element::{Elem, Slot, Width};
use crate::gemm::Gemm;
use crate::job::{Context, Job};
use crate::key::Variant;

/// True if `axis` has the smaller of the last two strides: the operand is read along it.
fn runs_along(x: &Operand, axis: usize) -> bool {
    let (other, strides) = (3 - axis, x.layout.strides());
    let size_one = |axis: usize| x.dims()[axis] <= 1;
    size_one(other) || (!size_one(axis) && strides[axis] <= strides[other])
}

/// True if four elements along `axis` can be read at once: the operand has stride 1 along it, and each of its other
/// rows begins at a multiple of four, as operand `i` of the job does.
fn has_quads(job: &Job, i: usize, x: &Operand, axis: usize) -> bool {
    let aligned = |other: usize| x.dims()[other] == 1 || x.layout.strides()[other].is_multiple_of(4);
    x.dtype.size() < 8
        && x.layout.strides()[axis] == 1
        && x.dims()[axis].is_multiple_of(4)
        && (0..3).all(|other| other == axis || aligned(other))
        && job.first(i).is_multiple_of(4)
}

fn strides(job: &mut Job, x: &Operand) {
    for &stride in x.layout.strides() {
        job.u(stride);
    }
}

pub(crate) fn matmul(cx: &mut Context<'_>, k: &Matmul) -> Result<()> {
    let (batch, m, n, inner) = k.sizes();
    let elem = Elem::from_dtype(k.out.dtype);
    let (accumulates, biased) = (k.beta != 0.0, k.bias.is_some());
    let (a_along_k, b_along_k) = (runs_along(&k.a, 2), runs_along(&k.b, 1));
    let mut job = cx.job();
    job.bind(&k.a).bind(&k.b).bind_opt(k.bias.as_ref()).bind(&k.out);
    let quads = [
        has_quads(&job, 0, &k.a, if a_along_k { 2 } else { 1 }),
        has_quads(&job, 1, &k.b, if b_along_k { 1 } else { 2 }),
    ];
    let gemm = Gemm {
        name: "matmul",
        variant: Variant::new().with(4, elem.code()).with(1, accumulates.into()).with(1, biased.into()),
        sizes: Sizes { batch, m, n, k: inner },
        a_along_k,
        b_along_k,
        quads,
        repeats: !accumulates,
        digits: None,
    };
    let more = |job: &mut Job| {
        job.f(k.alpha).f(k.beta);
        for x in [&k.a, &k.b, &k.out] {
            strides(job, x);
        }
    };
    let fields =
        "alpha: f32, beta: f32, az: u32, am: u32, ak: u32, bz: u32, bk: u32, bn: u32, oz: u32, om: u32, on: u32";
    gemm.run(cx, job, more, fields, || {
        let width = |is_quad| if is_quad { Width::Four } else { Width::One };
        let slots = vec![
            Slot::read("a", elem).wide(width(quads[0])),
            Slot::read("b", elem).wide(width(quads[1])),
            Slot::read("bias", elem),
            Slot::write("out", elem),
        ];
        let held = if accumulates { " + p.beta * out_at(at)" } else { "" };
        let bias = if biased { " + bias_at(n)" } else { "" };
        let mut code = format!(
            "fn a_value(z: u32, m: u32, k: u32) -> f32 {{ return a_at(z * p.az + m * p.am + k * p.ak); }}\n\
             fn b_value(z: u32, k: u32, n: u32) -> f32 {{ return b_at(z * p.bz + k * p.bk + n * p.bn); }}\n\
             fn store(z: u32, m: u32, n: u32, v: f32) {{\n    let at = z * p.oz + m * p.om + n * p.on;\n    \
             out_put(at, p.alpha * v{held}{bias});\n}}\n"
        );
        if quads[0] {
            code += "fn a_quad(z: u32, m: u32, k: u32) -> vec4<f32> { return a_at4((z * p.az + m * p.am + k * p.ak) >> 2u); }\n";
        }
        if quads[1] {
            code += "fn b_quad(z: u32, k: u32, n: u32) -> vec4<f32> { return b_at4((z * p.bz + k * p.bk + n * p.bn) >> 2u); }\n";
        }
        (slots, code)
    })
}
