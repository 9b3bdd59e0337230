//! The contract of [`Allocator`], for every policy, on random programs and in edge cases.

use std::collections::BTreeMap;
use std::sync::Arc;

use memcore::backend::{
    DeviceMemory, DeviceProfile, Faulty, FaultyCall, Limits, MemoryInfo, Meta, Region, SegmentId, VirtualMemory,
};
use memcore::memory::caching::PoolId;
use memcore::memory::planned::{Bound, Lifetime, lifetimes, pack};
use memcore::memory::{
    AllocId, Allocator, AllocatorConfig, Bfc, Block, BlockId, BlockState, Buddy, Caching, Category, Direct,
    DriverEvent, Event, Ledger, Origin, OutOfMemory, Planned, Rings, Stream, Tlsf, TorchVersion, Usage, Verdict,
};
use memcore::{Error, Result};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn device(total_bytes: u64) -> Arc<Meta> {
    Arc::new(Meta::new(DeviceProfile { total_bytes, ..DeviceProfile::default() }))
}

fn caching(memory: Arc<dyn DeviceMemory>, settings: &str) -> Caching {
    Caching::new(memory, AllocatorConfig::parse(settings).unwrap()).unwrap()
}

fn free_bytes(memory: &dyn DeviceMemory) -> u64 {
    memory.memory_info().unwrap().free_bytes
}

/// Every policy, each on a separate device.
fn policies(total_bytes: u64) -> Vec<(Arc<Meta>, Box<dyn Allocator>)> {
    type Make = fn(Arc<dyn DeviceMemory>) -> Box<dyn Allocator>;
    let make: [Make; 9] = [
        |memory| Box::new(Direct::new(memory)),
        |memory| Box::new(Caching::with_defaults(memory)),
        |memory| Box::new(caching(memory, "expandable_segments:True")),
        |memory| Box::new(caching(memory, "max_split_size_mb:20,roundup_power2_divisions:4")),
        |memory| Box::new(caching(memory, "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8")),
        |memory| Box::new(Bfc::new(memory)),
        |memory| Box::new(Buddy::new(memory)),
        |memory| Box::new(Tlsf::new(memory)),
        |memory| {
            let run = [Lifetime { bytes: 5000, from: 0, to: 9 }, Lifetime { bytes: 3000, from: 1, to: 5 }];
            Box::new(Planned::new(memory, pack(&run), &run, &mut |_| {}).unwrap())
        },
    ];
    make.into_iter()
        .map(|make| {
            let device = device(total_bytes);
            (device.clone(), make(device))
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64, u32),
    Free(usize),
    EmptyCache,
    ResetPeak,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1u64..5000, 1u64..2 * MIB, 1u64..40 * MIB];
    prop_oneof![
        6 => (bytes, 0u32..2).prop_map(|(bytes, stream)| Step::Allocate(bytes, stream)),
        5 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
        1 => Just(Step::ResetPeak),
    ]
}

/// Independent record of a policy's allocations and driver requests.
#[derive(Default)]
struct Watch {
    live: Vec<Block>,
    /// Mapped or allocated bytes, from the driver's events.
    held: BTreeMap<SegmentId, u64>,
}

impl Watch {
    fn see(held: &mut BTreeMap<SegmentId, u64>, event: DriverEvent) {
        match event {
            DriverEvent::SegmentAlloc { bytes, segment, .. } | DriverEvent::Map { bytes, segment, .. } => {
                *held.entry(segment).or_default() += bytes;
            }
            DriverEvent::SegmentFree { bytes, segment, .. } | DriverEvent::Unmap { bytes, segment, .. } => {
                if let Some(held) = held.get_mut(&segment) {
                    *held -= bytes; // the segment of a plan came earlier
                }
            }
            _ => {}
        }
    }

