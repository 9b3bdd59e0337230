//! A memory profile may give a kernel less workspace than it asks for, more, or none: the result is the same.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::trial::trial;
use crate::cases;
use crate::device::Device;
use crate::execute::{Workspace, check};
use crate::plan::{Plan, Spread};

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let takes_workspace = |case: &&Arc<crate::Case>| {
        Plan::new(case, 1, Spread::Together, None).prospective_call().workspace_mut().is_some()
    };
    let sizes = [("absent", Workspace::Absent), ("tiny", Workspace::Bytes(16)), ("ample", Workspace::Bytes(4 << 20))];
    let mut out = Vec::new();
    for case in cases::all().iter().filter(|case| case.dtype == memcore::DType::F32).filter(takes_workspace) {
        for (name, workspace) in sizes {
            let case = Arc::clone(case);
            out.push(trial(format!("workspace::{}::{name}", case.full_name()), device, move |device| {
                check(device.backend(), &case, Spread::Together, workspace)
            }));
        }
    }
    out
}
