//! The least that a kernel call costs: bytes moved and operations done.

use super::{Access, KernelCall};

/// The least work of a call on any backend: for rooflines and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read: each input element once. A broadcast element counts once, however often it is read; of a table, only
    /// the indexed elements count.
    pub bytes_read: u64,
    /// Bytes written: each output element once.
    pub bytes_written: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
}

impl KernelCall {
    /// Returns the least that this call must read, write and compute.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost { flops: self.flops(), ..Cost::default() };
        let gathered = self.gathered();
        self.each_operand(&mut |name, access, operand| {
            // A broadcast operand has only as many elements as its layout spans.
            let mut elements = operand.numel().min(operand.layout.span()) as u64;
            if let Some((_, named)) = gathered.filter(|(table, _)| *table == name) {
                elements = elements.min(named as u64);
            }
            let bytes = elements * operand.dtype.size();
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

#[cfg(test)]
mod tests {
    use crate::backend::kernel::{Gather, NllLoss, Reduction};
    use crate::backend::{KernelCall, Operand, Region, SegmentId};
    use crate::dtype::DType;
    use crate::layout::Layout;

    fn operand(dtype: DType, dims: &[usize]) -> Operand {
        let layout = Layout::contiguous(dims).unwrap();
        let len = layout.numel() as u64 * dtype.size();
        Operand { region: Region { segment: SegmentId(0), offset: 0, len }, dtype, layout }
    }

    #[test]
    fn of_a_table_only_what_is_named_counts() {
        let (f32, i64) = (DType::F32, DType::I64);
        let gather =
            |rows| Gather { table: operand(f32, &[rows, 8]), indices: operand(i64, &[3]), out: operand(f32, &[3, 8]) };
        let read = |rows| KernelCall::from(gather(rows)).cost().bytes_read;
        assert_eq!((read(2), read(1000)), (2 * 8 * 4 + 3 * 8, 3 * 8 * 4 + 3 * 8));
        let loss = NllLoss {
            reduction: Reduction::Mean,
            ignore_index: -100,
            log_probs: operand(f32, &[16, 1000, 1]),
            target: operand(i64, &[16, 1]),
            out: operand(f32, &[]),
            total_weight: operand(f32, &[]),
        };
        assert_eq!(KernelCall::from(loss).cost().bytes_read, 16 * 4 + 16 * 8);
    }
}
