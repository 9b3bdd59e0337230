//! Convolution and its gradients as matrix products. Kernels compute each operand's position in the images, so that no
//! patches are stored.

use memcore::backend::Operand;
use memcore::backend::kernel::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};
use memcore::error::Result;

use crate::choice::Sizes;
use crate::element::{Elem, Slot, Width, fill_in};
use crate::gemm::{Digits, Gemm};
use crate::job::{Context, Job};
use crate::key::Variant;

const FIELDS: &str = "h: u32, w: u32, oh: u32, ow: u32, kh: u32, kw: u32, channels: u32, outputs: u32, groups: u32, \
     sh: u32, sw: u32, ph: u32, pw: u32, dh: u32, dw: u32";

/// Limits of the digits of a window's place in a channel, and of a pixel of the result in an image.
const WINDOW: &str = "vec2<u32>(p.kh, p.kw)";
const RESULT: &str = "vec2<u32>(p.oh, p.ow)";

/// Strides below this one are written into the source of the input's gradient, which divides by them.
const NAMED_STRIDES: usize = 8;

/// WGSL for a stride: the number, from which compilers make shifts or products, or the parameter.
fn divisor(stride: usize, parameter: &str) -> String {
    if stride < NAMED_STRIDES { format!("{stride}u") } else { parameter.to_string() }
}

/// Sizes that all three kernels use: images, window, result.
struct Problem<'a> {
    geometry: &'a Conv2dGeometry,
    x: &'a Operand,
    weight: &'a Operand,
    y: &'a Operand,
}

impl Problem<'_> {
    fn push(&self, job: &mut Job) {
        let (x, w, y, g) = (self.x.dims(), self.weight.dims(), self.y.dims(), self.geometry);
        job.u(x[2]).u(x[3]).u(y[2]).u(y[3]).u(w[2]).u(w[3]).u(w[1]).u(w[0] / g.groups).u(g.groups);
        for pair in [g.stride, g.padding, g.dilation] {
            job.u(pair[0]).u(pair[1]);
        }
    }

    /// Number of elements of a window over all channels of a group.
    fn window(&self) -> usize {
        self.weight.dims()[1..].iter().product()
    }

    /// Number of output channels of a group.
    fn outputs(&self) -> usize {
        self.weight.dims()[0] / self.geometry.groups
    }

    fn pixels(&self) -> usize {
        self.y.dims()[2] * self.y.dims()[3]
    }

    fn gemm(
        &self,
        (name, digits): (&'static str, Digits),
        variant: Variant,
        [m, n, k]: [usize; 3],
        along_k: [bool; 2],
        a_quad: bool,
    ) -> Gemm {
        let variant = variant.with(4, Elem::from_dtype(self.x.dtype).code());
        let sizes = Sizes { batch: self.geometry.groups, m, n, k };
        Gemm {
            name,
            variant,
            sizes,
            a_along_k: along_k[0],
            b_along_k: along_k[1],
            quads: [a_quad, false],
            repeats: true,
            digits: Some(digits),
        }
    }
}

fn width(is_quad: bool) -> Width {
    if is_quad { Width::Four } else { Width::One }
}

pub(crate) fn conv2d(cx: &mut Context<'_>, k: &Conv2d) -> Result<()> {
    let problem = Problem { geometry: &k.geometry, x: &k.x, weight: &k.weight, y: &k.out };
    let sizes = [problem.outputs(), k.out.dims()[0] * problem.pixels(), problem.window()];
    let variant = Variant::new().with(1, k.bias.is_some().into());
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.weight).bind_opt(k.bias.as_ref()).bind(&k.out);
    let quads = problem.window().is_multiple_of(4) && job.first(1).is_multiple_of(4);
    let gemm =
        problem.gemm(("conv2d", Digits { k: WINDOW, n: RESULT, in_a: false }), variant, sizes, [true, false], quads);
    gemm.run(
        cx,
        job,
        |job| problem.push(job),
        FIELDS,
        || {
            let elem = Elem::from_dtype(k.x.dtype);
            let slots = vec![
                Slot::read("x", elem),
                Slot::read("weight", elem).wide(width(quads)),
                Slot::read("bias", elem),
                Slot::write("out", elem),
            ];
            let bias = if k.bias.is_some() { " + bias_at(o)" } else { "" };
            let quad = if quads { include_str!("conv/forward_quad.wgsl") } else { "" };
            (slots, include_str!("conv/forward.wgsl").replace("$BIAS", bias) + quad)
        },
    )
}

