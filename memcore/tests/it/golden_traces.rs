//! Replays recordings of the real allocator and compares every column; see `golden/README.md`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::{
    Allocator, AllocatorConfig, Block, BlockState, Caching, DriverEvent, Ledger, OutOfMemory, Stream, TorchVersion,
};
use serde_json::Value;

const MIB2: u64 = 2 << 20;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

fn read(path: &Path) -> Value {
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn allocator(capacity: u64, settings: &str) -> (Arc<Meta>, Caching) {
    let device = Arc::new(Meta::new(DeviceProfile { total_bytes: capacity, ..DeviceProfile::default() }));
    let allocator = Caching::new(device.clone(), AllocatorConfig::parse(settings).unwrap()).unwrap();
    (device, allocator)
}

/// A driver call as the recordings write it: kind, address (-1: none) and size.
type Call = (char, i64, u64);

/// Writes an event as the driver calls that it stands for: pages are mapped and unmapped one by one.
fn calls(event: DriverEvent, out: &mut Vec<Call>) {
    let mut pages = |kind, address: u64, bytes: u64, page_bytes: u64| {
        out.extend((0..bytes / page_bytes).map(|page| (kind, (address + page * page_bytes) as i64, page_bytes)));
    };
    match event {
        DriverEvent::Map { address, bytes, page_bytes, .. } => pages('m', address, bytes, page_bytes),
        DriverEvent::Unmap { address, bytes, page_bytes, .. } => pages('u', address, bytes, page_bytes),
        DriverEvent::SegmentAlloc { address, bytes, .. } => out.push(('M', address as i64, bytes)),
        DriverEvent::SegmentFree { address, bytes, .. } => out.push(('F', address as i64, bytes)),
        DriverEvent::Reserve { address, bytes, .. } => out.push(('V', address as i64, bytes)),
        DriverEvent::Release { address, bytes, .. } => out.push(('D', address as i64, bytes)),
        DriverEvent::Refused { bytes } => out.push(('X', -1, bytes)),
        DriverEvent::MapRefused { bytes } => out.push(('C', -1, bytes)),
        DriverEvent::ExpandableUnsupported => panic!("the device has virtual memory"),
    }
}

/// The columns of statistics, in units as recorded.
fn columns(allocator: &Caching) -> [(&'static str, u64); 10] {
    let stats = allocator.stats();
    [
        ("d_alloc512", stats.allocated_bytes.all.current / 512),
        ("d_active512", stats.active_bytes.all.current / 512),
        ("d_isplit512", stats.inactive_split_bytes.all.current / 512),
        ("d_resv2m", stats.reserved_bytes.all.current / MIB2),
        ("d_req", stats.requested_bytes.all.current),
        ("d_retries", stats.num_alloc_retries),
        ("d_ooms", stats.num_ooms),
        ("d_nseg", stats.segment.all.current),
        ("d_peak512", stats.allocated_bytes.all.peak / 512),
        ("d_rpeak2m", stats.reserved_bytes.all.peak / MIB2),
    ]
}

/// One recording being replayed.
struct Replay<'a> {
    trace: &'a Value,
    device: Arc<Meta>,
    allocator: Caching,
    /// The block of each allocation, in order of allocation; `None`: it failed.
    blocks: Vec<Option<Block>>,
    /// First address and end of each segment, in order of creation.
    segments: Vec<(u64, u64)>,
    calls: Vec<(usize, Call)>,
    streams: std::vec::IntoIter<i64>,
    last_oom_message: Option<String>,
}

impl Replay<'_> {
    fn with_driver<R>(&mut self, op: usize, run: impl FnOnce(&mut Caching, &mut dyn FnMut(DriverEvent)) -> R) -> R {
        let mut seen = Vec::new();
        let result = run(&mut self.allocator, &mut |event| calls(event, &mut seen));
        for call in seen {
            if let ('M' | 'V', address, bytes) = call {
                self.segments.push((address as u64, address as u64 + bytes));
            }
            self.calls.push((op, call));
        }
        result
    }

    fn step(&mut self, op: usize, kind: char, id: usize) {
        let mut stream = || Stream(self.streams.next().unwrap_or(0) as u32);
        match kind {
            'a' => {
                let stream = stream();
                let bytes = self.trace["size"][id].as_u64().unwrap();
                let result = self.with_driver(op, |allocator, driver| allocator.allocate(bytes, stream, driver));
                if let Err(error) = &result {
                    assert!(error.is_out_of_memory(), "{error}");
                    let report = OutOfMemory::new(bytes, &self.allocator, &Ledger::new(), &*self.device);
                    let expandable = self.allocator.config().expandable_segments;
                    self.last_oom_message = Some(report.torch_message(0, TorchVersion::V2_11, expandable));
                }
                self.blocks.push(result.ok());
            }
            'f' => {
                if let Some(block) = self.blocks[id] {
                    self.with_driver(op, |allocator, driver| allocator.free(block.id, driver));
                }
            }
            'r' => {
                let stream = stream();
                let block = self.blocks[id].expect("a stream is recorded on a live block");
                self.allocator.record_stream(block.id, stream);
            }
            'e' => {
                self.with_driver(op, |allocator, driver| allocator.empty_cache(driver));
            }
            'p' => self.allocator.reset_peak_stats(),
            'h' => self.allocator.hold_events(),
            'd' => self.allocator.complete_events(),
            other => panic!("operation {other}"),
        }
    }

    /// Recorded address of the k-th allocation.
    fn place(&self, k: usize) -> (i64, i64) {
        let Some(block) = &self.blocks[k] else { return (-1, -1) };
        let holds = |&(from, to): &(u64, u64)| from <= block.address && block.address < to;
        let segment = self.segments.iter().position(holds).unwrap();
        (segment as i64, ((block.address - self.segments[segment].0) / 512) as i64)
    }
}

