//! Claims that others make about splitting and dividing a network.

use crate::Claim;

/// The paper on ZeRO.
const ZERO: &str = "ZeRO, arXiv 1910.02054 (2020)";

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        text: "Model parallelism: splitting the model across GPUs gets around the memory of one.",
        source: "The Hidden Relationship: Batch Size and GPU Memory",
    },
    Claim {
        text: "ZeRO leaves 4 + 12/N, 2 + 14/N or 16/N of the 16 bytes per parameter on each of N devices.",
        source: ZERO,
    },
    Claim {
        text: "ZeRO's stages 1 and 2 send no more than data parallelism, stage 3 sends half as much again.",
        source: ZERO,
    },
];
