//! Invariants of the caching allocator after every operation of random programs with random settings; on a device that
//! refuses any call; and from several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memcore::backend::{DeviceMemory, DeviceProfile, Faulty, FaultyCall, Meta};
use memcore::memory::{
    Allocator, AllocatorConfig, Block, BlockState, Caching, DriverEvent, Snapshot, Stat, Stats, Stream,
};
use memcore::{Array, DType, Device};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 300 * MIB;

fn meta(total_bytes: u64) -> Meta {
    Meta::new(DeviceProfile { total_bytes, ..DeviceProfile::default() })
}

fn free_bytes(memory: &dyn DeviceMemory) -> u64 {
    memory.memory_info().unwrap().free_bytes
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: u64, stream: u32 },
    Free(usize),
    Record { which: usize, stream: u32 },
    Hold,
    Complete,
    EmptyCache,
    ResetPeak,
    ResetAccumulated,
    Toggle(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let odd = (0u32..6, 0u64..3, -1i64..2).prop_map(|(power, add, off)| {
        // Around the borders: 512 bytes, 1 MiB, 10 MiB, 20 MiB.
        let border = [512, 512 << 3, MIB, 2 * MIB, 10 * MIB, 20 * MIB][power as usize] * (add + 1);
        (border as i64 + off).max(1) as u64
    });
    let bytes = prop_oneof![1u64..5000, 1u64..2 * MIB, 1u64..40 * MIB, odd];
    prop_oneof![
        24 => (bytes, 0u32..2).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        20 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0u32..3).prop_map(|(which, stream)| Step::Record { which, stream }),
        1 => Just(Step::Hold),
        1 => Just(Step::Complete),
        1 => Just(Step::EmptyCache),
        1 => Just(Step::ResetPeak),
        1 => Just(Step::ResetAccumulated),
        1 => any::<bool>().prop_map(Step::Toggle),
    ]
}

/// Settings in PyTorch's syntax, with any of the options.
fn settings() -> impl Strategy<Value = String> {
    let option = |values: &'static [&'static str]| prop::option::weighted(0.3, prop::sample::select(values));
    (
        option(&["max_split_size_mb:40", "max_split_size_mb:64", "max_split_size_mb:200"]),
        option(&["max_non_split_rounding_mb:40", "max_non_split_rounding_mb:100"]),
        option(&["roundup_power2_divisions:4", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"]),
        option(&["garbage_collection_threshold:0.3", "garbage_collection_threshold:0.8"]),
        option(&["per_process_memory_fraction:0.5", "per_process_memory_fraction:0.9"]),
        option(&["expandable_segments:True"]),
        option(&["large_segment_size_mb:40"]),
    )
        .prop_map(|(a, b, c, d, e, f, g)| {
            let mut parts: Vec<&str> = [a, c, d, e, f, g].into_iter().flatten().collect();
            // The slack is for blocks that are not split.
            parts.extend(b.filter(|_| a.is_some()));
            parts.join(",")
        })
}

/// Sums of a snapshot, and the same figures from the statistics.
fn check_sums(snapshot: &Snapshot, stats: &Stats) {
    let (mut allocation, mut active, mut active_bytes, mut requested) = (0, 0, 0, 0);
    for block in snapshot.segments.iter().flat_map(|segment| &segment.blocks) {
        allocation += u64::from(block.state == BlockState::ActiveAllocated);
        if block.state != BlockState::Inactive {
            (active, active_bytes, requested) =
                (active + 1, active_bytes + block.bytes, requested + block.requested_bytes);
        }
    }
    assert_eq!(stats.allocation.all.current, allocation);
    assert_eq!((stats.active.all.current, stats.active_bytes.all.current), (active, active_bytes));
    assert_eq!(stats.requested_bytes.all.current, requested);
    assert_eq!(stats.allocated_bytes.all.current, snapshot.allocated_bytes());
    assert_eq!(stats.reserved_bytes.all.current, snapshot.reserved_bytes());
    let ordinary = snapshot.segments.iter().filter(|segment| !segment.expandable).count();
    assert_eq!(stats.segment.all.current, ordinary as u64);
}

/// Relations of the counters among themselves. `accumulated`: whether the accumulated counts were never reset.
fn check_counters(stats: &Stats, accumulated: bool) {
    for (name, array) in stats.arrays() {
        let sum = |of: fn(&Stat) -> u64| of(&array.small) + of(&array.large);
        assert_eq!(array.all.current, sum(|stat| stat.current), "{name}");
        assert_eq!(array.all.allocated, sum(|stat| stat.allocated), "{name}");
        assert_eq!(array.all.freed(), sum(|stat| stat.freed()), "{name}");
        assert!(array.all.peak <= sum(|stat| stat.peak), "{name}");
        for stat in [&array.all, &array.small, &array.large] {
            assert!(stat.peak >= stat.current, "{name}: {stat:?}");
            assert!(!accumulated || stat.allocated - stat.freed() == stat.current, "{name}: {stat:?}");
        }
    }
    let current = |of: fn(&Stats) -> u64| of(stats);
    let active = current(|stats| stats.active_bytes.all.current);
    assert!(stats.requested_bytes.all.current <= active && stats.allocated_bytes.all.current <= active);
    assert!(active <= stats.reserved_bytes.all.current);
}

/// A program in progress.
struct Program<M: DeviceMemory + 'static> {
    device: Arc<M>,
    caching: Caching,
    live: Vec<Block>,
    accumulated: bool,
    /// The settings without the toggled option.
    settings: String,
}

