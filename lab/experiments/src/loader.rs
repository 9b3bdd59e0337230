//! `loader`: how much host memory do a loader's workers and pinned memory take?
//!
//! Runs the rules of PyTorch's `DataLoader` and of its cache of pinned memory, one batch after the other. They were measured with release
//! 2.11 under `vramlab rehearse` (`torch.cuda.host_memory_stats()`; the figures are in `lab/experiments/tests/it/reported.rs`):
//!
//! - `num_workers × prefetch_factor` batches are prefetched before the first is taken. Each batch that is taken lets a worker begin another.
//! - A thread of the main process pins batches as they arrive. A pageable batch is freed when its pinned copy exists.
//! - The loop's variable holds a batch until the next one is bound. A fast worker has made one more batch by then.
//! - A pinned block is as large as the next power of two. When it is free again, it serves only requests of that block size. It is never given back
//!   while the program runs.

use std::collections::BTreeMap;

use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_base::section::Cell;

use super::columns::Columns;
use super::progress::Progress;
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts};

/// The experiment.
pub(super) struct Loader;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "DataLoader prefetches 2 × num_workers batches, and raising that eats a lot of memory.",
        source: "pytorch, issue 25643 (2019)",
    },
    Claim {
        text: "A larger prefetch_factor with pin_memory leaks host memory.",
        source: "pytorch, issue 97432 (2023)",
    },
    Claim { text: "Allocating pinned memory uses twice as much memory.", source: "pytorch, issue 95823 (2023)" },
    Claim {
        text: "DataLoader uses three times the memory with num_workers above 0.",
        source: "pytorch, issue 5902 (2018)",
    },
];

/// Bytes in the thread about pinned memory: 4 347 592 704 values of two bytes.
const OF_THE_THREAD: u64 = 2 * 4_347_592_704;

/// Speed of the workers: whether one has made the next batch before the loop's variable drops the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workers {
    /// No workers: the loop makes and pins each batch itself while its variable holds the last one.
    None,
    Slow,
    Fast,
}

