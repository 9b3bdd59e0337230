//! From flags to a device.

use std::sync::Arc;

use lab::results::DeviceInfo;
use memcore::backend::{Backend, DeviceProfile, Limited, Meta, Tf32};
use memcore::memory::{Allocator, AllocatorConfig, Caching, Direct, TorchVersion};
use memcore::{Device, Profile};

use crate::args::{AllocatorArgs, AllocatorName, DeviceArgs, Gpu, PaperArgs};

use crate::backends::{self, Entry};
use crate::exit::{Failure, Result};
use crate::ui::Ui;

/// How to open a device: as often as needed, each time with nothing in use.
pub(super) struct Opening {
    source: Source,
    memory_limit: Option<u64>,
    memory_fraction: Option<f64>,
    /// Settings of the caching allocator; `None` for the policy without a cache.
    caching: Option<AllocatorConfig>,
    profile: Profile,
    seed: u64,
    history: bool,
    limited: bool,
    /// On paper: whose kernels' workspaces are counted.
    workspaces_of: Option<Arc<dyn Backend>>,
    /// Whether kernels are collected and launched as graphs.
    graphs: bool,
    /// Products of float32 that may be computed in TF32.
    tf32: Option<Tf32>,
}

enum Source {
    Backend(&'static Entry, usize),
    /// A card that exists on paper.
    Card(DeviceProfile),
}

impl Opening {
    /// On a device of this build.
    ///
    /// # Errors
    /// When there is no such device; settings that the allocator does not understand.
    pub(super) fn on_device(device: &DeviceArgs, allocator: &AllocatorArgs, seed: u64, ui: &Ui) -> Result<Self> {
        let caching = caching(allocator)?;
        let entry = backends::choose(ui, &device.backend, device.device)?;
        Ok(Self::new(Source::Backend(entry, device.device), allocator, caching, seed))
    }

    /// On a card that is not there; without one, on a device without end.
    ///
    /// # Errors
    /// Settings that the allocator does not understand.
    pub(super) fn on_paper(paper: &PaperArgs, seed: u64) -> Result<Self> {
        let PaperArgs { gpu, allocator, least_context, .. } = paper;
        let mut card = DeviceProfile::default();
        match *gpu {
            Some(Gpu::Named(named)) => {
                card.name = named.title.into();
                card.total_bytes = named.total_bytes();
                card.context_bytes = match least_context {
                    true => named.context.least_bytes(),
                    false => named.context.most_bytes(),
                };
            }
            Some(Gpu::Bytes(bytes)) => card.total_bytes = bytes,
            None => {}
        }
        let opening = Self::new(Source::Card(card), allocator, caching(allocator)?, seed);
        Ok(Self { limited: opening.limited || gpu.is_some(), ..opening })
    }

    fn new(source: Source, args: &AllocatorArgs, caching: Option<AllocatorConfig>, seed: u64) -> Self {
        let own_fraction = caching.as_ref().map_or(1.0, |config| config.per_process_memory_fraction);
        Self {
            source,
            memory_limit: args.memory_limit,
            memory_fraction: args.memory_fraction,
            caching,
            profile: Profile::native(),
            seed,
            history: false,
            workspaces_of: None,
            graphs: false,
            tf32: None,
            limited: args.limits() || own_fraction < 1.0,
        }
    }

    /// Whose temporaries and workspaces operators make.
    pub(super) fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// On paper, with the workspaces that this backend's kernels ask for.
    ///
    /// # Errors
    /// On a device of another backend; when the backend does not open.
    pub(super) fn workspaces_of(self, name: &str) -> Result<Self> {
        match &self.source {
            Source::Backend(entry, _) if entry.name == name => Ok(self),
            Source::Backend(entry, _) => Err(Failure::usage(format!(
                "--like native:{name}: this run is on {}; on paper (predict, fit) another backend can be asked",
                entry.name
            ))),
            Source::Card(_) => {
                let unknown = || Failure::usage(format!("--like native:{name}: no such backend in this build"));
                let entry = backends::ALL.iter().find(|entry| entry.name == name).ok_or_else(unknown)?;
                Ok(Self { workspaces_of: Some(entry.device(0)?), ..self })
            }
        }
    }

    /// With CUDA graphs, if they are asked for.
    ///
    /// # Errors
    /// Usage, with the reason, where the backend has none.
    pub(super) fn graphs(self, asked: bool) -> Result<Self> {
        if asked && let Source::Backend(entry, index) = &self.source {
            entry.device(*index)?.use_graphs().map_err(|error| Failure::usage(format!("--cuda-graph: {error}")))?;
        }
        Ok(Self { graphs: asked, ..self })
    }

