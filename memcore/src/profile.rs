//! Memory profiles: which temporaries and workspaces operators make, as data.
//!
//! What a program's memory looks like is decided above the backend, by one of these, so that under one profile the event
//! lists of all backends are identical. A new PyTorch version is a new entry here.

use crate::error::{Error, Result};

/// What convolutions allocate besides their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convolution {
    /// Whatever the backend's own algorithm asks for.
    Backend,
    /// PyTorch without cuDNN: an im2col buffer for one sample (`slow_conv2d`), the bias gradient by a reduction with two temporaries.
    Native,
    /// PyTorch with cuDNN, which then does attention too where PyTorch prefers it: a workspace of this many bytes in each call.
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

/// How CUB sorts indices and finds the runs of equal ones: what its scratch is counted by. Measured with the unmodified wheels, each tile as the largest
/// number of indices that take no more scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSort {
    /// Whether only the digits are counted that the rows' numbers have, or all of a word.
    pub needed_digits: bool,
    /// Indices that a block sorts at a time.
    pub sort_tile: usize,
    /// Indices in which a block looks for runs at a time.
    pub unique_tile: usize,
}

impl IndexSort {
    /// As torch 2.11 has it for a compute capability (8.9 runs the kernels of 8.6).
    pub fn of_torch_2_11(sm: u32) -> Self {
        let (sort_tile, unique_tile) = match sm {
            91.. => (4608, 3840),
            90 => (4608, 4480),
            81.. => (3840, 320),
            80 => (3840, 1792),
            _ => (2816, 320),
        };
        Self { needed_digits: false, sort_tile, unique_tile }
    }

    /// As torch 2.15 has it.
    pub fn of_torch_2_15(sm: u32) -> Self {
        let older = Self::of_torch_2_11(sm);
        let unique_tile = match sm {
            90.. => 4928,
            80 => 1344,
            _ => older.unique_tile,
        };
        Self { needed_digits: true, unique_tile, ..older }
    }
}

impl Multiprocessors {
    /// Of the best-known card of that compute capability: RTX 5090 (120), B200 (100), H100 (90), RTX 4090 (89), RTX A6000 (86), A100 (80), T4 (75).
    pub fn of_compute_capability(sm: u32) -> Self {
        let count = match sm {
            101.. => 170,
            91.. => 148,
            90 => 132,
            87.. => 128,
            81.. => 84,
            80 => 108,
            _ => 40,
        };
        Self::of_card(sm, count)
    }

    /// Of a card of that compute capability with so many.
    pub fn of_card(sm: u32, count: usize) -> Self {
        let threads = match sm {
            90 | 100 | 80 => 2048,
            81.. => 1536,
            _ => 1024,
        };
        Self { count, threads }
    }
}

