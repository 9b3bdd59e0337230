//! Rows of a table by index, and back.

use memcore::backend::kernel::{Gather, ScatterAdd};
use memcore::error::Result;

use crate::element::{Elem, Slot, Width, declare, fill_in};
use crate::elementwise::bits_of;
use crate::job::Context;
use crate::key::Variant;

pub(crate) fn gather(cx: &mut Context<'_>, k: &Gather) -> Result<()> {
    let (rows, n, count) = (k.table.dims()[0], k.table.dims()[1], k.indices.dims()[0]);
    let elem = Elem::bits(k.out.dtype);
    let mut job = cx.job();
    job.bind(&k.table).bind(&k.indices).bind(&k.out);
    let [row_step, step] = [0, 1].map(|axis| k.table.layout.strides()[axis]);
    let together = step == 1 && row_step.is_multiple_of(4);
    let wide =
        together && n.is_multiple_of(4) && elem.size() < 8 && [0, 2].iter().all(|&i| job.first(i).is_multiple_of(4));
    let unit = if wide { 4 } else { 1 };
    let missing = bits_of(if k.out.dtype.is_float() { f64::NAN } else { 0.0 }, k.out.dtype);
    job.u(rows).u(n / unit).u(row_step / unit).u(step).u(count * n / unit).word(missing[0]).word(missing[1]);
    let variant = Variant::new().with(4, elem.code()).with(1, wide.into());
    cx.run(&job, variant.key("gather"), ((count * n / unit) as u64).div_ceil(256), || {
        let width = if wide { Width::Four } else { Width::One };
        let slots = [
            Slot::read("rows_of", elem).wide(width),
            Slot::read("indices", Elem::I64),
            Slot::write("out", elem).wide(width),
        ];
        let t = elem.wgsl();
        let four = format!("vec4<{t}>(p.missing_low)");
        let (suffix, value, missing) = match (wide, elem) {
            (true, _) => ("4", format!("vec4<{t}>"), four.as_str()),
            (false, Elem::B8) => ("", t.to_string(), "vec2<u32>(p.missing_low, p.missing_high)"),
            (false, _) => ("", t.to_string(), "p.missing_low"),
        };
        declare(&slots, "rows: u32, n: u32, row_step: u32, step: u32, count: u32, missing_low: u32, missing_high: u32")
            + &fill_in(include_str!("index/gather.wgsl"), &[("$4", suffix), ("$T", &value), ("$MISSING", missing)])
    })
}

/// Columns that a workgroup adds up.
const COLUMNS: usize = 256;

pub(crate) fn scatter_add(cx: &mut Context<'_>, k: &ScatterAdd) -> Result<()> {
    let (rows, n, count) = (k.out.dims()[0], k.out.dims()[1], k.indices.dims()[0]);
    let elem = Elem::from_dtype(k.out.dtype);
    // A workgroup for each row goes through all indices. If there are fewer indices than rows, everything is set to 0
    // first, and there is one workgroup for each index that is the first of its value.
    let by_index = count < rows;
    if by_index && !k.accumulate {
        crate::elementwise::fill(cx, &memcore::backend::kernel::Fill { value: 0.0, out: k.out })?;
    }
    let padding = k.padding_index.unwrap_or(-1);
    let chunks = n.div_ceil(COLUMNS);
    let groups = if by_index { count } else { rows };
    let mut job = cx.job();
    job.bind(&k.src).bind(&k.indices).bind(&k.out);
    job.u(rows)
        .u(n)
        .u(k.src.layout.strides()[0])
        .u(k.src.layout.strides()[1])
        .u(count)
        .u(chunks)
        .word(padding as u32)
        .word((padding >> 32) as u32);
    let variant = Variant::new().with(4, elem.code()).with(1, k.accumulate.into()).with(1, by_index.into());
    cx.run(&job, variant.key("scatter_add"), (groups * chunks) as u64, || {
        let slots = [Slot::read("src", elem), Slot::read("indices", Elem::I64), Slot::write("out", elem)];
        let held = if k.accumulate { "out_at(row * p.n + j)" } else { "0.0" };
        let texts = [("$HELD", held), ("$BY_INDEX", if by_index { "true" } else { "false" })];
        declare(
            &slots,
            "rows: u32, n: u32, row_step: u32, step: u32, count: u32, chunks: u32, padding_low: u32, padding_high: u32",
        ) + &fill_in(include_str!("index/scatter.wgsl"), &texts)
    })
}
