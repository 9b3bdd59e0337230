//! An opened device, and its errors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memcore::error::{Error, Result};
use rustc_hash::FxHashMap;
use wgpu::{
    Adapter, ComputePipeline, Device, DeviceDescriptor, ExperimentalFeatures, Features, MemoryHints, Queue, Trace,
};

use crate::NAME;
use crate::adapter::AdapterInfo;
use crate::choice::{Class, Tile};
use crate::halves::Halves;

/// Lanes of a subgroup on software adapters, which is also the size of a workgroup there.
pub(crate) const LANES: usize = 8;

/// The first error that the driver reported and that was not returned yet. A lost device stays lost.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Failure>>);

#[derive(Default)]
struct Failure {
    error: Option<String>,
    lost: Option<String>,
}

impl Sink {
    fn with<T>(&self, f: impl FnOnce(&mut Failure) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Compiled kernels by name and variant.
type Compiled = Arc<Mutex<FxHashMap<(&'static str, u64), ComputePipeline>>>;

/// The fastest tile of each kind of product that was tried.
type Tuned = Arc<Mutex<FxHashMap<Class, Tile>>>;

/// A device with its queue; clones are the same device.
#[derive(Clone)]
pub(crate) struct Gpu {
    pub(crate) adapter: Adapter,
    pub(crate) device: Device,
    pub(crate) queue: Queue,
    pub(crate) info: AdapterInfo,
    /// True for a software adapter with subgroups of eight lanes.
    pub(crate) has_lanes: bool,
    /// True if subgroups are made of eights of threads, and fit a workgroup of 64.
    pub(crate) has_eights: bool,
    /// True if kernels move quads by 64 bits.
    pub(crate) by_64: bool,
    /// Index of the candidate that every product must use, instead of the fastest: tests go through all of them.
    pub(crate) forced_tile: Option<usize>,
    /// How it converts 16-bit floats, once that was tried.
    pub(crate) halves: Arc<OnceLock<Halves>>,
    sink: Sink,
    compiled: Compiled,
    tuned: Tuned,
}

impl Gpu {
    /// Returns the device of the adapter at `index`. A program opens it once: the runs of an experiment need fresh
    /// memory, but not a driver that compiles every kernel again.
    pub(crate) fn open(index: usize) -> Result<Self> {
        static OPENED: Mutex<BTreeMap<usize, Gpu>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = opened.get(&index).filter(|gpu| !gpu.is_lost()) {
            return Ok(gpu.clone());
        }
        let gpu = Self::open_anew(index)?;
        opened.insert(index, gpu.clone());
        Ok(gpu)
    }

    /// Returns a kernel that some backend object on this device compiled before.
    pub(crate) fn compiled(&self, name: &'static str, variant: u64) -> Option<ComputePipeline> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&(name, variant)).cloned()
    }

    /// Keeps a compiled kernel for later use.
    pub(crate) fn keep_compiled(&self, name: &'static str, variant: u64, pipeline: &ComputePipeline) {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).insert((name, variant), pipeline.clone());
    }

    /// Returns the tile that was chosen for products of this kind.
    pub(crate) fn tuned(&self, class: &Class) -> Option<Tile> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner).get(class).copied()
    }

    pub(crate) fn keep_tuned(&self, class: Class, tile: Tile) {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner).insert(class, tile);
    }

    /// Opens the adapter at `index` with all features that the kernels use.
    pub(crate) fn open_anew(index: usize) -> Result<Self> {
        let (adapter, info) = crate::adapter::at(index)?;
        // Real cards move 128 bits at once without it; software gains from words of 64 bits.
        let wide = if info.is_software { Features::SHADER_INT64 } else { Features::empty() };
        let wanted = adapter.features() & (Features::SUBGROUP | Features::SHADER_F16 | wide);
        let request = adapter.request_device(&DeviceDescriptor {
            label: Some("vramlab"),
            required_features: wanted,
            required_limits: adapter.limits(),
            experimental_features: ExperimentalFeatures::disabled(),
            // Small blocks in wgpu's allocator: a segment then takes hardly more from the driver than its size.
            memory_hints: MemoryHints::MemoryUsage,
            trace: Trace::Off,
        });
        let (device, queue) = pollster::block_on(request)
            .map_err(|error| Error::backend(NAME, format!("{} could not be opened: {error}", info.name)))?;
        let sink = Sink::default();
        let on_error = sink.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            on_error.with(|failure| failure.error.get_or_insert_with(|| one_line(&error.to_string())).len());
        }));
        let on_loss = sink.clone();
        // Also called when the last owner drops the device; then nobody hears of it.
        device.set_device_lost_callback(move |_, message| {
            on_loss.with(|failure| failure.lost.get_or_insert_with(|| one_line(&message)).len());
        });
        let subgroups = adapter.get_info();
        let sizes = [subgroups.subgroup_min_size, subgroups.subgroup_max_size];
        let has_lanes = info.is_software && wanted.contains(Features::SUBGROUP) && sizes == [LANES as u32; 2];
        let has_eights = wanted.contains(Features::SUBGROUP) && sizes[0] >= LANES as u32 && sizes[1] <= 64;
        let by_64 = wanted.contains(Features::SHADER_INT64);
        let (compiled, tuned, halves) = (Compiled::default(), Tuned::default(), Arc::default());
        Ok(Self {
            adapter,
            device,
            queue,
            info,
            has_lanes,
            has_eights,
            by_64,
            forced_tile: None,
            halves,
            sink,
            compiled,
            tuned,
        })
    }

    /// Makes an error that names this device.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::backend(NAME, format!("{}: {what}", self.info.name))
    }

    /// Returns the error that the driver reported since the last call.
    pub(crate) fn check(&self) -> Result<()> {
        self.sink.with(|failure| {
            if let Some(lost) = &failure.lost {
                return Err(self.error(format!("the device was lost: {lost}")));
            }
            failure.error.take().map_or(Ok(()), |error| Err(self.error(error)))
        })
    }

    /// True if the device is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.sink.with(|failure| failure.lost.is_some())
    }
}

/// Rounds after which some software drivers leave a loop, counted over all loops of a thread.
const ROUNDS: usize = 65_000;

impl Gpu {
    /// Refuses a kernel that such a driver would silently compute wrongly.
    ///
    /// # Errors
    /// Names the kernel if it needs more rounds than the driver runs.
    pub(crate) fn check_rounds(&self, kernel: &str, rounds: usize) -> Result<()> {
        if rounds <= ROUNDS || !self.info.name.contains("llvmpipe") {
            return Ok(());
        }
        Err(self.error(format!("{kernel} of this size needs loops of {rounds} rounds; this driver ends them at 65535")))
    }
}

/// Joins wgpu's messages, which have several lines, into one line.
pub(crate) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
