//! Deviations of a run from the program that it stands for, noted where they happen.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A way in which figures differ from those of the PyTorch that a profile stands for, or results from those that were
/// asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deviation {
    /// A convolution or a batch norm under a profile without cuDNN.
    WithoutCudnn,
    /// An LSTM, a GRU or an RNN under a profile without cuDNN, or on a device that computes it.
    RecurrentWithoutCudnn,
    /// 16-bit attention under a profile without cuDNN, on a card where PyTorch prefers cuDNN's attention.
    AttentionWithoutCudnn,
    /// Fused attention without the dropout that was asked for.
    NoAttentionDropout,
    /// An operand that was converted in a separate buffer before a kernel, where PyTorch's kernel converts as it reads.
    ConvertedOperand,
}

impl Deviation {
    /// All deviations.
    pub const ALL: [Self; 5] = [
        Self::WithoutCudnn,
        Self::RecurrentWithoutCudnn,
        Self::AttentionWithoutCudnn,
        Self::NoAttentionDropout,
        Self::ConvertedOperand,
    ];
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithoutCudnn => {
                "convolutions and batch norms are those of PyTorch without cuDNN (torch.backends.cudnn.enabled = False), whose convolutions \
                 have a buffer of their own instead of cuDNN's workspace"
            }
            Self::RecurrentWithoutCudnn => {
                "LSTM, GRU and RNN are PyTorch's own (torch.backends.cudnn.enabled = False): cuDNN's, which a card takes by default, keep a reserve until \
                 the backward pass instead of each step's values"
            }
            Self::AttentionWithoutCudnn => {
                "attention is PyTorch's own; from 2.11 on, with cuDNN 9.15 or newer, PyTorch takes cuDNN's for 16-bit types on compute \
                 capability 9.0 and 10.0, which has other workspaces"
            }
            Self::NoAttentionDropout => {
                "fused attention computes without its dropout: memory is counted with it, losses are those without dropout in attention"
            }
            Self::ConvertedOperand => {
                "arithmetic of two floating-point types converts one operand into a buffer first; PyTorch's kernels convert as they read, so that there is one \
                 temporary too many at that moment"
            }
        })
    }
}

/// Bytes of a tile for each of 132 multiprocessors.
const TILES: u64 = 132 * 128 * 1024;

/// A set of deviations, and how much memory one of them can hide at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviations {
    bits: u32,
    convolution_bytes: u64,
}

impl Deviations {
    /// The deviations of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits, convolution_bytes: self.convolution_bytes.max(other.convolution_bytes) }
    }

    /// An upper figure for the workspaces of cuDNN's convolutions: input, weight and output of the largest convolution that
    /// PyTorch gives to cuDNN, as f32 (cuDNN keeps them in another layout, or adds up in f32), five times for one filter group
    /// per channel, and a tile of 128 KiB for each of 132 multiprocessors. 0 without convolutions. Of the five networks whose
    /// workspaces were measured on an H100 (`benches/results/2026-11-26-h100-cudnn-workspaces.json`, two types, two memory
    /// formats) none has a larger workspace; a single call of a small convolution can.
    pub fn convolution_bytes(self) -> u64 {
        self.convolution_bytes
    }

    /// The set without a deviation that a caller has accounted for.
    #[must_use]
    pub fn without(self, deviation: Deviation) -> Self {
        Self { bits: self.bits & !bit(deviation), ..self }
    }

    /// True if the set contains `deviation`.
    pub fn contains(self, deviation: Deviation) -> bool {
        self.bits & bit(deviation) != 0
    }

    /// Iterates over the set.
    pub fn iter(self) -> impl Iterator<Item = Deviation> {
        Deviation::ALL.into_iter().filter(move |deviation| self.contains(*deviation))
    }
}

fn bit(deviation: Deviation) -> u32 {
    1 << deviation as u32
}

/// The deviations of a device so far; the set only grows.
#[derive(Default)]
pub(crate) struct RecordedDeviations {
    bits: AtomicU32,
    convolution_bytes: AtomicU64,
}

impl RecordedDeviations {
    pub(crate) fn record(&self, deviation: Deviation) {
        // Read first: a deviation that happens, happens in every step.
        if !self.so_far().contains(deviation) {
            self.bits.fetch_or(bit(deviation), Ordering::Relaxed);
        }
    }

    /// Records a convolution that cuDNN may keep so many bytes of, and tiles besides. Returns how many that are.
    pub(crate) fn record_convolution(&self, bytes: u64) -> u64 {
        let bytes = bytes + TILES;
        self.convolution_bytes.fetch_max(bytes, Ordering::Relaxed);
        bytes
    }

    pub(crate) fn so_far(&self) -> Deviations {
        let convolution_bytes = self.convolution_bytes.load(Ordering::Relaxed);
        Deviations { bits: self.bits.load(Ordering::Relaxed), convolution_bytes }
    }
}
