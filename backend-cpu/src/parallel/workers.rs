//! Threads that help the calling one. Between two kernels they stay awake for some microseconds, so that the next one
//! need not wake them; then they sleep.
//!
//! The caller opens a *gate*, works itself, closes it, and waits until all who went in have left. Nobody waits for a
//! thread that came too late.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread stays awake without work. Within a step of a small network a kernel follows the last one sooner.
const AWAKE: Duration = Duration::from_micros(50);
/// How long a reading of the system's load holds.
const LOAD_HOLDS: Duration = Duration::from_secs(1);
/// Set in [`Shared::gate`] while threads may go in; the other bits count those inside.
const OPEN: usize = 1 << (usize::BITS - 1);

/// Threads beside the calling one.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Tasks of a launch: `run(0)`, …, `run(count - 1)`.
#[derive(Clone, Copy)]
struct Tasks {
    run: *const (dyn Fn(usize) + Sync),
    count: usize,
}

/// In a cache line of its own: one thread counts it up, and the others seldom look.
#[repr(align(64))]
struct Next(AtomicUsize);

struct Shared {
    /// True while a caller uses the threads.
    busy: AtomicBool,
    /// Number of launches so far; changes when there is work, and at the end.
    launches: AtomicU32,
    ending: AtomicBool,
    gate: AtomicUsize,
    /// The next task of each thread's part, that nobody has; the caller's part is the last.
    next: Vec<Next>,
    /// Written by the caller while the gate is closed and nobody is inside; read by those inside.
    tasks: UnsafeCell<Tasks>,
    /// What a task's panic said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// True while the caller sleeps until the last one inside leaves.
    waiting: AtomicBool,
    caller: Mutex<Option<Thread>>,
    /// True while the worker of this index sleeps.
    asleep: Vec<AtomicBool>,
    patience: Patience,
}

// SAFETY: `tasks` is written by the one caller that set `busy`, while the gate is closed and empty, and read only by threads inside. The function
// that it points to may be called from any thread (`Sync`), and lives until the gate is empty again (`Workers::run`).
unsafe impl Sync for Shared {}
// SAFETY: see above.
unsafe impl Send for Shared {}

