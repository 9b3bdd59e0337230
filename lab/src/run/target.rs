//! Device of a run, and its allocator.

use std::sync::Arc;

use lab_base::backends::{self, Entry, Remark};
use lab_base::bands::Range;
use lab_base::beside::NCCL;
use lab_base::error::{Error, Result};
use lab_results::DeviceInfo;
use memcore::backend::{Backend, DeviceProfile, Limited, Meta, Tf32};
use memcore::memory::{Allocator, AllocatorConfig, Caching, Direct, TorchVersion};
use memcore::{Device, Profile};

use super::choices::AllocatorName;
use super::gpu::Gpu;
use super::spec::{AllocatorSpec, RunSpec};

/// A device that can be opened any number of times, each time with nothing in use.
#[derive(Clone)]
pub struct Target {
    place: Place,
    memory_limit: Option<u64>,
    memory_fraction: Option<f64>,
    /// Settings of the caching allocator; `None` for the policy without a cache.
    caching: Option<AllocatorConfig>,
    profile: Profile,
    seed: u64,
    history: bool,
    limited: bool,
    /// For a dry run: backend whose kernels' workspaces are counted.
    workspaces_of: Option<Arc<dyn Backend>>,
    /// True if kernels are collected and launched as graphs.
    graphs: bool,
    /// Products of float32 that may be computed in TF32.
    tf32: Option<Tf32>,
}

#[derive(Clone)]
enum Place {
    Backend(&'static Entry, usize),
    /// A card that need not be present, for a dry run.
    Card(DeviceProfile),
}

impl Target {
    /// Returns the device that a run requests, with remarks on the choice. [`with_profile`](Self::with_profile) adds the profile.
    ///
    /// # Errors
    /// A device that does not exist or lacks a requested feature; settings that the allocator does not understand.
    pub(super) fn from_spec(spec: &RunSpec, backends: &'static [Entry]) -> Result<(Self, Vec<Remark>)> {
        let caching = caching(&spec.allocator)?;
        let index = spec.device.device.unwrap_or(0);
        let (place, remarks) = match &spec.device.backend {
            Some(name) => {
                let (entry, remarks) = backends::choose(backends, name, index)?;
                (Place::Backend(entry, index), remarks)
            }
            None => (Place::Card(card(spec)), Vec::new()),
        };
        let AllocatorSpec { memory_limit, memory_fraction, .. } = &spec.allocator;
        let own_fraction = caching.as_ref().map_or(1.0, |config| config.per_process_memory_fraction);
        let named = spec.device.backend.is_none() && spec.card.gpu.is_some();
        let fraction = memory_fraction.unwrap_or(1.0).min(own_fraction);
        let target = Self {
            place,
            memory_limit: memory_limit.map(|limit| limit.0),
            memory_fraction: *memory_fraction,
            limited: named || memory_limit.is_some() || fraction < 1.0,
            caching,
            profile: Profile::native(),
            seed: spec.training.seed.unwrap_or(0),
            history: false,
            workspaces_of: None,
            graphs: spec.kernels.cuda_graph,
            tf32: spec.kernels.tf32.map(Tf32::from),
        };
        target.check_features()?;
        Ok((target, remarks))
    }

    /// Fails if CUDA graphs or TF32 are asked for and the device does not have them.
    fn check_features(&self) -> Result<()> {
        let Place::Backend(entry, index) = &self.place else { return Ok(()) };
        if self.graphs {
            let asked = entry.device(*index)?.use_graphs();
            asked.map_err(|error| Error::usage("cuda-graph", error.to_string()))?;
        }
        if let Some(which) = self.tf32 {
            let asked = entry.device(*index)?.allow_tf32(which);
            asked.map_err(|error| Error::usage("tf32", error.to_string()))?;
        }
        Ok(())
    }

