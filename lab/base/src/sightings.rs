//! Contexts that others or this program measured, by card and release.

/// What a process took on a card besides what PyTorch's allocator reserved, where its release is known, or what was loaded. MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The maker's name of the card.
    pub card: &'static str,
    /// PyTorch, as its wheel names itself; empty if the source does not say it.
    pub torch: &'static str,
    /// CUDA, which the wheel or the source names; empty if neither does.
    pub cuda: &'static str,
    /// The driver; empty if the source does not say it.
    pub driver: &'static str,
    /// The least that was seen. A figure from a message is rounded to hundredths of a GiB, three times.
    pub least_mib: u16,
    /// The most.
    pub most_mib: u16,
    /// What the process had done.
    pub when: &'static str,
    /// Where it was seen.
    pub source: &'static str,
}

/// Nothing but the context was made.
pub const ALONE: &str = "nothing computed";
/// The same where CUDA loads all modules at once: before 11.7, and with `CUDA_MODULE_LOADING=EAGER`.
pub const ALL_AT_ONCE: &str = "all modules at once";
/// A training or an inference.
pub const IN_USE: &str = "in use";

const H200: [&str; 2] = [
    "benches/results/2026-11-26-h200-contexts.json and 2026-11-26-h200-trainings.json",
    "benches/results/2026-11-26-h200-contexts.json and 2026-11-27-h200-contexts-more.json",
];
const LENDING: &str = "thebloodlust/VRAMancer, benchmarks/results/bench_lending_vram_pressure.md";
const LIBCOM: &str = "bcmi/libcom#54, a card of 9.77 GiB, as an RTX 3080 10GB alone has";
const GPU_MEM_NET: &str = "GPUMemNet's perceptrons, which fit PyTorch 2.7 best";

/// All of them, the newest CUDA of a card first.
pub const SEEN: [Sighting; 25] = [
    seen("H200", ["2.11.0+cu130", "13.0", "580.159.04"], (527, 527), ALONE, H200[0]),
    seen("H200", ["2.11.0+cu130", "13.0", "580.159.04"], (622, 834), IN_USE, H200[0]),
    seen("H200", ["2.11.0+cu130", "13.0", "580.159.04"], (1259, 1259), ALL_AT_ONCE, H200[1]),
    seen("H200", ["2.11.0+cu130", "13.0", "580.159.04"], (2059, 2059), "all modules at once, a training", H200[1]),
    seen("B200", ["", "", ""], (612, 612), ALONE, "unslothai/unsloth#8669"),
    seen("A100", ["", "12.8", ""], (414, 414), ALONE, "awslabs/keys_values#92"),
    seen("A100 40GB", ["2.7", "", ""], (1403, 1465), "as with all modules at once, trainings", GPU_MEM_NET),
    seen("RTX 6000 Ada Generation", ["2.10.0+cu130", "13.0", ""], (426, 426), ALONE, "unslothai/unsloth-zoo#1053"),
    seen("L40", ["", "12.8", ""], (496, 517), IN_USE, "QwenLM/Qwen3-VL#2097"),
    seen(
        "GeForce RTX 4090",
        ["2.6.0.dev20241002+cu121", "12.1", "560.35.03"],
        (484, 505),
        IN_USE,
        "pytorch/torchchat#1341",
    ),
    seen("GeForce RTX 5070 Ti", ["2.11.0+cu130", "13.0", ""], (203, 230), ALONE, LENDING),
    seen("GeForce RTX 3090", ["2.11.0+cu130", "13.0", ""], (264, 264), ALONE, LENDING),
    seen("GeForce RTX 3090", ["2.7.1+cu128", "12.8", "610.43.03"], (256, 256), ALONE, "invoke-ai/InvokeAI#9413"),
    seen("GeForce RTX 3090", ["1.8.2+cu111", "11.1", ""], (1685, 1685), ALL_AT_ONCE, "pytorch/pytorch#55277"),
    seen("GeForce RTX 3090", ["1.7.1+cu110", "11.0", ""], (1486, 1486), ALL_AT_ONCE, "pytorch/pytorch#49877"),
    seen("GeForce RTX 3090", ["", "", "455.23.04"], (999, 999), ALL_AT_ONCE, "pytorch/pytorch#54564"),
    seen("GeForce RTX 3080 10GB", ["", "", ""], (247, 267), IN_USE, LIBCOM),
    seen("GeForce RTX 3060 12GB", ["2.6", "", ""], (107, 141), IN_USE, "xMem's artifact"),
    seen(
        "Tesla V100",
        ["1.10", "11.2", ""],
        (1343, 1343),
        ALL_AT_ONCE,
        "Hugging Face's documents, model training anatomy",
    ),
    seen("GeForce RTX 2080 Ti", ["1.11.0", "", ""], (1106, 1106), ALL_AT_ONCE, "pytorch/pytorch#74536"),
    seen("GeForce RTX 2080 Ti", ["1.10.2", "", ""], (992, 992), ALL_AT_ONCE, "pytorch/pytorch#74536"),
    seen("GeForce RTX 2080 Ti", ["1.8.1", "10.2", ""], (934, 934), ALL_AT_ONCE, "pytorch/pytorch#74536"),
    seen("Tesla P100 16GB", ["", "", ""], (307, 328), "with NCCL of two ranks", "vllm-project/vllm#13255"),
    seen("Quadro RTX 8000", ["", "", ""], (326, 346), "with NCCL of four ranks", "SkyworkAI/SkyReels-V1#78"),
    seen("RTX A6000", ["", "", ""], (619, 639), "vLLM with its own kernels", "vllm-project/vllm#4417"),
];

