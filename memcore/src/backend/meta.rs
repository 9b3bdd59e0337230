//! The backend that accounts for memory and computes nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Backend, DeviceMemory, KernelCall, Limits, MemoryInfo, Overhead, Region, SegmentId, VirtualMemory};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The kind of device that [`Meta`] stands for.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// Name of the device.
    pub name: String,
    /// Memory of the device, in bytes.
    pub total_bytes: u64,
    /// Alignment of blocks, in bytes.
    pub alignment: u64,
    /// Memory that the device's context and libraries take before any tensor, in bytes.
    pub context_bytes: u64,
}

impl Default for DeviceProfile {
    /// 2^50 bytes without overhead: never full.
    fn default() -> Self {
        Self { name: "meta".into(), total_bytes: 1 << 50, alignment: 512, context_bytes: 0 }
    }
}

/// A whole backend without storage: it counts memory against a [`DeviceProfile`], and accepts kernels without running
/// them. A run of a model with 70 billion parameters fits on a laptop.
pub struct Meta {
    profile: DeviceProfile,
    limits: Limits,
    state: Mutex<State>,
    /// The backend whose kernels' workspaces are counted; `None` for kernels without workspaces.
    workspaces_of: Option<Arc<dyn Backend>>,
    /// The launched kernels that the other backend lacks; `None` if they are not noted.
    missing: Option<Mutex<BTreeSet<(&'static str, DType)>>>,
}

#[derive(Default)]
struct State {
    next: u32,
    /// Bytes that each segment holds: all of an ordinary one, the mapped part of a reserved one.
    held: HashMap<SegmentId, u64>,
    used: u64,
}

impl Meta {
    /// The name on the command line.
    pub const NAME: &'static str = "meta";

    /// Creates a device of this kind.
    pub fn new(profile: DeviceProfile) -> Self {
        let limits = Limits {
            alignment: profile.alignment,
            max_segment_bytes: profile.total_bytes,
            max_binding_bytes: u64::MAX,
            dtypes: DType::ALL.into_iter().chain([DType::C64]).collect(),
        };
        let used = profile.context_bytes;
        Self {
            profile,
            limits,
            state: Mutex::new(State { used, ..State::default() }),
            workspaces_of: None,
            missing: None,
        }
    }

    /// Adds the workspaces that another backend's kernels ask for, so that the figures are those of a run on it.
    pub fn with_workspaces_of(self, backend: Arc<dyn Backend>) -> Self {
        Self { workspaces_of: Some(backend), ..self }
    }

    /// Also notes which launched kernels that backend lacks.
    pub fn noting_missing(self) -> Self {
        Self { missing: Some(Mutex::default()), ..self }
    }

    /// The noted kernels, each with the dtype that represents its call.
    pub fn missing(&self) -> Vec<(&'static str, DType)> {
        let noted =
            |noted: &Mutex<BTreeSet<_>>| noted.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        self.missing.as_ref().map_or_else(Vec::new, noted)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &mut State, bytes: u64) -> Result<()> {
        let free = self.profile.total_bytes - state.used.min(self.profile.total_bytes);
        if bytes > free {
            return Err(Error::DeviceFull { requested_bytes: bytes, free_bytes: Some(free) });
        }
        state.used += bytes;
        Ok(())
    }
}

impl Default for Meta {
    fn default() -> Self {
        Self::new(DeviceProfile::default())
    }
}

impl DeviceMemory for Meta {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc_segment(&self, bytes: u64) -> Result<SegmentId> {
        if bytes > self.profile.total_bytes {
            return Err(Error::TooLarge { requested_bytes: bytes, limit_bytes: self.profile.total_bytes });
        }
        let mut state = self.state();
        self.take(&mut state, bytes)?;
        state.next += 1;
        let id = SegmentId(state.next);
        state.held.insert(id, bytes);
        Ok(id)
    }

    fn free_segment(&self, id: SegmentId) {
        let mut state = self.state();
        if let Some(bytes) = state.held.remove(&id) {
            state.used -= bytes;
        }
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let used = self.state().used;
        Some(MemoryInfo {
            free_bytes: self.profile.total_bytes.saturating_sub(used),
            total_bytes: self.profile.total_bytes,
        })
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(self)
    }
}

impl VirtualMemory for Meta {
    fn reserve(&self, _bytes: u64, _page_bytes: u64) -> Result<SegmentId> {
        let mut state = self.state();
        state.next += 1;
        let id = SegmentId(state.next);
        state.held.insert(id, 0);
        Ok(id)
    }

    fn map(&self, id: SegmentId, _offset: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        if !state.held.contains_key(&id) {
            return Err(Error::UnknownSegment(id));
        }
        self.take(&mut state, bytes)?;
        *state.held.entry(id).or_default() += bytes;
        Ok(())
    }

    fn unmap(&self, id: SegmentId, _offset: u64, bytes: u64) {
        let mut state = self.state();
        if let Some(held) = state.held.get_mut(&id) {
            *held -= bytes;
            state.used -= bytes;
        }
    }

    fn release(&self, id: SegmentId) {
        self.free_segment(id);
    }
}

impl Backend for Meta {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn device_name(&self) -> String {
        self.profile.name.clone()
    }

    fn computes(&self) -> bool {
        false
    }

    fn how_it_copies(&self) -> Option<&'static str> {
        Some("on this device nothing is copied, only counted")
    }

    fn workspace_bytes(&self, call: &KernelCall) -> u64 {
        self.workspaces_of.as_ref().map_or(0, |backend| backend.workspace_bytes(call))
    }

    fn gemm_workspace_bytes(&self) -> u64 {
        self.workspaces_of.as_ref().map_or(0, |backend| backend.gemm_workspace_bytes())
    }

    fn overheads(&self) -> Vec<Overhead> {
        let context = Overhead { name: "context", bytes: self.profile.context_bytes };
        Vec::from_iter((context.bytes > 0).then_some(context))
    }

    fn upload(&self, _src: &[u8], _dst: Region) -> Result<()> {
        Ok(())
    }

    fn download(&self, _src: Region, _dst: &mut [u8]) -> Result<()> {
        Err(Error::NoValues { device: self.profile.name.clone(), op: "download" })
    }

    fn launch(&self, call: &KernelCall) -> Result<()> {
        if let (Some(noted), Some(backend)) = (&self.missing, &self.workspaces_of)
            && !backend.supports(call)
        {
            noted.lock().unwrap_or_else(PoisonError::into_inner).insert((call.name(), call.dtype()));
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
