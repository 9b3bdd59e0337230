//! Recordings whose driver gives falling or random addresses, as cards do: each is repeated address by address, wherever its trace begins.

use std::collections::BTreeMap;

use lab_traces::replay::{Machine, Policy};
use lab_traces::snapshot::{Agreement, Snapshot, agreement, tune, what_if};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A small generator of numbers; the same seed gives the same recording.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A block of the card's allocator.
#[derive(Clone, Debug)]
struct Block {
    bytes: u64,
    requested: u64,
    used: bool,
    segment: u64,
}

/// PyTorch's rules in their plainest form, written apart from the program's own allocator: every search looks at every block.
struct Card {
    numbers: Numbers,
    falling: bool,
    next: u64,
    /// Size, stream and whether it is for small blocks, by address.
    segments: BTreeMap<u64, (u64, u64, bool)>,
    blocks: BTreeMap<u64, Block>,
    trace: Vec<Value>,
    /// Addresses of what the program holds.
    held: Vec<u64>,
}

impl Card {
    fn new(seed: u64, falling: bool) -> Self {
        Self {
            numbers: Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            falling,
            next: 0x7f21_4000_0000,
            segments: BTreeMap::new(),
            blocks: BTreeMap::new(),
            trace: Vec::new(),
            held: Vec::new(),
        }
    }

    fn note(&mut self, action: &str, address: u64, size: u64, stream: u64) {
        let time = self.trace.len() as u64 + 1;
        let frames = json!([{ "filename": "train.py", "line": time % 7 + 1, "name": "step" }]);
        self.trace.push(json!({ "action": action, "addr": address, "size": size, "stream": stream, "time_us": time, "frames": frames }));
    }

    /// An address for a segment: below all others, or anywhere.
    fn place(&mut self, bytes: u64) -> u64 {
        loop {
            let address = match self.falling {
                true => self.next - bytes.next_multiple_of(2 * MIB),
                false => 0x7e00_0000_0000 + self.numbers.below(1 << 16) * 2 * MIB,
            };
            self.next = address;
            let overlaps =
                |(&other, &(size, ..)): (&u64, &(u64, u64, bool))| other < address + bytes && address < other + size;
            if !self.segments.iter().any(overlaps) {
                return address;
            }
        }
    }

    fn allocate(&mut self, requested: u64, stream: u64) {
        let bytes = requested.max(1).next_multiple_of(512);
        let small = bytes <= MIB;
        let fits = |(_, block): &(&u64, &Block)| {
            let (_, its_stream, its_small) = self.segments[&block.segment];
            !block.used && block.bytes >= bytes && its_stream == stream && its_small == small
        };
        let best = self.blocks.iter().filter(fits).min_by_key(|(address, block)| (block.bytes, **address));
        let address = match best.map(|(address, _)| *address) {
            Some(address) => address,
            None => {
                let size = match bytes {
                    _ if small => 2 * MIB,
                    ..0xa0_0000 => 20 * MIB,
                    _ => bytes.next_multiple_of(2 * MIB),
                };
                let address = self.place(size);
                self.segments.insert(address, (size, stream, small));
                self.blocks.insert(address, Block { bytes: size, requested: 0, used: false, segment: address });
                self.note("segment_alloc", address, size, stream);
                address
            }
        };
        let block = self.blocks.get_mut(&address).unwrap();
        let rest = block.bytes - bytes;
        (block.used, block.requested) = (true, requested);
        if if small { rest >= 512 } else { rest > MIB } {
            block.bytes = bytes;
            let segment = block.segment;
            self.blocks.insert(address + bytes, Block { bytes: rest, requested: 0, used: false, segment });
        }
        self.note("alloc", address, requested, stream);
        self.held.push(address);
    }

