//! The device on which the beliefs are tested.

use std::sync::Arc;

use lab_base::error::Result;
use memcore::backend::{Backend, Limited};
use memcore::{Device, Profile};

use crate::{Setup, Verdict};

/// The verdict, the figures that decide, and the condition.
pub(super) type Judged = (Verdict, String, String);

/// Batches of each part: the larger and the smaller one.
#[derive(Clone, Copy)]
pub(super) struct Batches {
    pub(super) large: usize,
    pub(super) small: usize,
}

/// PyTorch's allocator with its own settings on the backend under test: the beliefs are about those settings.
pub(super) struct Testbed {
    backend: Arc<dyn Backend>,
    profile: Profile,
}

impl Testbed {
    pub(super) fn from_setup(setup: &Setup<'_>) -> Result<Self> {
        let device = (setup.open)()?;
        Ok(Self { backend: device.shared_backend(), profile: device.profile().clone() })
    }

    pub(super) fn open(&self, seed: u64) -> Device {
        Device::builder(self.backend.clone()).profile(self.profile.clone()).seed(seed).build()
    }

    /// Opens a device with `bytes` bytes beyond the libraries' workspaces. Returns its capacity too.
    pub(super) fn open_limited(&self, bytes: u64, seed: u64) -> (Device, u64) {
        let Profile { gemm_workspace_bytes, gemm_epilogue_workspace_bytes, .. } = self.profile;
        let capacity = 2 * (gemm_workspace_bytes + gemm_epilogue_workspace_bytes) + bytes;
        let limited = Arc::new(Limited::new(self.backend.clone(), capacity));
        (Device::builder(limited).profile(self.profile.clone()).seed(seed).build(), capacity)
    }
}