    /// Sets the profile by which operators make temporaries and workspaces.
    pub(super) fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// For a dry run: counts the workspaces that this backend's kernels ask for.
    ///
    /// # Errors
    /// A device of another backend; a backend that does not open.
    pub(super) fn with_workspaces_of(self, name: &str, backends: &'static [Entry]) -> Result<Self> {
        match &self.place {
            Place::Backend(entry, _) if entry.name == name => Ok(self),
            Place::Backend(entry, _) => {
                let problem = format!("this run is on {}; predict and fit can ask another backend", entry.name);
                Err(Error::usage("like", format!("native:{name}: {problem}")))
            }
            Place::Card(_) => {
                let unknown = || Error::usage("like", format!("native:{name}: no such backend in this build"));
                let entry = backends.iter().find(|entry| entry.name == name).ok_or_else(unknown)?;
                Ok(Self { workspaces_of: Some(entry.device(0)?), ..self })
            }
        }
    }

    /// Settings of the caching allocator, if the policy is that one.
    pub fn caching(&self) -> Option<&AllocatorConfig> {
        self.caching.as_ref()
    }

    /// Sets whether every event is kept.
    #[must_use]
    pub fn history(self, history: bool) -> Self {
        Self { history, ..self }
    }

    /// True if the user limited the memory.
    pub fn limited(&self) -> bool {
        self.limited
    }

    /// Memory that a process may use on a fresh device, if the user limited it.
    pub fn budget_bytes(&self) -> memcore::Result<Option<u64>> {
        if !self.limited {
            return Ok(None);
        }
        let own = self.caching.as_ref().map_or(1.0, |config| config.per_process_memory_fraction);
        let fraction = self.memory_fraction.unwrap_or(own);
        let memory = self.open()?.memory_info();
        Ok(memory.map(|memory| memory.free_bytes.min((memory.total_bytes as f64 * fraction) as u64)))
    }

    /// The same for a dry run with enough memory: it finds what is needed, whatever the device has.
    ///
    /// # Errors
    /// The backend whose workspaces are counted does not open.
    pub fn endless(&self) -> Result<Self> {
        let workspaces_of = match &self.place {
            Place::Backend(entry, index) => Some(entry.device(*index)?),
            Place::Card(_) => self.workspaces_of.clone(),
        };
        Ok(Self {
            place: Place::Card(DeviceProfile::default()),
            memory_limit: None,
            memory_fraction: None,
            history: false,
            limited: false,
            workspaces_of,
            graphs: false,
            tf32: None,
            ..self.clone()
        })
    }

    /// A device for dry runs with enough memory; it notes the kernels that this backend lacks.
    pub(super) fn asking(&self, backend: Arc<dyn Backend>) -> Result<(Device, Arc<Meta>)> {
        let meta = Arc::new(Meta::default().with_workspaces_of(backend).noting_missing());
        Ok((self.endless()?.open_on(meta.clone())?, meta))
    }

    /// The same for a dry run that notes what it requests, and ends when its requests exceed `bytes`: no allocator could serve it then.
    ///
    /// # Errors
    /// The backend whose workspaces are counted does not open.
    pub(super) fn noting(&self, bytes: Option<u64>) -> Result<Self> {
        let endless = DeviceProfile::default();
        let total_bytes = bytes.unwrap_or(endless.total_bytes);
        let place = Place::Card(DeviceProfile { total_bytes, ..endless });
        Ok(Self { place, caching: None, history: true, ..self.endless()? })
    }

    /// True for a dry run.
    pub(super) fn is_on_paper(&self) -> bool {
        matches!(self.place, Place::Card(_))
    }

    /// A fresh allocator on a fresh device.
    ///
    /// # Errors
    /// The backend's; a fraction of a device that does not say how much memory it has.
    pub(super) fn allocator(&self) -> memcore::Result<Box<dyn Allocator>> {
        self.allocator_on(self.limited_to(self.backend()?))
    }

    /// Name of the backend, as typed.
    pub fn backend_name(&self) -> &'static str {
        match &self.place {
            Place::Backend(entry, _) => entry.name,
            Place::Card(_) => Meta::NAME,
        }
    }