    fn run(&mut self, allocator: &mut dyn Allocator, step: &Step) {
        let held = &mut self.held;
        let driver = &mut |event| Self::see(held, event);
        match *step {
            Step::Allocate(bytes, stream) => match allocator.allocate(bytes, Stream(stream), driver) {
                Ok(block) => self.live.push(block),
                Err(error) => {
                    assert!(error.is_out_of_memory(), "{error}");
                    // The allocator remains usable, and the size that it reports as fitting does fit.
                    let failure = *allocator.last_failure().unwrap();
                    assert_eq!(failure.requested_bytes, bytes);
                    if failure.largest_fit_bytes > 0 {
                        let fit = allocator.allocate(failure.largest_fit_bytes, Stream(stream), driver);
                        let fit = fit.unwrap_or_else(|error| panic!("{}: {failure:?}: {error}", allocator.name()));
                        allocator.free(fit.id, driver);
                    }
                }
            },
            Step::Free(which) if !self.live.is_empty() => {
                let block = self.live.swap_remove(which % self.live.len());
                allocator.free(block.id, driver);
            }
            Step::Free(_) => {}
            Step::EmptyCache => drop(allocator.empty_cache(driver)),
            Step::ResetPeak => allocator.reset_peak_stats(),
        }
    }

    fn check(&self, device: &Meta, allocator: &dyn Allocator) {
        let name = allocator.name();
        let mut regions: Vec<Region> = self.live.iter().map(|block| block.region).collect();
        regions.sort_by_key(|region| (region.segment, region.offset));
        for pair in regions.windows(2) {
            assert!(!pair[0].overlaps(pair[1]), "{name}: {pair:?}");
        }
        for block in &self.live {
            assert!(block.bytes >= block.requested_bytes && block.region.len == block.requested_bytes);
            assert!(block.region.offset % device.limits().alignment == 0, "{name}: {block:?}");
        }
        let stats = allocator.stats();
        let sum = |of: fn(&Block) -> u64| self.live.iter().map(of).sum::<u64>();
        assert_eq!(stats.allocated_bytes.all.current, sum(|block| block.bytes), "{name}");
        assert_eq!(stats.requested_bytes.all.current, sum(|block| block.requested_bytes), "{name}");
        assert_eq!(stats.allocation.all.current, self.live.len() as u64, "{name}");
        let held: u64 = self.held.values().sum();
        let info = device.memory_info().unwrap();
        let used = info.total_bytes - info.free_bytes;
        assert_eq!(stats.reserved_bytes.all.current, used, "{name}");
        if name != "planned" {
            assert_eq!(held, used, "{name}: the driver's events");
        }
        let snapshot = allocator.snapshot();
        assert_eq!((snapshot.reserved_bytes(), snapshot.allocated_bytes()), (used, sum(|block| block.bytes)), "{name}");
        for segment in &snapshot.segments {
            let mut end = segment.address;
            for block in &segment.blocks {
                assert_eq!(block.address, end, "{name}: blocks tile");
                end += block.bytes;
            }
            assert_eq!(end, segment.address + segment.total_bytes, "{name}");
        }
        let split: u64 = snapshot
            .segments
            .iter()
            .filter(|segment| segment.blocks.len() > 1 && !segment.expandable)
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.state == BlockState::Inactive)
            .map(|block| block.bytes)
            .sum();
        if name != "planned" {
            assert_eq!(stats.inactive_split_bytes.all.current, split, "{name}");
        }
        assert!(Rings::now(stats, Some(used)).nested(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_policy_keeps_the_contract(steps in proptest::collection::vec(step(), 1..120)) {
        for (device, mut allocator) in policies(200 * MIB) {
            let mut watch = Watch::default();
            for step in &steps {
                watch.run(&mut *allocator, step);
                watch.check(&device, &*allocator);
            }
            for block in std::mem::take(&mut watch.live) {
                allocator.free(block.id, &mut |event| Watch::see(&mut watch.held, event));
            }
            allocator.empty_cache(&mut |event| Watch::see(&mut watch.held, event));
            watch.check(&device, &*allocator);
            prop_assert_eq!(free_bytes(&*device), 200 * MIB, "{}", allocator.name());
        }
    }

    #[test]
    fn a_dropped_allocator_gives_everything_back(steps in proptest::collection::vec(step(), 1..60)) {
        for (device, mut allocator) in policies(200 * MIB) {
            let mut watch = Watch::default();
            steps.iter().for_each(|step| watch.run(&mut *allocator, step));
            drop(allocator);
            prop_assert_eq!(free_bytes(&*device), 200 * MIB);
        }
    }
}

/// A device with its allocator and ledger, combined as in the layer above.
struct Books {
    allocator: Box<dyn Allocator>,
    ledger: Ledger,
    next: u64,
}

impl Books {
    fn new(allocator: Box<dyn Allocator>) -> Self {
        let mut ledger = Ledger::new();
        ledger.set_history(true);
        Self { allocator, ledger, next: 0 }
    }

    fn allocate(&mut self, requested_bytes: u64, category: Category, scope: &str) -> Result<(BlockId, AllocId)> {
        let ledger = &mut self.ledger;
        let origin = Origin { scope: ledger.scope(scope), op: "empty", ..Origin::default() };
        let block =
            self.allocator.allocate(requested_bytes, Stream::DEFAULT, &mut |event| ledger.record_driver(event))?;
        let id = AllocId(self.next);
        self.next += 1;
        let Block { bytes, address, .. } = block;
        ledger.record(Event::Alloc { id, requested_bytes, bytes, address, stream: Stream::DEFAULT, category, origin });
        Ok((block.id, id))
    }

    fn free(&mut self, (block, id): (BlockId, AllocId)) {
        let ledger = &mut self.ledger;
        ledger.record(Event::Free { id, origin: Origin::default() });
        self.allocator.free(block, &mut |event| ledger.record_driver(event));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn ledger_and_allocator_agree_and_the_history_replays(
        steps in proptest::collection::vec((1u64..30 * MIB, 0usize..8, any::<usize>()), 1..80)
    ) {
        for (_, allocator) in policies(1 << 40) {
            let planned = allocator.name() == "planned";
            let mut books = Books::new(allocator);
            let mut live = Vec::new();
            for &(bytes, category, which) in &steps {
                if which % 3 == 0 && !live.is_empty() {
                    books.free(live.swap_remove(which % live.len()));
                } else {
                    live.push(books.allocate(bytes, Category::ALL[category], "layer")?);
                }
                let (stats, usage) = (books.allocator.stats(), books.ledger.usage());
                prop_assert_eq!(usage.allocated_bytes(), stats.allocated_bytes.all.current);
                prop_assert_eq!(usage.requested_bytes(), stats.requested_bytes.all.current);
                prop_assert_eq!(usage.peak_bytes(), stats.allocated_bytes.all.peak);
                if !planned { // its segment came before the ledger
                    prop_assert_eq!(usage.reserved_bytes(), stats.reserved_bytes.all.current);
                }
            }
            prop_assert_eq!(&Usage::replay(books.ledger.history()), books.ledger.usage());
        }
    }
}

#[test]
fn out_of_memory_tells_hopeless_and_full_apart() {
    let device = device(100 * MIB);
    let mut books = Books::new(Box::new(Caching::with_defaults(device.clone())));
    let report = |books: &mut Books, bytes| {
        let error = books.allocate(bytes, Category::Activation, "decoder").unwrap_err();
        assert!(matches!(error, Error::DeviceFull { .. } | Error::TooLarge { .. }));
        OutOfMemory::new(bytes, &*books.allocator, &books.ledger, &*device)
    };
    let hopeless = report(&mut books, 101 * MIB);
    assert_eq!((hopeless.verdict, hopeless.largest_fit_bytes), (Verdict::Hopeless, 100 * MIB));

    let blocks: Vec<_> =
        (0..5).map(|k| books.allocate(18 * MIB, Category::ALL[k], &format!("block.{k}")).unwrap()).collect();
    let full = report(&mut books, 30 * MIB);
    assert_eq!((full.verdict, full.largest_fit_bytes, full.released_bytes), (Verdict::Full, 10 * MIB, 0));
    assert_eq!(full.by_category.iter().sum::<u64>(), 90 * MIB);
    assert_eq!(full.top_scopes.len(), 5);
    assert_eq!(full.top_scopes[0], ("block.0".to_string(), 18 * MIB));
    assert_eq!(full.rings.reserved_bytes, 90 * MIB);

    // Free segments are returned, but they are not contiguous with the rest of the device.
    let half = books.allocate(9 * MIB, Category::Input, "").unwrap_err();
    assert!(matches!(half, Error::DeviceFull { .. }), "9 MiB takes a segment of 20: {half}");
    blocks.into_iter().step_by(2).for_each(|block| books.free(block));
    let small = books.allocate(20 * MIB, Category::Input, "").unwrap();
    let text = full.to_string();
    for part in ["30.00 MiB", "10.00 MiB", "full", "parameter 18.00 MiB", "block.0", "At most"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let still = report(&mut books, 60 * MIB);
    assert_eq!(still.verdict, Verdict::Full);
    books.free(small);
}

#[test]
fn a_faulty_device_is_asked_again_after_the_cache_was_given_back() {
    for settings in ["", "expandable_segments:True"] {
        for (times, served) in [(1, true), (2, false)] {
            let device = Arc::new(Faulty::new(Meta::default(), FaultyCall::AllocSegment, 1, times));
            let mut allocator = caching(device.clone(), settings);
            let mut log = |_| {};
            let first = allocator.allocate(30 * MIB, Stream::DEFAULT, &mut log).unwrap();
            allocator.free(first.id, &mut log);
            let second = allocator.allocate(50 * MIB, Stream::DEFAULT, &mut log);
            assert_eq!(second.is_ok(), served, "{settings} {times}");
            assert_eq!(allocator.stats().num_alloc_retries, 1);
            assert_eq!(allocator.stats().num_ooms, u64::from(!served));
            allocator.check_invariants().unwrap();
        }
    }
}

/// A device like WebGPU's: no virtual memory, no figure for free memory.
struct Plain(Meta);

impl DeviceMemory for Plain {
    fn limits(&self) -> &Limits {
        self.0.limits()
    }
    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        self.0.alloc_segment(bytes)
    }
    fn free_segment(&self, id: SegmentId) {
        self.0.free_segment(id);
    }
    fn memory_info(&self) -> Option<MemoryInfo> {
        None
    }
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }
}

#[test]
fn without_virtual_memory_expandable_segments_warn_once_and_are_ordinary() {
    let profile = DeviceProfile { total_bytes: 100 * MIB, ..DeviceProfile::default() };
    let device: Arc<dyn DeviceMemory> = Arc::new(Plain(Meta::new(profile)));
    let mut allocator = caching(device.clone(), "expandable_segments:True");
    let mut warnings = 0;
    for _ in 0..3 {
        let mut log = |event| warnings += u32::from(event == DriverEvent::ExpandableUnsupported);
        allocator.allocate(5 * MIB, Stream::DEFAULT, &mut log).unwrap();
    }
    assert_eq!((warnings, allocator.stats().segment.all.current), (1, 1));
    assert!(allocator.set_memory_fraction(0.5).is_err());
    let limited = AllocatorConfig::parse("per_process_memory_fraction:0.5").unwrap();
    assert!(Caching::new(device.clone(), limited).is_err());
    let error = allocator.allocate(200 * MIB, Stream::DEFAULT, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }));
    let report = OutOfMemory::new(200 * MIB, &allocator, &Ledger::new(), &*device);
    assert_eq!((report.verdict, report.free_bytes, report.rings.driver_bytes), (Verdict::Hopeless, None, None));
}

