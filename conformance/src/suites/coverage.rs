//! A kernel without cases is a failure; so is one that is not tried in every type and size that it takes.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::DType;
use memcore::backend::KernelCall;

use super::trial::plain_trial;
use crate::case::Case;
use crate::cases::{self, MANY};
use crate::device::Device;

/// Kernels of scalars, which have no sizes.
const SCALAR: [&str; 1] = ["update_scale"];

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let one = |&kernel: &&'static str| plain_trial(format!("coverage::{kernel}"), device, move |_| covered(kernel));
    KernelCall::NAMES.iter().map(one).collect()
}

fn covered(kernel: &str) -> Result<(), String> {
    let of_kernel: Vec<&Case> = cases::all().iter().map(Arc::as_ref).filter(|case| case.kernel == kernel).collect();
    if of_kernel.is_empty() {
        return Err(format!("kernel {kernel} has no case"));
    }
    if let Some(twin) = first_twin(&of_kernel) {
        return Err(format!("two cases are called {twin}"));
    }
    if SCALAR.contains(&kernel) {
        return Ok(());
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        if !of_kernel.iter().any(|case| case.dtype == dtype) {
            return Err(format!("kernel {kernel} has no case in {dtype}"));
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
    match missing.iter().find(|(_, present)| !present) {
        Some((what, _)) => Err(format!("kernel {kernel} has no case with {what}")),
        None => Ok(()),
    }
}

fn first_twin(of_kernel: &[&Case]) -> Option<String> {
    let mut names: Vec<String> = of_kernel.iter().map(|case| case.full_name()).collect();
    names.sort();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
}
