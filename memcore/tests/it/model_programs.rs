//! Runs random programs that an independent model of the same specification ran, and compares every line of its output:
//! addresses, driver calls, the statistics that each operation changed, snapshots. They cover what the recordings of the real
//! allocator do not: settings changed at run time, private pools, both releases. See `golden/README.md`.
//!
//! `MODEL_PROGRAMS=file` runs a longer file (not compressed) instead.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::caching::PoolId;
use memcore::memory::{
    Allocator, AllocatorConfig, BlockId, BlockState, Caching, DriverEvent, Stat, Stream, TorchVersion,
};

/// Addresses in the programs are relative to the first segment's.
const BASE: u64 = 1 << 32;

fn log_driver(event: DriverEvent, log: &mut String) {
    let mut pages = |call: &str, address: u64, bytes: u64, page_bytes: u64| {
        for page in 0..bytes / page_bytes {
            let _ = writeln!(log, "{call}(+{},{page_bytes})", address - BASE + page * page_bytes);
        }
    };
    let _ = match event {
        DriverEvent::Map { address, bytes, page_bytes, .. } => return pages("cuMemMap", address, bytes, page_bytes),
        DriverEvent::Unmap { address, bytes, page_bytes, .. } => {
            return pages("cuMemUnmap", address, bytes, page_bytes);
        }
        DriverEvent::SegmentAlloc { address, bytes, .. } => writeln!(log, "cudaMalloc({bytes})=+{}", address - BASE),
        DriverEvent::SegmentFree { address, bytes, .. } => writeln!(log, "cudaFree(+{}) {bytes}", address - BASE),
        DriverEvent::Reserve { address, bytes, .. } => {
            writeln!(log, "cuMemAddressReserve({bytes})=+{}", address - BASE)
        }
        DriverEvent::Release { address, bytes, .. } => writeln!(log, "cuMemAddressFree(+{},{bytes})", address - BASE),
        DriverEvent::Refused { bytes } => writeln!(log, "cudaMalloc({bytes})=OOM"),
        DriverEvent::MapRefused { bytes } => writeln!(log, "cuMemCreate({bytes})=OOM"),
        DriverEvent::ExpandableUnsupported => panic!("the device has virtual memory"),
    };
}

fn log_snapshot(allocator: &Caching, log: &mut String) {
    for segment in allocator.snapshot().segments {
        let (a, b) = segment.pool_id;
        let _ = write!(
            log,
            "SEG +{} total={} alloc={} active={} req={} stream={} large={} exp={} pool={a},{b} :",
            segment.address - BASE,
            segment.total_bytes,
            segment.allocated_bytes(),
            segment.active_bytes(),
            segment.requested_bytes(),
            segment.stream.0,
            u8::from(!segment.small),
            u8::from(segment.expandable),
        );
        for block in segment.blocks {
            let state = match block.state {
                BlockState::ActiveAllocated => 'A',
                BlockState::ActivePendingFree => 'P',
                BlockState::Inactive => 'I',
            };
            let _ = write!(log, " {}/{}{state}", block.bytes, block.requested_bytes);
        }
        log.push('\n');
    }
}

/// All statistics, one word each.
fn stats(allocator: &Caching) -> Vec<String> {
    let show = |stat: &Stat| format!("{},{},{},{}", stat.current, stat.peak, stat.allocated, stat.freed());
    let stats = allocator.stats();
    let mut words: Vec<String> = Vec::new();
    for (name, array) in stats.arrays() {
        words.push(format!("{name}={}|{}|{}", show(&array.all), show(&array.small), show(&array.large)));
    }
    words.push(format!("oversize_allocations={}", show(&stats.oversize_allocations)));
    words.push(format!("oversize_segments={}", show(&stats.oversize_segments)));
    for (name, value) in [
        ("retries", stats.num_alloc_retries),
        ("ooms", stats.num_ooms),
        ("syncs", stats.num_sync_all_streams),
        ("dalloc", stats.num_device_alloc),
        ("dfree", stats.num_device_free),
        ("rej", stats.num_oom_rejections),
    ] {
        words.push(format!("{name}={value}"));
    }
    words
}