    /// Opens a fresh device.
    ///
    /// # Errors
    /// The backend's; a fraction of a device that does not say how much memory it has.
    pub fn open(&self) -> memcore::Result<Device> {
        self.open_on(self.backend()?)
    }

    fn backend(&self) -> memcore::Result<Arc<dyn Backend>> {
        Ok(match &self.place {
            Place::Backend(entry, index) => entry.device(*index)?,
            Place::Card(profile) => {
                let meta = Meta::new(profile.clone());
                match &self.workspaces_of {
                    Some(backend) => Arc::new(meta.with_workspaces_of(backend.clone())),
                    None => Arc::new(meta),
                }
            }
        })
    }

    /// The backend with no more memory than the run's limit. A limit above the device's memory has no effect.
    fn limited_to(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let total = backend.memory_info().map_or(u64::MAX, |memory| memory.total_bytes);
        match self.memory_limit {
            Some(bytes) if bytes < total => Arc::new(Limited::new(backend, bytes)),
            _ => backend,
        }
    }

    fn open_on(&self, backend: Arc<dyn Backend>) -> memcore::Result<Device> {
        if self.graphs {
            backend.use_graphs()?;
        }
        if let Some(which) = self.tf32 {
            backend.allow_tf32(which)?;
        }
        let backend = self.limited_to(backend);
        let allocator = self.allocator_on(backend.clone())?;
        let builder = Device::builder(backend).allocator(allocator).profile(self.profile.clone());
        Ok(builder.seed(self.seed).history(self.history).build())
    }

    fn allocator_on(&self, backend: Arc<dyn Backend>) -> memcore::Result<Box<dyn Allocator>> {
        let mut allocator: Box<dyn Allocator> = match &self.caching {
            Some(config) => {
                let version =
                    self.profile.release.map_or(config.version, |release| TorchVersion::of_release(release.minor));
                Box::new(Caching::new(backend, AllocatorConfig { version, ..config.clone() })?)
            }
            None => Box::new(Direct::new(backend)),
        };
        if let Some(fraction) = self.memory_fraction {
            allocator.set_memory_fraction(fraction)?;
        }
        Ok(allocator)
    }

    /// Describes an opened device.
    pub fn describe(&self, device: &Device) -> DeviceInfo {
        let index = match &self.place {
            Place::Backend(_, index) => *index,
            Place::Card(_) => 0,
        };
        DeviceInfo::from_backend(device.backend(), index)
    }
}

/// Profile of the card of a dry run; an unlimited device if no card is named.
fn card(spec: &RunSpec) -> DeviceProfile {
    let mut profile = DeviceProfile::default();
    match spec.card.gpu {
        Some(Gpu::Card { card, least_context, ranks }) => {
            let nccl = if ranks || spec.parallel.has_ranks() { NCCL.range() } else { Range::default() };
            profile.name = card.title.into();
            profile.total_bytes = card.total_bytes();
            profile.context_bytes = match least_context {
                true => card.context.least_bytes() + nccl.lower,
                false => card.context.most_bytes() + nccl.upper,
            };
        }
        Some(Gpu::Bytes(bytes)) => profile.total_bytes = bytes,
        None => {}
    }
    profile
}

fn caching(spec: &AllocatorSpec) -> Result<Option<AllocatorConfig>> {
    match (spec.allocator.unwrap_or_default(), &spec.alloc_conf) {
        (AllocatorName::Direct, Some(_)) => {
            Err(Error::usage("alloc-conf", "only the caching allocator has settings, not the direct one"))
        }
        (AllocatorName::Direct, None) => Ok(None),
        (AllocatorName::Caching, None) => Ok(Some(AllocatorConfig::default())),
        (AllocatorName::Caching, Some(text)) => match AllocatorConfig::parse(text) {
            Ok(config) => Ok(Some(config)),
            Err(error) => Err(Error::usage("alloc-conf", error.to_string())),
        },
    }
}
