//! The suites on the reference itself: guards, aliasing, coverage and the rest must hold for the code with which all
//! others are compared. Its kernels' results are tested in their own files, against expected values written by hand.

use std::process::ExitCode;

use conformance::{Options, Reference, main_with};

fn main() -> ExitCode {
    // Small enough to be filled.
    main_with("reference", Options { may_fill: true }, || Ok::<_, memcore::Error>(Reference::new(512 << 20)))
}
