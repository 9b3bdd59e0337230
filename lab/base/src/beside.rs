//! What a process takes on a card besides PyTorch's reserved memory and the CUDA context: libraries' own memory, with sources.

use super::bands::Range;
use super::cards::Card;

/// Memory that a library takes in a process. MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Its name in an answer.
    pub name: &'static str,
    least_mib: u16,
    usual_mib: u16,
    most_mib: u16,
    /// Where the figures are from.
    pub source: &'static str,
}

/// What cuDNN takes in the context when it is first used, on cards whose contexts were seen without it: 18 MiB on an H200. 290 are the least by which
/// convolutional networks that others measured on an A100 were above what was predicted for them; the perceptrons there have a context of 1429 MiB, as where
/// all modules are loaded at once.
pub const CUDNN: Beside = Beside {
    name: "cuDNN in the context",
    least_mib: 18,
    usual_mib: 18,
    most_mib: 290,
    source: "18 MiB on an H200 (benches/results/2026-11-27-h200-contexts-more.json), 290 on an A100 with all modules loaded at once (docs/evidence-rehearse.md)",
};

/// What NCCL takes for the first communicator of a process: 558 MiB on an H200, 180 with one channel, 684 without cuMem. Others saw 544 and 688 MB for a
/// group. Communicators of more than one rank were not measured here.
pub const NCCL: Beside = Beside {
    name: "NCCL",
    least_mib: 180,
    usual_mib: 558,
    most_mib: 688,
    source: "benches/results/2026-11-27-h200-contexts-more.json, one rank of an H200; NVIDIA/nccl#964",
};

/// The same for each further communicator: 388 MiB, 10 with one channel, 514 without cuMem.
pub const NCCL_FURTHER: Beside = Beside {
    name: "NCCL, each further communicator",
    least_mib: 10,
    usual_mib: 388,
    most_mib: 514,
    source: "benches/results/2026-11-27-h200-contexts-more.json, one rank of an H200",
};

/// What a desktop takes on a card whose screen is on, where it was seen: no answer adds it, and one that fits by less says so. MiB.
pub const DESKTOP: Beside = Beside {
    name: "a desktop on the card",
    least_mib: 51,
    usual_mib: 51,
    most_mib: 830,
    source: "nvidia-smi at rest: an RTX 4070 Ti (Kwai-Kolors/Kolors#11), an RTX 3090 on Windows (noonghunna/club-3090#32; its neighbour without a screen 37)",
};

/// What else takes memory on a card, in words: name, figure, source. No answer adds these.
pub const OTHERS: [[&str; 3]; 15] = [
    ["PyTorch's own kernels, loaded when first used", "92 MiB on an H200, in the context's range", H200_STAGES],
    ["cuBLAS and cuBLASLt", "66 and 130 MiB on an H200, in the context's range", H200_STAGES],
    ["cuFFT, cuSOLVER, a CUDA graph", "8, 162 and 70 MiB on an H200", H200_STAGES],
    [
        "all modules at once (CUDA_MODULE_LOADING=EAGER)",
        "a context of 1259 MiB on an H200, 2059 in a training",
        H200_STAGES,
    ],
    ["cuBLAS workspaces", "one for each stream, in what PyTorch reserves", "PyTorch"],
    ["a second process on the card", "its own context: 525 MiB on an H200", H200_STAGES],
    [
        "an older CUDA",
        "a context of 1343 MiB on a V100 with CUDA 11.2",
        "Hugging Face's documents, model training anatomy",
    ],
    ["RCCL on AMD cards", "1 GiB, and 0.65 GiB for each communicator", "Lumi-supercomputer/LUMI-AI-Guide#111"],
    [
        "a MIG slice of an A100 80GB with 28 multiprocessors",
        "19968 MiB, of which 13 are taken at rest; contexts not known",
        "XuehaiPan/nvitop#8",
    ],
    ["contexts on B200 and GB200", "by multiprocessor on a B200, else not known", ""],
    ["contexts on AMD GPUs", "not known: PyTorch's messages there do not say it", "pytorch/pytorch#175431"],
    ["contexts on Intel GPUs", "not known; an Arc A770 shows 15.11 GiB of 16", "intel/intel-extension-for-pytorch#846"],
    [
        "what PyTorch may use on Apple GPUs",
        "9.07 GB of 8, 18.13 GB of 16; the context is not known",
        "lllyasviel/Fooocus#980, haoheliu/AudioLDM2#20",
    ],
    ["Jetson", NOT_KNOWN, ""],
    [
        "what is left of unified memory",
        "96 of 128 GiB on an MI300A, 62.47 of 125 on a Ryzen AI Max+ 395; else not known",
        "ROCm/legacy-rocm-build#3587, unslothai/unsloth#7960",
    ],
];

const NOT_KNOWN: &str = "not known";
const H200_STAGES: &str = "benches/results/2026-11-26-h200-contexts.json and 2026-11-27-h200-contexts-more.json";

impl Beside {
    /// Its three figures.
    pub fn range(&self) -> Range {
        let bytes = |mib: u16| u64::from(mib) << 20;
        Range { lower: bytes(self.least_mib), expected: bytes(self.usual_mib), upper: bytes(self.most_mib) }
    }
}

/// What a process takes on a card besides its context, by what it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// cuDNN computes convolutions.
    pub cudnn: bool,
    /// Ranks communicate by NCCL.
    pub nccl: bool,
}

impl Uses {
    /// The libraries' parts; of a plain number of bytes, without a card, cuDNN's alone.
    pub fn beside(self, card: Option<&Card>) -> Vec<&'static Beside> {
        let cudnn = self.cudnn && !card.is_some_and(|card| card.context.has_cudnn);
        let nccl = self.nccl && card.is_some();
        [(cudnn, &CUDNN), (nccl, &NCCL)].into_iter().filter(|(is_used, _)| *is_used).map(|(_, part)| part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_nccl_are_what_was_measured() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results/2026-11-27-h200-contexts-more.json");
        let found: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let rows = found["rows"].as_array().unwrap().iter().filter(|row| row["part"] == "nccl");
        let mut seen = 0;
        for row in rows {
            // Of each stage: its name, MiB on the card, MiB of the process by NVML, which leaves out 9.
            let at = |stage: usize| row["stages"][stage][2].as_u64().unwrap() << 20;
            for (part, from, to) in [(NCCL, 1, 2), (NCCL_FURTHER, 2, 3)] {
                let (taken, range) = (at(to) - at(from), part.range());
                assert!(range.lower <= taken && taken <= range.upper, "{}: {taken}", part.name);
                seen += u32::from(taken == range.expected);
            }
        }
        assert_eq!(seen, 4, "the default, and with smaller buffers");
    }

    #[test]
    fn a_context_that_was_seen_with_cudnn_has_it() {
        let both = Uses { cudnn: true, nccl: true };
        let names = |card: Option<&str>| {
            both.beside(card.and_then(Card::named)).iter().map(|part| part.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("h200")), ["NCCL"]);
        assert_eq!(names(Some("a100-40")), ["cuDNN in the context", "NCCL"]);
        assert_eq!(names(None), ["cuDNN in the context"]);
    }
}
