//! The one validation that every kernel call passes before a backend sees it.

use arrayvec::ArrayVec;

use super::{Access, KernelCall, Operand};
use crate::error::{Error, Result};

/// Operands that are compared pairwise; lists of a multi-tensor kernel are longer and compared in windows.
const MAX_PAIRWISE: usize = 16;

/// Checks a call: shapes and types (each kernel's own rules), bounds (a region holds what its layout spans, aligned to
/// its type), and aliasing (a written operand shares no byte with any other, except that a kernel that may work in place may
/// read the very view that it writes; and no element is written twice).
///
/// # Errors
/// [`Error::InvalidCall`] naming kernel, operand and problem.
pub fn validate(call: &KernelCall) -> Result<()> {
    call.check()?;
    let mut operands: ArrayVec<(&'static str, Access, Operand), MAX_PAIRWISE> = ArrayVec::new();
    let mut failure = None;
    call.each_operand(&mut |name, access, operand| {
        if failure.is_some() {
            return;
        }
        failure = check_bounds(call, name, access, operand).err();
        if failure.is_some() || operand.region.len == 0 {
            return;
        }
        if operands.is_full() {
            // A list kernel: its tuples come one after the other, so a window sees each whole tuple.
            operands.remove(0);
        }
        for (other_name, other_access, other) in &operands {
            if conflicts(call, (access, operand), (*other_access, other)) {
                failure =
                    Some(invalid(call, name, format!("{:?} overlaps {other_name} {:?}", operand.region, other.region)));
                return;
            }
        }
        operands.push((name, access, *operand));
    });
    failure.map_or(Ok(()), Err)
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
