//! The validation that every kernel call passes before a backend sees it.

use arrayvec::ArrayVec;

use super::{Access, KernelCall, Operand};
use crate::error::{Error, Result};

/// Up to this many operands are compared pairwise, on the stack. The longer lists of multi-tensor kernels are sorted
/// first.
const MAX_PAIRWISE: usize = 16;

/// An operand of a call, with its name and access.
type Named<'call> = (&'static str, Access, &'call Operand);

/// Checks a call: shapes and types (each kernel's own rules), bounds (a region holds what its layout spans and is
/// aligned to its type), and aliasing. A written operand shares no byte with any other, except that a kernel that may
/// work in place may read the very view that it writes. No element is written twice.
///
/// # Errors
/// [`Error::InvalidCall`] with kernel, operand and problem.
pub fn validate(call: &KernelCall) -> Result<()> {
    call.check()?;
    let mut first: ArrayVec<Named, MAX_PAIRWISE> = ArrayVec::new();
    let mut all: Vec<Named> = Vec::new();
    let mut failure = None;
    call.each_operand(&mut |name, access, operand| {
        if failure.is_some() {
            return;
        }
        failure = check_bounds(call, name, access, operand).err();
        if operand.region.len == 0 {
            return;
        }
        let operand = (name, access, operand);
        if !all.is_empty() {
            all.push(operand);
        } else if first.try_push(operand).is_err() {
            all.extend(first.iter().copied().chain([operand]));
        }
    });
    let conflict = if all.is_empty() { pairwise(call, &first) } else { by_address(call, &mut all) };
    let failure = failure.or_else(|| {
        let ((name, _, operand), (other_name, _, other)) = conflict?;
        Some(invalid(call, name, format!("{:?} overlaps {other_name} {:?}", operand.region, other.region)))
    });
    failure.map_or(Ok(()), Err)
}

/// Finds the first two operands that share bytes although they may not.
fn pairwise<'call>(call: &KernelCall, operands: &[Named<'call>]) -> Option<(Named<'call>, Named<'call>)> {
    operands.iter().enumerate().find_map(|(i, &a)| {
        let other = operands[..i].iter().find(|b| conflicts(call, (a.1, a.2), (b.1, b.2)))?;
        Some((a, *other))
    })
}

/// Like [`pairwise`], for many operands: sorted by address, an operand is compared only with those that have not ended
/// where it begins.
fn by_address<'call>(call: &KernelCall, operands: &mut [Named<'call>]) -> Option<(Named<'call>, Named<'call>)> {
    operands.sort_by_key(|(_, _, o)| (o.region.segment, o.region.offset));
    let mut open: Vec<Named> = Vec::new();
    operands.iter().find_map(|&a| {
        let begins = a.2.region;
        open.retain(|(_, _, o)| o.region.segment == begins.segment && o.region.end() > begins.offset);
        let other = open.iter().find(|b| conflicts(call, (a.1, a.2), (b.1, b.2))).copied();
        open.push(a);
        other.map(|other| (a, other))
    })
}

fn check_bounds(call: &KernelCall, name: &'static str, access: Access, operand: &Operand) -> Result<()> {
    let needed = operand.layout.span() as u64 * operand.dtype.size();
    if operand.region.len < needed {
        return Err(invalid(
            call,
            name,
            format!(
                "{:?} of {} needs {needed} bytes, the region has {}",
                operand.layout, operand.dtype, operand.region.len
            ),
        ));
    }
    if !operand.region.offset.is_multiple_of(operand.dtype.size()) {
        return Err(invalid(
            call,
            name,
            format!("offset {} is not a multiple of {}'s size", operand.region.offset, operand.dtype),
        ));
    }
    if access.writes() && access != Access::Workspace && operand.layout.is_broadcast() {
        return Err(invalid(call, name, format!("{:?} would write an element twice", operand.layout)));
    }
    Ok(())
}

fn conflicts(call: &KernelCall, a: (Access, &Operand), b: (Access, &Operand)) -> bool {
    if !(a.0.writes() || b.0.writes()) || !a.1.region.overlaps(b.1.region) {
        return false;
    }
    let one_writes = a.0.writes() != b.0.writes();
    !(one_writes && call.may_work_in_place() && a.1.is_same_view(b.1))
}

fn invalid(call: &KernelCall, operand: &'static str, problem: String) -> Error {
    Error::InvalidCall { kernel: call.name(), operand, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::kernel::{SgdStep, SgdTensors};
    use crate::backend::{Region, SegmentId};
    use crate::{DType, Layout};

    /// 40 parameters and their gradients, 64 bytes each, adjacent; the last gradient begins at `last`.
    fn step(last: u64) -> KernelCall {
        let operand = |offset| Operand {
            region: Region { segment: SegmentId(0), offset, len: 64 },
            dtype: DType::F32,
            layout: Layout::contiguous(&[16]).unwrap(),
        };
        let tensors = (0..40u64).map(|i| SgdTensors {
            param: operand(i * 128),
            grad: operand(if i == 39 { last } else { i * 128 + 64 }),
            momentum: None,
        });
        SgdStep {
            tensors: tensors.collect(),
            lr: 0.1,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            first_step: false,
            found_inf: None,
        }
        .into()
    }

    #[test]
    fn the_ends_of_a_long_list_are_compared() {
        validate(&step(39 * 128 + 64)).unwrap();
        // Two overlapping gradients are not a conflict, since both are only read; a gradient inside a parameter that is
        // written is one.
        validate(&step(64)).unwrap();
        for offset in [0, 32, 128 + 60] {
            let error = validate(&step(offset)).unwrap_err().to_string();
            assert!(error.contains("overlaps"), "{error}");
        }
    }
}
