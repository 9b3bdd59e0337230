//! The same call gives the same bits, every time.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::DType;

use super::trial::trial;
use crate::cases;
use crate::device::Device;
use crate::execute::{Verdict, Workspace, plan, run};
use crate::plan::Spread;

/// Number of repetitions of a call.
const TIMES: usize = 3;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let one = |case: &Arc<crate::Case>| {
        let case = Arc::clone(case);
        trial(format!("determinism::{}", case.full_name()), device, move |device| {
            let plan = match plan(device.backend(), &case, Spread::Together, Workspace::AsAsked) {
                Ok(plan) => plan,
                Err(reason) => return Ok(Verdict::Skipped(reason)),
            };
            let before = plan.images();
            let first = plan.without_workspace(run(device.backend(), &plan, &before)?);
            for time in 1..TIMES {
                if plan.without_workspace(run(device.backend(), &plan, &before)?)
                    != plan.without_workspace(first.clone())
                {
                    return Err(format!("run {time} gave other bits than run 0"));
                }
            }
            Ok(Verdict::Passed)
        })
    };
    cases::all().iter().filter(|case| is_worth_repeating(case)).map(one).collect()
}

/// True for a case with enough elements for an order to matter, but not for those that are large only to test the
/// launch.
fn is_worth_repeating(case: &crate::Case) -> bool {
    let elements: usize = case.operands.iter().map(|spec| spec.layout.numel()).sum();
    case.dtype == DType::F32 && (32..4_000_000).contains(&elements)
}