const fn seen(
    card: &'static str,
    [torch, cuda, driver]: [&'static str; 3],
    (least_mib, most_mib): (u16, u16),
    when: &'static str,
    source: &'static str,
) -> Sighting {
    Sighting { card, torch, cuda, driver, least_mib, most_mib, when, source }
}

impl Sighting {
    /// `256 MiB`, `484 to 505 MiB`.
    pub fn range(&self) -> String {
        match (self.least_mib, self.most_mib) {
            (least, most) if least == most => format!("{most} MiB"),
            (least, most) => format!("{least} to {most} MiB"),
        }
    }

    /// `PyTorch 2.7.1+cu128, driver 610.43.03`; `not said` if its source names no release.
    pub fn release(&self) -> String {
        let said = |name: &str, version: &str| (!version.is_empty()).then(|| format!("{name} {version}"));
        // A wheel's own name says the release of CUDA.
        let cuda = said("CUDA", self.cuda).filter(|_| !self.torch.contains('+'));
        let parts: Vec<String> =
            [said("PyTorch", self.torch), cuda, said("driver", self.driver)].into_iter().flatten().collect();
        if parts.is_empty() { "not said".into() } else { parts.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::beside::ALL_MODULES;
    use super::super::cards::{ALL, Card};
    use super::*;

    /// The cards of a sighting, with each size of one without a size.
    fn cards(seen: &Sighting) -> impl Iterator<Item = &'static Card> {
        let is_one = |rest: &str| rest.is_empty() || (rest.starts_with(' ') && rest.ends_with("GB"));
        ALL.iter().filter(move |card| card.title.strip_prefix(seen.card).is_some_and(is_one))
    }

    #[test]
    fn what_was_seen_lies_in_the_card_s_range() {
        let mut of_cards = 0;
        for seen in SEEN {
            assert!(seen.least_mib <= seen.most_mib && !seen.source.is_empty() && !seen.when.is_empty());
            for card in cards(&seen) {
                let context = card.context;
                let [least, most] = [seen.least_mib, seen.most_mib].map(|mib| u64::from(mib) << 20);
                let all = ALL_MODULES.range();
                of_cards += 1;
                match seen.when {
                    // vLLM's own kernels do not belong to a training's context.
                    when if when.contains("vLLM") => {}
                    when if when.contains("all modules") => {
                        assert!(context.least_bytes() + all.lower <= least, "{}: {}", card.name, seen.range());
                        assert!(most <= context.most_bytes() + all.upper, "{}: {}", card.name, seen.range());
                    }
                    _ => {
                        let lies = context.least_bytes() <= least && most <= context.most_bytes();
                        assert!(lies, "{}: {}", card.name, seen.range());
                    }
                }
            }
        }
        assert!(of_cards > 20, "{of_cards}");
    }

    #[test]
    fn no_release_that_loads_lazily_moves_a_context_by_more_than_the_rounding() {
        let lazily = SEEN.iter().filter(|seen| seen.card == "GeForce RTX 3090" && seen.when == ALONE);
        let figures: Vec<u16> = lazily.map(|seen| seen.most_mib).collect();
        assert_eq!(figures, [264, 256], "CUDA 13.0 and 12.8");
    }

    #[test]
    fn a_release_is_said_once() {
        let said: Vec<String> = SEEN.iter().map(Sighting::release).collect();
        assert!(said.contains(&"PyTorch 2.7.1+cu128, driver 610.43.03".into()), "{said:?}");
        assert!(said.contains(&"CUDA 12.8".into()) && said.contains(&"not said".into()), "{said:?}");
    }
}
