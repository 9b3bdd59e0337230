//! Snapshots of PyTorch: read, written, analyzed, replayed.

use std::path::{Path, PathBuf};
use std::process::Command;

use lab_traces::replay::{Machine, Policy};
use lab_traces::snapshot::{
    Action, Document, Format, Releases, Segment, Snapshot, agreement, write_json, write_pickle,
};
use memcore::memory::BlockState;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/snapshots");

fn golden() -> Vec<PathBuf> {
    let files = std::fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path());
    let mut pickles: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "pickle")).collect();
    pickles.sort();
    assert!(pickles.len() >= 6, "{pickles:?}");
    pickles
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_string()
}

fn pickled(document: &Document) -> Vec<u8> {
    let mut out = Vec::new();
    write_pickle(document, &mut out).unwrap();
    out
}

/// A Python 3; prints a message if there is none.
fn python() -> Option<&'static str> {
    let found = ["python3", "python"].into_iter().find(|name| {
        let output = Command::new(name).args(["-c", "import sys; print(sys.version_info[0])"]).output();
        output.is_ok_and(|output| output.stdout.starts_with(b"3"))
    });
    if found.is_none() {
        eprintln!("SKIPPED: there is no python3 on this machine, so nothing was loaded by it");
    }
    found
}

const SAME: &str = "import pickle, sys, json
one, two, text = sys.argv[1:]
one, two = pickle.load(open(one, 'rb')), pickle.load(open(two, 'rb'))
assert one == two
def types(a, b):
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, dict):
        assert list(a) == list(b)
        for k in a: types(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        for x, y in zip(a, b): types(x, y)
types(one, two)
assert json.loads(json.dumps(one)) == json.load(open(text))
print('equal')
";

#[test]
fn what_is_read_and_written_is_equal_for_python() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (pickle, json) = (directory.path().join("s.pickle"), directory.path().join("s.json"));
    for path in golden() {
        let (document, format) = Document::open(&path).unwrap();
        assert_eq!(format, Format::Pickle);
        std::fs::write(&pickle, pickled(&document)).unwrap();
        let mut text = Vec::new();
        write_json(&document, &mut text).unwrap();
        std::fs::write(&json, text).unwrap();
        let output = Command::new(python).args(["-c", SAME]).args([&path, &pickle, &json]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "equal\n",
            "{path:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

const PROTOCOLS: &str = "import pickle, sys
data = pickle.load(open(sys.argv[1], 'rb'))
data['numbers'] = [0, -1, 255, 256, -129, 65535, 65536, 2**31, -2**31, 2**63, -2**64, 2**100, 1.5, -0.0, True, None, (), (1,), (1, 2, 3), (1, 2, 3, 4), 'é\\u4e2d\\U0001f600', 'x' * 70000]
data['wide'] = {str(i): i for i in range(2500)}
data['long'] = list(range(2500))
data['shared'] = [data['numbers'], data['numbers']]
for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
    pickle.dump(data, open(f'{sys.argv[2]}/{protocol}', 'wb'), protocol=protocol)
";

#[test]
fn every_protocol_reads_the_same() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = &golden()[1];
    let made =
        Command::new(python).args(["-c", PROTOCOLS]).args([source.as_path(), directory.path()]).status().unwrap();
    assert!(made.success());
    let read = |protocol: u32| Document::open(&directory.path().join(protocol.to_string())).unwrap().0;
    let second = read(2);
    assert!(Snapshot::read("again", pickled(&second).as_slice()).is_ok());
    for protocol in 3..=5 {
        let document = read(protocol);
        assert!(document.equals(&second), "protocol {protocol}");
        let ours = directory.path().join("ours");
        std::fs::write(&ours, pickled(&document)).unwrap();
        let same =
            "import pickle, sys; assert pickle.load(open(sys.argv[1],'rb')) == pickle.load(open(sys.argv[2],'rb'))";
        let same = Command::new(python).args(["-c", same]).args([directory.path().join("5"), ours]).output().unwrap();
        assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));
    }
}

#[test]
fn a_pickle_comes_back_from_json() {
    for path in golden() {
        let (document, _) = Document::open(&path).unwrap();
        let mut text = Vec::new();
        write_json(&document, &mut text).unwrap();
        let (again, format) = Document::read("json", text.as_slice()).unwrap();
        assert_eq!(format, Format::Json);
        assert!(again.equals(&document), "{path:?}");
        let (third, _) = Document::read("pickle", pickled(&again).as_slice()).unwrap();
        assert!(third.equals(&document), "{path:?}");
    }
}