    fn free(&mut self, address: u64) {
        let Block { requested, segment, .. } = self.blocks[&address];
        let stream = self.segments[&segment].1;
        self.note("free_requested", address, requested, stream);
        self.note("free_completed", address, requested, stream);
        self.blocks.get_mut(&address).unwrap().used = false;
        let free =
            |blocks: &BTreeMap<u64, Block>, at: u64| blocks.get(&at).is_some_and(|b| !b.used && b.segment == segment);
        let next = address + self.blocks[&address].bytes;
        if free(&self.blocks, next) {
            let more = self.blocks.remove(&next).unwrap().bytes;
            self.blocks.get_mut(&address).unwrap().bytes += more;
        }
        let before = self.blocks.range(..address).next_back().map(|(&at, _)| at);
        if let Some(before) = before.filter(|&at| free(&self.blocks, at)) {
            let more = self.blocks.remove(&address).unwrap().bytes;
            self.blocks.get_mut(&before).unwrap().bytes += more;
        }
    }

    /// `torch.cuda.empty_cache()`
    fn empty(&mut self) {
        let whole: Vec<u64> = self
            .segments
            .iter()
            .filter(|(at, (size, ..))| self.blocks.get(*at).is_some_and(|block| !block.used && block.bytes == *size))
            .map(|(&at, _)| at)
            .collect();
        for address in whole {
            let (size, stream, _) = self.segments.remove(&address).unwrap();
            self.blocks.remove(&address);
            self.note("segment_free", address, size, stream);
        }
    }

    fn run(&mut self, steps: u64) {
        let sizes = [512, 3000, 70_000, MIB, 3 * MIB, 5 * MIB + 1000, 9 * MIB, 12 * MIB, 12 * MIB, 40 * MIB];
        for _ in 0..steps {
            let more = self.held.len() < 10 || self.held.len() < 60 && self.numbers.below(2) == 0;
            if more {
                let size = sizes[self.numbers.below(sizes.len() as u64) as usize];
                let stream = if self.numbers.below(8) == 0 { 77 } else { 0 };
                self.allocate(size, stream);
            } else {
                let at = self.numbers.below(self.held.len() as u64) as usize;
                let address = self.held.swap_remove(at);
                self.free(address);
            }
            if self.numbers.below(200) == 0 {
                self.empty();
            }
        }
    }

    /// The snapshot, with the trace from an entry on.
    fn snapshot(&self, from: usize) -> Snapshot {
        let segment = |(&address, &(bytes, stream, small)): (&u64, &(u64, u64, bool))| {
            let state = |block: &Block| if block.used { "active_allocated" } else { "inactive" };
            let inside = self.blocks.range(address..address + bytes);
            let blocks: Vec<Value> = inside
                .map(|(at, b)| json!({ "address": at, "size": b.bytes, "requested_size": b.requested, "state": state(b) }))
                .collect();
            json!({ "device": 0, "address": address, "total_size": bytes, "stream": stream, "blocks": blocks,
                "segment_type": if small { "small" } else { "large" }, "segment_pool_id": [0, 0], "is_expandable": false })
        };
        let segments: Vec<Value> = self.segments.iter().map(segment).collect();
        let text = json!({ "segments": segments, "device_traces": [&self.trace[from..]] }).to_string();
        Snapshot::read("card.json", text.as_bytes()).unwrap()
    }
}

