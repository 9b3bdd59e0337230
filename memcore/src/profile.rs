//! Memory profiles: the temporaries and workspaces that operators make, as data.
//!
//! A profile decides the memory of a program above the backend, so that the event lists of all backends are identical
//! under one profile. A new PyTorch version is a new entry here.

mod release;
mod workspaces;

pub use release::{Nearest, Release};
pub use workspaces::{ConvolutionCase, ConvolutionPass, ConvolutionWorkspaces, PassBytes, WorkspaceTaken};

use crate::error::{Error, Result};

/// The kernels of cuDNN's attention that PyTorch uses with cuDNN, by the cuDNN version that comes with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudnnAttention {
    /// Never preferred to other kernels (9.10).
    Unused,
    /// Also with dropout (9.19).
    WithDropout,
    /// Only without dropout (9.20).
    WithoutDropout,
    /// Only without dropout; with heads of more than 128 elements there is hardly any gradient (9.24, 9.26).
    Narrow,
}

/// The behaviour of group normalisation, by the first release that has it. Each variant includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupNorm {
    /// Makes its input and its gradient contiguous before its operator.
    CopiesBefore,
    /// Rounds the statistics of 16-bit inputs at the end (2.13).
    RoundsAtTheEnd,
    /// Copies inside of its operator, once in each pass, and needs no sums of channels for examples of one position
    /// (2.14).
    CopiesInside,
    /// Has kernels for the channels-last layout (2.15).
    ChannelsInnermost,
}

/// The memory that convolutions allocate besides their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convolution {
    /// The workspace that the backend's own algorithm asks for.
    Backend,
    /// PyTorch without cuDNN: an im2col buffer for one sample (`slow_conv2d`), the bias gradient by a reduction with two temporaries.
    Native,
    /// PyTorch with cuDNN: a workspace of this many bytes in each call. cuDNN then also computes attention if PyTorch
    /// prefers it.
    Cudnn {
        /// Bytes of workspace.
        workspace_bytes: u64,
    },
}

/// The multiprocessors of the GPU that a profile stands for: the grids of kernels depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// Number of multiprocessors.
    pub count: usize,
    /// Threads per multiprocessor.
    pub threads: usize,
}

/// CUB's sort of indices and its search for runs of equal ones, which determine its scratch. Measured with the
/// unmodified wheels; a tile is the largest number of indices that take no more scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSort {
    /// True if only the digits that the row numbers need are counted, false if all digits of a word are.
    pub needed_digits: bool,
    /// Indices that a block sorts at one time.
    pub sort_tile: usize,
    /// Indices that a block searches for runs at one time.
    pub unique_tile: usize,
    /// True if the search for runs has a second part of scratch.
    pub second_part: bool,
}

impl IndexSort {
    /// The sort of a release on a compute capability (8.9 runs the kernels of 8.6).
    pub fn new(release: Release, sm: u32) -> Self {
        let newer = release >= Release::from_minor(13);
        let sort_tile = match sm {
            90.. => 4608,
            80.. => 3840,
            70.. => 2816,
            _ => 3584,
        };
        let unique_tile = match sm {
            90.. if newer => 4928,
            91.. if release >= Release::from_minor(11) => 3840,
            90.. => 4480,
            80 if newer => 1344,
            80 => 1792,
            _ => 320,
        };
        Self { needed_digits: newer, sort_tile, unique_tile, second_part: release >= Release::from_minor(11) }
    }
}

impl Multiprocessors {
    /// The multiprocessors of the best-known card of a compute capability: RTX 5090 (120), B200 (100), H100 (90), RTX
    /// 4090 (89), RTX A6000 (86), A100 (80), T4 (75), V100 (70), P100 (60).
    pub(crate) fn of_compute_capability(sm: u32) -> Self {
        let count = match sm {
            101.. => 170,
            91.. => 148,
            90 => 132,
            87.. => 128,
            81.. => 84,
            80 => 108,
            71.. => 40,
            70 => 80,
            _ => 56,
        };
        Self::of_card(sm, count)
    }

