//! The suites on the reference itself: guards, aliasing, coverage and the rest must hold for the code that all others
//! are compared with. What its kernels compute is tested beside them, by hand-made expectations.

use std::process::ExitCode;

use conformance::{Options, Reference, main_with};

fn main() -> ExitCode {
    // Small enough to be filled.
    main_with("reference", Options { may_fill: true }, || Ok::<_, memcore::Error>(Reference::new(512 << 20)))
}