impl<M: DeviceMemory + 'static> Program<M> {
    fn new(device: M, settings: &str) -> Self {
        let device = Arc::new(device);
        let config = AllocatorConfig::parse(settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
        let caching = Caching::new(device.clone(), config).unwrap();
        let settings = settings.replace(",expandable_segments:True", "").replace("expandable_segments:True,", "");
        let settings = settings.replace("expandable_segments:True", "");
        Self { device, caching, live: Vec::new(), accumulated: true, settings }
    }

    fn run(&mut self, step: &Step) {
        let caching = &mut self.caching;
        let pick = |which: usize, live: &[Block]| (!live.is_empty()).then(|| which % live.len());
        match *step {
            Step::Allocate { bytes, stream } => self.allocate(bytes, Stream(stream)),
            Step::Free(which) => {
                if let Some(at) = pick(which, &self.live) {
                    caching.free(self.live.swap_remove(at).id, &mut |_| {});
                }
            }
            Step::Record { which, stream } => {
                if let Some(at) = pick(which, &self.live) {
                    caching.record_stream(self.live[at].id, Stream(stream));
                }
            }
            Step::Hold => caching.hold_events(),
            Step::Complete => caching.complete_events(),
            Step::EmptyCache => drop(caching.empty_cache(&mut |_| {})),
            Step::ResetPeak => caching.reset_peak_stats(),
            Step::ResetAccumulated => {
                caching.reset_accumulated_stats();
                self.accumulated = false;
            }
            Step::Toggle(on) => {
                let value = if on { "True" } else { "False" };
                let comma = if self.settings.is_empty() { "" } else { "," };
                self.caching.update_config(&format!("{}{comma}expandable_segments:{value}", self.settings)).unwrap();
            }
        }
        self.check();
    }

    /// Makes one request and checks the result.
    fn allocate(&mut self, bytes: u64, stream: Stream) {
        let plain = self.caching.config().last_settings.is_empty();
        let before = self.caching.snapshot();
        let (retries, pending) = {
            let stats = self.caching.stats();
            (stats.num_alloc_retries, stats.active.all.current > stats.allocation.all.current)
        };
        let mut mallocs = 0;
        let result = self.caching.allocate(bytes, stream, &mut |event| {
            mallocs += u32::from(matches!(event, DriverEvent::SegmentAlloc { .. } | DriverEvent::Refused { .. }));
        });
        assert!(mallocs <= 3 && self.caching.stats().num_alloc_retries - retries <= 1, "{mallocs} calls");
        match result {
            Ok(block) => {
                assert!(block.bytes >= bytes && block.bytes % 512 == 0 && block.address % 512 == 0, "{block:?}");
                if plain && !pending {
                    best_fit(&before, &block, stream, mallocs);
                }
                self.live.push(block);
            }
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
    }

    fn check(&self) {
        self.caching.check_invariants().unwrap();
        let (snapshot, stats) = (self.caching.snapshot(), self.caching.stats());
        check_sums(&snapshot, stats);
        check_counters(stats, self.accumulated);
        let info = self.device.memory_info().unwrap();
        assert_eq!(stats.reserved_bytes.all.current, info.total_bytes - info.free_bytes);
        let live: u64 = self.live.iter().map(|block| block.bytes).sum();
        assert_eq!((stats.allocation.all.current, stats.allocated_bytes.all.current), (self.live.len() as u64, live));
        // Pages are as large as the segments that the limit counts, or up to one larger.
        if let Some(allowed) = self.caching.allowed_bytes() {
            let slack = self.caching.config().large_segment_bytes;
            assert!(stats.reserved_bytes.all.current <= allowed + slack, "{stats:?}");
        }
    }

    /// Frees everything; the device must be in its initial state.
    fn end(mut self) {
        while let Some(block) = self.live.pop() {
            self.caching.free(block.id, &mut |_| {});
            self.check();
        }
        self.caching.complete_events();
        self.caching.empty_cache(&mut |_| {});
        self.check();
        let stats = self.caching.stats();
        assert!(stats.arrays().iter().all(|(_, array)| array.all.current == 0), "{stats:?}");
        let info = self.device.memory_info().unwrap();
        assert_eq!(info.free_bytes, info.total_bytes);
    }
}

/// Without settings, a request takes the smallest free block of its pool and stream that holds it, the lowest among
/// equals; if there is one, there is no driver call. The block exceeds the need by less than 512 bytes (small) or at most 1 MiB
/// (large).
fn best_fit(before: &Snapshot, block: &Block, stream: Stream, mallocs: u32) {
    let size = block.requested_bytes.next_multiple_of(512).max(512);
    let small = size <= MIB;
    assert!(block.bytes - size < if small { 512 } else { MIB + 1 }, "{block:?}");
    let segments = before.segments.iter().filter(|segment| segment.stream == stream && segment.small == small);
    let free = segments.flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Inactive);
    match free.filter(|free| free.bytes >= size).map(|free| (free.bytes, free.address)).min() {
        Some((_, address)) => assert_eq!((block.address, mallocs), (address, 0)),
        None => assert!(mallocs > 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_program_under_any_settings(settings in settings(), steps in proptest::collection::vec(step(), 1..60)) {
        let mut program = Program::new(meta(DEVICE_BYTES), &settings);
        steps.iter().for_each(|step| program.run(step));
        program.end();
    }

    #[test]
    fn a_program_without_settings_is_best_fit(steps in proptest::collection::vec(step(), 1..60)) {
        let mut program = Program::new(meta(1 << 40), "");
        for step in steps.iter().filter(|step| !matches!(step, Step::Toggle(_))) {
            program.run(step);
        }
        program.end();
    }

    #[test]
    fn settings_survive_a_round_trip(settings in settings()) {
        let once = AllocatorConfig::parse(&settings).unwrap();
        let mut twice = once.clone();
        twice.update(&settings).unwrap();
        prop_assert_eq!(&twice, &once);
        let mut reset = AllocatorConfig::default();
        reset.update(&once.last_settings).unwrap();
        prop_assert_eq!(reset, once);
    }

    #[test]
    fn the_same_request_again_asks_the_driver_only_once(bytes in 1u64..100 * MIB, expandable in any::<bool>()) {
        let settings = if expandable { "expandable_segments:True" } else { "" };
        let mut caching = Caching::new(Arc::new(meta(1 << 40)), AllocatorConfig::parse(settings).unwrap()).unwrap();
        let mut calls = 0;
        let first = caching.allocate(bytes, Stream::DEFAULT, &mut |_| calls += 1).unwrap();
        prop_assert!(calls > 0);
        caching.free(first.id, &mut |_| ());
        for _ in 0..3 {
            let again = caching.allocate(bytes, Stream::DEFAULT, &mut |event| panic!("{event:?}")).unwrap();
            prop_assert_eq!(again.address, first.address);
            caching.free(again.id, &mut |event| panic!("{event:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    /// The device refuses call after call, one place at a time and up to four in a row: in the middle of an expansion too.
    #[test]
    fn a_refusal_anywhere_corrupts_nothing(
        settings in settings(),
        steps in proptest::collection::vec(step(), 20..50),
        times in 1u64..5
    ) {
        for refused in 0..20 {
            let device = Faulty::new(meta(DEVICE_BYTES), FaultyCall::AllocSegment, refused, times);
            let mut program = Program::new(device, &settings);
            steps.iter().for_each(|step| program.run(step));
            let reached = program.device.calls() > refused;
            program.end();
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn a_refusal_in_the_middle_of_an_expansion_leaves_what_was_mapped() {
    // 30 MiB are two pages of 20. A request of 100 takes the 10 that are left and maps five pages more: that is refused, and
    // again after the cache was given back.
    let device = Faulty::new(meta(1 << 30), FaultyCall::AllocSegment, 1, 2);
    let mut program = Program::new(device, "expandable_segments:True");
    program.run(&Step::Allocate { bytes: 30 * MIB, stream: 0 });
    program.run(&Step::Allocate { bytes: 100 * MIB, stream: 0 });
    let state = |program: &Program<_>| {
        let stats = program.caching.stats();
        (program.live.len(), stats.num_ooms, stats.num_alloc_retries, stats.reserved_bytes.all.current)
    };
    assert_eq!(state(&program), (1, 1, 1, 40 * MIB), "what was mapped stays");
    program.run(&Step::Allocate { bytes: 10 * MIB, stream: 0 });
    assert_eq!((state(&program), program.device.calls()), ((2, 1, 1, 40 * MIB), 3), "and serves without the driver");
    program.run(&Step::Allocate { bytes: 100 * MIB, stream: 0 });
    assert_eq!(state(&program), (3, 1, 1, 140 * MIB));
    program.end();
}

#[test]
fn several_threads_share_a_device() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2000;
    for settings in ["", "expandable_segments:True"] {
        let backend = Arc::new(meta(2 << 30));
        let config = AllocatorConfig::parse(settings).unwrap();
        let caching = Caching::new(backend.clone(), config).unwrap();
        let device = Device::builder(backend.clone()).allocator(Box::new(caching)).history(true).build();
        let served = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (device, served) = (&device, &served);
                scope.spawn(move || {
                    let mut live: Vec<Array> = Vec::new();
                    for round in 0..ROUNDS {
                        let random = (thread * ROUNDS + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                        if random % 5 < 2 && !live.is_empty() {
                            live.swap_remove((random / 5) as usize % live.len());
                        } else if live.len() < 40 {
                            let bytes =
                                1 + (random % (if random.is_multiple_of(3) { 8 * MIB } else { 64 << 10 })) as usize;
                            live.push(Array::empty(device, &[bytes], DType::U8).unwrap());
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        if round % 500 == 499 {
                            device.empty_cache();
                        }
                    }
                });
            }
        });
        let (stats, usage) = (device.stats(), device.usage());
        assert_eq!(stats.allocated_bytes.all.current, 0, "{settings}");
        assert_eq!((stats.allocation.all.allocated, usage.allocated_bytes()), (served.load(Ordering::Relaxed), 0));
        assert_eq!(stats.allocation.all.allocated, stats.allocation.all.freed());
        check_counters(&stats, true);
        check_sums(&device.snapshot(), &stats);
        assert_eq!(device.with_ledger(|ledger| ledger.replay()).as_ref(), Some(&usage), "the history of all threads");
        device.empty_cache();
        assert_eq!(device.stats().reserved_bytes.all.current, 0);
        assert_eq!(free_bytes(&*backend), 2 << 30);
    }
}
