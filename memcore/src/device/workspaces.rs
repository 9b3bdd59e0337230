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
        let times = if self.keeps(kind) { 1 } else { products };
        (0..times).try_for_each(|_| self.product_workspace(kind).map(drop))
    }

    /// Whether this workspace outlives its product. One of no bytes is none of its own.
    fn keeps(&self, kind: WorkspaceKind) -> bool {
        let profile = &self.0.profile;
        let own = kind == WorkspaceKind::Gemm || profile.keeps_epilogue_workspace || self.workspace_bytes(kind) == 0;
        profile.keeps_workspaces && own
    }

    /// The workspace of one product. A product with an epilogue uses its own where there is one; that of the plain ones is kept from it on as well where
    /// the profile says so, or where it has none of its own.
    pub(crate) fn product_workspace(&self, kind: WorkspaceKind) -> Result<ProductWorkspace> {
        let bytes = self.workspace_bytes(kind);
        let (plain_too, keeps) = (kind == WorkspaceKind::GemmEpilogue, self.keeps(kind));
        let taken = if keeps || bytes == 0 { None } else { Some(self.allocate(bytes, Category::Workspace)?) };
        let mut kept = None;
        if self.0.profile.keeps_workspaces {
            if plain_too && (self.0.profile.epilogues_take_both || bytes == 0) {
                kept = self.keep_workspace(WorkspaceKind::Gemm)?;
            }
            if keeps {
                kept = self.keep_workspace(kind)?.or(kept);
            }
        }
        let operand = self.workspace_operand(taken.map(|(block, _)| block.region).or(kept));
        Ok(ProductWorkspace { operand, temporary: taken.map(|(block, id)| (self.clone(), block, id)) })
    }

    fn workspace_operand(&self, region: Option<Region>) -> Option<Operand> {
        let region = region.filter(|_| self.0.backend.gemm_workspace_bytes() > 0)?;
        Some(Operand { region, dtype: DType::U8, layout: Layout::contiguous(&[region.len as usize]).ok()? })
    }

    fn workspace_bytes(&self, kind: WorkspaceKind) -> u64 {
        match kind {
            WorkspaceKind::Gemm => self.0.profile.gemm_workspace_bytes,
            WorkspaceKind::GemmEpilogue => self.0.profile.epilogue_workspace_bytes(),
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
    #[doc(hidden)]
    pub fn release_workspaces(&self) {
        let mut state = self.state();
        for kept in std::mem::take(&mut state.workspaces) {
            state.free(&kept.block, kept.id);
        }
    }
}