fn checked(snapshot: &Snapshot) -> Agreement {
    let program = snapshot.program("card", 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    agreement(snapshot, 0, &program, &policy, &Machine::default()).unwrap()
}

#[test]
fn every_address_of_a_card_is_repeated_wherever_the_trace_begins() {
    for seed in 1..=12 {
        for falling in [true, false] {
            let mut card = Card::new(seed, falling);
            card.run(700);
            for from in [0, 1, 150, card.trace.len() / 2, card.trace.len() - 30] {
                let found = checked(&card.snapshot(from));
                let begun = if from > 100 { found.before > 5 } else { found.allocations > 200 };
                assert!(found.is_exact() && found.resumed && begun, "{seed} {falling} {from}: {found:?}");
            }
        }
    }
}

#[test]
fn another_order_of_addresses_is_told_from_an_equal_one() {
    let mut card = Card::new(5, true);
    card.run(700);
    let snapshot = card.snapshot(0);
    let program = snapshot.program("card", 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    // Without the recorded addresses the segments lie in order of their creation, and free blocks of one size are taken in another order.
    let anew = lab_traces::snapshot::Program { trace: program.trace.clone().starting(None), ..program };
    let found = agreement(&snapshot, 0, &anew, &policy, &Machine::default()).unwrap();
    assert!(!found.is_exact() && !found.resumed && found.placed < found.allocations, "{found:?}");
}

#[test]
fn what_would_have_been_stands_on_the_recorded_beginning() {
    let mut card = Card::new(3, false);
    card.run(900);
    let snapshot = card.snapshot(card.trace.len() / 3);
    let found = what_if(&snapshot, 0, None).unwrap();
    let recorded = found.recorded.unwrap();
    assert!(found.check.is_exact() && found.tried.len() > 5, "{:?}", found.check);
    assert_eq!(recorded.cost.peak_reserved, found.check.peak_reserved.0);
    // What was reserved when the trace began stays reserved, whatever is set from there on.
    let least = snapshot.reserved_before(0);
    assert!(least > 0 && found.tried.iter().all(|tried| tried.cost.peak_reserved >= least), "{:?}", found.tried);
    let program = snapshot.program("card", 0).unwrap();
    let config = snapshot.allocator_config().unwrap();
    let tuned = tune(&program.trace, &config, &Machine::default(), snapshot.releases, &mut || false).unwrap();
    assert_eq!(tuned.recorded.whole.unwrap().peak_reserved, recorded.cost.peak_reserved);
}

#[test]
fn a_device_that_is_too_small_for_the_beginning_begins_empty() {
    let mut card = Card::new(2, true);
    card.run(300);
    let snapshot = card.snapshot(200);
    assert!(snapshot.reserved_before(0) > 20 * MIB);
    let program = snapshot.program("card", 0).unwrap();
    let policy = Policy::Caching(Box::new(snapshot.allocator_config().unwrap()));
    let machine = Machine { capacity_bytes: Some(20 * MIB), memory_fraction: None };
    let figures = lab_traces::replay::run_once(&program.trace, &policy, &machine).unwrap();
    assert!(figures.newly_failed > 0 && figures.peak_reserved <= machine.capacity_bytes.unwrap(), "{figures:?}");
}

#[test]
fn a_trace_that_contradicts_its_segments_begins_empty() {
    let mut card = Card::new(4, true);
    card.run(300);
    // A segment that the trace made is missing at the end.
    let made = |entry: &&Value| {
        entry["action"] == "segment_alloc" && card.segments.contains_key(&entry["addr"].as_u64().unwrap())
    };
    let made = card.trace.iter().rev().find(made).unwrap()["addr"].as_u64().unwrap();
    card.segments.remove(&made);
    let snapshot = card.snapshot(0);
    assert!(snapshot.program("card", 0).unwrap().trace.start.is_none());
    assert!(!checked(&snapshot).is_exact());
}

/// A snapshot that was taken after the trace had ended, and after the last of its segments had gone, as people take it who stop recording first.
#[test]
fn what_lies_in_segments_that_are_gone_is_not_called_equal() {
    let mut card = Card::new(3, true);
    card.run(700);
    assert_eq!(checked(&card.snapshot(0)).outside, 0);
    let gone = *card.segments.last_key_value().unwrap().0;
    card.segments.remove(&gone);
    card.trace.retain(|event| event["addr"] != gone || !event["action"].as_str().unwrap().starts_with("segment"));
    let found = checked(&card.snapshot(0));
    assert!(found.outside > 0 && !found.is_exact() && !found.reserved_is_equal(), "{found:?}");
}
