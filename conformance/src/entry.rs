//! The entry point of a backend's test.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use memcore::backend::Backend;

use crate::case::short;
use crate::cases;
use crate::device::{Device, NAME_CASES, Options};
use crate::execute::unsupported;
use crate::plan::{Plan, Spread};
use crate::suites::SUITES;

/// Environment variable with the devices whose absence is a failure, separated by commas: `REQUIRE_DEVICE=cuda,wgpu`.
pub const REQUIRE_DEVICE: &str = "REQUIRE_DEVICE";

/// True if [`REQUIRE_DEVICE`] names this device.
pub fn is_required(name: &str) -> bool {
    std::env::var(REQUIRE_DEVICE).is_ok_and(|list| list.split(',').any(|device| device.trim() == name))
}

/// Returns a device for a test of its own. Without the device the test is skipped, with a clear message.
///
/// # Panics
/// If the device is missing but [required](is_required).
pub fn or_skip<T>(name: &str, opened: Result<T, impl Display>) -> Option<T> {
    opened
        .map_err(|error| {
            assert!(!is_required(name), "{error}");
            eprintln!("*** SKIPPED: {error} ***");
        })
        .ok()
}

/// Runs every suite on the device that `open` gives, as the `main` of a `harness = false` test:
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     conformance::main("reference", || Ok::<_, memcore::Error>(conformance::Reference::default()))
/// }
/// ```
///
/// Each case is a trial of its own, `suite::kernel::type::case`, and the arguments are libtest's (a filter, `--list`,
/// `--exact`, …). `open` returns the backend (or an [`Arc`] of it), or the reason why there is no such device: then
/// that is printed clearly and the test passes, unless the environment variable [`REQUIRE_DEVICE`] names the device.
pub fn main<B: Backend + 'static, E: Display>(name: &str, open: impl FnOnce() -> Result<B, E>) -> ExitCode {
    main_with(name, Options::default(), open)
}

/// Like [`main`], with options.
pub fn main_with<B: Backend + 'static, E: Display>(
    name: &str,
    options: Options,
    open: impl FnOnce() -> Result<B, E>,
) -> ExitCode {
    let args = Arguments::from_args();
    let trials = match open().map_err(|error| error.to_string()) {
        Ok(backend) => {
            let backend: Arc<dyn Backend> = Arc::new(backend);
            if !args.list {
                announce(name, &*backend);
            }
            trials(&Device::new(backend, options))
        }
        Err(reason) => {
            let required = is_required(name);
            if !required && !args.list {
                eprintln!("\n*** SKIPPED: no device {name}: {reason}. Nothing was tested. ***");
            }
            vec![absent(name, reason, required)]
        }
    };
    libtest_mimic::run(&args, trials).exit_code()
}

/// Returns every trial for a device: all suites, or only those that need no values if it has none.
pub fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let computes = device.backend().computes();
    SUITES.iter().filter(|suite| computes || !suite.needs_values).flat_map(|suite| suite.trials(device)).collect()
}

/// Returns a single trial in place of all: the device is missing.
fn absent(name: &str, reason: String, required: bool) -> Trial {
    Trial::ignorable_test(format!("device::{name}"), move || absence(reason, required))
}

/// Ignores the trial, or fails it if the device is required.
fn absence(reason: String, required: bool) -> Result<Completion, Failed> {
    if required {
        Err(Failed::from(format!("required by {REQUIRE_DEVICE}, and absent: {reason}")))
    } else {
        Ok(Completion::ignored_with(reason))
    }
}

/// Prints the device under test, and the number of cases that the backend does not support.
fn announce(name: &str, backend: &dyn Backend) {
    eprintln!("{name}: {}", backend.device_name());
    eprintln!(
        "Should the process die: {NAME_CASES}=1 names each case as it begins; with --test-threads 1 the last one did it."
    );
    if !backend.computes() {
        return;
    }
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases::all() {
        let call = Plan::new(case, backend.limits().alignment, Spread::Together, None).prospective_call();
        if unsupported(backend, &call).is_some() {
            *missing.entry(format!("{} {}", case.kernel, short(case.dtype))).or_default() += 1;
        }
    }
    let (all, count) = (cases::all().len(), missing.values().sum::<usize>());
    eprintln!("{} of {all} kernel cases are supported", all - count);
    if count > 0 {
        let list: Vec<String> = missing.iter().map(|(what, n)| format!("{what} ({n})")).collect();
        eprintln!("{count} will be skipped: {}", list.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_device_is_ignored_unless_it_is_required() {
        let ignored = absence("no driver".into(), false);
        assert!(matches!(ignored, Ok(Completion::Ignored { reason: Some(reason) }) if reason == "no driver"));
        let Err(failed) = absence("no driver".into(), true) else { panic!("a required device may not be absent") };
        assert!(failed.message().is_some_and(|message| message.contains("no driver")));
    }
}
