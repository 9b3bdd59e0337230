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

/// What NCCL takes for the first communicator of a process: 558 MiB on an H200, 180 with one channel, 684 without cuMem. Others saw 544 MB for a group of
/// two A100 and 688 for one of four. The first one takes 170 besides on the H200. Communicators of more than one rank were not measured here.
pub const NCCL: Beside = Beside {
    name: "NCCL",
    least_mib: 180,
    usual_mib: 558,
    most_mib: 858,
    source: "benches/results/2026-11-27-h200-contexts-more.json, one rank of an H200; NVIDIA/nccl#964",
};

/// The same for each further communicator: 388 MiB, 10 with one channel, 514 without cuMem; 544 to 688 in a group of A100.
pub const NCCL_FURTHER: Beside = Beside {
    name: "NCCL, each further communicator",
    least_mib: 10,
    usual_mib: 388,
    most_mib: 688,
    source: "benches/results/2026-11-27-h200-contexts-more.json, one rank of an H200; NVIDIA/nccl#964",
};

/// What NCCL takes for each rank that a process sends to or receives from alone, as in an exchange of experts: up to 32 channels, each with a buffer of 10
/// MiB for three protocols (4 MiB, 4.7 MiB and 512 KiB, rounded up) and one of 2 MiB. Eight H100 took 3.28 GB for seven ranks; two channels are the least.
pub const NCCL_PEER: Beside = Beside {
    name: "NCCL, each rank that is sent to alone",
    least_mib: 24,
    usual_mib: 384,
    most_mib: 447,
    source: "NVIDIA/nccl#1685",
};

/// What a context has more where CUDA loads all modules at once, as with `CUDA_MODULE_LOADING=EAGER`: on an H200 1259 MiB in place of 527, and in a training 2059
/// in place of 758. Older releases did so by themselves, within this range on three other cards ([`super::sightings`]).
pub const ALL_MODULES: Beside = Beside {
    name: "all CUDA modules at once",
    least_mib: 732,
    usual_mib: 1301,
    most_mib: 1532,
    source: "an H200 with CUDA_MODULE_LOADING=EAGER: benches/results/2026-11-26-h200-contexts.json and 2026-11-27-h200-contexts-more.json",
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
        "cuBLAS workspaces",
        "in what PyTorch reserves, one for each stream: 32 MiB on capability 9.0, else 8.125, or CUBLAS_WORKSPACE_CONFIG",
        "PyTorch",
    ],
    ["a second process on the card", "its own context: 525 MiB on an H200", H200_STAGES],
    [
        "communicators of PyTorch",
        "one for each group of ranks that communicates: one for DDP, FSDP and ZeRO, another for each dimension of a mesh",
        "PyTorch",
    ],
    [
        "a channel of NCCL",
        "buffers of 4 MiB, 4.7 MiB and 512 KiB for its three protocols, to each neighbour: NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS",
        "NVIDIA/nccl#285, NVIDIA/nccl#986, NVIDIA/nccl#1685",
    ],
    ["RCCL on AMD cards", "1 GiB, and 0.65 GiB for each further communicator", "Lumi-supercomputer/LUMI-AI-Guide#111"],
    ["a MIG slice at rest", "13 MiB on a 2g.20gb of an A100; contexts not known", "XuehaiPan/nvitop#8"],
    ["the context on a GB200, B300 or RTX PRO card", NOT_KNOWN, ""],
    ["contexts on AMD GPUs", "not known: PyTorch's messages there do not say it", "pytorch/pytorch#175431"],
    [
        "contexts on Intel GPUs",
        "not known; an Arc A770 shows 15.11 GiB of 16, an Arc B580 11.33 of 12 free",
        "intel/intel-extension-for-pytorch#846, intel/llm-scaler#305",
    ],
    [
        "what PyTorch may use on Apple GPUs",
        "9.07 GB of 8, 18.13 GB of 16; the context is not known",
        "lllyasviel/Fooocus#980, haoheliu/AudioLDM2#20",
    ],
    ["Jetson", "not known: cudaMallocAsync ended at 20 of 64 GB", "unslothai/unsloth#3113"],
    [
        "what is left of unified memory",
        "96 of 128 GiB on an MI300A, 62.47 of 125 on a Ryzen AI Max+ 395; else not known",
        "ROCm/legacy-rocm-build#3587, unslothai/unsloth#7960",
    ],
];

const NOT_KNOWN: &str = "not known";

/// Kinds of devices without a figure of what a process takes on them: how their names begin, and what they are.
const ELSEWHERE: [(&[&str], &str); 5] = [
    (
        &[
            "mi100", "mi210", "mi250", "mi300", "mi308", "mi325", "mi350", "mi355", "instinct", "radeon", "rx", "amd",
            "gfx",
        ],
        "an AMD GPU",
    ),
    (&["arc", "intel", "xpu", "max1"], "an Intel GPU"),
    (&["m1", "m2", "m3", "m4", "m5", "apple", "mps"], "an Apple GPU"),
    (&["jetson", "orin", "xavier", "thor", "tegra"], "a Jetson, whose memory is the system's too"),
    (&["gb10", "gb200", "gb300", "gh200", "b300", "spark", "dgx"], "an NVIDIA card that no public figure was found of"),
];

