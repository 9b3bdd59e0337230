//! Batched matrix product.

use memcore::backend::Operand;
use memcore::backend::kernel::Matmul;
use memcore::error::Result;

use crate::element::{Elem, Slot};
use crate::gemm::{Gemm, Sizes};
use crate::job::{Context, Job, Variant};

/// Which of the last two strides is the smaller one: that dimension is read along.
fn runs_along(x: &Operand, axis: usize) -> bool {
    let (other, strides) = (3 - axis, x.layout.strides());
    let size_one = |axis: usize| x.dims()[axis] <= 1;
    size_one(other) || (!size_one(axis) && strides[axis] <= strides[other])
}

fn strides(job: &mut Job, x: &Operand) {
    for &stride in x.layout.strides() {
        job.u(stride);
    }
}

pub(crate) fn matmul(cx: &mut Context<'_>, k: &Matmul) -> Result<()> {
    let (batch, m, n, inner) = k.sizes();
    let elem = Elem::of(k.out.dtype);
    let (accumulates, biased) = (k.beta != 0.0, k.bias.is_some());
    let gemm = Gemm {
        name: "matmul",
        variant: Variant::new().with(4, elem.code()).with(1, accumulates.into()).with(1, biased.into()),
        sizes: Sizes { batch, m, n, k: inner },
        a_along_k: runs_along(&k.a, 2),
        b_along_k: runs_along(&k.b, 1),
    };
    let mut job = cx.job();
    job.bind(&k.a).bind(&k.b).bind_opt(k.bias.as_ref()).bind(&k.out);
    let more = |job: &mut Job| {
        job.f(k.alpha).f(k.beta);
        for x in [&k.a, &k.b, &k.out] {
            strides(job, x);
        }
    };
    let fields =
        "alpha: f32, beta: f32, az: u32, am: u32, ak: u32, bz: u32, bk: u32, bn: u32, oz: u32, om: u32, on: u32";
    gemm.run(cx, job, more, fields, || {
        let slots =
            vec![Slot::read("a", elem), Slot::read("b", elem), Slot::read("bias", elem), Slot::write("out", elem)];
        let held = if accumulates { " + p.beta * out_at(at)" } else { "" };
        let bias = if biased { " + bias_at(n)" } else { "" };
        let code = format!(
            "fn a_value(z: u32, m: u32, k: u32) -> f32 {{ return a_at(z * p.az + m * p.am + k * p.ak); }}\n\
             fn b_value(z: u32, k: u32, n: u32) -> f32 {{ return b_at(z * p.bz + k * p.bk + n * p.bn); }}\n\
             fn store(z: u32, m: u32, n: u32, v: f32) {{\n    let at = z * p.oz + m * p.om + n * p.on;\n    \
             out_put(at, p.alpha * v{held}{bias});\n}}\n"
        );
        (slots, code)
    })
}
