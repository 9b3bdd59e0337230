//! Saved states: safetensors.
#![no_main]

use lab::training::StateFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = StateFile::read("f", bytes) else { return };
    let _ = file.names();
});
