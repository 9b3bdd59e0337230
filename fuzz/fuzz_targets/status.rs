//! What a running training says of itself, in a file that any process of the user's may write: read, and shown by `vramlab monitor`.
#![no_main]

use lab::report::{Part, html};
use lab::results::{Findings, MonitorResult, RunStatus};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(runs) = serde_json::from_slice::<Vec<RunStatus>>(bytes) else { return };
    let seen = MonitorResult { devices: Vec::new(), runs, watched: Vec::new() };
    let sections = seen.sections();
    let _ = html(&[Part::Sections { title: "Monitor", sections: &sections, recording: None }]);
    let _ = seen.to_json();
});
