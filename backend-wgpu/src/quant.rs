//! int8 weights: symmetric, one scale per row.

use memcore::backend::kernel::{DequantizeInt8, MatmulInt8, QuantizeInt8};
use memcore::error::Result;

use crate::choice::Sizes;
use crate::element::{Elem, Slot, declare};
use crate::gemm::Gemm;
use crate::job::Context;
use crate::key::Variant;
use crate::rows::Lanes;

pub(crate) fn quantize_int8(cx: &mut Context<'_>, k: &QuantizeInt8) -> Result<()> {
    let (rows, n) = (k.x.dims()[0], k.x.dims()[1]);
    let (lanes, elem) = (Lanes::for_rows(cx, rows, n), Elem::from_dtype(k.x.dtype));
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.out).bind(&k.scale).u(rows).u(n);
    let variant = Variant::new().with(4, lanes.code()).with(4, elem.code());
    cx.run(&job, variant.key("quantize_int8"), lanes.groups(rows), || {
        let slots = [Slot::read("x", elem), Slot::write("out", Elem::I8), Slot::write("scale", Elem::F32)];
        declare(&slots, "rows: u32, n: u32")
            + &lanes.functions()
            + &lanes.fill(include_str!("quant/quantize.wgsl"), &[])
    })
}

pub(crate) fn dequantize_int8(cx: &mut Context<'_>, k: &DequantizeInt8) -> Result<()> {
    let elem = Elem::from_dtype(k.out.dtype);
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.scale).bind(&k.out).u(k.out.numel()).u(k.out.dims()[1]);
    let variant = Variant::new().with(4, elem.code());
    cx.run(&job, variant.key("dequantize_int8"), (k.out.numel() as u64).div_ceil(256), || {
        let slots = [Slot::read("x", Elem::I8), Slot::read("scale", Elem::F32), Slot::write("out", elem)];
        declare(&slots, "count: u32, n: u32") + include_str!("quant/dequantize.wgsl")
    })
}

pub(crate) fn matmul_int8(cx: &mut Context<'_>, k: &MatmulInt8) -> Result<()> {
    let (m, inner, n) = (k.x.dims()[0], k.x.dims()[1], k.weight.dims()[0]);
    let elem = Elem::from_dtype(k.x.dtype);
    let gemm = Gemm {
        name: "matmul_int8",
        variant: Variant::new().with(4, elem.code()).with(1, k.bias.is_some().into()),
        sizes: Sizes { batch: 1, m, n, k: inner },
        a_along_k: true,
        b_along_k: true,
        quads: [false; 2],
        repeats: true,
        digits: None,
    };
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.weight).bind(&k.scale).bind_opt(k.bias.as_ref()).bind(&k.out);
    gemm.run(
        cx,
        job,
        |_| {},
        "",
        || {
            let slots = vec![
                Slot::read("x", elem),
                Slot::read("weight", Elem::I8),
                Slot::read("scale", Elem::F32),
                Slot::read("bias", elem),
                Slot::write("out", elem),
            ];
            let bias = if k.bias.is_some() { " + bias_at(n)" } else { "" };
            let code = format!(
                "fn a_value(z: u32, m: u32, k: u32) -> f32 {{ return x_at(m * p.k + k); }}\n\
             fn b_value(z: u32, k: u32, n: u32) -> f32 {{ return f32(weight_at(n * p.k + k)); }}\n\
             fn store(z: u32, m: u32, n: u32, v: f32) {{ out_put(m * p.n + n, v * scale_at(n){bias}); }}\n"
            );
            (slots, code)
        },
    )
}
