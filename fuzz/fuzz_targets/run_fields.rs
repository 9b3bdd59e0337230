//! The fields of a run, as lock files, scans that go on and other programs give them; what is understood is understood again.
#![no_main]

use lab::run::RunSpec;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|bytes: &[u8]| {
    let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    if let Ok(spec) = RunSpec::of_fields(&fields) {
        let again = RunSpec::of_fields(&spec.fields());
        assert!(again.is_ok_and(|again| again == spec), "{:?}", spec.fields());
        let _ = spec.check();
    }
});
