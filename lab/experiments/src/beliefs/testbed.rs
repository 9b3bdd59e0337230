//! Where what is said is tried.

use std::sync::Arc;

use lab_base::error::Result;
use memcore::backend::{Backend, Limited};
use memcore::{Device, Profile};

use crate::{Setup, Verdict};

/// Verdict, the figures that decide, condition.
pub(super) type Judged = (Verdict, String, String);

/// What a batch is in each part: the larger and the smaller one.
#[derive(Clone, Copy)]
pub(super) struct Batches {
    pub(super) large: usize,
    pub(super) small: usize,
}

/// PyTorch's allocator with its own settings above the device under test: what is said is said of those.
pub(super) struct Testbed {
    backend: Arc<dyn Backend>,
    profile: Profile,
}

impl Testbed {
    pub(super) fn of(setup: &Setup<'_>) -> Result<Self> {
        let device = (setup.open)()?;
        Ok(Self { backend: device.shared_backend(), profile: device.profile().clone() })
    }

    pub(super) fn open(&self, seed: u64) -> Device {
        Device::builder(self.backend.clone()).profile(self.profile.clone()).seed(seed).build()
    }

    /// With room for `bytes` beyond the libraries' workspaces; also what that is in all.
    pub(super) fn open_limited(&self, bytes: u64, seed: u64) -> (Device, u64) {
        let Profile { gemm_workspace_bytes, gemm_epilogue_workspace_bytes, .. } = self.profile;
        let capacity = 2 * (gemm_workspace_bytes + gemm_epilogue_workspace_bytes) + bytes;
        let limited = Arc::new(Limited::new(self.backend.clone(), capacity));
        (Device::builder(limited).profile(self.profile.clone()).seed(seed).build(), capacity)
    }
}
