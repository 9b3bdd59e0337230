//! Memory profiles: which temporaries and workspaces operators make, as data.
//!
//! What a program's memory looks like is decided above the backend, by one of these, so that under one profile the event
//! lists of all backends are identical. A new PyTorch version is a new entry here.

/// What convolutions allocate besides their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convolution {
    /// Whatever the backend's own algorithm asks for.
    Backend,
    /// PyTorch without cuDNN: an im2col buffer for one sample (`slow_conv2d`), the bias gradient by a reduction with two temporaries.
    Native,
    /// PyTorch with cuDNN: a workspace of this many bytes in each call.
    Cudnn {
        /// Bytes of workspace.
        workspace_bytes: u64,
    },
}

/// The GPU that a profile stands for, as far as the grids of kernels depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// How many there are.
    pub count: usize,
    /// Threads that one holds.
    pub threads: usize,
}

impl Multiprocessors {
    /// Of the best-known card of that compute capability: H100 (90), A100 (80), T4 (75).
    pub fn of_compute_capability(sm: u32) -> Self {
        match sm {
            90.. => Self { count: 132, threads: 2048 },
            80.. => Self { count: 108, threads: 2048 },
            _ => Self { count: 40, threads: 1024 },
        }
    }
}

/// Who decides about temporaries and workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the command line calls it.
    pub name: String,
    /// Bytes of the workspace that a GEMM library keeps per (device, role): cuBLAS's, from the first product on.
    pub gemm_workspace_bytes: u64,
    /// Bytes of the second workspace of the library with epilogues (cuBLASLt's), from the first product with a bias on.
    pub gemm_epilogue_workspace_bytes: u64,
    /// What convolutions allocate.
    pub convolution: Convolution,
    /// Whether operators make the temporaries that PyTorch's kernels make and ours do not need (a softmax gradient's
    /// product, for one).
    pub torch_temporaries: bool,
    /// The GPU whose grids decide how much memory PyTorch's reductions take; `None`: ours take none.
    pub multiprocessors: Option<Multiprocessors>,
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 4] = ["native", "torch-2.11-sm90", "torch-2.11-sm80", "torch-2.11-sm75"];

    /// What our own kernels need, and nothing else.
    pub fn native() -> Self {
        Self {
            name: "native".into(),
            gemm_workspace_bytes: 0,
            gemm_epilogue_workspace_bytes: 0,
            convolution: Convolution::Backend,
            torch_temporaries: false,
            multiprocessors: None,
        }
    }

    /// PyTorch 2.11 on compute capability `sm` (90, 80, 75): cuBLAS takes 32 MiB from 9.0 on and 8.125 MiB below, per thread;
    /// cuBLASLt 1 MiB. Measured with the unmodified wheel.
    pub fn torch_2_11(sm: u32) -> Self {
        Self {
            name: format!("torch-2.11-sm{sm}"),
            gemm_workspace_bytes: if sm >= 90 { 32 << 20 } else { 8_519_680 },
            gemm_epilogue_workspace_bytes: 1 << 20,
            convolution: Convolution::Native,
            torch_temporaries: true,
            multiprocessors: Some(Multiprocessors::of_compute_capability(sm)),
        }
    }

    /// The profile of that name, one of [`Profile::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::native()),
            "torch-2.11-sm90" => Some(Self::torch_2_11(90)),
            "torch-2.11-sm80" => Some(Self::torch_2_11(80)),
            "torch-2.11-sm75" => Some(Self::torch_2_11(75)),
            _ => None,
        }
    }
}
