//! `--config FILE.toml`: flags of a command from a file of the user's.
#![no_main]

use std::ffi::OsString;
use std::io::Write;

use cli::BACKENDS;
use libfuzzer_sys::fuzz_target;

/// Commands whose flags differ most.
const COMMANDS: [&str; 4] = ["predict", "train", "fit", "check"];

fuzz_target!(|bytes: &[u8]| {
    let [which, text @ ..] = bytes else { return };
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(text).is_err() {
        return;
    }
    let command = COMMANDS[usize::from(*which) % COMMANDS.len()];
    let words = ["vramlab", command, "--config"].map(OsString::from).into_iter().chain([file.path().into()]);
    let _ = cli::understands(words.collect(), BACKENDS);
});