/// As `_memory_viz.py` writes sizes.
fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["", "Ki", "Mi", "Gi"] {
        if size < 1024.0 {
            return format!("{size:.1}{unit}B");
        }
        size /= 1024.0;
    }
    format!("{size:.1}TiB")
}

const PAGE: u64 = 20 << 20;

/// Drawing of a segment: a character per page.
fn picture(segment: &Segment) -> String {
    let pages = (segment.bytes - 1) / PAGE + 1;
    let (mut shares, mut picture) = (vec![0.0; pages as usize], vec![' '; pages as usize]);
    let held = segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
    for (number, block) in held.enumerate() {
        let from = block.address - segment.address;
        let to = from + block.requested_bytes;
        for page in from / PAGE..(to - 1) / PAGE + 1 {
            let covered = to.min((page + 1) * PAGE) - from.max(page * PAGE);
            let page = page as usize;
            shares[page] += covered as f64 / PAGE as f64;
            picture[page] = match picture[page] {
                ' ' => char::from(b'a' + (number % 26) as u8),
                _ => char::from(b"0123456789*"[(shares[page] * 10.0) as usize]),
            };
        }
    }
    picture.into_iter().collect()
}

/// `python _memory_viz.py stats`, from our reading.
fn stats(snapshot: &Snapshot) -> Vec<String> {
    let allocated = |segment: &Segment| -> u64 {
        let held = segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
        held.map(|block| block.requested_bytes).sum()
    };
    let free = |all: u64, requested: u64, held: u64| {
        let share = if all == requested {
            String::new()
        } else {
            format!(" ({:.1}% internal)", (held - requested) as f64 / (all - requested) as f64 * 100.0)
        };
        format!("{}{share}", size(all - requested))
    };
    let mut lines = vec![format!("Summary of segments >= {} in size", size(PAGE))];
    let mut segments: Vec<&Segment> = snapshot.segments.iter().collect();
    segments.sort_by_key(|segment| (segment.bytes, segment.allocated_bytes()));
    for segment in segments.iter().filter(|segment| segment.bytes >= PAGE) {
        let free = free(segment.bytes, allocated(segment), segment.allocated_bytes());
        lines.push(format!("[{}] {} allocated, {free} free", picture(segment), size(segment.bytes)));
    }
    let sum = |of: &dyn Fn(&Segment) -> u64| snapshot.segments.iter().map(of).sum::<u64>();
    let (all, requested, held) = (sum(&|s| s.bytes), sum(&allocated), sum(&|s| s.allocated_bytes()));
    lines.push(format!("segments: {}", segments.len()));
    lines.push(format!("total_reserved: {}", size(all)));
    lines.push(format!("total_allocated: {}", size(requested)));
    lines.push(format!("total_free: {}", free(all, requested, held)));
    lines
}

