//! Softmax and log-softmax over rows or columns, and their gradients.

use memcore::backend::Operand;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};
use memcore::error::Result;

use crate::element::{Elem, Slot, declare};
use crate::job::{Context, Job};
use crate::key::Variant;
use crate::rows::{Lanes, widths};

/// The groups of an operand `[outer, n, inner]`.
struct Groups {
    count: usize,
    n: usize,
    inner: usize,
    lanes: Lanes,
}

impl Groups {
    fn for_operand(cx: &Context<'_>, x: &Operand) -> Groups {
        let [outer, n, inner] = [x.dims()[0], x.dims()[1], x.dims()[2]];
        let count = outer * inner;
        let lanes = if inner == 1 { Lanes::for_rows(cx, count, n) } else { Lanes::of_columns(cx, count, n) };
        Groups { count, n, inner, lanes }
    }

    /// Variant of a kernel's source.
    fn variant(&self, wide: bool) -> Variant {
        Variant::new().with(4, self.lanes.code()).with(1, (self.inner > 1).into()).with(1, wide.into())
    }

    /// True if threads take four elements of a row at once; the job's first operands all have the length of a row.
    fn is_wide(&self, job: &Job, operands: usize) -> bool {
        self.inner == 1 && self.lanes.takes_quads(self.n) && (0..operands).all(|i| job.first(i).is_multiple_of(4))
    }

    /// Fills a template. `$BASE` in it is the first element of group `row`, `$J` the offset of its element `j` from
    /// that.
    fn fill(&self, wide: bool, slots: &[Slot], template: &str, texts: &[(&str, &str)]) -> String {
        let (width, functions, units) = widths(wide);
        let slots: Vec<Slot> = slots.iter().map(|slot| slot.wide(width)).collect();
        let (base, j) = match self.inner {
            1 => ("row * p.n", "j"),
            _ => ("row / p.inner * p.n * p.inner + row % p.inner", "j * p.inner"),
        };
        let mut all = vec![("$BASE", base), ("$J", j)];
        all.extend_from_slice(&units);
        all.extend_from_slice(texts);
        declare(&slots, "rows: u32, n: u32, inner: u32")
            + functions
            + &self.lanes.functions()
            + &self.lanes.fill(template, &all)
    }
}

pub(crate) fn softmax(cx: &mut Context<'_>, k: &Softmax) -> Result<()> {
    let (groups, x, out) = (Groups::for_operand(cx, &k.x), Elem::from_dtype(k.x.dtype), Elem::from_dtype(k.out.dtype));
    let mut job = cx.job();
    job.bind(&k.x).bind(&k.out).u(groups.count).u(groups.n).u(groups.inner);
    let wide = groups.is_wide(&job, 2);
    let variant = groups.variant(wide).with(4, x.code()).with(4, out.code()).with(1, k.log.into());
    cx.run(&job, variant.key("softmax"), groups.lanes.groups(groups.count), || {
        let value = if k.log { "x - largest - log(total)" } else { "exp(x - largest) / total" };
        let slots = [Slot::read("x", x), Slot::write("out", out)];
        groups.fill(wide, &slots, include_str!("softmax/softmax.wgsl"), &[("$VALUE", value)])
    })
}

pub(crate) fn softmax_grad(cx: &mut Context<'_>, k: &SoftmaxGrad) -> Result<()> {
    let (groups, y, out) = (Groups::for_operand(cx, &k.y), Elem::from_dtype(k.y.dtype), Elem::from_dtype(k.out.dtype));
    let mut job = cx.job();
    job.bind(&k.y).bind(&k.grad).bind(&k.out).u(groups.count).u(groups.n).u(groups.inner);
    let wide = groups.is_wide(&job, 3);
    let variant = groups.variant(wide).with(4, y.code()).with(4, out.code()).with(1, k.log.into());
    cx.run(&job, variant.key("softmax_grad"), groups.lanes.groups(groups.count), || {
        let (term, value) = if k.log { ("g", "g - exp(y) * total") } else { ("g * y", "y * (g - total)") };
        let slots = [Slot::read("y", y), Slot::read("grad", y), Slot::write("out", out)];
        groups.fill(wide, &slots, include_str!("softmax/gradient.wgsl"), &[("$TERM", term), ("$VALUE", value)])
    })
}
