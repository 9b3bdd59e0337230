//! A device, as the rest of the core sees it: a backend, the allocator on its memory, and the ledger of both.

mod host;
mod kept;
mod meter;
mod work;
mod workspaces;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::backend::{Access, Backend, KernelCall, MemoryInfo, Meta, Overhead, Region, validate};
use crate::context;
use crate::deviation::{Deviation, Deviations, RecordedDeviations};
use crate::error::{Error, Result};
use crate::memory::{AllocId, Allocator, Block, Caching, Category, Event, Ledger, Origin, OutOfMemory, Rings};
use crate::memory::{ScopeId, Snapshot, Stats, Stream, Usage};
use crate::profile::{Convolution, Profile};
use crate::tape::Tape;
pub(crate) use host::HostBlock;
pub use host::{Host, HostKind, HostUsage};
use kept::KeptWorkspace;
pub(crate) use kept::WorkspaceKind;
pub use meter::Meter;
pub use work::Counters;
use work::Work;

/// A device. Clones share it; it lives until the last tensor on it is dropped.
///
/// It consists of a backend, an allocator on its memory, and a ledger of what both did:
///
/// ```
/// use memcore::prelude::*;
///
/// # fn main() -> Result<()> {
/// let device = Device::meta("torch-2.11-sm90")?;
/// let x = Array::empty(&device, &[1000], DType::F32)?;
/// // PyTorch rounds a block up to 512 bytes and takes a segment of 2 MiB for small ones.
/// assert_eq!((x.nbytes(), device.usage().allocated_bytes()), (4000, 4096));
/// assert_eq!(device.usage().reserved_bytes(), 2 << 20);
/// drop(x);
/// assert_eq!((device.usage().allocated_bytes(), device.usage().peak_bytes()), (0, 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    profile: Profile,
    state: Mutex<State>,
    tape: Tape,
    seed: AtomicU64,
    /// Next unused counter of the random generator.
    random_offset: AtomicU64,
    work: Work,
    meter: OnceLock<Arc<dyn Meter>>,
    deviations: RecordedDeviations,
}

struct State {
    allocator: Box<dyn Allocator>,
    ledger: Ledger,
    next_alloc: u64,
    /// Workspaces that libraries keep for the life of the process, by user.
    workspaces: Vec<KeptWorkspace>,
    /// The state of cuDNN's random generator for dropout in recurrent networks, which PyTorch keeps for the life of the process.
    dropout_state: Option<(Block, AllocId)>,
}

/// Settings for building a [`Device`].
pub struct DeviceBuilder {
    backend: Arc<dyn Backend>,
    profile: Profile,
    allocator: Option<Box<dyn Allocator>>,
    history: bool,
    seed: u64,
}

impl DeviceBuilder {
    /// Sets the profile, which determines temporaries and workspaces. [`Profile::native`] by default.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets the allocation policy. PyTorch's [`Caching`] by default. It must use the same backend.
    #[must_use]
    pub fn allocator(mut self, allocator: Box<dyn Allocator>) -> Self {
        self.allocator = Some(allocator);
        self
    }

    /// Sets whether every event is kept from the start. Off by default; totals are always kept.
    #[must_use]
    pub fn history(mut self, on: bool) -> Self {
        self.history = on;
        self
    }

    /// Sets the key of the device's random generator.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Builds the device.
    pub fn build(self) -> Device {
        let mut profile = self.profile;
        if profile.asks_gemm_workspace {
            profile.gemm_workspace_bytes = self.backend.gemm_workspace_bytes();
        }
        let allocator = self.allocator.unwrap_or_else(|| Box::new(Caching::with_defaults(self.backend.clone())));
        let mut ledger = Ledger::default();
        ledger.set_history(self.history);
        Device(Arc::new(Inner {
            backend: self.backend,
            profile,
            state: Mutex::new(State { allocator, ledger, next_alloc: 0, workspaces: Vec::new(), dropout_state: None }),
            tape: Tape::default(),
            seed: AtomicU64::new(self.seed),
            random_offset: AtomicU64::new(0),
            work: Work::default(),
            meter: OnceLock::new(),
            deviations: RecordedDeviations::default(),
        }))
    }
}

