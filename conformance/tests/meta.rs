//! The suites that need no values, on the device that has none.

use std::process::ExitCode;
use std::sync::Arc;

use conformance::{Options, main_with};
use memcore::backend::Meta;

fn main() -> ExitCode {
    main_with("meta", Options { may_fill: true }, || Ok(Arc::new(Meta::default())))
}
