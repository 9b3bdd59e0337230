//! `config.json` of transformers.
#![no_main]

use lab::huggingface::{Options, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = parse("config.json", text, &Options::default());
});