    /// The multiprocessors of a card of that compute capability with `count` of them.
    pub fn of_card(sm: u32, count: usize) -> Self {
        let threads = match sm {
            90 | 100 | 80 | 0..75 => 2048,
            81.. => 1536,
            _ => 1024,
        };
        Self { count, threads }
    }
}

/// A memory profile: it decides about temporaries and workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name on the command line.
    pub name: String,
    /// The release of PyTorch that it stands for; `None` for this program's own kernels.
    pub release: Option<Release>,
    /// Bytes of the workspace that a GEMM library (cuBLAS) keeps per device and role, from the first product on.
    pub gemm_workspace_bytes: u64,
    /// True if a device takes this number from its backend instead
    /// ([`Backend::gemm_workspace_bytes`](crate::backend::Backend::gemm_workspace_bytes)).
    pub asks_gemm_workspace: bool,
    /// Bytes of the second workspace, that of the library with epilogues (cuBLASLt), from the first product with a bias
    /// on. If the two libraries share one workspace, it has 0 bytes.
    pub gemm_epilogue_workspace_bytes: u64,
    /// True if products with epilogues use the first workspace, provided that workspaces are kept.
    pub shares_workspaces: bool,
    /// True if a product with an epilogue takes the first workspace in addition to its own.
    pub epilogues_take_both: bool,
    /// True if the second workspace is at most as large as the first.
    pub limits_epilogue_workspace: bool,
    /// True if the second workspace is kept whenever the first is. If false, it is taken for each product, before the
    /// first, and freed after it.
    pub keeps_epilogue_workspace: bool,
    /// True if a product of one row with a bias has an epilogue: in all releases but 2.10.
    pub one_row_has_epilogue: bool,
    /// True if workspaces are kept for the life of the process, one for each role that ever needed it. If false, they
    /// are taken for each product and freed after it.
    pub keeps_workspaces: bool,
    /// True for memory-efficient attention as in 2.14: keys may have fewer heads than queries, and without dropout it
    /// returns the state of a generator that it does not use, as two words.
    pub newer_efficient_attention: bool,
    /// Flash attention pads heads of more than 128 elements to a multiple of this many, in its own memory.
    pub wide_flash_multiple: usize,
    /// The kernels of cuDNN's attention that are used.
    pub cudnn_attention: CudnnAttention,
    /// True if a plan of its gradient keeps gradients of keys and values for every query head, if there are fewer heads of keys. cuDNN 9.19 does. The
    /// stand-in for cuDNN under which some recordings were made names the same bytes for every plan.
    pub cudnn_attention_repeats_gradients: bool,
    /// CUB's sort in the gradient of an embedding.
    pub index_sort: IndexSort,
    /// In the backward of a maximum or minimum of two: true if the mask of the elements that the other operand won is
    /// made before the gradient share, false if after it.
    pub masks_extremum_first: bool,
    /// The behaviour of group normalisation.
    pub group_norm: GroupNorm,
    /// True if autocast computes root-mean-square normalisation in float32, like layer normalisation; false if it
    /// leaves it alone.
    pub autocasts_rms_norm: bool,
    /// True if root-mean-square normalisation is composed of operators, false if it is one kernel.
    pub composes_rms_norm: bool,
    /// True if the norms of a list of tensors take one partial sum for each chunk, with a list of the tensors' offsets.
    /// If false, every tensor has as many partial sums as the longest has chunks.
    pub norms_have_offsets: bool,
    /// The memory that convolutions allocate.
    pub convolution: Convolution,
    /// True if each convolution takes, while it runs, as much memory as its operands and its result besides: an upper figure for cuDNN's workspaces.
    pub convolutions_copy: bool,
    /// The workspaces that cuDNN named for convolutions, in place of the one of [`convolution`](Self::convolution).
    pub convolution_workspaces: Option<ConvolutionWorkspaces>,
    /// True if kernels that read channels-last pictures are counted as such. Nothing computes them: a device with values refuses them. If false, such
    /// pictures are copied into row-major order first, which differs from PyTorch where its kernels read both.
    pub channels_last: bool,
    /// True if operators make the temporaries that PyTorch's kernels need and ours do not (such as the product in a
    /// softmax gradient).
    pub torch_temporaries: bool,
    /// The multiprocessors of the GPU, whose grids determine the memory of PyTorch's reductions; `None`: ours take
    /// none.
    pub multiprocessors: Option<Multiprocessors>,
    /// Ten times the compute capability; it determines the available kernels of fused attention.
    pub compute_capability: Option<u32>,
}