impl Device {
    /// Creates a device with PyTorch's caching allocator and the `native` profile.
    pub fn new(backend: impl Backend + 'static) -> Self {
        Self::builder(Arc::new(backend)).build()
    }

    /// Creates a device that computes nothing and is never full, with PyTorch's caching allocator. It counts the memory
    /// of the profile's release, for example `torch-2.11-sm90`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is not in [`Profile::NAMES`].
    pub fn meta(profile: &str) -> Result<Self> {
        let unknown = || match Profile::nearest(profile) {
            Some(nearest) => {
                Error::invalid("profile", format!("{profile} is not recorded; {} is nearest", nearest.name))
            }
            None => Error::invalid("profile", format!("{profile} is none; torch-2.11-sm90 is one")),
        };
        Ok(Self::builder(Arc::new(Meta::default())).profile(Profile::named(profile).ok_or_else(unknown)?).build())
    }

    /// Starts building a device on `backend`.
    pub fn builder(backend: Arc<dyn Backend>) -> DeviceBuilder {
        DeviceBuilder { backend, profile: Profile::native(), allocator: None, history: false, seed: 0 }
    }

    /// The backend's name.
    pub fn name(&self) -> &str {
        self.0.backend.name()
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// The backend, shared, to build another device on it.
    pub fn shared_backend(&self) -> Arc<dyn Backend> {
        self.0.backend.clone()
    }

    /// The memory profile.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// True if values exist; false for `meta`.
    pub fn computes(&self) -> bool {
        self.0.backend.computes()
    }

    /// True if both are the same device.
    pub fn is_same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The live autograd nodes, for reports.
    #[doc(hidden)]
    pub fn tape(&self) -> &Tape {
        &self.0.tape
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ── memory ──

    /// Allocates a block of `bytes` > 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the account of who holds the memory. The device stays usable.
    pub(crate) fn allocate(&self, bytes: u64, category: Category) -> Result<(Block, AllocId)> {
        let mut state = self.state();
        state.allocate(bytes, category).map_err(|error| match error {
            Error::DeviceFull { .. } | Error::TooLarge { .. } => {
                let origin = state.origin();
                state.ledger.record(Event::Oom { requested_bytes: bytes, origin });
                let report = OutOfMemory::new(bytes, &*state.allocator, &state.ledger, &*self.0.backend);
                Error::OutOfMemory(Box::new(report))
            }
            other => other,
        })
    }

    pub(crate) fn free(&self, block: Block, id: AllocId) {
        self.state().free(&block, id);
    }

    pub(crate) fn retag(&self, id: AllocId, to: Category) {
        self.state().ledger.record(Event::Retag { id, to });
    }

    /// Gives cached memory back to the driver. Returns the bytes given back.
    pub fn empty_cache(&self) -> u64 {
        let state = &mut *self.state();
        let ledger = &mut state.ledger;
        state.allocator.empty_cache(&mut |event| ledger.record_driver(event))
    }

    /// The allocator's statistics, under PyTorch's names.
    pub fn stats(&self) -> Stats {
        self.state().allocator.stats().clone()
    }

    /// The allocator's name.
    pub fn allocator_name(&self) -> &'static str {
        self.state().allocator.name()
    }

    /// Resets all peaks to the current values.
    pub fn reset_peak_stats(&self) {
        let mut state = self.state();
        state.allocator.reset_peak_stats();
        state.ledger.record(Event::ResetPeak);
    }

    /// Segments and blocks as data.
    pub fn snapshot(&self) -> Snapshot {
        self.state().allocator.snapshot()
    }

    /// Totals by category and scope, and the composition at the peak.
    pub fn usage(&self) -> Usage {
        self.state().ledger.usage().clone()
    }

    /// Free and total memory, as the driver reports them.
    pub fn memory_info(&self) -> Option<MemoryInfo> {
        self.0.backend.memory_info()
    }

    /// The five sizes that belong together. `driver` is the memory in use on the device, as the driver reports it.
    pub fn rings(&self) -> Rings {
        let info = self.0.backend.memory_info();
        Rings::now(self.state().allocator.stats(), info.map(|i| i.total_bytes - i.free_bytes))
    }

    /// The parts of the driver's used memory that are not segments, as far as the backend measures them.
    pub fn overheads(&self) -> Vec<Overhead> {
        self.0.backend.overheads()
    }

    /// Runs `read` on the ledger, which has the history and the names of scopes and phases.
    pub fn with_ledger<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        read(&self.state().ledger)
    }

