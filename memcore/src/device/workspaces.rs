//! Workspaces of libraries: kept for the life of the process or there for one product, as the profile says.

use super::Device;
use super::kept::{KeptWorkspace, WorkspaceKind};
use crate::backend::{Operand, Region};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::{AllocId, Block, Category};

/// The workspace of one product: one that is not kept goes back when this is dropped.
pub(crate) struct ProductWorkspace {
    /// For the kernel, where the backend has a library that uses it; other kernels know nothing of it.
    pub(crate) operand: Option<Operand>,
    temporary: Option<(Device, Block, AllocId)>,
}

impl Drop for ProductWorkspace {
    fn drop(&mut self) {
        if let Some((device, block, id)) = self.temporary.take() {
            device.free(block, id);
        }
    }
}

impl Device {
    /// The workspaces that `products` products one after the other take from the libraries, as the profile says: kept from the first use in each
    /// role on, or there for the time of each product.
    pub(crate) fn product_workspaces(&self, kind: WorkspaceKind, products: usize) -> Result<()> {
        let times = if self.0.profile.keeps_workspaces { 1 } else { products };
        (0..times).try_for_each(|_| self.product_workspace(kind).map(drop))
    }

    /// The workspace of one product. A product with an epilogue needs the kept workspace of the plain ones as well, and uses its own where there
    /// is one.
    pub(crate) fn product_workspace(&self, kind: WorkspaceKind) -> Result<ProductWorkspace> {
        if self.0.profile.keeps_workspaces {
            let plain = self.keep_workspace(WorkspaceKind::Gemm)?;
            let own = if kind == WorkspaceKind::Gemm { None } else { self.keep_workspace(kind)? };
            return Ok(ProductWorkspace { operand: self.workspace_operand(own.or(plain)), temporary: None });
        }
        let bytes = self.workspace_bytes(kind);
        let taken = if bytes == 0 { None } else { Some(self.allocate(bytes, Category::Workspace)?) };
        let operand = self.workspace_operand(taken.map(|(block, _)| block.region));
        Ok(ProductWorkspace { operand, temporary: taken.map(|(block, id)| (self.clone(), block, id)) })
    }

    fn workspace_operand(&self, region: Option<Region>) -> Option<Operand> {
        let region = region.filter(|_| self.0.backend.gemm_workspace_bytes() > 0)?;
        Some(Operand { region, dtype: DType::U8, layout: Layout::contiguous(&[region.len as usize]).ok()? })
    }

    fn workspace_bytes(&self, kind: WorkspaceKind) -> u64 {
        match kind {
            WorkspaceKind::Gemm => self.0.profile.gemm_workspace_bytes,
            WorkspaceKind::GemmEpilogue => self.0.profile.gemm_epilogue_workspace_bytes,
        }
    }

    /// The workspace that this role keeps; `None` where the profile has none of that kind.
    fn keep_workspace(&self, kind: WorkspaceKind) -> Result<Option<Region>> {
        let bytes = self.workspace_bytes(kind);
        if bytes == 0 {
            return Ok(None);
        }
        let role = context::current_role();
        if let Some(kept) = self.state().workspaces.iter().find(|w| w.kind == kind && w.role == role) {
            return Ok(Some(kept.block.region));
        }
        let (block, id) = self.allocate(bytes, Category::Workspace)?;
        self.state().workspaces.push(KeptWorkspace { kind, role, block, id });
        Ok(Some(block.region))
    }

    /// Gives the libraries' workspaces back to the allocator. They come again with the next product.
    pub fn release_workspaces(&self) {
        let mut state = self.state();
        for kept in std::mem::take(&mut state.workspaces) {
            state.free(&kept.block, kept.id);
        }
    }
}