#[test]
fn requests_beyond_any_tensor_are_refused_before_anything_happens() {
    for (_, mut allocator) in policies(1 << 30) {
        for bytes in [1 << 60, u64::MAX] {
            let mut events = 0;
            let error = allocator.allocate(bytes, Stream::DEFAULT, &mut |_| events += 1).unwrap_err();
            assert!(error.is_out_of_memory(), "{}: {error}", allocator.name());
            assert_eq!(allocator.stats().allocation.all.current, 0);
        }
    }
}

#[test]
fn work_of_another_stream_delays_reuse_until_it_is_noticed() {
    let mut allocator = Caching::with_defaults(device(1 << 30));
    let mut log = |_| {};
    let block = allocator.allocate(30 * MIB, Stream::DEFAULT, &mut log).unwrap();
    allocator.record_stream(block.id, Stream(1));
    allocator.record_stream(block.id, Stream::DEFAULT);
    allocator.hold_events();
    allocator.free(block.id, &mut log);
    let stats = allocator.stats();
    assert_eq!((stats.allocated_bytes.all.current, stats.active_bytes.all.current), (0, 30 * MIB));
    assert_eq!(allocator.snapshot().segments[0].blocks[0].state, BlockState::ActivePendingFree);
    let other = allocator.allocate(30 * MIB, Stream::DEFAULT, &mut log).unwrap();
    assert_ne!(other.address, block.address);
    allocator.complete_events();
    assert_eq!(allocator.stats().active.all.current, 2, "complete, but nobody has looked");
    let again = allocator.allocate(30 * MIB, Stream::DEFAULT, &mut log).unwrap();
    assert_eq!(again.address, block.address);
}

