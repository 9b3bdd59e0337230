//! The bytes at the ends of an upload that do not fill a word.

use memcore::backend::{Operand, Region};
use memcore::error::Result;
use memcore::{DType, Layout};

use crate::element::{Elem, Slot, declare};
use crate::job::Context;
use crate::key::Variant;

/// Writes up to three bytes, passed as parameters of a kernel: copies between buffers move only whole words.
pub(crate) fn patch(cx: &mut Context<'_>, region: Region, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let out = Operand { region, dtype: DType::U8, layout: Layout::contiguous(&[bytes.len()])? };
    let mut job = cx.job();
    job.bind(&out).u(bytes.len());
    for i in 0..3 {
        job.u(bytes.get(i).copied().unwrap_or(0).into());
    }
    cx.run(&job, Variant::new().key("patch"), 1, || {
        declare(&[Slot::write("out", Elem::B1)], "count: u32, b0: u32, b1: u32, b2: u32")
            + "@compute @workgroup_size(1)\n\
               fn main() {\n    \
                   out_put(0u, p.b0);\n    \
                   if (p.count > 1u) { out_put(1u, p.b1); }\n    \
                   if (p.count > 2u) { out_put(2u, p.b2); }\n\
               }\n"
    })
}