struct Program {
    allocator: Caching,
    blocks: HashMap<String, BlockId>,
    pools: HashMap<String, PoolId>,
    /// Values after the last operation.
    stats: Vec<String>,
}

impl Program {
    fn new(total_bytes: u64, version: &str) -> Self {
        let version = if version == "2.11" { TorchVersion::V2_11 } else { TorchVersion::V2_15 };
        let device = Meta::new(DeviceProfile { total_bytes, ..DeviceProfile::default() });
        let mut allocator = Caching::new(Arc::new(device), AllocatorConfig::for_version(version)).unwrap();
        allocator.hold_events();
        let stats = stats(&allocator);
        Self { allocator, blocks: HashMap::new(), pools: HashMap::new(), stats }
    }

    /// Runs one operation; returns its output.
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (mut driver, mut snapshot) = (String::new(), String::new());
        let log = &mut |event| log_driver(event, &mut driver);
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let mut result = "ok".to_string();
        let allocator = &mut self.allocator;
        match words[0] {
            "m" => match allocator.allocate(number(2), Stream(number(3) as u32), log) {
                Ok(block) => {
                    result = format!("+{} {}", block.address - BASE, block.bytes);
                    self.blocks.insert(words[1].into(), block.id);
                }
                Err(error) => {
                    assert!(error.is_out_of_memory(), "{error}");
                    result = "OOM".into();
                }
            },
            "f" => match self.blocks.remove(words[1]) {
                Some(block) => allocator.free(block, log),
                None => result = "skip".into(),
            },
            "r" => match self.blocks.get(words[1]) {
                Some(block) => allocator.record_stream(*block, Stream(number(2) as u32)),
                None => result = "skip".into(),
            },
            "S" => allocator.complete_events(),
            "e" => drop(allocator.empty_cache(log)),
            "c" => allocator.update_config(&words[1..].join(" ")).unwrap(),
            "F" => allocator.set_memory_fraction(words[1].parse().unwrap()).unwrap(),
            "R" => allocator.reset_peak_stats(),
            "A" => allocator.reset_accumulated_stats(),
            "p" => log_snapshot(allocator, &mut snapshot),
            "pool+" => {
                let id = PoolId((number(2), number(3)));
                self.pools.insert(words[1].into(), id);
                allocator.create_or_incref_pool(id);
            }
            "begin" => allocator.begin_allocate_to_pool(self.pools[words[1]]).unwrap(),
            "end" => allocator.end_allocate_to_pool(self.pools[words[1]]).unwrap(),
            "rel" => allocator.release_pool(self.pools[words[1]]).unwrap(),
            "epool" => allocator.empty_pool_cache(self.pools[words[1]], log),
            "nosplit" => allocator.set_no_split(self.pools[words[1]]).unwrap(),
            "useoom" => allocator.set_use_on_oom(self.pools[words[1]]).unwrap(),
            other => panic!("operation {other}"),
        }
        let mut out = format!("> {line} => {result}\n{driver}{snapshot}");
        let before = std::mem::replace(&mut self.stats, stats(&self.allocator));
        let changed = self.stats.iter().zip(&before).filter(|(now, before)| now != before);
        out.push_str("ST");
        changed.for_each(|(now, _)| out.extend([" ", now]));
        out.push('\n');
        out
    }
}

fn programs() -> String {
    if let Ok(path) = std::env::var("MODEL_PROGRAMS") {
        return std::fs::read_to_string(path).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/model_programs.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_program_runs_as_in_the_model() {
    let text = programs();
    let mut count = 0;
    for program in text.split("# ").skip(1) {
        let (head, body) = program.split_once('\n').unwrap();
        let head: Vec<&str> = head.split_whitespace().collect();
        let mut run = Program::new(head[1].parse().unwrap(), head[2]);
        for step in format!("\n{body}").split("\n> ").skip(1) {
            let line = step.split_once(" => ").unwrap().0;
            let seen = run.run(line);
            assert!(
                seen[2..].trim_end() == step.trim_end(),
                "program {}: {line}\nexpected:\n{step}\nseen:\n{seen}",
                head[0]
            );
            run.allocator.check_invariants().unwrap_or_else(|text| panic!("program {}: {line}: {text}", head[0]));
        }
        count += 1;
    }
    assert!(count >= 40, "{count} programs");
}