/// Lists `native`, then some releases on some compute capabilities, then each of the other releases on each.
macro_rules! names {
    ($($release:literal)+; $($old:literal)+) => {
        ["native", $(concat!("torch-2.", $old),)+ $(
            concat!("torch-2.", $release, "-sm120"),
            concat!("torch-2.", $release, "-sm100"),
            concat!("torch-2.", $release, "-sm90"),
            concat!("torch-2.", $release, "-sm89"),
            concat!("torch-2.", $release, "-sm86"),
            concat!("torch-2.", $release, "-sm80"),
            concat!("torch-2.", $release, "-sm75"),
        )+]
    };
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 67] = names!(
        8 9 10 11 12 13 14 15;
        "7-sm90" "7-sm89" "7-sm86" "7-sm80" "7-sm75" "7-sm70" "7-sm60" "8-sm70" "9-sm70" "10-sm70"
    );

    /// The profile of this program's own kernels and the backend's libraries: only what they need.
    pub fn native() -> Self {
        Self {
            name: "native".into(),
            release: None,
            gemm_workspace_bytes: 0,
            asks_gemm_workspace: true,
            gemm_epilogue_workspace_bytes: 0,
            shares_workspaces: false,
            epilogues_take_both: true,
            limits_epilogue_workspace: true,
            keeps_epilogue_workspace: true,
            one_row_has_epilogue: true,
            keeps_workspaces: true,
            newer_efficient_attention: false,
            wide_flash_multiple: 64,
            cudnn_attention: CudnnAttention::WithDropout,
            cudnn_attention_repeats_gradients: true,
            index_sort: IndexSort::new(Release::from_minor(11), 90),
            masks_extremum_first: false,
            group_norm: GroupNorm::CopiesBefore,
            autocasts_rms_norm: true,
            composes_rms_norm: false,
            norms_have_offsets: false,
            convolution: Convolution::Backend,
            convolutions_copy: false,
            convolution_workspaces: None,
            channels_last: false,
            torch_temporaries: false,
            multiprocessors: None,
            compute_capability: None,
        }
    }

    /// The profile of a PyTorch release on compute capability `sm`/10. Each rule holds from the first release whose
    /// unmodified wheel showed it (see `docs/releases.md`). cuBLAS takes 32 MiB on 9.0 and 8.125 MiB on older cards,
    /// per thread; cuBLASLt 1 MiB.
    pub fn torch(release: Release, sm: u32) -> Self {
        let from = |minor| release >= Release::from_minor(minor);
        // Releases before 2.12 know of nothing newer than 9.0.
        let known_sm = if sm > 90 && !from(12) { 80 } else { sm };
        Self {
            name: format!("torch-{release}-sm{sm}"),
            release: Some(release),
            gemm_workspace_bytes: Self::torch_gemm_workspace_bytes(known_sm),
            asks_gemm_workspace: false,
            gemm_epilogue_workspace_bytes: 1 << 20,
            shares_workspaces: from(12),
            epilogues_take_both: !from(12),
            limits_epilogue_workspace: from(11),
            keeps_epilogue_workspace: from(9),
            one_row_has_epilogue: release != Release::from_minor(10),
            keeps_workspaces: !from(15),
            newer_efficient_attention: from(14),
            wide_flash_multiple: if from(11) { 64 } else { 32 },
            cudnn_attention: match release.minor {
                14.. => CudnnAttention::Narrow,
                12 | 13 => CudnnAttention::WithoutDropout,
                11 => CudnnAttention::WithDropout,
                _ => CudnnAttention::Unused,
            },
            cudnn_attention_repeats_gradients: true,
            index_sort: IndexSort::new(release, sm),
            masks_extremum_first: from(14),
            group_norm: match release.minor {
                15.. => GroupNorm::ChannelsInnermost,
                14 => GroupNorm::CopiesInside,
                13 => GroupNorm::RoundsAtTheEnd,
                _ => GroupNorm::CopiesBefore,
            },
            autocasts_rms_norm: from(12),
            composes_rms_norm: !from(9),
            norms_have_offsets: from(15),
            channels_last: false,
            convolution: Convolution::Native,
            convolutions_copy: false,
            convolution_workspaces: None,
            torch_temporaries: true,
            multiprocessors: Some(Multiprocessors::of_compute_capability(sm)),
            compute_capability: Some(sm),
        }
    }

    /// [`torch`](Self::torch) 2.11.
    pub fn torch_2_11(sm: u32) -> Self {
        Self::torch(Release::from_minor(11), sm)
    }

    /// [`torch`](Self::torch) 2.15.
    pub fn torch_2_15(sm: u32) -> Self {
        Self::torch(Release::from_minor(15), sm)
    }

    /// Bytes of the workspace that PyTorch gives cuBLAS on a card of compute capability `sm`/10, unless
    /// `CUBLAS_WORKSPACE_CONFIG` sets it.
    pub const fn torch_gemm_workspace_bytes(sm: u32) -> u64 {
        if sm >= 90 { 32 << 20 } else { 8_519_680 }
    }

    /// Changes the profile to that of a process with this environment variable. PyTorch's variables about its
    /// libraries' workspaces are known: `CUBLAS_WORKSPACE_CONFIG` (`:KiB:count` pairs), `CUBLASLT_WORKSPACE_SIZE`
    /// (KiB), `TORCH_CUBLASLT_UNIFIED_WORKSPACE` (with `1`, products with epilogues use the first workspace; 2.12 and
    /// later do so unless it is `0`) and, from 2.15 on, `TORCH_CUBLAS_WORKSPACE_CACHE` (with `1`, workspaces are kept).
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
                // 2.7 does not know this variable.
                "1" => self.shares_workspaces = self.release.is_none_or(|release| release >= Release::from_minor(8)),
                "0" => self.shares_workspaces = false,
                _ => return Err(wrong("0 or 1")),
            },
            "TORCH_CUBLAS_WORKSPACE_CACHE" => match value {
                "1" => self.keeps_workspaces = true,
                "0" => {}
                _ => return Err(wrong("0 or 1")),
            },
            _ => return Err(Error::invalid("environment", format!("{variable} is not about workspaces"))),
        }
        Ok(self)
    }

    /// Bytes of the second workspace after the other settings. Workspaces that are not kept are not shared either.
    pub(crate) fn epilogue_workspace_bytes(&self) -> u64 {
        match self.gemm_epilogue_workspace_bytes {
            _ if self.shares_workspaces && self.keeps_workspaces => 0,
            bytes if self.limits_epilogue_workspace => bytes.min(self.gemm_workspace_bytes),
            bytes => bytes,
        }
    }

    /// Bytes of workspace in each call of cuDNN; `None` without cuDNN.
    pub(crate) fn cudnn_workspace_bytes(&self) -> Option<u64> {
        match self.convolution {
            Convolution::Cudnn { workspace_bytes } => Some(workspace_bytes),
            Convolution::Backend | Convolution::Native => None,
        }
    }

    /// Returns the profile of that name, which is one of [`Profile::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.contains(&name).then_some(())?;
        match Release::parse(name) {
            Some((_, minor, Some(sm))) => Some(Self::torch(Release::from_minor(minor), sm)),
            _ => Some(Self::native()),
        }
    }

    /// Returns the nearest profile for a name that has none: of the nearest release if its release has none, else of
    /// the nearest card that the release was built for. `None` if the name does not name a release.
    pub fn nearest(name: &str) -> Option<Nearest> {
        let (major, minor, sm) = Release::parse(name)?;
        let recorded = Release::ALL.iter().any(|release| major == 2 && release.minor == minor);
        let [first, .., last] = Release::ALL;
        let release = match (major, minor) {
            (2, minor) => Release::from_minor(minor.clamp(first.minor, last.minor)),
            (0 | 1, _) => first,
            _ => last,
        };
        let of_release = |name: &&str| name.starts_with(&format!("torch-{release}-sm"));
        let distance =
            |name: &&str| sm.unwrap_or(90).abs_diff(Release::parse(name).and_then(|(_, _, sm)| sm).unwrap_or(90));
        let nearest = Self::NAMES.into_iter().filter(of_release).min_by_key(distance)?;
        let before = release::RECORDED_BEFORE.iter().find(|(recorded, _)| major == 2 && *recorded == minor);
        Some(Nearest {
            asked: format!("{major}.{minor}"),
            sm: recorded.then_some(sm).flatten(),
            name: nearest,
            programs: before.map(|(_, programs)| *programs),
        })
    }

    /// True if kernels read pictures whose channels are innermost as they lie: those of a channels-last run, and cuDNN's.
    pub(crate) fn reads_channels_last(&self) -> bool {
        self.channels_last || matches!(self.convolution, Convolution::Cudnn { .. })
    }

    /// Returns the profile for a card with this many multiprocessors; unchanged if it does not stand for a card.
    #[must_use]
    pub fn on_card(self, multiprocessors: usize) -> Self {
        let of_card = |sm| Multiprocessors::of_card(sm, multiprocessors);
        Self { multiprocessors: self.compute_capability.map(of_card), ..self }
    }
}