pub(crate) fn conv2d_input_grad(cx: &mut Context<'_>, k: &Conv2dInputGrad) -> Result<()> {
    let problem = Problem { geometry: &k.geometry, x: &k.out, weight: &k.weight, y: &k.grad };
    let (x, w) = (k.out.dims(), k.weight.dims());
    let sizes = [w[1], x[0] * x[2] * x[3], problem.outputs() * w[2] * w[3]];
    let digits = Digits { k: WINDOW, n: "vec2<u32>(p.h, p.w)", in_a: true };
    let [sh, sw] = k.geometry.stride.map(|stride| if stride < NAMED_STRIDES { stride as u64 } else { 0 });
    let variant = Variant::new().with(3, sh).with(3, sw);
    let gemm = problem.gemm(("conv2d_input_grad", digits), variant, sizes, [true, false], false);
    let mut job = cx.job();
    job.bind(&k.grad).bind(&k.weight).bind(&k.out);
    gemm.run(
        cx,
        job,
        |job| problem.push(job),
        FIELDS,
        || {
            let elem = Elem::from_dtype(k.out.dtype);
            let slots = vec![Slot::read("grad", elem), Slot::read("weight", elem), Slot::write("out", elem)];
            let texts =
                [("$SH", divisor(k.geometry.stride[0], "p.sh")), ("$SW", divisor(k.geometry.stride[1], "p.sw"))];
            let texts = [(texts[0].0, texts[0].1.as_str()), (texts[1].0, texts[1].1.as_str())];
            (slots, fill_in(include_str!("conv/input_grad.wgsl"), &texts))
        },
    )
}

pub(crate) fn conv2d_weight_grad(cx: &mut Context<'_>, k: &Conv2dWeightGrad) -> Result<()> {
    let problem = Problem { geometry: &k.geometry, x: &k.x, weight: &k.out, y: &k.grad };
    let sizes = [problem.outputs(), problem.window(), k.grad.dims()[0] * problem.pixels()];
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.grad).bind(&k.out);
    let quads = problem.pixels().is_multiple_of(4) && job.first(1).is_multiple_of(4);
    let gemm = problem.gemm(
        ("conv2d_weight_grad", Digits { k: RESULT, n: WINDOW, in_a: true }),
        Variant::new(),
        sizes,
        [true, true],
        quads,
    );
    gemm.run(
        cx,
        job,
        |job| problem.push(job),
        FIELDS,
        || {
            let elem = Elem::from_dtype(k.x.dtype);
            let slots =
                vec![Slot::read("x", elem), Slot::read("grad", elem).wide(width(quads)), Slot::write("out", elem)];
            let quad = if quads { include_str!("conv/weight_grad_quad.wgsl") } else { "" };
            (slots, include_str!("conv/weight_grad.wgsl").to_string() + quad)
        },
    )
}

#[cfg(test)]
mod tests {
    /// The functions that are called for each element divide by nothing that is known only at run time.
    #[test]
    fn elements_are_found_without_division() {
        let texts = [
            include_str!("conv/forward.wgsl"),
            include_str!("conv/forward_quad.wgsl"),
            include_str!("conv/input_grad.wgsl"),
            include_str!("conv/weight_grad.wgsl"),
            include_str!("conv/weight_grad_quad.wgsl"),
        ];
        for text in texts {
            let inner = text.split("fn store").next().unwrap();
            let code = inner.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                assert!(!line.contains('%') && !line.contains("/ p."), "{line}");
            }
        }
    }
}