impl Workers {
    const ALL: [Self; 3] = [Self::None, Self::Slow, Self::Fast];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Slow => "slower than the loop's next line",
            Self::Fast => "faster than the loop's next line",
        }
    }

    /// Batches on the host besides the prefetched ones: the loop's batch, and one that is made while the loop holds it.
    fn besides(self) -> usize {
        if self == Self::Slow { 1 } else { 2 }
    }

    /// Number of batches that are prefetched before the first is taken.
    fn prefetched(self, sizes: Sizes) -> usize {
        if self == Self::None { 0 } else { sizes.prefetched() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    workers: usize,
    prefetch_factor: usize,
    batch_bytes: usize,
    batches: usize,
}

impl Sizes {
    fn prefetched(self) -> usize {
        self.workers * self.prefetch_factor
    }
}

/// Size of the pinned block that PyTorch takes for a request.
fn pinned(bytes: u64) -> u64 {
    bytes.max(1).next_power_of_two()
}

/// PyTorch's cache of pinned memory: number of free blocks by size.
#[derive(Default)]
struct PinnedCache {
    free: BTreeMap<u64, usize>,
    allocated_bytes: u64,
    blocks: u64,
}

impl PinnedCache {
    fn take(&mut self, bytes: u64) -> u64 {
        let block = pinned(bytes);
        match self.free.get_mut(&block).filter(|free| **free > 0) {
            Some(free) => *free -= 1,
            None => {
                self.allocated_bytes += block;
                self.blocks += 1;
            }
        }
        block
    }

    fn give_back(&mut self, block: u64) {
        *self.free.entry(block).or_default() += 1;
    }
}

/// Figures of a run of the loader.
struct Trial {
    workers: Workers,
    /// Most batches on the host at one time.
    batches: u64,
    blocks: u64,
    pinned_bytes: u64,
    /// Pinned bytes halfway through the run.
    pinned_bytes_halfway: u64,
}

/// Takes every batch. The loop is slower than the workers together, so that all prefetched batches are ready whenever it takes one.
fn run(workers: Workers, sizes: Sizes) -> Trial {
    let mut cache = PinnedCache::default();
    let request = sizes.batch_bytes as u64;
    let mut begun = workers.prefetched(sizes).min(sizes.batches);
    let mut ready: Vec<u64> = (0..begun).map(|_| cache.take(request)).collect();
    let (mut variable, mut most, mut halfway) = (None, ready.len(), 0);
    for taken in 0..sizes.batches {
        if workers == Workers::None {
            ready.push(cache.take(request));
            begun = sizes.batches;
            most = most.max(1 + usize::from(variable.is_some()));
        }
        let Some(next) = ready.pop() else { break };
        // Taking a batch lets a worker begin another, until the data end.
        let another = begun < sizes.batches;
        begun += usize::from(another);
        if another && workers == Workers::Fast {
            ready.push(cache.take(request));
            most = most.max(ready.len() + 1 + usize::from(variable.is_some()));
        }
        if let Some(last) = variable.replace(next) {
            cache.give_back(last);
        }
        if another && workers == Workers::Slow {
            ready.push(cache.take(request));
        }
        most = most.max(ready.len() + 1);
        if taken == sizes.batches / 2 {
            halfway = cache.allocated_bytes;
        }
    }
    Trial {
        workers,
        batches: most as u64,
        blocks: cache.blocks,
        pinned_bytes: cache.allocated_bytes,
        pinned_bytes_halfway: halfway,
    }
}

impl Experiment for Loader {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "loader",
                question: "What do a loader's workers and pinned memory take of the host?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("workers", "num_workers; 16"),
                    Size::one("prefetch_factor", "batches ahead for each worker; 8"),
                    Size::one("batch_bytes", "bytes of a batch; 4816896 (8 pictures of 3 × 224 × 224 floats)"),
                    Size::one("batches", "batches of an epoch; 1000"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes {
            workers: setup.within("workers", 16, 1..=4096)?,
            prefetch_factor: setup.within("prefetch_factor", 8, 1..=4096)?,
            batch_bytes: setup.within("batch_bytes", 4 * 8 * 3 * 224 * 224, 1..=1 << 40)?,
            batches: setup.within("batches", 1000, 1..=1_000_000)?,
        };
        let mut progress = Progress::new(setup, Workers::ALL.len());
        let columns = columns(sizes);
        let mut trials = Vec::new();
        for workers in Workers::ALL {
            progress.next(workers.name())?;
            let trial = run(workers, sizes);
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
        let title = format!("{} workers, prefetch_factor {}", sizes.workers, sizes.prefetch_factor);
        outcome.tables.push(columns.table(title, &trials));
        outcome.notes.push(
            "This is the loader's rule, and no worker runs here. What Python's objects of a data set take in each worker, as reference counts \
             make it copy their pages, is not supported; nor are persistent_workers of several loaders, which add up."
                .into(),
        );
        outcome.claims = judge(&trials, sizes);
        outcome.answer = answer(&trials, sizes);
        Ok(())
    }
}

fn columns(sizes: Sizes) -> Columns<'static, Trial> {
    // A short epoch ends before all of these batches exist.
    let most = move |t: &Trial| {
        let most = t.workers.prefetched(sizes) + t.workers.besides();
        (sizes.batches >= most).then_some(most as u64)
    };
    let batch_bytes = sizes.batch_bytes as u64;
    Columns::new()
        .words("workers", "workers", |t: &Trial| t.workers.name())
        .count("batches_on_the_host", "batches on the host", |t| t.batches)
        .cell("their bytes", move |t| Cell::Bytes(t.batches * batch_bytes))
        .measured("pinned_blocks", |t| t.blocks)
        .bytes("pinned_bytes", "pinned, in blocks", |t| t.pinned_bytes)
        .measured("pinned_bytes_halfway", |t| t.pinned_bytes_halfway)
        .predicted("batches_on_the_host", most)
        .predicted("pinned_blocks", most)
        .predicted("pinned_bytes", move |t| most(t).map(|most| most * pinned(batch_bytes)))
}

fn answer(trials: &[Trial], sizes: Sizes) -> ShortAnswer {
    let [none, slow, fast] = trials else { return ShortAnswer::default() };
    let batch = sizes.batch_bytes as u64;
    ShortAnswer::new(
        "num_workers × prefetch_factor batches, and up to two more",
        [
            format!(
                "{} × {}: {} to {} batches of {} on the host at once.",
                sizes.workers,
                sizes.prefetch_factor,
                slow.batches,
                fast.batches,
                bytes(batch)
            ),
            format!(
                "Pinned: {} at most, since each block is a power of two ({} for a batch); they stay. Without workers: {}.",
                bytes(fast.pinned_bytes),
                bytes(pinned(batch)),
                bytes(none.pinned_bytes)
            ),
        ],
    )
}

fn judge(trials: &[Trial], sizes: Sizes) -> Vec<JudgedClaim> {
    let [_, slow, fast] = trials else { return Vec::new() };
    let batch = sizes.batch_bytes as u64;
    let grows = fast.pinned_bytes > fast.pinned_bytes_halfway;
    let thread = pinned(OF_THE_THREAD);
    vec![
        JudgedClaim {
            lead: "prefetch_factor of them a worker, and up to two more",
            claim: CLAIMS[0],
            verdict: if fast.batches == sizes.prefetched() as u64 { Verdict::Holds } else { Verdict::Depends },
            number: in_counts([("batches, slow workers", Some(slow.batches)), ("fast", Some(fast.batches))]),
            condition: format!(
                "{} × {} batches are prefetched; the loop holds one and a fast worker makes another meanwhile, so that up to {} of {} are on the \
                 host, {} in all; prefetch_factor is 2 unless it is given",
                sizes.workers,
                sizes.prefetch_factor,
                fast.batches,
                bytes(batch),
                bytes(fast.batches * batch)
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if grows { Verdict::Holds } else { Verdict::Fails },
            number: in_bytes([("pinned, halfway", fast.pinned_bytes_halfway), ("at the end", fast.pinned_bytes)]),
            condition: format!(
                "it rises until {} blocks of {} are there and is then flat ({} after half of {} batches and at the end): blocks are kept and taken \
                 again, and never given back while the program runs",
                fast.blocks,
                bytes(pinned(batch)),
                bytes(fast.pinned_bytes_halfway),
                sizes.batches
            ),
        },
        JudgedClaim {
            lead: "up to twice, by rounding to a power of two",
            claim: CLAIMS[2],
            verdict: Verdict::Depends,
            number: in_bytes([("asked for", OF_THE_THREAD), ("block", thread)]),
            condition: format!(
                "a pinned block is the next power of two: {} for the {} of the thread, {:.2} times; {} for a batch of {}, {:.2} times; a power of \
                 two takes what it asks for",
                bytes(thread),
                bytes(OF_THE_THREAD),
                thread as f64 / OF_THE_THREAD as f64,
                bytes(pinned(batch)),
                bytes(batch),
                pinned(batch) as f64 / batch as f64
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[3],
            verdict: Verdict::NotTested,
            number: in_counts([("Python objects measured", Some(0))]),
            condition: format!(
                "the thread is about a data set of Python objects, which each of the {} workers comes to have for itself as it counts references: \
                 memory of Python's, which nothing here represents",
                sizes.workers
            ),
        },
    ]
}
