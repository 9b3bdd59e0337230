//! Workspaces of libraries. The profile decides whether one is kept for the life of the process or exists for one
//! product.

use super::Device;
use super::kept::{KeptWorkspace, WorkspaceKind};
use crate::backend::{Operand, Region};
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::{AllocId, Block, Category};

/// The workspace of one product. If it is not kept, dropping this frees it.
pub(crate) struct ProductWorkspace {
    /// The workspace as an operand, if the backend has a library that uses it; other kernels do not use it.
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
    /// Takes the libraries' workspaces for `products` successive products. The profile decides whether one is kept from
    /// its first use in each role, or taken anew for each product.
    pub(crate) fn product_workspaces(&self, kind: WorkspaceKind, products: usize) -> Result<()> {
        let times = if self.keeps(kind) { 1 } else { products };
        (0..times).try_for_each(|_| self.product_workspace(kind).map(drop))
    }

    /// True if this workspace outlives its product. A workspace of 0 bytes counts as kept, if the profile keeps workspaces:
    /// the product then has none of its own.
    fn keeps(&self, kind: WorkspaceKind) -> bool {
        let profile = &self.0.profile;
        let own = kind == WorkspaceKind::Gemm || profile.keeps_epilogue_workspace || self.workspace_bytes(kind) == 0;
        profile.keeps_workspaces && own
    }

    /// Takes the workspace of one product. A product with an epilogue uses its own workspace if the profile has one.
    /// The workspace of plain products is then also kept from that point on if the profile says so, or if there is no
    /// separate one.
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

    /// The workspace that this role keeps; `None` if the profile has none of that kind.
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

    /// Makes the state of cuDNN's random generator, unless the process has it already (`get_dropout_state` in PyTorch's `RNN.cpp`). A number is drawn first,
    /// as its seed. The size is that of `cudnnDropoutGetStatesSize`: 6,488,064 bytes on an H100 (cuDNN 9.19).
    pub(crate) fn keep_dropout_state(&self) -> Result<()> {
        const OF_EACH_THREAD: u64 = 24;
        if self.state().dropout_state.is_some() {
            return Ok(());
        }
        let (block, id) = self.allocate(DType::I64.size(), Category::Temporary)?;
        self.free(block, id);
        let threads = self.0.profile.multiprocessors.map_or(0, |card| card.count * card.threads);
        let state = self.allocate(threads as u64 * OF_EACH_THREAD, Category::Workspace)?;
        self.state().dropout_state = Some(state);
        Ok(())
    }

    /// Frees the libraries' workspaces. The next product allocates them again.
    #[doc(hidden)]
    pub fn release_workspaces(&self) {
        let mut state = self.state();
        for kept in std::mem::take(&mut state.workspaces) {
            state.free(&kept.block, kept.id);
        }
    }
}