/// What is said of a device that is not a card here, if its name shows what it is.
pub fn not_known(name: &str) -> Option<String> {
    let letters: String = name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let begins = |names: &[&str]| names.iter().any(|begin| letters.starts_with(begin));
    let (_, kind) = ELSEWHERE.iter().find(|(names, _)| begins(names))?;
    Some(format!(
        "{name} is {kind}: what a process takes there besides tensors is not known. With its memory, such as 24GiB, the answer is what PyTorch \
         for CUDA reserves"
    ))
}
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
    /// Communicators of NCCL that the process has.
    pub communicators: u32,
    /// Ranks that these send to, or receive from, one by one.
    pub peers: u32,
    /// CUDA loads all modules at once, as the environment says.
    pub all_modules: bool,
}

/// Memory that a library takes in a process, so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Once.
    pub once: &'static Beside,
    times: u32,
}

impl Part {
    /// Its name, with how often it counts.
    pub fn name(self) -> String {
        match self.times {
            1 => self.once.name.into(),
            times => format!("{} (times {times})", self.once.name),
        }
    }

    /// Its three figures.
    pub fn range(self) -> Range {
        let Range { lower, expected, upper } = self.once.range();
        let times = u64::from(self.times);
        Range { lower: lower * times, expected: expected * times, upper: upper * times }
    }
}

impl Uses {
    /// The libraries' parts; of a plain number of bytes, without a card, cuDNN's alone.
    pub fn beside(self, card: Option<&Card>) -> Vec<Part> {
        let cudnn = self.cudnn && !card.is_some_and(|card| card.context.has_cudnn);
        let on_card = |times: u32| if card.is_some() { times } else { 0 };
        let parts = [
            (&CUDNN, u32::from(cudnn)),
            (&ALL_MODULES, on_card(self.all_modules.into())),
            (&NCCL, on_card(self.communicators.min(1))),
            (&NCCL_FURTHER, on_card(self.communicators.saturating_sub(1))),
            (&NCCL_PEER, on_card(self.peers)),
        ];
        parts.into_iter().filter(|(_, times)| *times > 0).map(|(once, times)| Part { once, times }).collect()
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
    fn all_modules_at_once_take_what_was_measured() {
        let read = |name: &str| -> serde_json::Value {
            let path = format!("{}/../../benches/results/{name}", env!("CARGO_MANIFEST_DIR"));
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let most = |file: &str, part: &str, loading: &str| {
            let found = read(file);
            let rows = found["rows"].as_array().unwrap().iter();
            let rows = rows.filter(|row| row["part"] == part && row["loading"] == loading);
            let stages = rows.flat_map(|row| row["stages"].as_array().unwrap());
            stages.filter_map(|stage| stage[1].as_u64()).max().unwrap() << 20
        };
        let trained = most("2026-11-27-h200-contexts-more.json", "training", "EAGER");
        // Without a library that is loaded when it is first used, all modules are PyTorch's own.
        let alone = most("2026-11-26-h200-contexts.json", "kernels", "EAGER");
        let (context, range) = (Card::named("h200").unwrap().context, ALL_MODULES.range());
        assert_eq!(alone, context.least_bytes() + range.lower);
        assert_eq!(trained, context.usual_bytes() + range.expected);
        assert_eq!(trained, context.least_bytes() + range.upper);
    }

    #[test]
    fn a_context_that_was_seen_with_cudnn_has_it() {
        let both = Uses { cudnn: true, communicators: 1, ..Uses::default() };
        let names = |card: Option<&str>| {
            both.beside(card.and_then(Card::named)).iter().map(|part| part.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("h200")), ["NCCL"]);
        assert_eq!(names(Some("a100-40")), ["cuDNN in the context", "NCCL"]);
        assert_eq!(names(None), ["cuDNN in the context"]);
    }

    #[test]
    fn devices_without_a_figure_are_said_not_to_be_known() {
        for (name, kind) in [
            ("mi300x", "an AMD GPU"),
            ("AMD Instinct MI250X", "an AMD GPU"),
            ("Arc A770", "an Intel GPU"),
            ("M3 Max", "an Apple GPU"),
            ("jetson-orin", "a Jetson"),
            ("GB200", "an NVIDIA card"),
        ] {
            assert!(not_known(name).is_some_and(|words| words.contains(kind) && words.contains("not known")), "{name}");
        }
        for name in ["rtx4091", "24GiB", "", "a100"] {
            assert_eq!(not_known(name), None, "{name}");
        }
        for card in crate::cards::ALL {
            assert_eq!(not_known(card.name), None, "{}", card.name);
        }
    }

    #[test]
    fn each_communicator_counts() {
        let of = |communicators: u32, peers: u32| {
            let parts = Uses { communicators, peers, ..Uses::default() }.beside(Card::named("h200"));
            let expected: u64 = parts.iter().map(|part| part.range().expected >> 20).sum();
            (parts.iter().map(|part| part.name()).collect::<Vec<_>>(), expected)
        };
        assert_eq!(of(0, 0), (vec![], 0));
        assert_eq!(of(1, 0), (vec!["NCCL".to_string()], 558));
        let (names, expected) = of(3, 7);
        let further = "NCCL, each further communicator (times 2)";
        assert_eq!(names, ["NCCL", further, "NCCL, each rank that is sent to alone (times 7)"]);
        assert_eq!(expected, 558 + 2 * 388 + 7 * 384);
    }
}
