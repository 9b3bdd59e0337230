//! Workspaces that libraries keep.

use crate::context::Role;
use crate::memory::{AllocId, Block};

/// A workspace that a library keeps, and who uses it.
pub(super) struct KeptWorkspace {
    pub(super) kind: WorkspaceKind,
    pub(super) role: Role,
    pub(super) block: Block,
    pub(super) id: AllocId,
}

/// Which library's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkspaceKind {
    /// Products: cuBLAS's in PyTorch.
    Gemm,
    /// Products with an epilogue: cuBLASLt's in PyTorch.
    GemmEpilogue,
}
