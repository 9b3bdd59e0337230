//! Model files.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = lab::model_file::parse("f", text);
});