/// Returns the sum over the pairs of `:KiB:count:KiB:count…`.
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
    fn every_name_is_that_of_its_profile() {
        for name in Profile::NAMES {
            assert_eq!(Profile::named(name).unwrap().name, name);
        }
        assert_eq!(Profile::named("torch-2.13-sm70"), None);
        assert_eq!(Release::named("torch-2.13"), Some(Release { minor: 13 }));
        assert_eq!(["torch-2.16", "torch-2.13.1", "torch-3.13"].map(Release::named), [None; 3]);
    }

    #[test]
    fn what_is_not_recorded_has_a_nearest() {
        for (name, nearest) in [
            ("torch-1.13", Some("torch-2.7-sm90")),
            ("torch-2.4-sm75", Some("torch-2.7-sm75")),
            ("torch-2.16-sm80", Some("torch-2.15-sm80")),
            ("torch-3.0", Some("torch-2.15-sm90")),
            ("torch-2.13-sm70", Some("torch-2.13-sm75")),
            ("torch-2.7-sm120", Some("torch-2.7-sm90")),
            ("torch-2.8-sm60", Some("torch-2.8-sm70")),
            ("tensorflow-2.13", None),
        ] {
            assert_eq!(Profile::nearest(name).map(|nearest| nearest.name), nearest, "{name}");
        }
        let said = |name| Profile::nearest(name).unwrap().to_string();
        assert!(said("torch-2.6-sm80").contains("torch-2.7-sm80: 149 recorded programs have the same peaks"));
        assert!(["torch-2.3", "torch-2.16"].into_iter().all(|name| said(name).contains("was not measured")));
    }

    #[test]
    fn the_environment_sets_the_workspaces() {
        let bytes = |variable, value| {
            let profile = Profile::torch_2_11(90).with_environment(variable, value)?;
            Ok::<_, Error>([profile.gemm_workspace_bytes, profile.epilogue_workspace_bytes()])
        };
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8").unwrap(), [(8 << 20) + (128 << 10), 1 << 20]);
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":0:0").unwrap(), [0, 0]);
        assert_eq!(bytes("CUBLAS_WORKSPACE_CONFIG", ":16:8").unwrap(), [128 << 10, 128 << 10]);
        assert_eq!(bytes("CUBLASLT_WORKSPACE_SIZE", "32").unwrap(), [32 << 20, 32 << 10]);
        assert_eq!(bytes("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1").unwrap(), [32 << 20, 0]);
        let of = |minor| Profile::torch(Release::from_minor(minor), 90);
        assert_eq!([7, 11, 12, 15].map(|minor| of(minor).epilogue_workspace_bytes()), [1 << 20, 1 << 20, 0, 1 << 20]);
        let kept = of(15).with_environment("TORCH_CUBLAS_WORKSPACE_CACHE", "1").unwrap();
        assert_eq!(kept.epilogue_workspace_bytes(), 0);
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