#[test]
fn the_newer_release_refuses_ahead_and_counts_private_pools() {
    let mut config = AllocatorConfig::for_version(TorchVersion::V2_15);
    config.update("throw_on_cudamalloc_oom:True").unwrap();
    let device = device(100 * MIB);
    let mut allocator = Caching::new(device.clone(), config).unwrap();
    let mut log = |_| {};
    let id = PoolId((1, 0));
    allocator.begin_allocate_to_pool(id).unwrap();
    assert!(allocator.begin_allocate_to_pool(id).is_err());
    let block = allocator.allocate(40 * MIB, Stream::DEFAULT, &mut log).unwrap();
    allocator.end_allocate_to_pool(id).unwrap();
    assert!(allocator.end_allocate_to_pool(id).is_err());
    let error = allocator.allocate(80 * MIB, Stream::DEFAULT, &mut log).unwrap_err();
    assert!(matches!(error, Error::DeviceFull { .. }));
    let stats = allocator.stats();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms, stats.num_alloc_retries), (1, 0, 0));
    assert_eq!(stats.reserved_bytes_by_private_pools[0].1.current, 40 * MIB);
    let report = OutOfMemory::new(80 * MIB, &allocator, &Ledger::new(), &*device);
    let text = report.torch_message(0, TorchVersion::V2_15, false);
    assert!(text.ends_with("per_process_memory_fraction limit. Requested size: 80.00 MiB"), "{text}");

    // Its memory is returned when all users are dropped: the scope's handle, and its creator's.
    allocator.free(block.id, &mut log);
    allocator.empty_cache(&mut log);
    assert_eq!(allocator.stats().reserved_bytes.all.current, 40 * MIB);
    allocator.release_pool(id).unwrap();
    allocator.empty_cache(&mut log);
    assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
    assert!(allocator.release_pool(id).is_err(), "it is gone");
    let pools = &allocator.stats().reserved_bytes_by_private_pools;
    assert_eq!((pools[0].1.current, pools[0].1.peak), (0, 40 * MIB));
}