/// Who decides about temporaries and workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the command line calls it.
    pub name: String,
    /// Bytes of the workspace that a GEMM library keeps per (device, role): cuBLAS's, from the first product on.
    pub gemm_workspace_bytes: u64,
    /// Whether a device takes these bytes from its backend instead
    /// ([`Backend::gemm_workspace_bytes`](crate::backend::Backend::gemm_workspace_bytes)).
    pub asks_gemm_workspace: bool,
    /// Bytes of the second workspace of the library with epilogues (cuBLASLt's), from the first product with a bias on.
    pub gemm_epilogue_workspace_bytes: u64,
    /// Whether these are kept for the life of the process, one for each role that ever needed it, or taken for each product and freed behind it.
    pub keeps_workspaces: bool,
    /// Whether memory-efficient attention is that of 2.15: keys may have fewer heads than queries, and without dropout it returns the state of a generator that it
    /// does not use, as two words.
    pub newer_efficient_attention: bool,
    /// Whether cuDNN's attention is that of the release that comes with 2.15: it knows no dropout, and of heads of more than 128 elements hardly any
    /// gradient.
    pub newer_cudnn_attention: bool,
    /// The sort in an embedding's gradient.
    pub index_sort: IndexSort,
    /// Whether the gradient of a maximum or minimum of two makes the mask of what the other one won before the share, or behind it.
    pub masks_extremum_first: bool,
    /// Whether group normalisation is that of 2.15: it brings its input and its gradient into order inside of its kernels' operator, once in either
    /// pass, and not before it; it has kernels for channels that lie innermost; and it rounds the statistics of 16-bit inputs at the end.
    pub newer_group_norm: bool,
    /// Whether autocast computes root-mean-square normalisation in float32, as it does layer normalisation, or leaves it alone.
    pub autocasts_rms_norm: bool,
    /// Whether the norms of a list of tensors have a partial sum for each chunk of each, with a list of where each tensor's begin, or for as many
    /// chunks of each as the longest has.
    pub norms_have_offsets: bool,
    /// What convolutions allocate.
    pub convolution: Convolution,
    /// Whether operators make the temporaries that PyTorch's kernels make and ours do not need (a softmax gradient's
    /// product, for one).
    pub torch_temporaries: bool,
    /// The GPU whose grids decide how much memory PyTorch's reductions take; `None`: ours take none.
    pub multiprocessors: Option<Multiprocessors>,
    /// Ten times the compute capability that it stands for: which kernels of fused attention there are.
    pub compute_capability: Option<u32>,
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 15] = [
        "native",
        "torch-2.11-sm120",
        "torch-2.11-sm100",
        "torch-2.11-sm90",
        "torch-2.11-sm89",
        "torch-2.11-sm86",
        "torch-2.11-sm80",
        "torch-2.11-sm75",
        "torch-2.15-sm120",
        "torch-2.15-sm100",
        "torch-2.15-sm90",
        "torch-2.15-sm89",
        "torch-2.15-sm86",
        "torch-2.15-sm80",
        "torch-2.15-sm75",
    ];

    /// What our own kernels and the backend's libraries need, and nothing else.
    pub fn native() -> Self {
        Self {
            name: "native".into(),
            gemm_workspace_bytes: 0,
            asks_gemm_workspace: true,
            gemm_epilogue_workspace_bytes: 0,
            keeps_workspaces: true,
            newer_efficient_attention: false,
            newer_cudnn_attention: false,
            index_sort: IndexSort::of_torch_2_11(90),
            masks_extremum_first: false,
            newer_group_norm: false,
            autocasts_rms_norm: true,
            norms_have_offsets: false,
            convolution: Convolution::Backend,
            torch_temporaries: false,
            multiprocessors: None,
            compute_capability: None,
        }
    }

    /// PyTorch 2.11 on compute capability `sm`/10: cuBLAS takes 32 MiB on 9.0 and 8.125 MiB on all others, per thread; cuBLASLt 1 MiB. Measured with the
    /// unmodified wheel.
    pub fn torch_2_11(sm: u32) -> Self {
        Self {
            name: format!("torch-2.11-sm{sm}"),
            // It knows of nothing newer than 9.0.
            gemm_workspace_bytes: Self::torch_gemm_workspace_bytes(if sm > 90 { 80 } else { sm }),
            asks_gemm_workspace: false,
            gemm_epilogue_workspace_bytes: 1 << 20,
            keeps_workspaces: true,
            newer_efficient_attention: false,
            newer_cudnn_attention: false,
            index_sort: IndexSort::of_torch_2_11(sm),
            masks_extremum_first: false,
            newer_group_norm: false,
            autocasts_rms_norm: false,
            norms_have_offsets: false,
            convolution: Convolution::Native,
            torch_temporaries: true,
            multiprocessors: Some(Multiprocessors::of_compute_capability(sm)),
            compute_capability: Some(sm),
        }
    }

    /// Bytes of the workspace that PyTorch gives cuBLAS on a card of compute capability `sm`/10, unless `CUBLAS_WORKSPACE_CONFIG` says otherwise.
    pub const fn torch_gemm_workspace_bytes(sm: u32) -> u64 {
        if sm >= 90 { 32 << 20 } else { 8_519_680 }
    }

    /// PyTorch 2.15: as 2.11, but that no workspace outlives its product (unless `TORCH_CUBLAS_WORKSPACE_CACHE=1`), and that a product with an
    /// epilogue takes only its own; that the gradient of `maximum` makes its masks in another order; that group normalisation copies inside of
    /// its operator and has further kernels; that autocast knows root-mean-square normalisation; and that the norms of a list of tensors take offsets. Measured with the unmodified wheel: of the recorded phases of
    /// single operators no other one differs.
    pub fn torch_2_15(sm: u32) -> Self {
        Self {
            name: format!("torch-2.15-sm{sm}"),
            gemm_workspace_bytes: Self::torch_gemm_workspace_bytes(sm),
            keeps_workspaces: false,
            newer_efficient_attention: true,
            newer_cudnn_attention: true,
            index_sort: IndexSort::of_torch_2_15(sm),
            masks_extremum_first: true,
            newer_group_norm: true,
            autocasts_rms_norm: true,
            norms_have_offsets: true,
            ..Self::torch_2_11(sm)
        }
    }

    /// The same as a process with this environment variable sees it. PyTorch's about its libraries' workspaces are known:
    /// `CUBLAS_WORKSPACE_CONFIG` (`:KiB:count` pairs), `CUBLASLT_WORKSPACE_SIZE` (KiB), `TORCH_CUBLASLT_UNIFIED_WORKSPACE` (`1`: the
    /// products with epilogues use the first workspace) and, from 2.15 on, `TORCH_CUBLAS_WORKSPACE_CACHE` (`1`: workspaces are kept).
    ///
    /// # Errors
    /// [`Error::Invalid`] for another variable, or a value of another form.
    pub fn with_environment(mut self, variable: &str, value: &str) -> Result<Self> {
        let wrong = |expected: &str| Error::invalid("environment", format!("{variable}={value}: expected {expected}"));
        match variable {
            "CUBLAS_WORKSPACE_CONFIG" => {
                let bytes = workspace_config(value);
                self.gemm_workspace_bytes =
                    bytes.ok_or_else(|| wrong("pairs of KiB and count, such as :4096:2:16:8"))?;
                self.asks_gemm_workspace = false;
            }
            "CUBLASLT_WORKSPACE_SIZE" => {
                let kib: Option<u64> = value.parse().ok();
                let bytes = kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| wrong("a number of KiB"))?;
                self.gemm_epilogue_workspace_bytes = bytes;
            }
            "TORCH_CUBLASLT_UNIFIED_WORKSPACE" => match value {
                // Workspaces that are not kept are not shared either.
                "1" if !self.keeps_workspaces => {}
                "1" => self.gemm_epilogue_workspace_bytes = 0,
                "0" => {}
                _ => return Err(wrong("0 or 1")),
            },
            "TORCH_CUBLAS_WORKSPACE_CACHE" => match value {
                "1" => self.keeps_workspaces = true,
                "0" => {}
                _ => return Err(wrong("0 or 1")),
            },
            _ => return Err(Error::invalid("environment", format!("{variable} is not about workspaces"))),
        }
        // The second workspace is never larger than the first.
        self.gemm_epilogue_workspace_bytes = self.gemm_epilogue_workspace_bytes.min(self.gemm_workspace_bytes);
        Ok(self)
    }

    /// Bytes of workspace in each call of cuDNN, where there is one.
    pub fn cudnn_workspace_bytes(&self) -> Option<u64> {
        match self.convolution {
            Convolution::Cudnn { workspace_bytes } => Some(workspace_bytes),
            Convolution::Backend | Convolution::Native => None,
        }
    }

    /// The profile of that name, one of [`Profile::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.contains(&name).then_some(())?;
        match name.split_once("-sm") {
            None => Some(Self::native()),
            Some(("torch-2.11", sm)) => sm.parse().ok().map(Self::torch_2_11),
            Some((_, sm)) => sm.parse().ok().map(Self::torch_2_15),
        }
    }

    /// The same on a card with so many multiprocessors, where it stands for a card.
    #[must_use]
    pub fn on_card(self, multiprocessors: usize) -> Self {
        let of_card = |sm| Multiprocessors::of_card(sm, multiprocessors);
        Self { multiprocessors: self.compute_capability.map(of_card), ..self }
    }
}

