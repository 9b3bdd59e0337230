//! Recordings of PyTorch's allocator and of training scripts, read and run again.

use std::path::{Path, PathBuf};

use lab_traces::replay::{Machine, Observer, POLICY_NAMES, Policy, Recorder, Trace, measure, replay};
use memcore::memory::{AllocatorConfig, Block, DriverEvent};
use serde_json::Value;

fn directory(path: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().contains(".json"));
    paths.sort();
    paths
}

fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    match bytes.starts_with(&[0x1f, 0x8b]) {
        true => drop(std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).unwrap()),
        false => text = String::from_utf8(bytes).unwrap(),
    }
    serde_json::from_str(&text).unwrap()
}

/// The recorded settings and device.
fn recorded(trace: &Trace) -> (Policy, Machine) {
    let config = AllocatorConfig::parse(&trace.settings.alloc_conf).unwrap();
    let settings = &trace.settings;
    let machine = Machine { capacity_bytes: settings.capacity_bytes, memory_fraction: settings.memory_fraction };
    (Policy::Caching(Box::new(config)), machine)
}

/// The columns of a replay.
fn columns(trace: &Trace, policy: &Policy, machine: &Machine) -> Value {
    let mut recorder = Recorder::default();
    let mut opened = policy.open(trace, machine, &mut |event| recorder.driver(0, event)).unwrap();
    replay(trace, &mut *opened.allocator, &mut recorder).unwrap();
    serde_json::from_slice(&recorder.finish(&*opened.allocator)).unwrap()
}

#[test]
fn every_recorded_trace_gives_its_own_columns() {
    let paths = directory("../../memcore/tests/golden/traces");
    assert!(paths.len() >= 50, "{}", paths.len());
    for path in paths {
        let (trace, file) = (Trace::open(&path).unwrap(), json(&path));
        let (policy, machine) = recorded(&trace);
        assert_eq!(trace.operations().len() as u64, file["n_ops"], "{}", trace.name);
        let columns = columns(&trace, &policy, &machine);
        for (name, column) in columns.as_object().unwrap() {
            assert_eq!(column, &file[name], "{}: {name}", trace.name);
        }
        assert_eq!(columns.as_object().unwrap().len(), 14);
        let figures = measure(&trace, &policy, &machine).unwrap();
        assert_eq!(figures.last_message.as_deref(), file["last_oom_message"].as_str(), "{}", trace.name);
        assert_eq!(figures.newly_failed, 0, "{}", trace.name);
        let bound = trace.lower_bound().bytes;
        assert!(bound <= figures.peak_allocated && figures.peak_allocated <= figures.peak_reserved, "{}", trace.name);
    }
}

/// The events of a replay as a recorded script has them: kind, size and address relative to the first segment.
#[derive(Default)]
struct Events {
    seen: Vec<(char, u64, i64)>,
    base: u64,
}

impl Observer for Events {
    fn driver(&mut self, _operation: usize, event: DriverEvent) {
        let (kind, bytes, address) = match event {
            DriverEvent::SegmentAlloc { address, bytes, .. } => ('S', bytes, address),
            DriverEvent::SegmentFree { address, bytes, .. } => ('F', bytes, address),
            DriverEvent::Map { address, bytes, .. } => ('M', bytes, address),
            DriverEvent::Unmap { address, bytes, .. } => ('U', bytes, address),
            _ => return,
        };
        if self.seen.is_empty() {
            self.base = address;
        }
        self.seen.push((kind, bytes, (address - self.base) as i64 / 512));
    }

    fn allocated(&mut self, _operation: usize, block: Option<&Block>) {
        self.seen.push(match block {
            Some(block) => ('a', block.requested_bytes, (block.address - self.base) as i64 / 512),
            None => ('o', 0, -1),
        });
    }
}