#[test]
fn a_plan_serves_its_own_run_at_the_bound_and_other_runs_rightly() {
    let mut books = Books::new(Box::new(Caching::with_defaults(device(1 << 40))));
    let mut live = Vec::new();
    let mut sizes = Vec::new();
    for k in 0u64..60 {
        let bytes = 1 + (k * 7919) % 5000 * 1000;
        sizes.push((bytes, k % 3 == 2));
        live.push(books.allocate(bytes, Category::Temporary, "").unwrap());
        if k % 3 == 2 {
            books.free(live.remove(live.len() / 2));
        }
    }
    let run = lifetimes(books.ledger.history());
    let (plan, bound) = (pack(&run), Bound::from_lifetimes(&run));
    assert!(bound.check(&run) && plan.check(&run).is_ok() && plan.bytes >= bound.bytes);
    assert!(plan.bytes <= books.allocator.stats().reserved_bytes.all.peak);

    let device = device(1 << 40);
    let mut planned = Planned::new(device.clone(), plan.clone(), &run, &mut |_| {}).unwrap();
    let mut watch = Watch::default();
    for &(bytes, frees) in &sizes {
        watch.live.push(planned.allocate(bytes, Stream::DEFAULT, &mut |_| {}).unwrap());
        if frees {
            let block = watch.live.remove(watch.live.len() / 2);
            planned.free(block.id, &mut |_| {});
        }
        watch.check(&device, &planned);
    }
    assert_eq!((planned.unforeseen(), planned.stats().reserved_bytes.all.peak), (0, plan.bytes));

    // The same requests without the frees: memory that the plan reuses is still in use.
    let mut planned = Planned::new(device.clone(), plan.clone(), &run, &mut |_| {}).unwrap();
    let blocks: Vec<_> =
        sizes.iter().map(|&(bytes, _)| planned.allocate(bytes, Stream::DEFAULT, &mut |_| {}).unwrap()).collect();
    assert!(planned.unforeseen() > 0);
    let mut regions: Vec<_> = blocks.iter().map(|block| block.region).collect();
    regions.sort_by_key(|region| (region.segment, region.offset));
    assert!(regions.windows(2).all(|pair| !pair[0].overlaps(pair[1])));

    let mut wrong = plan;
    wrong.offsets[1] = wrong.offsets[0];
    assert!(matches!(Planned::new(device, wrong, &run, &mut |_| {}), Err(Error::Invalid { .. })));
}
