//! Snapshots: pickles and JSON. What is read is written, read again, and looked at.
#![no_main]

use lab::snapshot::{Document, write_pickle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((document, _)) = Document::read("f", bytes) else { return };
    let mut out = Vec::new();
    if write_pickle(&document, &mut out).is_ok() {
        let (again, _) = Document::read("again", out.as_slice()).expect("what is written is read");
        assert!(again.equals(&document));
    }
    let Ok(snapshot) = document.into_snapshot("f") else { return };
    for device in 0..snapshot.devices().min(4) {
        let _ = (snapshot.totals(device), snapshot.peak(device), snapshot.leftovers(device));
        let _ = snapshot.program("f", device);
    }
});
