//! Workspaces that libraries keep.

use crate::context::Role;
use crate::memory::{AllocId, Block};

/// A workspace that a library keeps, and its user.
pub(super) struct KeptWorkspace {
    pub(super) kind: WorkspaceKind,
    pub(super) role: Role,
    pub(super) block: Block,
    pub(super) id: AllocId,
}

/// The library that a workspace belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkspaceKind {
    /// Matrix products: cuBLAS in PyTorch.
    Gemm,
    /// Matrix products with an epilogue: cuBLASLt in PyTorch.
    GemmEpilogue,
}
