//! Layer and root-mean-square normalisation: the same kernels, with or without subtracting the mean.

use memcore::backend::Operand;
use memcore::backend::kernel::{LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare, fill_in};
use crate::job::Context;
use crate::key::Variant;
use crate::rows::{Lanes, widths};

/// Common operands of both forward kernels.
struct Forward<'a> {
    eps: f64,
    x: &'a Operand,
    weight: Option<&'a Operand>,
    bias: Option<&'a Operand>,
    out: &'a Operand,
    mean: Option<&'a Operand>,
    rstd: &'a Operand,
}

pub(crate) fn layer_norm(cx: &mut Context<'_>, k: &LayerNorm) -> Result<()> {
    let (weight, bias) = (k.weight.as_ref(), k.bias.as_ref());
    Forward { eps: k.eps, x: &k.x, weight, bias, out: &k.out, mean: Some(&k.mean), rstd: &k.rstd }.run(cx)
}

pub(crate) fn rms_norm(cx: &mut Context<'_>, k: &RmsNorm) -> Result<()> {
    let weight = k.weight.as_ref();
    Forward { eps: k.eps, x: &k.x, weight, bias: None, out: &k.out, mean: None, rstd: &k.rstd }.run(cx)
}

impl Forward<'_> {
    fn run(&self, cx: &mut Context<'_>) -> Result<()> {
        let (rows, n) = (self.x.dims()[0], self.x.dims()[1]);
        let (lanes, elem) = (Lanes::for_rows(cx, rows, n), Elem::from_dtype(self.x.dtype));
        let mut job = cx.job();
        job.bind(self.x).bind_opt(self.weight).bind_opt(self.bias).bind(self.out).bind_opt(self.mean).bind(self.rstd);
        job.u(rows).u(n).f(self.eps);
        let (weighted, biased, centred) = (self.weight.is_some(), self.bias.is_some(), self.mean.is_some());
        let variant = Variant::new().with(4, lanes.code()).with(4, elem.code());
        let variant = variant.with(1, weighted.into()).with(1, biased.into()).with(1, centred.into());
        let wide = lanes.takes_quads(n) && (0..4).all(|i| job.first(i).is_multiple_of(4));
        let variant = variant.with(1, wide.into());
        cx.run(&job, variant.key("row_norm"), lanes.groups(rows), || {
            let (width, functions, units) = widths(wide);
            let slots = [
                Slot::read("x", elem).wide(width),
                Slot::read("weight", elem).wide(width),
                Slot::read("bias", elem).wide(width),
                Slot::write("out", elem).wide(width),
                Slot::write("mean", Elem::F32),
                Slot::write("rstd", Elem::F32),
            ];
            let texts = [
                ("$CENTRED", if centred { "true" } else { "false" }),
                ("$WEIGHT", if weighted { " * weight_at$4(j)" } else { "" }),
                ("$BIAS", if biased { " + bias_at$4(j)" } else { "" }),
            ];
            declare(&slots, "rows: u32, n: u32, eps: f32")
                + functions
                + &lanes.functions()
                + &fill_in(&lanes.fill(include_str!("rows.wgsl"), &texts), &units)
        })
    }
}

/// Common operands of both gradients.
struct Backward<'a> {
    grad: &'a Operand,
    x: &'a Operand,
    mean: Option<&'a Operand>,
    rstd: &'a Operand,
    weight: Option<&'a Operand>,
    out_x: Option<&'a Operand>,
    out_weight: Option<&'a Operand>,
    out_bias: Option<&'a Operand>,
}

pub(crate) fn layer_norm_grad(cx: &mut Context<'_>, k: &LayerNormGrad) -> Result<()> {
    let kernel = Backward {
        grad: &k.grad,
        x: &k.x,
        mean: Some(&k.mean),
        rstd: &k.rstd,
        weight: k.weight.as_ref(),
        out_x: k.out_x.as_ref(),
        out_weight: k.out_weight.as_ref(),
        out_bias: k.out_bias.as_ref(),
    };
    kernel.inputs(cx)?;
    kernel.parameters(cx)
}

