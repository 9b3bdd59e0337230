//! Costs of allocator operations: PyTorch's policy and others, on recorded programs and on many blocks, compared with
//! public suballocators. There is no device: these are only the costs of bookkeeping.
//!
//! `cargo bench -p benches --bench allocators`. The time shown is that of a whole program; `elem/s` counts its operations.

use std::alloc::Layout;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use lab::bench::allocators::{open, repeated, serves_once, training_program};
use lab::replay::{Operation, POLICY_NAMES, Silent, Trace, replay};
use memcore::backend::Meta;
use memcore::memory::{AllocId, Allocator, Block, Caching, Category, Event, Ledger, Origin, Stream};

mod common;

/// Recorded programs: one that trains, and one with sizes and frees in random order.
const RECORDED: [&str; 2] = ["default_train", "default_mixed"];
const GRANULE: u64 = 512;

/// A recording whose last operations free what is left, so that it can be repeated.
fn recording(name: &str) -> Trace {
    let path = common::in_project(&format!("memcore/tests/golden/traces/{name}.json.gz"));
    repeated(&Trace::open(&path).expect("a recording"), 1).expect("a program as the recorded one")
}

fn opened(policy: &str, trace: &Trace) -> Box<dyn Allocator> {
    open(policy, trace).expect("a known policy")
}

/// Runs recorded programs on a warm allocator of each policy.
fn policies(c: &mut Criterion) {
    for name in common::sizes(&RECORDED) {
        let trace = recording(name);
        let mut group = c.benchmark_group(format!("allocators/{name}"));
        group.throughput(Throughput::Elements(trace.operations().len() as u64));
        let mut caching = Caching::with_defaults(Arc::new(Meta::default()));
        group.bench_function("caching, static", |b| b.iter(|| replay(&trace, &mut caching, &mut Silent)));
        for policy in POLICY_NAMES.into_iter().filter(|policy| !serves_once(policy)) {
            let mut allocator = opened(policy, &trace);
            group.bench_function(policy, |b| b.iter(|| replay(&trace, &mut *allocator, &mut Silent)));
        }
        for policy in POLICY_NAMES.into_iter().filter(|policy| serves_once(policy)) {
            group.bench_function(policy, |b| {
                let run = |mut allocator: Box<dyn Allocator>| {
                    replay(&trace, &mut *allocator, &mut Silent).expect("it fits");
                    allocator
                };
                b.iter_batched(|| opened(policy, &trace), run, BatchSize::SmallInput);
            });
        }
        group.finish();
    }
}

/// Runs an allocator together with a device's ledger, as `Device` does.
fn with_ledger(trace: &Trace, caching: &mut Caching, ledger: &mut Ledger, next: &mut u64) {
    let mut blocks: Vec<(Block, u64)> = Vec::with_capacity(trace.allocations());
    for operation in trace.operations() {
        match *operation {
            Operation::Allocate { bytes, .. } => {
                let driver = &mut |event| ledger.record_driver(event);
                let block = caching.allocate(bytes.max(1), Stream::DEFAULT, driver).expect("never full");
                let id = AllocId(*next);
                let Block { requested_bytes, bytes, address, .. } = block;
                let (stream, category, origin) = (Stream::DEFAULT, Category::Activation, Origin::default());
                ledger.record(Event::Alloc { id, requested_bytes, bytes, address, stream, category, origin });
                blocks.push((block, *next));
                *next += 1;
            }
            Operation::Free { allocation } => {
                let (block, id) = &blocks[allocation as usize];
                ledger.record(Event::Free { id: AllocId(*id), origin: Origin::default() });
                caching.free(block.id, &mut |event| ledger.record_driver(event));
            }
            _ => {}
        }
    }
}

