//! Operands that share memory in every allowed way, and operands that do not.
//!
//! Variants are made from the kernels' own cases: each operand in a segment of its own; one operand read twice; a
//! result that overwrites an argument, if the kernel may work in place.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::DType;
use memcore::backend::Access;

use super::trial::trial;
use crate::case::{Case, Spec};
use crate::cases;
use crate::data::Data;
use crate::device::Device;
use crate::execute::{Workspace, check};
use crate::plan::{Plan, Spread};

/// Maximum number of elements: larger cases add nothing here.
const MAX_ELEMENTS: usize = 10_000;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let mut out = Vec::new();
    let small = |case: &&Arc<Case>| case.operands.iter().all(|spec| spec.layout.numel() <= MAX_ELEMENTS);
    for case in cases::all().iter().filter(small) {
        if cases::representative(case.kernel).is_some_and(|first| Arc::ptr_eq(first, case)) {
            out.push(variant(device, "segments_apart", Arc::clone(case), Spread::Apart));
        }
        // In place with every view; read twice only for plain cases.
        let read_twice = if is_plain(case) { read_twice(case) } else { Vec::new() };
        let in_place = if case.dtype == DType::F32 || is_plain(case) { in_place(case) } else { Vec::new() };
        for twin in read_twice.into_iter().chain(in_place) {
            out.push(variant(device, "shared", Arc::new(twin), Spread::Together));
        }
    }
    out
}

/// True for a case of 32-bit or 16-bit floats whose operands are contiguous and start at the beginning of their
/// buffers.
fn is_plain(case: &Case) -> bool {
    let plain = |spec: &Spec| spec.lead == 0 && spec.layout.is_contiguous();
    matches!(case.dtype, DType::F32 | DType::BF16) && case.operands.iter().all(plain)
}

fn variant(device: &Arc<Device>, what: &str, case: Arc<Case>, spread: Spread) -> Trial {
    trial(format!("aliasing::{}::{what}", case.full_name()), device, move |device| {
        check(device.backend(), &case, spread, Workspace::AsAsked)
    })
}

/// The access of the call to each operand of the case, in the case's order; `None` for an operand that the call does
/// not use.
fn uses(case: &Case) -> (Vec<Option<Access>>, bool) {
    let plan = Plan::new(case, 1, Spread::Apart, None);
    let call = plan.prospective_call();
    let ids: Vec<_> = (0..plan.segments.len()).map(|i| memcore::backend::SegmentId(i as u32)).collect();
    let bound = plan.bind(&ids);
    let mut uses = vec![None; case.operands.len()];
    call.each_operand(&mut |_, access, operand| {
        if let Some(i) = bound.0.iter().position(|(_, o)| o.is_same_view(operand)) {
            uses[i] = Some(access);
        }
    });
    (uses, call.may_work_in_place())
}

fn same_shape(a: &Spec, b: &Spec) -> bool {
    a.dtype == b.dtype && a.layout == b.layout && a.lead == b.lead && a.layout.numel() > 0
}

/// Makes `other` the same view as `of`.
fn merged(case: &Case, other: usize, of: usize) -> Case {
    let mut operands = case.operands.clone();
    operands[other].buffer = operands[of].buffer;
    operands[other].data = Data::Poison;
    let name = format!("{}_{}_is_{}", case.name, operands[other].name, operands[of].name);
    case.with_operands(name, operands)
}

/// For each two arguments of one type and shape: the case in which they are the same operand.
fn read_twice(case: &Case) -> Vec<Case> {
    let (uses, _) = uses(case);
    let mut out = Vec::new();
    for a in 0..uses.len() {
        for b in a + 1..uses.len() {
            let both_read = uses[a] == Some(Access::Read) && uses[b] == Some(Access::Read);
            if both_read && same_shape(&case.operands[a], &case.operands[b]) {
                out.push(merged(case, b, a));
            }
        }
    }
    out
}

/// For each argument with the type and shape of a result: the case in which the kernel overwrites it.
fn in_place(case: &Case) -> Vec<Case> {
    let (uses, may_work_in_place) = uses(case);
    let mut out = Vec::new();
    for written in 0..uses.len() {
        for read in 0..uses.len() {
            let fits = may_work_in_place
                && uses[written] == Some(Access::Write)
                && uses[read] == Some(Access::Read)
                && same_shape(&case.operands[written], &case.operands[read])
                && !case.operands[read].layout.is_broadcast();
            if fits {
                out.push(merged(case, written, read));
            }
        }
    }
    out
}