fn replay(path: &Path) {
    let trace = read(path);
    let name = trace["name"].as_str().unwrap();
    assert_eq!(trace["format"], "oracle-trace-1");
    let (device, mut allocator) = allocator(trace["capacity"].as_u64().unwrap(), trace["alloc_conf"].as_str().unwrap());
    if let Some(fraction) = trace["memory_fraction"].as_f64() {
        allocator.set_memory_fraction(fraction).unwrap();
    }
    let streams = numbers(&trace["stream"]).into_iter();
    let mut replay = Replay {
        trace: &trace,
        device,
        allocator,
        blocks: Vec::new(),
        segments: Vec::new(),
        calls: Vec::new(),
        streams,
        last_oom_message: None,
    };
    let ids = numbers(&trace["id"]);
    let deltas = columns(&replay.allocator).map(|(column, _)| numbers(&trace[column]));
    let (segs, offs) = (numbers(&trace["seg"]), numbers(&trace["off512"]));
    let mut expected = [0i64; 10];
    for (op, kind) in trace["op"].as_str().unwrap().chars().enumerate() {
        replay.step(op, kind, ids[op] as usize);
        if kind == 'a' {
            let k = replay.blocks.len() - 1;
            assert_eq!(replay.place(k), (segs[k], offs[k]), "{name}: op {op}: place of allocation {k}");
        }
        for (at, (column, value)) in columns(&replay.allocator).into_iter().enumerate() {
            expected[at] += deltas[at].get(op).copied().unwrap_or(0);
            assert_eq!(value as i64, expected[at], "{name}: op {op} ({kind}): {column}");
        }
        if op % 16 == 0 {
            replay.allocator.check_invariants().unwrap_or_else(|text| panic!("{name}: op {op}: {text}"));
        }
    }
    replay.allocator.check_invariants().unwrap_or_else(|text| panic!("{name}: {text}"));
    check_driver(&replay, name);
    check_end(&replay, name);
}