    /// With these products of float32 in TF32, if any.
    ///
    /// # Errors
    /// Usage, with the reason, where the device has none.
    pub(super) fn tf32(self, which: Option<Tf32>) -> Result<Self> {
        if let (Some(which), Source::Backend(entry, index)) = (which, &self.source) {
            entry.device(*index)?.allow_tf32(which).map_err(|error| Failure::usage(format!("--tf32: {error}")))?;
        }
        Ok(Self { tf32: which, ..self })
    }

    /// The settings of the caching allocator, if it is that.
    pub(super) fn caching(&self) -> Option<&AllocatorConfig> {
        self.caching.as_ref()
    }

    /// Whether every event is kept.
    pub(super) fn history(self, history: bool) -> Self {
        Self { history, ..self }
    }

    /// Whether the user said how much memory there is to be.
    pub(super) fn limited(&self) -> bool {
        self.limited
    }

    /// What a process may take of a fresh device, where the user said how much memory there is to be.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn budget_bytes(&self) -> memcore::Result<Option<u64>> {
        if !self.limited {
            return Ok(None);
        }
        let own = self.caching.as_ref().map_or(1.0, |config| config.per_process_memory_fraction);
        let fraction = self.memory_fraction.unwrap_or(own);
        let memory = self.open()?.memory_info();
        Ok(memory.map(|memory| memory.free_bytes.min((memory.total_bytes as f64 * fraction) as u64)))
    }

    /// The same on paper, with memory enough: what it says is needed, whatever the device has.
    ///
    /// # Errors
    /// When the backend whose workspaces are counted does not open.
    pub(super) fn endless(&self) -> Result<Self> {
        let workspaces_of = match &self.source {
            Source::Backend(entry, index) => Some(entry.device(*index)?),
            Source::Card(_) => self.workspaces_of.clone(),
        };
        Ok(Self {
            source: Source::Card(DeviceProfile::default()),
            memory_limit: None,
            memory_fraction: None,
            caching: self.caching.clone(),
            profile: self.profile.clone(),
            seed: self.seed,
            history: false,
            limited: false,
            workspaces_of,
            graphs: false,
            tf32: None,
        })
    }

    /// The backend's name, as typed.
    pub(super) fn backend_name(&self) -> &'static str {
        match &self.source {
            Source::Backend(entry, _) => entry.name,
            Source::Card(_) => "meta",
        }
    }

    /// A fresh device.
    ///
    /// # Errors
    /// The backend's; a fraction of a device that does not say how much memory it has.
    pub(super) fn open(&self) -> memcore::Result<Device> {
        let backend: Arc<dyn Backend> = match &self.source {
            Source::Backend(entry, index) => entry.device(*index)?,
            Source::Card(profile) => {
                let meta = Meta::new(profile.clone());
                match &self.workspaces_of {
                    Some(backend) => Arc::new(meta.with_workspaces_of(backend.clone())),
                    None => Arc::new(meta),
                }
            }
        };
        if self.graphs {
            backend.use_graphs()?;
        }
        if let Some(which) = self.tf32 {
            backend.allow_tf32(which)?;
        }
        let total = backend.memory_info().map_or(u64::MAX, |memory| memory.total_bytes);
        let backend = match self.memory_limit {
            // A limit beyond the device's memory limits nothing.
            Some(bytes) if bytes < total => Arc::new(Limited::new(backend, bytes)),
            _ => backend,
        };
        let mut allocator: Box<dyn Allocator> = match &self.caching {
            Some(config) => {
                let version =
                    self.profile.release.map_or(config.version, |release| TorchVersion::of_release(release.minor));
                Box::new(Caching::new(backend.clone(), AllocatorConfig { version, ..config.clone() })?)
            }
            None => Box::new(Direct::new(backend.clone())),
        };
        if let Some(fraction) = self.memory_fraction {
            allocator.set_memory_fraction(fraction)?;
        }
        let builder = Device::builder(backend).allocator(allocator).profile(self.profile.clone());
        Ok(builder.seed(self.seed).history(self.history).build())
    }

    /// What is known of an opened device.
    pub(super) fn describe(&self, device: &Device) -> DeviceInfo {
        let index = match &self.source {
            Source::Backend(_, index) => *index,
            Source::Card(_) => 0,
        };
        DeviceInfo::of(device.backend(), index)
    }
}

fn caching(args: &AllocatorArgs) -> Result<Option<AllocatorConfig>> {
    match (args.allocator, &args.alloc_conf) {
        (AllocatorName::Direct, Some(_)) => {
            Err(Failure::usage("--alloc-conf: only the caching allocator has settings, not --allocator direct"))
        }
        (AllocatorName::Direct, None) => Ok(None),
        (AllocatorName::Caching, None) => Ok(Some(AllocatorConfig::default())),
        (AllocatorName::Caching, Some(text)) => match AllocatorConfig::parse(text) {
            Ok(config) => Ok(Some(config)),
            Err(error) => Err(Failure::usage(format!("--alloc-conf: {error}"))),
        },
    }
}
