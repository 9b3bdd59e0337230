//! What a kernel call costs at least: bytes moved and operations done.

use super::{Access, KernelCall};

/// The least that a call must do, whatever the backend: for rooflines and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read: each input element once (a broadcast one as often as it is named is *not* counted again).
    pub bytes_read: u64,
    /// Bytes written: each output element once.
    pub bytes_written: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
}

impl KernelCall {
    /// The least this call must read, write and compute.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost { flops: self.flops(), ..Cost::default() };
        self.each_operand(&mut |_, access, operand| {
            // A broadcast operand is as large as what it spans.
            let bytes = operand.bytes().min(operand.layout.span() as u64 * operand.dtype.size());
            match access {
                Access::Read => cost.bytes_read += bytes,
                Access::Write => cost.bytes_written += bytes,
                Access::ReadWrite => {
                    cost.bytes_read += bytes;
                    cost.bytes_written += bytes;
                }
                Access::Workspace => {}
            }
        });
        cost
    }
}
