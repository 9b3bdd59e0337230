//! Threads of the backend, and their scratch buffers.

mod workers;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use memcore::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use workers::Workers;

/// Minimum number of elements for more than one thread. Less work runs on the calling thread, because waking another takes longer.
pub(crate) const INLINE_ELEMENTS: usize = 32 << 10;

/// Bytes of one scratch buffer.
pub(crate) const SCRATCH_BYTES: usize = 2 << 20;

/// Bytes of the buffer that the threads of a launch share. It holds data that is packed once and read by all.
pub(crate) const SHARED_BYTES: usize = 4 << 20;

/// Threads that kernels run on, and one scratch buffer for each of them and for the caller.
pub(crate) struct Threads {
    /// Threads beside the calling one; `None` if it does all work.
    workers: Option<Arc<Workers>>,
    count: usize,
    buffers: Vec<Buffer>,
    shared: Buffer,
}

struct Buffer {
    pages: MmapRaw,
    taken: AtomicBool,
    // The buffer is handed out to one thread at a time.
    _not_shared: UnsafeCell<()>,
}

// SAFETY: the pages are reached only through `Scratch`, which one thread at a time holds (`taken`).
unsafe impl Sync for Buffer {}

/// Buffer of [`SCRATCH_BYTES`] (or [`SHARED_BYTES`]), aligned to a page, until this is dropped. Its contents are garbage.
pub(crate) struct Scratch<'a> {
    buffer: &'a Buffer,
}

impl Scratch<'_> {
    /// Returns the first `len` elements of the buffer, of a plain number type. Panics if they do not fit.
    pub(crate) fn slice_mut<T: Plain>(&mut self, len: usize) -> &mut [T] {
        assert!(len * size_of::<T>() <= self.buffer.pages.len(), "a scratch of {len} elements is too large");
        // SAFETY: the buffer is page-aligned, long enough, initialised (anonymous pages are zero), any bits are a
        // value of `T`, and `self` is borrowed mutably while no one else holds the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.pages.as_mut_ptr().cast::<T>(), len) }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.buffer.taken.store(false, Ordering::Release);
    }
}

/// Numbers for which any bits are a value.
///
/// # Safety
/// Implemented only for such types, of alignment at most 64.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}
macro_rules! plain {
    ($($T:ty)*) => {$(
        // SAFETY: numbers without invalid bits (16-bit floats are transparent wrappers of u16).
        unsafe impl Plain for $T {}
    )*};
}
plain!(f32 f64 u8 u16 u32 u64 i64 half::f16 half::bf16);

/// Threads for all devices without their own, made once: with the calling one, one per core unless `RAYON_NUM_THREADS` says otherwise.
static SHARED: OnceLock<Option<Arc<Workers>>> = OnceLock::new();

/// Returns the number of threads that `RAYON_NUM_THREADS` asks for, otherwise that of cores.
fn usual_count() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|count| count.parse().ok()).filter(|&count| count > 0);
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Makes threads beside the calling one, so that there are `count`; `None` if that one is enough, or if they cannot be made (a container may allow no
/// more processes). The calling thread then does all work, with the same results.
fn beside(count: usize, stack: Option<usize>) -> Option<Arc<Workers>> {
    (count > 1).then(|| Workers::new(count - 1, stack).ok().map(Arc::new))?
}

impl Threads {
    /// Makes `count` own threads, the calling one among them; 0 means one per core. `None` means the threads that all devices share, or the calling
    /// thread alone if they cannot be made.
    pub(crate) fn new(count: Option<usize>) -> Result<Self> {
        match count {
            None => Self::over(SHARED.get_or_init(|| beside(usual_count(), None)).clone()),
            Some(count) => {
                let count = if count == 0 { usual_count() } else { count };
                let made = Workers::new(count - 1, None).map_err(|e| Error::backend("cpu", e))?;
                Self::over(Some(Arc::new(made)))
            }
        }
    }

    fn over(workers: Option<Arc<Workers>>) -> Result<Self> {
        let count = workers.as_ref().map_or(1, |workers| workers.count() + 1);
        let buffer = |len| -> Result<Buffer> {
            let pages = MmapOptions::new().len(len).map_anon().map_err(|e| Error::backend("cpu", e))?.into();
            Ok(Buffer { pages, taken: AtomicBool::new(false), _not_shared: UnsafeCell::new(()) })
        };
        // One buffer more than threads, because the caller may hold one across its tasks.
        let buffers = (0..=count).map(|_| buffer(SCRATCH_BYTES)).collect::<Result<_>>()?;
        Ok(Self { workers, count, buffers, shared: buffer(SHARED_BYTES)? })
    }

    /// Returns the number of threads.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of all scratch buffers, including the shared buffer.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        (self.buffers.len() * SCRATCH_BYTES + SHARED_BYTES) as u64
    }

    /// Runs `f(0)`, …, `f(tasks - 1)`, each once, on any threads in any order.
    pub(crate) fn for_each(&self, tasks: usize, f: impl Fn(usize) + Sync + Send) {
        match &self.workers {
            Some(workers) if tasks > 1 && self.count > 1 => workers.run(tasks, &f),
            _ => (0..tasks).for_each(f),
        }
    }

    /// Takes the shared buffer. The thread that launches does so, once in a launch.
    pub(crate) fn shared_room(&self) -> Scratch<'_> {
        while self.shared.taken.swap(true, Ordering::Acquire) {
            // Another launch of these threads is about to end.
            std::thread::yield_now();
        }
        Scratch { buffer: &self.shared }
    }

    /// Takes a free scratch buffer. There is one more buffer than threads: each task may hold one, and so may the thread that calls
    /// [`Threads::for_each`], across that call.
    pub(crate) fn scratch(&self) -> Scratch<'_> {
        let start = workers::index().unwrap_or(self.count) % self.buffers.len();
        loop {
            for i in 0..self.buffers.len() {
                let buffer = &self.buffers[(start + i) % self.buffers.len()];
                if !buffer.taken.swap(true, Ordering::Acquire) {
                    return Scratch { buffer };
                }
            }
            // Another task is about to return a buffer.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_task_runs_once_with_a_scratch_of_its_own() {
        let threads = Threads::new(Some(3)).unwrap();
        let counts: Vec<AtomicUsize> = (0..200).map(|_| AtomicUsize::new(0)).collect();
        threads.for_each(counts.len(), |i| {
            let mut scratch = threads.scratch();
            let values = scratch.slice_mut::<f32>(1000);
            values.fill(i as f32);
            std::thread::yield_now();
            assert!(values.iter().all(|&v| v == i as f32));
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        assert_eq!(threads.scratch_bytes(), (4 * SCRATCH_BYTES + SHARED_BYTES) as u64);
    }
    #[test]
    fn where_no_thread_can_be_made_the_caller_works() {
        // No address space holds such a stack.
        let workers = beside(3, Some(1 << 60));
        assert!(workers.is_none());
        let threads = Threads::over(workers).unwrap();
        let caller = std::thread::current().id();
        let count = AtomicUsize::new(0);
        threads.for_each(100, |_| {
            assert_eq!(std::thread::current().id(), caller);
            drop(threads.scratch());
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!((threads.count(), count.into_inner()), (1, 100));
        assert!(Threads::new(Some(3)).is_ok());
    }
}
