//! What `vramlab report` reads: results, recordings, snapshots. What is read becomes a page.
#![no_main]

use lab::report::{Part, html, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match read::read("f", bytes) {
        Ok(read::Source::Results(results)) => {
            let parts: Vec<Part<'_>> = results.iter().map(|result| Part::Result { result, recording: None }).collect();
            let _ = html(&parts);
        }
        Ok(read::Source::Recording(recording)) => {
            let _ = html(&[Part::Recording(&recording)]);
        }
        Err(_) => {}
    }
});
