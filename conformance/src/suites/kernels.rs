//! Every case against the reference.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::trial::trial;
use crate::cases;
use crate::device::Device;
use crate::execute::{Workspace, check};
use crate::plan::Spread;

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let one = |case: &Arc<crate::Case>| {
        let case = Arc::clone(case);
        trial(format!("kernels::{}", case.full_name()), device, move |device| {
            check(device.backend(), &case, Spread::Together, Workspace::AsAsked)
        })
    };
    cases::all().iter().map(one).collect()
}