/// `RECORDED_SCRIPTS=directory` runs those as well.
#[test]
fn every_recorded_script_gives_its_own_places() {
    let mut paths = directory("../tests/golden");
    paths.extend(std::env::var("RECORDED_SCRIPTS").iter().flat_map(|path| directory(path)));
    let mut count = 0;
    for path in paths {
        let file = json(&path);
        if file["format"] != "oracle-script-1" {
            continue;
        }
        count += 1;
        let trace = Trace::open(&path).unwrap();
        let (policy, machine) = recorded(&trace);
        let mut events = Events::default();
        let mut opened = policy.open(&trace, &machine, &mut |_| {}).unwrap();
        replay(&trace, &mut *opened.allocator, &mut events).unwrap();
        let column = |name: &str| file[name].as_array().unwrap().iter().map(|n| n.as_i64().unwrap());
        let (mut sizes, mut addresses) = (column("ev_size"), column("ev_addr512"));
        let mut expected = Vec::new();
        // Streams are not recorded: where there are two, places differ.
        if file["ev"].as_str().unwrap().contains('q') {
            continue;
        }
        for kind in file["ev"].as_str().unwrap().chars().filter(|kind| *kind != 'f') {
            let (size, address) = (sizes.next().unwrap() as u64, addresses.next().unwrap());
            match kind {
                'o' => expected.push(('o', 0, -1)),
                's' => {}
                _ => expected.push((kind, size, address)),
            }
        }
        assert_eq!(events.seen, expected, "{}", trace.name);
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn every_policy_serves_every_trace_above_the_bound() {
    for path in directory("../../memcore/tests/golden/traces") {
        let trace = Trace::open(&path).unwrap();
        let bound = trace.lower_bound();
        for name in POLICY_NAMES {
            let policy = Policy::by_name(name, &AllocatorConfig::default()).unwrap();
            // Without a limit every request succeeds.
            let figures = measure(&trace, &policy, &Machine::default()).unwrap();
            assert_eq!((figures.out_of_memory, figures.newly_failed), (0, 0), "{name}: {}", trace.name);
            assert!(figures.peak_reserved >= bound.bytes, "{name}: {}: {figures:?}", trace.name);
            if let Some(known) = figures.certificate {
                assert_eq!(known.bound_bytes, bound.bytes, "{}", trace.name);
                assert_eq!(known.bound_allocations as u64, bound.allocations, "{}", trace.name);
                assert!(known.plan_bytes >= known.bound_bytes && known.fits);
            }
        }
    }
}

fn read(text: &str) -> Result<Trace, String> {
    Trace::read("t.json", text.as_bytes()).map_err(|error| error.to_string())
}

/// A trace with these columns.
fn written(op: &str, id: &str, size: &str, more: &str) -> String {
    format!(r#"{{"format":"oracle-trace-1","name":"t","op":"{op}","id":[{id}],"size":[{size}]{more}}}"#)
}

#[test]
fn what_is_wrong_is_said_with_the_operation() {
    for (text, message) in [
        (written("af", "0,7", "512", ""), "operation 1: frees allocation 7, but only 1 were made until then"),
        (written("aff", "0,0,0", "512", ""), "operation 2: frees allocation 0, which was freed before"),
        (written("aa", "0,1", "512,-5", ""), "operation 1: size -5 is negative"),
        (written("aa", "0,1", "512,1.5", ""), "operation 1: size 1.5 is not a whole number of 64 bits"),
        (written("aa", "0,1", "512,99999999999999999999", ""), "operation 1: size 99999999999999999999 is not a whole"),
        (written("aa", "0,1", "512,null", ""), "operation 1: size null is not a whole number"),
        (written("aa", "0,1", "512", ""), "operation 1: has no size: the column ends after 1 entries"),
        (written("aa", "0", "512,512", ""), "operation 1: has no id: the column ends after 1 entries"),
        (written("aa", "0,1", "1,2,3", ""), "operation 1: column size has 3 entries, but the operations use 2"),
        (written("af", "0,-1", "1", ""), "operation 1: id -1 is negative"),
        (written("aa", "0,3", "1,1", ""), "operation 1: makes allocation 3 where 1 comes next"),
        (written("ax", "0,0", "1", ""), "operation 1: 'x' is not an operation"),
        (written("a", "0", "1", r#","seg":[]"#), "operation 0: has no segment"),
        (written("a", "0", "1", r#","stream":[70000]"#), "operation 0: stream 70000 is above 65535"),
        (written("a", "0", "1", r#","capacity":-1"#), "capacity: -1 is not a size of a device"),
        (written("a", "0", "1", r#","memory_fraction":2"#), "memory_fraction: 2 does not lie between 0 and 1"),
        (written("a", "0", "1", r#","size":[2]"#), "size: the column is there twice"),
        (written("a", "0", "1", "").replace("-1", "-9"), "format \"oracle-trace-9\" is not one of those"),
        ("{}".into(), "has no \"format\""),
        ("[1]".into(), "expected JSON value type Object but got Array"),
        (written("a", "0", "1", "") + "x", "not JSON, or not all of it"),
        (String::new(), "not JSON, or not all of it"),
        ("\u{1f}\u{8b}".into(), "not JSON, or not all of it"),
    ] {
        let seen = read(&text).unwrap_err();
        assert!(seen.starts_with("t.json: ") && seen.contains(message), "{text}\n{seen}\nnot: {message}");
    }
    assert!(Trace::read("t", &[0x1f, 0x8b, 0, 0][..]).is_err());
}

#[test]
fn a_recording_cut_anywhere_is_refused() {
    let whole = written("aaf", "0,1,0", "512,77", r#","stream":[],"seg":[0,0],"driver":{"op":[0]}"#);
    assert_eq!(read(&whole).unwrap().operations().len(), 3);
    for end in 0..whole.len() {
        let error = read(&whole[..end]).unwrap_err();
        assert!(error.contains("not JSON, or not all of it"), "{end}: {error}");
    }
    let at = whole.find("77").unwrap();
    let error = read(&whole[..at]).unwrap_err();
    assert!(error.contains("operation 1: in column size, after 1 entries"), "{error}");
}

#[test]
fn events_that_do_not_add_up_are_refused() {
    let written = |ev: &str, size: &str, freed: &str| {
        format!(r#"{{"format":"vramlab-events-1","ev":"{ev}","ev_size":[{size}],"ev_free_ref":[{freed}]}}"#)
    };
    for (ev, size, freed, message) in [
        ("Saf", "2097152,5", "1", "operation 2: frees allocation 1, but only 1 were made"),
        ("Saff", "2097152,5", "0,0", "operation 3: frees allocation 0, which was freed before"),
        ("Sa", "2097152,-5", "", "operation 1: size -5 is negative"),
        ("Saf", "2097152", "0", "operation 1: has no size"),
        ("Sa", "2097152,1,1", "", "operation 1: column ev_size has 3 entries"),
        ("Sz", "2097152,1", "", "operation 1: 'z' is not an operation"),
    ] {
        let seen = read(&written(ev, size, freed)).unwrap_err();
        assert!(seen.contains(message), "{seen}\nnot: {message}");
    }
    assert_eq!(read(&written("SaofSaF", "1,2,3,4,5,6", "0")).unwrap().operations().len(), 5);
}
