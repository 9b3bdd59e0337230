//! What `DistributedDataParallel` sends from the first rank to the others: parameters and buffers when it is made, and buffers before a forward pass
//! (`torch/nn/parallel/distributed.py`, `torch/csrc/distributed/c10d/comm.cpp` and `reducer.cpp`, torch 2.11).
//!
//! Tensors of one type are copied into one flat tensor, up to a limit, and two of these are under way at a time. Bytes that are sent are not counted here:
//! in a step they are those of a few buffers.

use std::collections::VecDeque;

use memcore::memory::Category;
use memcore::{Array, DType, Device, Result, context};

/// Limit of a flat tensor: `broadcast_bucket_size`.
const LIMIT_BYTES: u64 = 250 << 20;
/// Flat tensors under way at a time.
const UNDER_WAY: usize = 2;

/// Number of values and type of each tensor, in the order of the module.
pub(super) type Tensors = Vec<(usize, DType)>;

/// Tensors that are sent together.
struct Group {
    first: usize,
    tensors: usize,
    values: usize,
    dtype: DType,
}

/// Groups tensors by type, each group up to the limit that its last tensor reaches; in the order of their first tensors.
fn groups(tensors: &[(usize, DType)], limit: u64) -> Vec<Group> {
    let (mut closed, mut open): (Vec<Group>, Vec<Group>) = (Vec::new(), Vec::new());
    for (index, &(values, dtype)) in tensors.iter().enumerate() {
        let at = open.iter().position(|group| group.dtype == dtype).unwrap_or_else(|| {
            open.push(Group { first: index, tensors: 0, values: 0, dtype });
            open.len() - 1
        });
        open[at].tensors += 1;
        open[at].values += values;
        if open[at].values as u64 * dtype.size() >= limit {
            closed.push(open.remove(at));
        }
    }
    closed.extend(open);
    closed.sort_by_key(|group| group.first);
    closed
}

/// Sends tensors. A tensor that is alone in its group is sent from where it is.
///
/// # Errors
/// Those of the device.
pub(super) fn broadcast(device: &Device, tensors: &[(usize, DType)]) -> Result<()> {
    let _op = context::op("broadcast");
    let mut under_way: VecDeque<Option<Array>> = VecDeque::new();
    for Group { tensors, values, dtype, .. } in groups(tensors, LIMIT_BYTES) {
        if under_way.len() >= UNDER_WAY {
            under_way.pop_front();
        }
        let flat = (tensors > 1).then(|| Array::empty_as(device, &[values], dtype, Category::Workspace));
        under_way.push_back(flat.transpose()?);
    }
    while under_way.pop_front().is_some() {}
    Ok(())
}

/// Sends everything when the network is wrapped: first the number of parameters and their shapes, which all ranks compare.
///
/// # Errors
/// Those of the device.
pub(super) fn at_start(device: &Device, ranks: usize, dimensions: usize, tensors: &[(usize, DType)]) -> Result<()> {
    let op = context::op("verify");
    let numbers = |count: usize| Array::empty_as(device, &[count], DType::I64, Category::Workspace);
    let counts: Vec<Array> = (0..=ranks).map(|_| numbers(1)).collect::<Result<_>>()?;
    // Sizes and strides of each parameter.
    drop(numbers(2 * dimensions)?);
    drop(counts);
    drop(op);
    broadcast(device, tensors)
}

/// Sends the order of new buckets, which is the first rank's: an index for each parameter, and the size of each bucket.
///
/// # Errors
/// Those of the device.
pub(super) fn order(device: &Device, parameters: usize, buckets: usize) -> Result<()> {
    let _op = context::op("bucket");
    let numbers = |count: usize| Array::empty_as(device, &[count], DType::I32, Category::Workspace);
    let (_indices, _sizes) = (numbers(parameters + 1)?, numbers(buckets)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_one_type_are_sent_together_up_to_the_limit() {
        let tensors = [(4, DType::F32), (1, DType::I64), (4, DType::F32), (1, DType::F32), (2, DType::I64)];
        let found: Vec<_> =
            groups(&tensors, 32).iter().map(|group| (group.first, group.tensors, group.values)).collect();
        assert_eq!(found, [(0, 2, 8), (1, 2, 3), (3, 1, 1)]);
        assert!(groups(&[], 32).is_empty());
    }
}