thread_local! {
    static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The index of this thread among the workers that it is one of.
pub(super) fn index() -> Option<usize> {
    INDEX.get()
}

impl Workers {
    /// Makes `count` threads, with stacks of `stack` bytes if that is given.
    pub(super) fn new(count: usize, stack: Option<usize>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            busy: AtomicBool::new(false),
            launches: AtomicU32::new(0),
            ending: AtomicBool::new(false),
            gate: AtomicUsize::new(0),
            next: (0..=count).map(|_| Next(AtomicUsize::new(0))).collect(),
            tasks: UnsafeCell::new(Tasks { run: &|_: usize| (), count: 0 }),
            panic: Mutex::new(None),
            waiting: AtomicBool::new(false),
            caller: Mutex::new(None),
            asleep: (0..count).map(|_| AtomicBool::new(false)).collect(),
            patience: Patience::new(count + 1),
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(count) };
        for index in 0..count {
            let shared = workers.shared.clone();
            let builder = std::thread::Builder::new().name(format!("vramlab-cpu-{index}"));
            let builder = stack.into_iter().fold(builder, std::thread::Builder::stack_size);
            // On failure those that were made end when `workers` is dropped.
            workers.threads.push(builder.spawn(move || shared.work(index))?);
        }
        Ok(workers)
    }

    /// Number of threads.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Runs `f(0)`, …, `f(count - 1)`, each once, on these threads and this one; on this one alone if another caller uses the threads, or if this
    /// is one of its tasks. Panics if a task does, after all others have ended.
    pub(super) fn run(&self, count: usize, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        if shared.busy.swap(true, SeqCst) {
            return (0..count).for_each(f);
        }
        // SAFETY: only the lifetime is left out. `f` is called only between the opening of the gate and its being empty again, which `close` waits
        // for before this function returns; no task's panic passes `take_part`.
        let run = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(f) };
        // SAFETY: the gate is closed and empty, and `busy` is this caller's.
        unsafe { *shared.tasks.get() = Tasks { run, count } };
        (0..shared.next.len()).for_each(|part| shared.next[part].0.store(shared.begin(part, count), SeqCst));
        shared.gate.store(OPEN, SeqCst);
        shared.launches.fetch_add(1, SeqCst);
        self.wake(count - 1);
        shared.take_part(self.count());
        shared.close();
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, SeqCst);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Wakes threads until as many are awake as there is work for.
    fn wake(&self, wanted: usize) {
        let asleep = &self.shared.asleep;
        let mut awake = asleep.iter().filter(|asleep| !asleep.load(SeqCst)).count();
        for (asleep, thread) in asleep.iter().zip(&self.threads) {
            if awake >= wanted {
                return;
            }
            if asleep.swap(false, SeqCst) {
                thread.thread().unpark();
                awake += 1;
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.ending.store(true, SeqCst);
        self.shared.launches.fetch_add(1, SeqCst);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// What a thread does until the end.
    fn work(&self, index: usize) {
        INDEX.set(Some(index));
        let mut seen = 0;
        loop {
            self.await_launch(index, seen);
            if self.ending.load(SeqCst) {
                return;
            }
            seen = self.launches.load(SeqCst);
            if self.enter() {
                self.take_part(index);
                self.leave();
            }
        }
    }

    /// Waits until there was a launch after the one that was `seen`, or the end came.
    fn await_launch(&self, index: usize, seen: u32) {
        let came = || self.launches.load(SeqCst) != seen || self.ending.load(SeqCst);
        if self.patience.spin_until(&came) {
            return;
        }
        self.patience.look_at_load();
        // Whoever launches counts first, and then looks who sleeps; here it is the other way round, so that one of both sees the other.
        sleep_until(&self.asleep[index], &came);
    }

    /// Goes in, if the gate is open.
    fn enter(&self) -> bool {
        self.gate.fetch_update(SeqCst, SeqCst, |gate| (gate & OPEN != 0).then_some(gate + 1)).is_ok()
    }

    fn leave(&self) {
        let last = self.gate.fetch_sub(1, SeqCst) == 1;
        if last && self.waiting.swap(false, SeqCst) {
            let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
            caller.iter().for_each(Thread::unpark);
        }
    }

    /// Runs tasks until none is left: first those of this thread's own part, because neighbouring tasks read and write neighbouring memory, then
    /// what others have left. The caller does so while the gate is open, everyone else inside.
    fn take_part(&self, own: usize) {
        // SAFETY: this thread is inside, or is the caller.
        let Tasks { run, count } = unsafe { *self.tasks.get() };
        let parts = self.next.len();
        for part in (own..parts).chain(0..own) {
            let end = self.begin(part + 1, count);
            // A part that is done is not counted any further.
            while self.next[part].0.load(SeqCst) < end {
                let task = self.next[part].0.fetch_add(1, SeqCst);
                if task >= end {
                    break;
                }
                // SAFETY: the function lives until everyone has left.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { (*run)(task) })) {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
            }
        }
    }

    /// The first of `count` tasks that belongs to a thread's part.
    fn begin(&self, part: usize, count: usize) -> usize {
        count * part / self.next.len()
    }

    /// Closes the gate, and waits until nobody is inside.
    fn close(&self) {
        if self.gate.fetch_and(!OPEN, SeqCst) == OPEN {
            return;
        }
        let empty = || self.gate.load(SeqCst) == 0;
        if self.patience.spin_until(&empty) {
            return;
        }
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        sleep_until(&self.waiting, &empty);
    }
}

/// Sleeps until `ready`. Whoever makes it so then takes `asleep` back, and unparks. It may come late, and wake this thread for nothing: so `asleep`
/// is set again each time.
fn sleep_until(asleep: &AtomicBool, ready: &impl Fn() -> bool) {
    loop {
        asleep.store(true, SeqCst);
        if ready() {
            return asleep.store(false, SeqCst);
        }
        std::thread::park();
    }
}

/// Whether waiting threads may stay awake for a while: only if each has a core, and others do not want it.
struct Patience {
    cores: usize,
    threads: usize,
    crowded: AtomicBool,
    looked: Mutex<Option<Instant>>,
}

impl Patience {
    fn new(threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let patience = Self { cores, threads, crowded: AtomicBool::new(false), looked: Mutex::new(None) };
        patience.look_at_load();
        patience
    }

    /// Waits awake for at most [`AWAKE`]. Returns true if `ready` became true.
    fn spin_until(&self, ready: &impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.threads > self.cores || self.crowded.load(SeqCst) {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < AWAKE {
            for _ in 0..32 {
                if ready() {
                    return true;
                }
                spin_loop();
            }
        }
        false
    }

    /// Reads the system's load, unless that was done a moment ago or is being done.
    fn look_at_load(&self) {
        let Ok(mut looked) = self.looked.try_lock() else { return };
        if looked.is_none_or(|looked| looked.elapsed() >= LOAD_HOLDS) {
            *looked = Some(Instant::now());
            let load = std::fs::read_to_string("/proc/loadavg").ok();
            self.crowded.store(load.is_some_and(|load| is_crowded(&load, self.cores)), SeqCst);
        }
    }
}

/// True if more wanted to run in the last minute than there are cores. The threads of one training fill them, but no more.
fn is_crowded(loadavg: &str, cores: usize) -> bool {
    let load = loadavg.split_whitespace().next().and_then(|load| load.parse::<f64>().ok());
    load.is_some_and(|load| load > cores as f64 + 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(workers: &Workers, count: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        workers.run(count, &|i| {
            counts[i].fetch_add(1, SeqCst);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// With and without time to fall asleep in between, on as many cores as threads and on fewer.
    #[test]
    fn every_task_runs_once_in_every_launch() {
        for threads in [1, 3] {
            let workers = Workers::new(threads, None).unwrap();
            for round in 0..500 {
                let count = 1 + round * round % 40;
                assert_eq!(counted(&workers, count), vec![1; count]);
                if round % 50 == 0 {
                    std::thread::sleep(3 * AWAKE);
                }
            }
        }
    }

    #[test]
    fn callers_at_once_and_tasks_that_launch_do_not_wait_for_each_other() {
        let workers = Workers::new(2, None).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(counted(&workers, 5), [1; 5])));
            }
        });
        workers.run(4, &|_| assert_eq!(counted(&workers, 3), [1; 3]));
    }

    #[test]
    fn a_panic_of_a_task_is_the_callers_and_the_threads_go_on() {
        let workers = Workers::new(2, None).unwrap();
        let ended = AtomicUsize::new(0);
        let launch = || {
            workers.run(50, &|i| {
                assert_ne!(i, 20, "the twenty-first");
                ended.fetch_add(1, SeqCst);
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(launch)).is_err());
        assert_eq!(ended.load(SeqCst), 49);
        assert_eq!(counted(&workers, 9), [1; 9]);
    }

    #[test]
    fn threads_without_work_sleep() {
        let workers = Workers::new(2, None).unwrap();
        counted(&workers, 4);
        let all_asleep = || workers.shared.asleep.iter().all(|asleep| asleep.load(SeqCst));
        let start = Instant::now();
        while !all_asleep() {
            assert!(start.elapsed() < Duration::from_secs(60), "they stay awake");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_stays_awake_without_a_core_or_beside_others() {
        let never = || false;
        let patience = |threads, cores, crowded| {
            let crowded = AtomicBool::new(crowded);
            Patience { cores, threads, crowded, looked: Mutex::new(None) }
        };
        let took = |patience: Patience| {
            let start = Instant::now();
            assert!(!patience.spin_until(&never));
            start.elapsed()
        };
        assert!(took(patience(2, 2, false)) >= AWAKE);
        // A thread that others keep from running takes long for nothing, but not each time.
        let at_once = |threads, crowded| (0..100).any(|_| took(patience(threads, 2, crowded)) < AWAKE / 2);
        assert!(at_once(3, false) && at_once(2, true));
        assert!(is_crowded("2.51 1.0 1.0 3/200 77", 2) && !is_crowded("2.10 9.0 9.0 3/200 77", 2));
        assert!(!is_crowded("", 2));
    }
}