#[test]
fn statistics_are_those_of_pytorch() {
    let file = std::fs::read_to_string(format!("{GOLDEN}/stats.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&file).unwrap();
    for path in golden() {
        let snapshot = Snapshot::open(&path).unwrap();
        assert_eq!(serde_json::json!(stats(&snapshot)), expected[name(&path)], "{path:?}");
        // The trace agrees with the segments: its live allocations are the allocated blocks.
        let live = snapshot.live_bytes(0).last().unwrap().1;
        assert_eq!(snapshot.totals(0).requested, live, "{path:?}");
        let last = snapshot.trace(0).iter().rfind(|event| event.action == Action::Snapshot);
        assert!(last.is_some(), "{path:?}");
        assert_eq!(snapshot.held(0).iter().map(|held| held.bytes).sum::<u64>(), live, "{path:?}");
        let peak = snapshot.peak(0);
        assert_eq!(peak.by_stack.iter().map(|held| held.bytes).sum::<u64>(), peak.bytes, "{path:?}");
    }
}

#[test]
fn recorded_settings_reproduce_the_recorded_segments() {
    for path in golden() {
        let snapshot = Snapshot::open(&path).unwrap();
        let program = snapshot.program(&name(&path), 0).unwrap();
        assert_eq!((program.before, program.gaps), (0, 0), "{path:?}");
        let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
        let machine = Machine { capacity_bytes: program.trace.settings.capacity_bytes, memory_fraction: None };
        let found = agreement(&snapshot, 0, &program, &policy, &machine).unwrap();
        assert!(found.is_exact() && found.segments > 0 && found.allocations > 50, "{path:?}: {found:?}");
        // With other settings it does not agree: the check can fail.
        let mut other = snapshot.allocator_config().unwrap();
        other.expandable_segments = !other.expandable_segments;
        let found = agreement(&snapshot, 0, &program, &Policy::Caching(Box::new(other)), &machine).unwrap();
        assert!(!found.is_exact(), "{path:?}");
    }
}

/// Some keep the traces alone. Without segments nothing says whether a replay is the recording.
#[test]
fn traces_alone_are_read_and_never_called_exact() {
    for path in golden() {
        let whole = Snapshot::open(&path).unwrap();
        let mut json = Vec::new();
        write_json(&Document::open(&path).unwrap().0, &mut json).unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        value.as_object_mut().unwrap().remove("segments").unwrap();
        let alone = Snapshot::read("f", value.to_string().as_bytes()).unwrap();
        assert!(alone.segments.is_empty() && alone.trace(0).len() == whole.trace(0).len(), "{path:?}");
        assert_eq!(alone.peak(0).bytes, whole.peak(0).bytes, "{path:?}");
        // The same of segments that contradict each other: the blocks of one do not fill it.
        let mut torn: serde_json::Value = serde_json::from_slice(&json).unwrap();
        torn["segments"][0]["total_size"] = (torn["segments"][0]["total_size"].as_u64().unwrap() + 512).into();
        let torn = Snapshot::read("f", torn.to_string().as_bytes()).unwrap();
        let why = torn.unread_segments.as_deref().unwrap();
        assert!(torn.segments.is_empty() && why.contains("the blocks of a segment of"), "{path:?}: {why}");
        assert_eq!(torn.trace(0).len(), whole.trace(0).len(), "{path:?}");
        let program = alone.program("f", 0).unwrap();
        let policy = Policy::Caching(Box::new(alone.allocator_config().unwrap()));
        let machine = Machine { capacity_bytes: program.trace.settings.capacity_bytes, memory_fraction: None };
        assert!(!agreement(&alone, 0, &program, &policy, &machine).unwrap().is_exact(), "{path:?}");
    }
}

#[test]
fn stacks_are_those_of_the_file() {
    let snapshot = Snapshot::open(Path::new(&format!("{GOLDEN}/cnn_b128_stacks.pickle"))).unwrap();
    let event = snapshot.trace(0).iter().find(|event| event.action == Action::Alloc).unwrap();
    let stack: Vec<_> =
        snapshot.stack(event.stack).map(|f| (f.name.to_string(), f.filename.to_string(), f.line)).collect();
    assert_eq!(stack[0], ("convert".into(), "site-packages/torch/nn/modules/module.py".into(), 1370));
    assert_eq!(stack[6], ("<module>".into(), "train.py".into(), 25));
    assert_eq!((stack.len(), event.bytes, event.time_us), (7, 1728, 1_795_228_432_715_758));
    assert!(
        snapshot.annotations.iter().any(|a| snapshot.text(a.name) == "Optimizer.zero_grad#Adam.zero_grad" && a.start)
    );
    let peak = snapshot.peak(0);
    assert!(peak.by_stack.iter().any(|held| snapshot.has_stack(held.stack)));
}

fn refused(bytes: &[u8]) -> String {
    Snapshot::read("f", bytes).unwrap_err().to_string()
}

#[test]
fn what_runs_code_is_refused_with_its_byte() {
    for (pickle, message) in [
        (&b"\x80\x04cos\nsystem\n(X\x02\x00\x00\x00lstR."[..], "f: byte 2: vramlab does not read GLOBAL: it runs code"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "f: byte 14: vramlab does not read STACK_GLOBAL"),
        (b"\x80\x04}R.", "f: byte 3: vramlab does not read REDUCE"),
        (b"\x80\x04}\x81.", "f: byte 3: vramlab does not read NEWOBJ"),
        (b"\x80\x05\x97.", "f: byte 2: vramlab does not read NEXT_BUFFER"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "f: byte 2: vramlab does not read BINBYTES8"),
        (b"\x80\x06}.", "f: byte 1: pickle protocol 6"),
        (b"\x80\x04\xff.", "f: byte 2: 0xff is not a pickle opcode"),
    ] {
        assert!(refused(pickle).starts_with(message), "{}", refused(pickle));
    }
}

#[test]
fn what_is_wrong_is_told_with_its_byte() {
    let deep =
        |count: usize| [b"\x80\x04".to_vec(), b"]".repeat(count), b"a".repeat(count - 1), b".".to_vec()].concat();
    let nested = |count: usize| ["{\"a\":".repeat(count), "1".into(), "}".repeat(count)].concat();
    for (bytes, message) in [
        (b"".to_vec(), "f: byte 0: neither a pickle"),
        (b"\x80\x04}".to_vec(), "f: byte 3: an opcode needs 1 bytes, but the file ends after 0"),
        (
            b"\x80\x04X\xff\xff\xff\xffabc".to_vec(),
            "f: byte 7: a text needs 4294967295 bytes, but the file ends after 3",
        ),
        (
            b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffa".to_vec(),
            "f: byte 11: a text needs 18446744073709551615 bytes",
        ),
        (
            b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00}.".to_vec(),
            "f: byte 12: the pickle ends 253 bytes before the end of its frame",
        ),
        (b"\x80\x04h\x07.".to_vec(), "f: byte 2: entry 7 of the memo was never put there"),
        (b"\x80\x04]\x94h\x00a.".to_vec(), "f: byte 2: a list contains itself"),
        (b"\x80\x04}\x94X\x01\x00\x00\x00ah\x00s.".to_vec(), "f: byte 2: a dict contains itself"),
        (b"\x80\x04}K\x01K\x02s.".to_vec(), "f: byte 7: a key that is not text but a whole number"),
        (b"\x80\x04e.".to_vec(), "f: byte 2: there is no mark"),
        (b"\x80\x04(e.".to_vec(), "f: byte 3: there is nothing to add to"),
        (b"\x80\x04](a.".to_vec(), "f: byte 4: needs 1 values on the stack"),
        (b"\x80\x04}}.".to_vec(), "f: byte 4: the pickle ends with 2 values"),
        (b"\x80\x04}.x".to_vec(), "f: byte 4: the pickle ends here, but the file goes on"),
        (b"\x80\x04}.".to_vec(), "f: byte 2: not a snapshot: it has no segments"),
        (b"\x80\x04\x8c\x01\xff.".to_vec(), "f: byte 2: a text is not UTF-8"),
        (deep(5000), "f: byte 102: containers are nested more than 100 deep"),
        (nested(200).into_bytes(), "f: byte 500: containers are nested more than 100 deep"),
        (b"{\"segments\": [".to_vec(), "f: byte 14: not JSON, or not all of it"),
        (b"{\"segments\": 01}".to_vec(), "f: byte 13: 01 is not a number"),
        (b"{\"segments\": [\"\\ud800\"]}".to_vec(), "f: byte 23: half a character"),
        (b"{\"segments\": {}}".to_vec(), "f: byte 13: segments is a dict, not a list"),
    ] {
        assert!(refused(&bytes).starts_with(message), "{message}: {}", refused(&bytes));
    }
    // A list of no segments is a snapshot of nothing, however far its place in the memo is said to be.
    assert!(Snapshot::read("f", &b"\x80\x04]r\xff\xff\xff\xff."[..]).unwrap().segments.is_empty());
}

#[test]
fn every_truncation_is_an_error() {
    let whole = std::fs::read(format!("{GOLDEN}/cnn_b128_plain.pickle")).unwrap();
    for length in (0..whole.len()).step_by(7) {
        assert!(refused(&whole[..length]).starts_with("f: byte "), "{length}");
    }
}

#[test]
fn what_doubles_at_each_step_stays_small() {
    // Forty lists, each holding the one before twice: 2^40 values if they were walked.
    let mut laughs = b"\x80\x04]\x94".to_vec();
    let mut tuples = b"\x80\x04)\x94".to_vec();
    for number in 0..40u8 {
        laughs.extend([b']', 0x94, b'h', number, b'a', b'h', number + 1, b'h', number, b'a']);
        tuples.extend([b'h', number, b'h', number, 0x86, 0x94]);
    }
    let root = b"}X\x08\x00\x00\x00segments]sX\x01\x00\x00\x00ah\x28s.";
    for laughs in [laughs, tuples] {
        // What was put together stays on the stack below; the root is what a tuple of all holds last.
        let pickle = [&laughs[..2], b"(", &laughs[2..], &root[..root.len() - 1], b"t."].concat();
        let (document, _) = Document::read("f", pickle.as_slice()).unwrap();
        assert!(pickled(&document).len() < 2000);
        let error = write_json(&document, &mut std::io::sink()).unwrap_err();
        assert!(error.to_string().contains("bytes as JSON"), "{error}");
    }
}

#[test]
fn tuning_finds_what_helps_and_holds() {
    use lab_traces::replay::{Operation, Settings, Trace};
    use lab_traces::snapshot::tune;
    use memcore::memory::AllocatorConfig;
    // Batches that grow: each tensor is a little larger than any free segment. Expandable segments were made for this.
    let mut operations = Vec::new();
    for step in 0..100u64 {
        operations.push(Operation::Allocate { bytes: (40 + 2 * step) << 20, stream: 0, pool: 0, served: true });
        operations.push(Operation::Free { allocation: step as u32 });
    }
    let trace = Trace::new("growing", Settings::default(), operations).unwrap();
    let tuned =
        tune(&trace, &AllocatorConfig::default(), &Machine::default(), Releases::default(), &mut || false).unwrap();
    assert!(tuned.best.alloc_conf.contains("expandable_segments:True"), "{tuned:?}");
    assert_eq!(tuned.overfitted, None);
    let (best, recorded) = (tuned.best.held_out.unwrap(), tuned.recorded.held_out.unwrap());
    // Held out are steps 60 to 99, on an empty allocator: 160 to 238 MiB, one after the other, or the largest alone.
    assert_eq!(recorded.peak_reserved, (60..100).map(|step| (40 + 2 * step) << 20).sum::<u64>());
    assert_eq!(tuned.lower_bound, 238 << 20);
    // The largest alone, and the rest of a page.
    assert!((tuned.lower_bound..=256 << 20).contains(&best.peak_reserved), "{best:?}");
    // If the search finds nothing better, it proposes nothing.
    let one = Trace::new("one", Settings::default(), trace.operations()[..2].to_vec()).unwrap();
    let tuned =
        tune(&one, &AllocatorConfig::default(), &Machine::default(), Releases::default(), &mut || false).unwrap();
    assert_eq!((tuned.best.alloc_conf.as_str(), &tuned.best), ("", &tuned.recorded));
}

/// A file as `torch.save` writes it: an archive whose first entry is the pickle, stored as it is, with others after it.
fn saved(pickle: &[u8], name: &str, method: u8) -> Vec<u8> {
    let (name_bytes, extra) = (name.len() as u8, 9);
    let mut file = vec![b'P', b'K', 3, 4, 0, 0, 8, 8, method, 0];
    file.extend([0; 16]);
    file.extend([name_bytes, 0, extra, 0]);
    file.extend(name.as_bytes());
    file.extend(*b"FB\x05\0ZZZZZ");
    file.extend(pickle);
    file.extend(*b"PK\x07\x08\x00\x00\x00\x00PK\x03\x04");
    file
}

#[test]
fn what_torch_save_wrote_is_read() {
    for path in golden() {
        let pickle = std::fs::read(&path).unwrap();
        let plain = Snapshot::read("f", &pickle[..]).unwrap();
        let (document, format) = Document::read("f", &saved(&pickle, "memory/data.pkl", 0)[..]).unwrap();
        assert_eq!(format, Format::Pickle);
        let found = document.into_snapshot("f").unwrap();
        assert!(found.segments == plain.segments && found.trace(0) == plain.trace(0), "{}", path.display());
    }
    let pickle = std::fs::read(&golden()[0]).unwrap();
    for (name, method) in [("memory/data.pkl", 8), ("memory/other", 0), ("data", 0)] {
        let error = Snapshot::read("f", &saved(&pickle, name, method)[..]).unwrap_err().to_string();
        assert_eq!(error, "f: byte 0: an archive that torch.save did not make", "{name}");
    }
    let whole = saved(&pickle, "memory/data.pkl", 0);
    for cut in [1, 3, 20, 29, 35, 50, pickle.len() / 2] {
        assert!(Snapshot::read("f", &whole[..cut]).is_err(), "{cut}");
    }
    // Nothing is called: weights are refused.
    let weights = b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01.";
    assert!(Snapshot::read("f", &saved(weights, "weights/data.pkl", 0)[..]).is_err());
}

#[test]
fn a_text_of_any_length_is_cut_and_converting_keeps_it() {
    let text = "é".repeat(1 << 16);
    let json = format!(
        "{{\"segments\": [], \"device_traces\": [[{{\"action\": \"alloc\", \"addr\": 512, \"size\": 512, \"stream\": 0,
        \"frames\": [{{\"filename\": \"{text}\", \"line\": 1, \"name\": \"f\"}}]}}]]}}"
    );
    let snapshot = Snapshot::read("f", json.as_bytes()).unwrap();
    let frame = snapshot.stack(snapshot.trace(0)[0].stack).next().unwrap();
    assert!(frame.filename.ends_with("é…") && frame.filename.len() < 5000, "{} bytes", frame.filename.len());
    assert!(pickled(&Document::read("f", json.as_bytes()).unwrap().0).len() > text.len());
}
