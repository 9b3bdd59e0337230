//! What a process takes on a card besides what PyTorch's allocator reserved: the CUDA context, by card.

/// Bytes that a process takes on a card besides what PyTorch's allocator reserved: the CUDA context and the kernels that PyTorch and its libraries
/// have loaded into it, with modules loaded lazily (CUDA 11.7 and newer; older releases load all modules at once, which takes more than 1 GiB).
///
/// From the out-of-memory messages of single processes: "this process has … in use" less what PyTorch had allocated and reserved. These are rounded
/// to hundredths of a GiB, so that a single message is uncertain by 11 MiB in each direction. A range that was measured goes from the context alone
/// to a training that has used all of its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub(super) least_mib: u16,
    pub(super) usual_mib: u16,
    pub(super) most_mib: u16,
    /// True if what cuDNN loads when it is first used is in it.
    pub has_cudnn: bool,
    /// Where the range was seen. `None` if no source is known for this card; the range is then in proportion to its multiprocessors
    /// ([`Context::in_proportion`]).
    pub source: Option<&'static str>,
}

/// The smallest and the largest context of any card with a source: an RTX 4060 (ESRSchao/EdgeRegNet#2) and a B200.
pub const CONTEXT: Context = Context { source: None, ..context(104, 919, "") };

/// Context of the H200: 527 MiB alone; 742 in a training without cuDNN, 758 to 762 with it, 812 with CUDA graphs, and 834 in timm's training script.
pub(super) const GH100: Context = Context { usual_mib: 758, has_cudnn: true, ..context(527, 834, GH100_SOURCE) };

const GH100_SOURCE: &str = "benches/results/2026-11-26-h200-contexts.json and 2026-11-26-h200-trainings.json, an H200 with torch 2.11.0+cu130 and driver 580.159.04 (an H100 is the same chip)";

/// Context of the B200: 612 MiB alone; what libraries add on top is what they add on the H200.
pub(super) const GB100: Context = Context {
    usual_mib: 612 + GH100.usual_mib - GH100.least_mib,
    has_cudnn: true,
    ..context(
        612,
        612 + GH100.most_mib - GH100.least_mib,
        "unslothai/unsloth#8669: 612 MiB alone; libraries as on an H200",
    )
};

/// MiB of context for each multiprocessor, in tenths: the least, the usual and the most. A context has local memory and scheduling structures of
/// each multiprocessor. On the cards with a source it is 2.9 (L40S) to 6.3 MiB (all libraries in use on an H200), 3.8 in the middle. Cards that are
/// not listed agree: 4.4 on an RTX A4000 (DengKaiCQ/VGGT-Long#6), 4.5 on a mobile RTX 4060 (MagicQuill#126).
const LEAST_EACH: u16 = 29;
const USUAL_EACH: u16 = 38;
const MOST_EACH: u16 = 64;

impl Context {
    /// The range of a card on which none was seen, by the number of its multiprocessors.
    pub(super) const fn in_proportion(multiprocessors: u16) -> Self {
        let [least_mib, usual_mib, most_mib] =
            [LEAST_EACH * multiprocessors / 10, USUAL_EACH * multiprocessors / 10, MOST_EACH * multiprocessors / 10];
        Self { least_mib, usual_mib, most_mib, has_cudnn: false, source: None }
    }

    /// The range on a slice of a card, on which none was seen: from the share of its multiprocessors up to the whole card's.
    pub(super) fn on_a_slice(self, multiprocessors: u16, of: u16) -> Self {
        let least = u32::from(self.least_mib) * u32::from(multiprocessors) / u32::from(of.max(1));
        let least_mib = u16::try_from(least).unwrap_or(self.least_mib);
        Self { least_mib, usual_mib: (least_mib + self.most_mib) / 2, source: None, ..self }
    }

    /// How the range of a slice is found, in words.
    pub const SLICE: &'static str =
        "of a slice from the whole card's in proportion to the multiprocessors, up to the whole card's";

    /// How the range of a card without a source is found, in words.
    pub fn proportion() -> String {
        let [least, most] = [LEAST_EACH, MOST_EACH].map(|tenths| f64::from(tenths) / 10.0);
        format!("{least} to {most} MiB for each multiprocessor, as on the cards where it was seen")
    }

    /// The smallest context, in bytes.
    pub fn least_bytes(&self) -> u64 {
        u64::from(self.least_mib) << 20
    }

    /// The range in words, from the smallest to the largest.
    pub fn range(&self) -> String {
        format!("{} to {} MiB", self.least_mib, self.most_mib)
    }

    /// What is expected, in bytes: of a training on the H200 the median, of other cards the middle of the range.
    pub fn usual_bytes(&self) -> u64 {
        u64::from(self.usual_mib) << 20
    }

    /// The largest context, in bytes. Whether something fits is decided with it.
    pub fn most_bytes(&self) -> u64 {
        u64::from(self.most_mib) << 20
    }
}

/// Context of both A100: what messages show on either, which are the same chip.
pub(super) const GA100: Context =
    context(398, 512, "HiDream-ai/VAREdit#6 on an A100 80GB, TianheWu/CoSeR#10 on an A100 40GB: the same chip");

/// Context of the RTX A4000, and of the GeForce of the same chip with as many multiprocessors.
pub(super) const GA104: Context =
    context(199, 221, "DengKaiCQ/VGGT-Long#6 on an RTX A4000: the same chip as that of an RTX 3070 Ti");

/// Context of the RTX 3080 Ti: what a message shows on a card of the same chip with as many multiprocessors.
pub(super) const GA102: Context = context(271, 293, "meta-pytorch/torchtune#229 on an A10G: the same chip");

/// Context of the L40S: what messages show on two cards of the same chip with as many multiprocessors.
pub(super) const AD102: Context =
    context(418, 517, "DINGYANB/MTVCrafter#21 on an RTX 6000 Ada, QwenLM/Qwen3-VL#2097 on an L40: the same chip");

/// Context of the RTX 3080 10GB, from a message that names no card, on one with its total.
pub(super) const RTX3080: Context =
    context(247, 267, "bcmi/libcom#54, on a card of 9.77 GiB, as an RTX 3080 10GB alone has");

/// Context of the RTX 5070 Ti: alone 203 to 230 MiB; with libraries up to what a card with so many multiprocessors takes.
pub(super) const RTX5070TI: Context =
    context(203, MOST_EACH * 70 / 10, "thebloodlust/VRAMancer: 203 to 230 MiB alone; the most by its multiprocessors");

/// Context of the RTX 4060 Ti: from what llama.cpp, a program with few modules, takes there to what PyTorch takes on the next smaller card.
pub(super) const RTX4060TI: Context =
    context(107, 126, "ggml-org/llama.cpp#23604; ESRSchao/EdgeRegNet#2 on an RTX 4060");

pub(super) const fn context(least_mib: u16, most_mib: u16, source: &'static str) -> Context {
    let usual_mib = (least_mib + most_mib) / 2;
    Context { least_mib, usual_mib, most_mib, has_cudnn: false, source: Some(source) }
}
