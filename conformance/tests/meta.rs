//! The suites that need no values, on the device without values.

use std::process::ExitCode;

use conformance::{Options, main_with};
use memcore::backend::Meta;

fn main() -> ExitCode {
    main_with("meta", Options { may_fill: true }, || Ok::<_, memcore::Error>(Meta::default()))
}
