//! Lock files. What is read is written, and read again as the same.
#![no_main]

use lab::lock::{Comparison, Lock, Tolerance};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(lock) = Lock::read(text) else { return };
    let again = Lock::read(&lock.text().expect("a lock has a text")).expect("what is written is read");
    assert!(again == lock);
    for (before, now) in lock.runs.values().zip(lock.runs.values().rev()) {
        let _ = Comparison::new(before, now, Tolerance::Percent(1.0)).grown();
    }
});