/// Measures what the ledger adds to the allocator: totals by category, and every event kept.
fn history(c: &mut Criterion) {
    let trace = recording("default_train");
    let mut group = c.benchmark_group("allocators/default_train");
    group.throughput(Throughput::Elements(trace.operations().len() as u64));
    for (label, on) in [("caching and ledger", false), ("caching, ledger and history", true)] {
        group.bench_function(label, |b| {
            let mut caching = Caching::with_defaults(Arc::new(Meta::default()));
            let (mut ledger, mut next) = (Ledger::new(), 0);
            b.iter(|| {
                if on {
                    ledger.set_history(true); // it would grow without end
                }
                with_ledger(&trace, &mut caching, &mut ledger, &mut next);
            });
        });
    }
    group.finish();
}

/// Reproducible numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Measures one free and one allocation among `live` live blocks and as many holes.
fn scaling(c: &mut Criterion) {
    const PAIRS: usize = 4096;
    let mut group = c.benchmark_group("allocators/live");
    group.throughput(Throughput::Elements(2 * PAIRS as u64));
    for &live in common::sizes(&[1_000usize, 10_000, 100_000, 1_000_000]) {
        let mut random = Random(7);
        let mut caching = Caching::with_defaults(Arc::new(Meta::default()));
        let take = |caching: &mut Caching, random: &mut Random| {
            caching.allocate(1 + random.below(64 << 10), Stream::DEFAULT, &mut |_| {}).expect("never full").id
        };
        let all: Vec<_> = (0..2 * live).map(|_| take(&mut caching, &mut random)).collect();
        let mut blocks = Vec::with_capacity(live);
        for pair in all.chunks_exact(2) {
            blocks.push(pair[0]);
            caching.free(pair[1], &mut |_| {});
        }
        group.bench_function(BenchmarkId::from_parameter(live), |b| {
            b.iter(|| {
                for _ in 0..PAIRS {
                    let which = random.below(live as u64) as usize;
                    caching.free(blocks[which], &mut |_| {});
                    blocks[which] = take(&mut caching, &mut random);
                }
            });
        });
    }
    group.finish();
}

