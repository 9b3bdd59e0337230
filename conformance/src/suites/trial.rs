//! Constructors of trials for every suite.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};

use crate::device::{Device, NAME_CASES};
use crate::execute::Verdict;

/// A trial that holds the device while it runs.
pub(super) fn trial(
    name: String,
    device: &Arc<Device>,
    run: impl Fn(&Device) -> Result<Verdict, String> + Send + 'static,
) -> Trial {
    let device = Arc::clone(device);
    let named = std::env::var_os(NAME_CASES).is_some().then(|| name.clone());
    Trial::ignorable_test(name, move || {
        let _turn = device.take_turn();
        named.iter().for_each(|name| eprintln!("case {name}"));
        match run(&device) {
            Ok(Verdict::Passed) => Ok(Completion::Completed),
            Ok(Verdict::Skipped(reason)) => Ok(Completion::ignored_with(reason)),
            Err(problem) => Err(Failed::from(problem)),
        }
    })
}

/// A trial that passes or fails.
pub(super) fn plain_trial(
    name: String,
    device: &Arc<Device>,
    run: impl Fn(&Device) -> Result<(), String> + Send + 'static,
) -> Trial {
    trial(name, device, move |device| run(device).map(|()| Verdict::Passed))
}

/// Turns a backend's error into a trial's error, with the activity in which it occurred.
pub(super) fn during<T>(what: &str, result: memcore::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}
