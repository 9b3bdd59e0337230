//! Reading and replaying a long recording takes little memory, in every layout of the file.

use std::io::{self, Read};
use std::sync::atomic::Ordering::Relaxed;

use lab_traces::replay::{Machine, Policy, Silent, Trace, replay};

use crate::alone;
use crate::counting::{LIVE, PEAK};

const OPERATIONS: u64 = 1_000_000;

/// A recording that is generated while it is read: alternating allocations and frees, with unused columns.
struct Written {
    part: u64,
    entry: u64,
    pending: Vec<u8>,
}

impl Written {
    fn next(&mut self) -> Option<()> {
        const NAMES: [&str; 5] = ["id", "size", "d_alloc512", "seg", "off512"];
        self.pending.clear();
        let columns = NAMES.len() as u64;
        if self.part == 0 {
            self.pending.extend(br#"{"format":"oracle-trace-1","op":""#);
        } else if self.part == 1 && self.entry < OPERATIONS / 2 {
            self.pending.extend(b"af");
            self.entry += 1;
            return Some(());
        } else if self.part == 1 {
            self.pending.push(b'"');
        } else if self.part < 2 + columns {
            let name = NAMES[(self.part - 2) as usize];
            let entries = if matches!(name, "id" | "d_alloc512") { OPERATIONS } else { OPERATIONS / 2 };
            if self.entry == 0 {
                self.pending.extend(format!(",\"{name}\":[").bytes());
            } else if self.entry < entries {
                self.pending.push(b',');
            }
            if self.entry < entries {
                let value = match name {
                    "id" => self.entry / 2,
                    "size" => 512 + self.entry * 7919 % (8 << 20),
                    _ => 0,
                };
                self.pending.extend(value.to_string().bytes());
                self.entry += 1;
                return Some(());
            }
            self.pending.push(b']');
        } else if self.part == 2 + columns {
            self.pending.push(b'}');
        } else {
            return None;
        }
        (self.part, self.entry) = (self.part + 1, 0);
        Some(())
    }
}

impl Read for Written {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled + 64 < buffer.len() && self.next().is_some() {
            buffer[filled..filled + self.pending.len()].copy_from_slice(&self.pending);
            filled += self.pending.len();
        }
        Ok(filled)
    }
}

#[test]
fn a_million_operations_take_less_than_a_hundred_bytes_each() {
    let _alone = alone();
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let trace = Trace::read("made", Written { part: 0, entry: 0, pending: Vec::new() }).unwrap();
    assert_eq!((trace.operations().len() as u64, trace.allocations() as u64), (OPERATIONS, OPERATIONS / 2));
    let reading = PEAK.load(Relaxed) - before;
    let kept = LIVE.load(Relaxed) - before;
    let mut opened = Policy::by_name("caching", &Default::default())
        .and_then(|policy| policy.open(&trace, &Machine::default(), &mut |_| {}))
        .unwrap();
    replay(&trace, &mut *opened.allocator, &mut Silent).unwrap();
    let running = PEAK.load(Relaxed) - before;
    let per_operation = |bytes: usize| bytes as f64 / OPERATIONS as f64;
    println!("bytes per operation: {} to read, {} kept", per_operation(reading), per_operation(kept));
    assert!(per_operation(reading.max(running)) < 100.0, "{reading} {running}");
    assert!(per_operation(kept) < 33.0, "{kept}");
}