/// The sum over the pairs of a `:KiB:count:KiB:count…`.
fn workspace_config(value: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> = value.strip_prefix(':')?.split(':').map(|n| n.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len().is_multiple_of(2))?;
    let pair = |pair: &[u64]| pair[0].checked_mul(pair[1])?.checked_mul(1024);
    numbers.chunks_exact(2).try_fold(0u64, |sum, kib_and_count| sum.checked_add(pair(kib_and_count)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_the_workspaces() {
        let bytes = |variable, value| {
            let profile = Profile::torch_2_11(90).with_environment(variable, value)?;
            Ok::<_, Error>([profile.gemm_workspace_bytes, profile.gemm_epilogue_workspace_bytes])
        };
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8").unwrap(), [(8 << 20) + (128 << 10), 1 << 20]);
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":0:0").unwrap(), [0, 0]);
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":16:8").unwrap(), [128 << 10, 128 << 10]);
        assert_eq!(bytes("CUBLASLT_WORKSPACE_SIZE", "32").unwrap(), [32 << 20, 32 << 10]);
        assert_eq!(bytes("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1").unwrap(), [32 << 20, 0]);
        for (variable, value) in [
            ("CUBLAS_WORKSPACE_CONFIG", "4096"),
            ("CUBLAS_WORKSPACE_CONFIG", ":4096"),
            ("CUBLAS_WORKSPACE_CONFIG", ":18446744073709551615:2"),
            ("CUBLASLT_WORKSPACE_SIZE", "much"),
            ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "yes"),
            ("HOME", "/"),
        ] {
            assert!(bytes(variable, value).is_err(), "{variable}={value}");
        }
    }
}
