//! Fails for a kernel without cases, and for one that is not tried in every type and size that it supports.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::{KernelCall, validate};
use memcore::{DType, Error};

use super::trial::plain_trial;
use crate::case::Case;
use crate::cases::{self, MANY};
use crate::device::Device;
use crate::plan::{Plan, Spread};

/// Kernels of scalars, which have no other sizes.
const SCALAR: [&str; 1] = ["update_scale"];

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let mut out = Vec::new();
    for &kernel in KernelCall::NAMES {
        out.push(plain_trial(format!("coverage::{kernel}"), device, move |_| covered(kernel)));
        out.push(plain_trial(format!("coverage::{kernel}::types"), device, move |_| covered_types(kernel)));
    }
    out.push(plain_trial("coverage::calls_as_data".into(), device, |_| told_apart()));
    out
}

/// Checks that a call is described by its kernel, operands and attributes: calls that differ in anything differ in
/// these.
fn told_apart() -> Result<(), String> {
    let mut by_told: HashMap<String, String> = HashMap::new();
    for case in cases::all() {
        let call = Plan::new(case, 512, Spread::Together, None).prospective_call();
        let (mut told, shown) = (call.name().to_string(), format!("{call:?}"));
        call.each_operand(&mut |name, _, operand| told += &format!(" {name}={operand:?}"));
        call.each_attribute(&mut |name, value| told += &format!(" {name}={value:?}"));
        if let Some(other) = by_told.insert(told, shown.clone()).filter(|other| *other != shown) {
            return Err(format!("the same by operands and attributes: {shown} and {other}"));
        }
    }
    Ok(())
}

/// The function that a call computes, if its kernel has several; scalars do not count.
fn function(call: &KernelCall) -> String {
    let op = match call {
        KernelCall::Random(k) => format!("{:?}", k.kind),
        KernelCall::Unary(k) => format!("{:?}", k.op),
        KernelCall::UnaryGrad(k) => format!("{:?}", k.op),
        KernelCall::Binary(k) => format!("{:?}", k.op),
        KernelCall::Ternary(k) => format!("{:?}", k.op),
        KernelCall::Reduce(k) => format!("{:?}", k.op),
        KernelCall::Pool2d(k) => format!("{:?}", k.op),
        KernelCall::Pool2dGrad(k) => format!("{:?}", k.op),
        _ => String::new(),
    };
    op.split(' ').next().unwrap_or_default().to_string()
}

/// The function and the types of a call. A mask may be bool or uint8.
fn combination(call: &KernelCall, dtype: DType) -> (String, DType, Vec<DType>) {
    let mut types = Vec::new();
    call.each_operand(&mut |_, _, operand| {
        types.push(if operand.dtype == DType::U8 { DType::Bool } else { operand.dtype })
    });
    (function(call), dtype, types)
}

/// Replaces the element type of each case by each other one. A type that is accepted must have a case of its own; one
/// that is refused must be refused by an error that names the kernel and a type.
fn covered_types(kernel: &str) -> Result<(), String> {
    let (mut have, mut accepted) = (HashSet::new(), HashMap::new());
    let has_its_type = |case: &Case| case.operands.iter().any(|spec| spec.dtype == case.dtype);
    for case in cases::all().iter().filter(|case| case.kernel == kernel && has_its_type(case)) {
        let call = Plan::new(case, 512, Spread::Together, None).prospective_call();
        have.insert(combination(&call, case.dtype));
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != case.dtype) {
            let mut operands = case.operands.clone();
            operands.iter_mut().filter(|spec| spec.dtype == case.dtype).for_each(|spec| spec.dtype = dtype);
            let other = case.with_operands(format!("{}_in_{dtype}", case.name), operands);
            let call = Plan::new(&other, 512, Spread::Together, None).prospective_call();
            match validate(&call) {
                Ok(()) => {
                    accepted.entry(combination(&call, dtype)).or_insert_with(|| case.full_name());
                }
                Err(Error::InvalidCall { kernel: named, problem, .. })
                    if named == kernel && DType::ALL.iter().any(|dtype| problem.contains(dtype.name())) => {}
                Err(error) => return Err(format!("{} in {dtype}: {error}", case.full_name())),
            }
        }
    }
    match accepted.iter().find(|(combination, _)| !have.contains(*combination)) {
        Some(((function, dtype, types), case)) => {
            Err(format!("{kernel} {function} accepts {types:?} and has no case in {dtype} of that kind (from {case})"))
        }
        None => Ok(()),
    }
}

fn covered(kernel: &str) -> Result<(), String> {
    let of_kernel: Vec<&Case> = cases::all().iter().map(Arc::as_ref).filter(|case| case.kernel == kernel).collect();
    if of_kernel.is_empty() {
        return Err(format!("kernel {kernel} has no case"));
    }
    if let Some(twin) = first_twin(&of_kernel) {
        return Err(format!("two cases are called {twin}"));
    }
    match (lacks(&of_kernel), SCALAR.contains(&kernel)) {
        (Some(what), false) => Err(format!("kernel {kernel} has no case {what}")),
        (None, true) => Err(format!("kernel {kernel} has every size and type: take it out of SCALAR")),
        _ => Ok(()),
    }
}

/// Returns a size or type that none of these cases has.
fn lacks(of_kernel: &[&Case]) -> Option<String> {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        if !of_kernel.iter().any(|case| case.dtype == dtype) {
            return Some(format!("in {dtype}"));
        }
    }
    let sizes = |size: &dyn Fn(&[usize]) -> bool| {
        of_kernel.iter().any(|case| case.operands.iter().any(|spec| size(spec.layout.dims())))
    };
    let missing = [
        ("an empty operand", sizes(&|dims| dims.contains(&0))),
        ("length 1", sizes(&|dims| !dims.is_empty() && dims.iter().all(|&d| d == 1))),
        ("length 257", sizes(&|dims| dims.contains(&257))),
        ("more than 65 535 rows", sizes(&|dims| dims.iter().product::<usize>() >= MANY)),
        ("an offset view", of_kernel.iter().any(|case| case.operands.iter().any(|spec| spec.lead > 0))),
    ];
    missing.iter().find(|(_, present)| !present).map(|(what, _)| format!("with {what}"))
}

fn first_twin(of_kernel: &[&Case]) -> Option<String> {
    let mut names: Vec<String> = of_kernel.iter().map(|case| case.full_name()).collect();
    names.sort();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
}