pub(crate) fn rms_norm_grad(cx: &mut Context<'_>, k: &RmsNormGrad) -> Result<()> {
    let kernel = Backward {
        grad: &k.grad,
        x: &k.x,
        mean: None,
        rstd: &k.rstd,
        weight: k.weight.as_ref(),
        out_x: k.out_x.as_ref(),
        out_weight: k.out_weight.as_ref(),
        out_bias: None,
    };
    kernel.inputs(cx)?;
    kernel.parameters(cx)
}

/// Columns of a workgroup that adds up rows.
const COLUMNS: u64 = 32;

impl Backward<'_> {
    /// The gradient of the input, row by row.
    fn inputs(&self, cx: &mut Context<'_>) -> Result<()> {
        let Some(out) = self.out_x else { return Ok(()) };
        let (rows, n) = (self.x.dims()[0], self.x.dims()[1]);
        let (lanes, elem) = (Lanes::for_rows(cx, rows, n), Elem::from_dtype(self.x.dtype));
        let mut job = cx.job();
        job.bind(self.grad).bind(self.x).bind_opt(self.mean).bind(self.rstd).bind_opt(self.weight).bind(out);
        job.u(rows).u(n);
        let (weighted, centred) = (self.weight.is_some(), self.mean.is_some());
        let variant = Variant::new().with(4, lanes.code()).with(4, elem.code());
        let wide = lanes.takes_quads(n) && [0, 1, 4, 5].iter().all(|&i| job.first(i).is_multiple_of(4));
        let variant = variant.with(1, weighted.into()).with(1, centred.into()).with(1, wide.into());
        cx.run(&job, variant.key("row_norm_grad"), lanes.groups(rows), || {
            let (width, functions, units) = widths(wide);
            let mut slots = self.slots(elem, width).to_vec();
            slots.push(Slot::read("weight", elem).wide(width));
            slots.push(Slot::write("out", elem).wide(width));
            let texts = [
                ("$CENTRED", if centred { "true" } else { "false" }),
                ("$WEIGHT", if weighted { " * weight_at$4(j)" } else { "" }),
            ];
            declare(&slots, "rows: u32, n: u32")
                + functions
                + &lanes.functions()
                + &fill_in(&lanes.fill(include_str!("rows_grad.wgsl"), &texts), &units)
        })
    }

    /// The gradients of weight and bias: sums of columns.
    fn parameters(&self, cx: &mut Context<'_>) -> Result<()> {
        if self.out_weight.is_none() && self.out_bias.is_none() {
            return Ok(());
        }
        let (rows, n) = (self.x.dims()[0], self.x.dims()[1]);
        let elem = Elem::from_dtype(self.x.dtype);
        let mut job = cx.job();
        job.bind(self.grad).bind(self.x).bind_opt(self.mean).bind(self.rstd);
        job.bind_opt(self.out_weight).bind_opt(self.out_bias).u(rows).u(n);
        let centred = self.mean.is_some();
        let (weight, bias) = (self.out_weight.is_some(), self.out_bias.is_some());
        let variant = Variant::new().with(4, elem.code()).with(1, centred.into());
        let wide = n.is_multiple_of(4) && [0, 1, 4, 5].iter().all(|&i| job.first(i).is_multiple_of(4));
        let variant = variant.with(1, weight.into()).with(1, bias.into()).with(1, wide.into());
        cx.run(&job, variant.key("row_norm_parameters"), (n as u64).div_ceil(COLUMNS), || {
            let (width, _, units) = widths(wide);
            let mut slots = self.slots(elem, width).to_vec();
            slots.push(Slot::write("weight", elem).wide(width));
            slots.push(Slot::write("bias", elem).wide(width));
            let texts = [
                ("$CENTRED", if centred { "true" } else { "false" }),
                ("$PUT_WEIGHT", if weight { "weight_put$4(column, w);" } else { "" }),
                ("$PUT_BIAS", if bias { "bias_put$4(column, b);" } else { "" }),
            ];
            declare(&slots, "rows: u32, n: u32") + &fill_in(&fill_in(include_str!("columns.wgsl"), &texts), &units)
        })
    }

    fn slots(&self, elem: Elem, width: Width) -> [Slot; 4] {
        let [mean, rstd] = ["mean", "rstd"].map(|name| Slot::read(name, Elem::F32));
        [Slot::read("grad", elem).wide(width), Slot::read("x", elem).wide(width), mean, rstd]
    }
}