/// Measures a million operations on a fresh allocator.
fn million(c: &mut Criterion) {
    let mut group = c.benchmark_group("allocators/million");
    for name in common::sizes(&RECORDED) {
        let one = recording(name);
        let operations: usize = if common::is_test() { 1 } else { 1_000_000 };
        let trace = repeated(&one, operations.div_ceil(one.operations().len())).expect("a program as the recorded one");
        group.throughput(Throughput::Elements(trace.operations().len() as u64));
        group.bench_function(*name, |b| {
            let fresh = || Caching::with_defaults(Arc::new(Meta::default()));
            let run = |mut caching: Caching| {
                replay(&trace, &mut caching, &mut Silent).expect("never full");
                caching
            };
            b.iter_batched(fresh, run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// A suballocator in one arena. Sizes are multiples of [`GRANULE`].
trait Peer: Sized {
    type Handle: Copy;
    fn new(capacity: u64) -> Self;
    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle>;
    fn free(&mut self, handle: Self::Handle, bytes: u64);
}

struct Offsets(offset_allocator::Allocator<u32>);

impl Peer for Offsets {
    type Handle = offset_allocator::Allocation<u32>;
    fn new(capacity: u64) -> Self {
        Self(offset_allocator::Allocator::with_max_allocs((capacity / GRANULE) as u32, 1 << 16))
    }
    fn allocate(&mut self, bytes: u64) -> Option<Self::Handle> {
        self.0.allocate((bytes / GRANULE) as u32)
    }
    fn free(&mut self, handle: Self::Handle, _: u64) {
        self.0.free(handle);
    }
}

struct Ranges(range_alloc::RangeAllocator<u64>);

impl Peer for Ranges {
    type Handle = u64;
    fn new(capacity: u64) -> Self {
        Self(range_alloc::RangeAllocator::new(0..capacity))
    }
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.0.allocate_range(bytes).ok().map(|range| range.start)
    }
    fn free(&mut self, handle: u64, bytes: u64) {
        self.0.free_range(handle..handle + bytes);
    }
}

struct Frames(Box<buddy_system_allocator::FrameAllocator<33>>);

impl Peer for Frames {
    type Handle = usize;
    fn new(capacity: u64) -> Self {
        let mut frames = Box::new(buddy_system_allocator::FrameAllocator::new());
        frames.add_frame(0, (capacity / GRANULE) as usize);
        Self(frames)
    }
    fn allocate(&mut self, bytes: u64) -> Option<usize> {
        self.0.alloc((bytes / GRANULE) as usize)
    }
    fn free(&mut self, handle: usize, bytes: u64) {
        self.0.dealloc(handle, (bytes / GRANULE) as usize);
    }
}

/// Keeps its headers inside the blocks: so it needs an arena, of which only touched pages become real memory.
struct InBand(Box<rlsf::Tlsf<'static, u32, u32, 32, 32>>);

impl Peer for InBand {
    type Handle = NonNull<u8>;
    fn new(capacity: u64) -> Self {
        // Leaked until the benchmark's process ends.
        let arena: &'static mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(capacity as usize));
        let mut tlsf = Box::new(rlsf::Tlsf::new());
        tlsf.insert_free_block(arena);
        Self(tlsf)
    }
    fn allocate(&mut self, bytes: u64) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes as usize, GRANULE as usize).ok()?;
        self.0.allocate(layout)
    }
    fn free(&mut self, handle: NonNull<u8>, _: u64) {
        // SAFETY: the handle came from `allocate` of the same allocator with this alignment, and is freed once: the
        // program was checked.
        unsafe { self.0.deallocate(handle, GRANULE as usize) }
    }
}

fn run_peer<P: Peer>(peer: &mut P, trace: &Trace) {
    let mut blocks: Vec<(P::Handle, u64)> = Vec::with_capacity(trace.allocations());
    for operation in trace.operations() {
        match *operation {
            Operation::Allocate { bytes, .. } => {
                let bytes = bytes.max(1).next_multiple_of(GRANULE);
                blocks.push((peer.allocate(bytes).expect("a roomy arena"), bytes));
            }
            Operation::Free { allocation } => {
                let (handle, bytes) = blocks[allocation as usize];
                peer.free(handle, bytes);
            }
            _ => {}
        }
    }
}

/// Runs public suballocators on the same program, in an arena of four times the most bytes that live at one time. They
/// keep no statistics and have no segments; like the policies above, they find places for blocks.
fn peers(c: &mut Criterion) {
    for name in common::sizes(&RECORDED) {
        let trace = recording(name);
        let capacity = (trace.lower_bound().bytes * 4).next_power_of_two();
        let mut group = c.benchmark_group(format!("allocators/{name}"));
        group.throughput(Throughput::Elements(trace.operations().len() as u64));
        macro_rules! peer {
            ($kind:ty, $label:literal) => {
                let mut peer = <$kind>::new(capacity);
                group.bench_function($label, |b| b.iter(|| run_peer(black_box(&mut peer), &trace)));
            };
        }
        peer!(Offsets, "peer offset-allocator");
        peer!(Ranges, "peer range-alloc");
        peer!(Frames, "peer buddy_system_allocator");
        peer!(InBand, "peer rlsf");
        group.finish();
    }
}

/// Runs the program of a training of this project, whose recording is made here.
fn synthetic(c: &mut Criterion) {
    let trace = training_program().expect("a device that is never full");
    let mut group = c.benchmark_group("allocators/gpt");
    group.throughput(Throughput::Elements(trace.operations().len() as u64));
    for policy in POLICY_NAMES.into_iter().filter(|policy| !serves_once(policy)) {
        let mut allocator = opened(policy, &trace);
        group.bench_function(policy, |b| b.iter(|| replay(&trace, &mut *allocator, &mut Silent)));
    }
    group.finish();
}

fn main() -> ExitCode {
    common::main(&[policies, history, synthetic, scaling, million, peers])
}