    /// Turns the history of events on or off from now on.
    pub fn set_history(&self, on: bool) {
        self.state().ledger.set_history(on);
    }

    /// Begins a phase of the program: later events and peaks belong to it.
    pub fn phase(&self, name: &str) {
        let ledger = &mut self.state().ledger;
        let phase = ledger.phase(name);
        ledger.record(Event::Phase { phase });
    }

    /// The highest number of allocated bytes since the last call (or the start).
    #[doc(hidden)]
    pub fn take_phase_peak(&self) -> u64 {
        let ledger = &mut self.state().ledger;
        let peak = ledger.usage().phase_peak_bytes();
        ledger.record(Event::ResetPhasePeak);
        peak
    }

    /// The id of a module path, for attribution.
    pub fn scope(&self, path: &str) -> ScopeId {
        self.state().ledger.scope(path)
    }

    // ── values ──

    /// Validates, counts and queues a kernel.
    ///
    /// # Errors
    /// [`Error::InvalidCall`] for a call that breaks the contract, [`Error::Unsupported`] for a kernel that the backend
    /// does not have, and errors of the backend.
    pub fn launch(&self, call: impl Into<KernelCall>) -> Result<()> {
        let call: KernelCall = call.into();
        validate(&call)?;
        if writes_nothing(&call) {
            return Ok(());
        }
        let backend = &self.0.backend;
        if !backend.supports(&call) {
            return Err(Error::Unsupported {
                backend: backend.name().into(),
                kernel: call.name(),
                dtype: call.dtype(),
            });
        }
        let cost = call.cost();
        if let Some(meter) = self.0.meter.get() {
            meter.launched(&call, &cost);
        }
        self.0.work.add(&cost);
        backend.launch(&call)
    }

    /// Tells `meter` of each launch from now on. A device has one meter: another one after the first is not told of anything.
    pub fn set_meter(&self, meter: Arc<dyn Meter>) {
        let _ = self.0.meter.set(meter);
    }

    /// Copies host bytes to the device.
    pub(crate) fn upload(&self, src: &[u8], dst: Region) -> Result<()> {
        self.0.work.uploaded_bytes.fetch_add(src.len() as u64, Relaxed);
        if src.is_empty() { Ok(()) } else { self.0.backend.upload(src, dst) }
    }

    /// Copies device bytes to the host, after all queued work; fails on a device without values.
    pub(crate) fn download(&self, src: Region, dst: &mut [u8]) -> Result<()> {
        self.0.work.downloaded_bytes.fetch_add(dst.len() as u64, Relaxed);
        if dst.is_empty() { Ok(()) } else { self.0.backend.download(src, dst) }
    }