fn check_driver(replay: &Replay<'_>, name: &str) {
    let driver = &replay.trace["driver"];
    let base = replay.segments[0].0 as i64;
    let (ops, addresses, sizes) = (numbers(&driver["op"]), numbers(&driver["addr2m"]), numbers(&driver["size2m"]));
    for (at, kind) in driver["kind"].as_str().unwrap().chars().enumerate() {
        let (op, (seen, address, bytes)) = replay.calls.get(at).copied().unwrap_or((usize::MAX, ('-', -1, 0)));
        let address = if address < 0 { -1 } else { (address - base) / MIB2 as i64 };
        let seen = (op as i64, seen, address, (bytes / MIB2) as i64);
        assert_eq!(seen, (ops[at], kind, addresses[at], sizes[at]), "{name}: driver call {at}");
    }
    assert_eq!(replay.calls.len(), ops.len(), "{name}: number of driver calls");
}

fn check_end(replay: &Replay<'_>, name: &str) {
    let base = replay.segments[0].0;
    let segments = replay.trace["final_segments"].as_array().unwrap();
    let snapshot = replay.allocator.snapshot();
    for (at, expected) in segments.iter().enumerate() {
        let segment = &snapshot.segments[at];
        let state = |state| match state {
            BlockState::Inactive => 0,
            BlockState::ActiveAllocated => 1,
            BlockState::ActivePendingFree => 2,
        };
        let blocks: Vec<_> =
            segment.blocks.iter().map(|block| vec![block.bytes, block.requested_bytes, state(block.state)]).collect();
        let seen = serde_json::json!([
            segment.address - base,
            segment.total_bytes,
            segment.stream.0,
            u8::from(!segment.small),
            u8::from(segment.expandable),
            blocks
        ]);
        assert_eq!(&seen, expected, "{name}: segment {at} at the end");
    }
    assert_eq!(snapshot.segments.len(), segments.len(), "{name}: number of segments at the end");
    assert_eq!(replay.last_oom_message.as_deref(), replay.trace["last_oom_message"].as_str(), "{name}");
    let stats = replay.allocator.stats().flatten();
    let seen: serde_json::Map<String, Value> =
        stats.into_iter().filter(|(_, value)| *value != 0).map(|(name, value)| (name, value.into())).collect();
    let mut expected = replay.trace["final_stats"].as_object().unwrap().clone();
    expected.sort_keys();
    assert_eq!(seen, expected, "{name}: statistics at the end");
}

#[test]
fn every_trace_replays_to_the_byte() {
    let mut traces: Vec<_> = std::fs::read_dir(golden("traces")).unwrap().map(|entry| entry.unwrap().path()).collect();
    traces.sort();
    assert!(traces.len() >= 50, "{} traces", traces.len());
    traces.iter().for_each(|path| replay(path));
}

#[test]
fn every_size_is_served_as_recorded() {
    for entry in read(&golden("sizes.json.gz")).as_array().unwrap() {
        let (settings, capacity) = (entry["alloc_conf"].as_str().unwrap(), entry["capacity"].as_u64().unwrap());
        for row in entry["rows"].as_array().unwrap() {
            let (_, mut allocator) = allocator(capacity, settings);
            let mut seen = Vec::new();
            let requested = row[0].as_u64().unwrap();
            allocator.allocate(requested, Stream::DEFAULT, &mut |event| calls(event, &mut seen)).unwrap();
            let stats = allocator.stats();
            let calls: Vec<_> = seen.iter().map(|(kind, _, bytes)| format!("{kind}{bytes}")).collect();
            let seen = serde_json::json!([
                requested,
                stats.allocated_bytes.all.current,
                stats.reserved_bytes.all.current,
                stats.segment.all.current,
                stats.inactive_split_bytes.all.current,
                calls.join(" ")
            ]);
            assert_eq!(&seen, row, "{settings}: {requested} bytes");
        }
    }
}