    /// Counts `bytes` that moved from this device to another one.
    pub(crate) fn count_moved(&self, to: &Device, bytes: u64) {
        self.0.work.sent_bytes.fetch_add(bytes, Relaxed);
        to.0.work.received_bytes.fetch_add(bytes, Relaxed);
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// Any failure in the queue.
    pub fn synchronize(&self) -> Result<()> {
        self.0.backend.synchronize()
    }

    /// The deviations so far from the program that this run stands for.
    pub fn deviations(&self) -> Deviations {
        self.0.deviations.so_far()
    }

    /// True if the profile has cuDNN for an operator that PyTorch runs with it; records `deviation` if PyTorch's has none.
    pub(crate) fn has_cudnn_or(&self, deviation: Deviation) -> bool {
        if self.profile().convolution == Convolution::Native {
            self.0.deviations.record(deviation);
        }
        self.profile().cudnn_workspace_bytes().is_some()
    }

    /// Where deviations from the program that the run stands for are recorded.
    pub(crate) fn recorded_deviations(&self) -> &RecordedDeviations {
        &self.0.deviations
    }

    /// Memory of the host that holds copies of its tensors.
    pub fn host(&self) -> &Host {
        &self.0.work.host
    }

    /// The work that the device was asked to do so far.
    pub fn counters(&self) -> Counters {
        self.0.work.counted()
    }

    /// Workspace that the backend's own algorithm wants for a call, under a profile that leaves it to the backend.
    pub(crate) fn native_workspace(&self, call: &KernelCall) -> u64 {
        self.0.backend.workspace_bytes(call)
    }

    /// Restarts the random generator with a new key.
    pub fn set_seed(&self, seed: u64) {
        self.set_random_state((seed, 0));
    }

    /// Key and first counter for a kernel that draws `numel` words. The counters it needs are consumed.
    pub(crate) fn draw(&self, numel: usize) -> (u64, u64) {
        let offset = self.0.random_offset.fetch_add(numel.div_ceil(4) as u64, Relaxed);
        (self.0.seed.load(Relaxed), offset)
    }

    /// The random generator's key and the next counter.
    #[doc(hidden)]
    pub fn random_state(&self) -> (u64, u64) {
        (self.0.seed.load(Relaxed), self.0.random_offset.load(Relaxed))
    }

    /// Sets the random generator to a saved state.
    #[doc(hidden)]
    pub fn set_random_state(&self, (seed, offset): (u64, u64)) {
        self.0.seed.store(seed, Relaxed);
        self.0.random_offset.store(offset, Relaxed);
    }

    /// The random generator's next counter, for a recomputation that must draw the same numbers.
    pub(crate) fn random_offset(&self) -> u64 {
        self.0.random_offset.load(Relaxed)
    }

    /// Sets the random generator's next counter.
    pub(crate) fn set_random_offset(&self, offset: u64) {
        self.0.random_offset.store(offset, Relaxed);
    }
}

impl State {
    fn origin(&self) -> Origin {
        context::origin(self.ledger.usage().phase())
    }

    fn allocate(&mut self, bytes: u64, category: Category) -> Result<(Block, AllocId)> {
        let ledger = &mut self.ledger;
        let block = self.allocator.allocate(bytes, Stream::DEFAULT, &mut |event| ledger.record_driver(event))?;
        let id = AllocId(self.next_alloc);
        self.next_alloc += 1;
        let origin = self.origin();
        self.ledger.record(Event::Alloc {
            id,
            requested_bytes: bytes,
            bytes: block.bytes,
            address: block.address,
            stream: Stream::DEFAULT,
            category,
            origin,
        });
        Ok((block, id))
    }

    fn free(&mut self, block: &Block, id: AllocId) {
        let origin = context::origin_of_free(id, self.ledger.usage().phase());
        let ledger = &mut self.ledger;
        ledger.record(Event::Free { id, origin });
        self.allocator.free(block.id, &mut |event| ledger.record_driver(event));
    }
}

/// True if every written operand is empty, so that there is nothing to do.
fn writes_nothing(call: &KernelCall) -> bool {
    let mut nothing = true;
    call.each_operand(&mut |_, access, operand| {
        nothing &= !access.writes() || access == Access::Workspace || operand.numel() == 0;
    });
    nothing
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Meta;

    /// Element `i` of a draw takes a word of the counter `i/4` after its first one.
    #[test]
    fn no_two_draws_share_a_counter_and_none_is_left_out() {
        let device = Device::builder(Arc::new(Meta::default())).seed(7).build();
        let mut next = 0;
        for numel in [1, 2, 3, 4, 5, 8, 9, 1, 257, 256] {
            let (seed, first) = device.draw(numel);
            assert_eq!((seed, first), (7, next), "{numel} elements");
            let last = first + (numel as u64 - 1) / 4;
            next = last + 1;
        }
        assert_eq!(device.random_state(), (7, next));
    }
}
