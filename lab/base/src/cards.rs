//! Graphics cards by name: what PyTorch finds on one before the first tensor, and where each figure is from.

use std::sync::LazyLock;

use memcore::Profile;

use super::contexts::{AD102, GA100, GA102, GA104, GB100, GH100, RTX3080, RTX4060TI, RTX5070TI, context};
pub use super::contexts::{CONTEXT, Context};
use super::slices::{SLICED, Slice, Sliced};

/// A graphics card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name on the command line.
    pub name: &'static str,
    /// The maker's name for it.
    pub title: &'static str,
    /// Total memory that the driver reports, in hundredths of a GiB: less than the label says, because the card keeps some for itself.
    pub total_centi_gib: u64,
    /// Source of the total.
    pub total_source: &'static str,
    /// Compute capability, times ten.
    pub sm: u32,
    /// Number of multiprocessors, as the maker gives it.
    pub multiprocessors: u16,
    /// Memory that a process takes on it besides what PyTorch reserved.
    pub context: Context,
}

/// Source of the total on cards for which no message was found: the label less 3.5 %. On GeForce cards with a message, the total is 1.3 to 3.1 %
/// below the label.
const DEDUCED: &str = "the maker's label less 3.5 %";

/// Source of a total that several messages give; the smallest is taken. With another driver, or without error correction, a card may show up to 2 %
/// more.
const MESSAGES: &str = "PyTorch's messages in public issues, the smallest";

/// All cards with a name. A total from an error message ("has a total capacity of …") has the thread in its line.
pub const ALL: &[Card] = &[
    card(
        "t4",
        "Tesla T4",
        75,
        40,
        seen(1456, "Zheng-Chong/CatVTON#133"),
        context(125, 147, "Zheng-Chong/CatVTON#133, tsugumi-sys/SA-ConvLSTM-Pytorch#22"),
    ),
    card("p100-12", "Tesla P100 12GB", 60, 56, labelled(12), CONTEXT),
    card("p100-16", "Tesla P100 16GB", 60, 56, seen(1589, "vllm-project/vllm#13255"), CONTEXT),
    card(
        "v100-16",
        "Tesla V100 16GB",
        70,
        80,
        seen(1577, "meta-llama/llama#918"),
        context(355, 377, "meta-llama/llama#918"),
    ),
    card(
        "v100-32",
        "Tesla V100 32GB",
        70,
        80,
        seen(3174, "liucongg/ChatGLM-Finetuning#73"),
        context(355, 377, "meta-llama/llama#918 on a V100 16GB: the same chip"),
    ),
    card("rtx8000", "Quadro RTX 8000", 75, 72, seen(4745, "SkyworkAI/SkyReels-V1#78"), CONTEXT),
    card(
        "rtx3060",
        "GeForce RTX 3060 12GB",
        86,
        28,
        seen(1175, "smy20011/dreambooth-gui#78"),
        context(107, 141, "xMem's artifact, torch 2.6"),
    ),
    card("rtx3060ti", "GeForce RTX 3060 Ti", 86, 38, labelled(8), CONTEXT),
    card(
        "rtx3070",
        "GeForce RTX 3070",
        86,
        46,
        seen(776, "sshan-zhao/GASDA#19"),
        context(168, 190, "meta-llama/codellama#82"),
    ),
    card("rtx3070ti", "GeForce RTX 3070 Ti", 86, 48, labelled(8), GA104),
    card("rtx3080-10", "GeForce RTX 3080 10GB", 86, 68, seen(978, "zai-org/CogVideo#34"), RTX3080),
    card("rtx3080-12", "GeForce RTX 3080 12GB", 86, 70, labelled(12), CONTEXT),
    card("rtx3080ti", "GeForce RTX 3080 Ti", 86, 80, labelled(12), GA102),
    card(
        "rtx3090",
        "GeForce RTX 3090",
        86,
        82,
        seen(2354, "Tencent-Hunyuan/HY-Motion-1.0#3"),
        context(248, 315, "Tencent-Hunyuan/HY-Motion-1.0#3, invoke-ai/InvokeAI#9413, bytedance/X-Portrait#7"),
    ),
    card("rtx3090ti", "GeForce RTX 3090 Ti", 86, 84, labelled(24), CONTEXT),
    card(
        "rtx4060",
        "GeForce RTX 4060",
        89,
        24,
        seen(775, "ESRSchao/EdgeRegNet#2"),
        context(104, 126, "ESRSchao/EdgeRegNet#2"),
    ),
    card("rtx4060ti-8", "GeForce RTX 4060 Ti 8GB", 89, 34, labelled(8), RTX4060TI),
    card("rtx4060ti-16", "GeForce RTX 4060 Ti 16GB", 89, 34, labelled(16), RTX4060TI),
    card("rtx4070", "GeForce RTX 4070", 89, 46, labelled(12), CONTEXT),
    card("rtx4070super", "GeForce RTX 4070 SUPER", 89, 56, labelled(12), CONTEXT),
    card("rtx4070ti", "GeForce RTX 4070 Ti", 89, 60, seen(1170, "Kwai-Kolors/Kolors#11"), CONTEXT),
    card("rtx4070tisuper", "GeForce RTX 4070 Ti SUPER", 89, 66, labelled(16), CONTEXT),
    card("rtx4080", "GeForce RTX 4080", 89, 76, labelled(16), CONTEXT),
    card("rtx4080super", "GeForce RTX 4080 SUPER", 89, 80, labelled(16), CONTEXT),
    card(
        "rtx4090",
        "GeForce RTX 4090",
        89,
        128,
        seen(2352, MESSAGES),
        context(462, 515, "pinokiofactory/flux-webui#11, 3DTopia/Phidias-Diffusion#8"),
    ),
    card("rtx5060", "GeForce RTX 5060", 120, 30, labelled(8), CONTEXT),
    card("rtx5060ti-8", "GeForce RTX 5060 Ti 8GB", 120, 36, labelled(8), CONTEXT),
    card("rtx5060ti-16", "GeForce RTX 5060 Ti 16GB", 120, 36, labelled(16), CONTEXT),
    card("rtx5070", "GeForce RTX 5070", 120, 48, labelled(12), CONTEXT),
    card("rtx5070ti", "GeForce RTX 5070 Ti", 120, 70, labelled(16), RTX5070TI),
    card(
        "rtx5080",
        "GeForce RTX 5080",
        120,
        84,
        seen(1548, "Tencent-Hunyuan/Hunyuan3D-2#238"),
        context(325, 347, "Tencent-Hunyuan/Hunyuan3D-2#238"),
    ),
    card(
        "rtx5090",
        "GeForce RTX 5090",
        120,
        170,
        seen(3136, MESSAGES),
        context(584, 630, "Wan-Video/Wan2.1#465, TrajectoryCrafter/TrajectoryCrafter#20"),
    ),
    card("a4000", "RTX A4000", 86, 48, seen(1561, "DengKaiCQ/VGGT-Long#6"), GA104),
    card("a5000", "RTX A5000", 86, 64, seen(2367, "Magicboomliu/Accelerator-Simple-Template#7"), CONTEXT),
    card("a6000", "RTX A6000", 86, 84, seen(4754, MESSAGES), CONTEXT),
    card("a10", "A10", 86, 72, seen(2206, SAME_AS_A10G), CONTEXT),
    card("a10g", "A10G", 86, 80, seen(2206, MESSAGES), context(271, 293, "meta-pytorch/torchtune#229")),
    card("a40", "A40", 86, 84, seen(4439, SAME_AS_L40S), CONTEXT),
    card("l4", "L4", 89, 58, seen(2203, MESSAGES), context(220, 251, "ArcInstitute/evo2#190")),
    card("l40", "L40", 89, 142, seen(4440, "QwenLM/Qwen3-VL#2097"), AD102),
    card("l40s", "L40S", 89, 142, seen(4439, MESSAGES), AD102),
    card("rtx6000ada", "RTX 6000 Ada Generation", 89, 142, seen(4443, "DINGYANB/MTVCrafter#21"), AD102),
    card("a100-40", "A100 40GB", 80, 108, seen(3950, "TianheWu/CoSeR#10"), GA100),
    card("a100-80", "A100 80GB", 80, 108, seen(7915, MESSAGES), GA100),
    card("h100", "H100 80GB", 90, 132, seen(7911, "vllm-project/vllm#27508"), GH100),
    card("h200", "H200", 90, 132, seen(13972, MESSAGES), GH100),
    card("b200", "B200", 100, 148, seen(17835, MESSAGES), GB100),
];

/// The MIG slices of cards, each as a card of its own.
pub fn slices() -> &'static [Card] {
    static ALL_SLICES: LazyLock<Vec<Card>> = LazyLock::new(|| SLICED.iter().flat_map(of_sliced).collect());
    &ALL_SLICES
}

fn of_sliced(sliced: &Sliced) -> Vec<Card> {
    let Some(whole) = ALL.iter().find(|card| card.name == sliced.card) else { return Vec::new() };
    let slice = |&(name, title, total_centi_gib, multiprocessors): &Slice| Card {
        name,
        title,
        total_centi_gib,
        total_source: sliced.source,
        multiprocessors,
        context: whole.context.on_a_slice(multiprocessors, whole.multiprocessors),
        ..*whole
    };
    sliced.slices.iter().map(slice).collect()
}

/// Every card, and every slice of one.
fn with_slices() -> impl Iterator<Item = &'static Card> {
    ALL.iter().chain(slices())
}

const SAME_AS_A10G: &str = "the A10G's, whose total nvidia-smi gives as the same 23028 MiB (QwenLM/Qwen3#678)";
const SAME_AS_L40S: &str = "the L40S's, whose total nvidia-smi gives as the same 46068 MiB";

/// A total in hundredths of a GiB, and its source.
type Total = (u64, &'static str);

const fn seen(centi_gib: u64, source: &'static str) -> Total {
    (centi_gib, source)
}

const fn labelled(gib: u64) -> Total {
    (gib * 965 / 10, DEDUCED)
}

const fn card(
    name: &'static str,
    title: &'static str,
    sm: u32,
    multiprocessors: u16,
    (total_centi_gib, total_source): Total,
    context: Context,
) -> Card {
    let context = if context.source.is_none() { Context::in_proportion(multiprocessors) } else { context };
    Card { name, title, total_centi_gib, total_source, sm, multiprocessors, context }
}

/// How names of PyTorch's profiles begin, before the release.
const TORCH: &str = "torch-";

/// The release whose profiles are taken unless a card needs another one.
const USUAL: &str = "torch-2.11-";

impl Card {
    /// Returns the card with this name: this program's (`rtx4090`), or one that the driver prints (`NVIDIA GeForce RTX 4090`,
    /// `NVIDIA A100-SXM4-80GB`). Case, blanks and hyphens do not matter. Four digits are those of an RTX (`4090`, `3080 Ti`).
    pub fn named(name: &str) -> Option<&'static Card> {
        let wanted = letters(name);
        let of_number = || {
            let has_number = wanted.len() > 3 && wanted.bytes().take(4).all(|byte| byte.is_ascii_digit());
            has_number.then(|| format!("rtx{wanted}"))
        };
        let is_called =
            |card: &&Card, wanted: &str| [card.name, card.title].into_iter().any(|own| letters(own) == wanted);
        let found = with_slices().find(|card| is_called(card, &wanted));
        found.or_else(|| of_number().and_then(|wanted| with_slices().find(|card| is_called(card, &wanted))))
    }

    /// Returns names that may have been meant: the sizes of a card that has several, names that differ only in blanks and hyphens, names that a
    /// number is part of; else the most similar ones. Never empty.
    pub fn like(name: &str) -> Vec<&'static str> {
        let (plain, wanted) = (letters, letters(name));
        let names = || with_slices().map(|card| card.name);
        let sizes: Vec<_> =
            names().filter(|name| name.rsplit_once('-').is_some_and(|(bare, _)| bare == wanted)).collect();
        let with_unit: Vec<_> = names().filter(|name| plain(name) == wanted).collect();
        let parts: Vec<_> = names().filter(|name| wanted.len() > 1 && name.contains(&wanted)).collect();
        let found = [sizes, with_unit, parts].into_iter().find(|found| !found.is_empty());
        found.unwrap_or_else(|| {
            let nearest = |name: &&str| strsim::osa_distance(&plain(name), &wanted);
            let least = names().map(|name| nearest(&name)).min().unwrap_or(0);
            names().filter(|name| nearest(name) == least).take(5).collect()
        })
    }

    /// Total memory that the driver reports, in bytes.
    pub fn total_bytes(&self) -> u64 {
        (self.total_centi_gib << 30) / 100
    }

    /// Memory profile for its compute capability: that of PyTorch 2.11, or of the newest recorded release whose wheel has kernels for it. `None` if
    /// no recorded release has any.
    pub fn profile(&self) -> Option<&'static str> {
        profile_of(self.sm, Profile::NAMES)
    }

    /// Whether its profile is from a release other than the usual one, because the usual one's wheel has no kernels for it.
    pub fn has_older_profile(&self) -> bool {
        self.profile().is_some_and(|name| !name.starts_with(USUAL))
    }
}

/// Words in the driver's name of a card that do not tell it from others: the maker, the line, the plug and the kind of memory, that it is a slice, and that
/// a slice has media engines.
const NOT_TELLING: [&str; 16] = [
    "nvidia", "geforce", "tesla", "gpu", "pcie", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm2", "hbm2e", "hbm3",
    "hbm3e", "mig", "me",
];

/// Returns the letters and digits of a name that tell a card from others, in lower case and without the unit of its memory.
fn letters(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !NOT_TELLING.contains(word));
    let without_unit = |word: &str| match word.strip_suffix("gb") {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => number.to_string(),
        _ => word.to_string(),
    };
    words.map(without_unit).collect()
}

/// Returns the usual release's profile for a compute capability, or the newest one that exists for it.
fn profile_of<'a>(sm: u32, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let own = names.into_iter().filter_map(|name| Some((release(name)?, name)));
    let own = own.filter(|((_, of), _)| *of == sm);
    own.max_by_key(|((version, _), name)| (name.starts_with(USUAL), *version)).map(|(_, name)| name)
}

/// Splits a profile's name into PyTorch's release and the compute capability.
fn release(profile: &str) -> Option<((u32, u32), u32)> {
    let (version, sm) = profile.strip_prefix(TORCH)?.split_once("-sm")?;
    let (major, minor) = version.split_once('.')?;
    Some(((major.parse().ok()?, minor.parse().ok()?), sm.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_one_name_and_a_profile_of_its_own_if_there_is_one() {
        for card in ALL {
            if let Some(name) = card.profile() {
                assert_eq!(Profile::named(name).unwrap().compute_capability, Some(card.sm), "{}", card.name);
            }
            assert!(card.profile().is_some() || card.sm < 75, "{}", card.name);
            assert_eq!(Card::named(card.name), Some(card));
            assert!(card.total_bytes() > 8 * card.context.most_bytes(), "{}", card.name);
            assert!(card.context.least_bytes() <= card.context.most_bytes(), "{}", card.name);
            if card.context.source.is_some() {
                assert!(CONTEXT.most_bytes() >= card.context.most_bytes(), "{}", card.name);
                assert!(CONTEXT.least_bytes() <= card.context.least_bytes(), "{}", card.name);
                // The range of a card on which nothing was seen holds what was seen on this one.
                let range = Context::in_proportion(card.multiprocessors);
                assert!(range.least_mib <= card.context.least_mib, "{}", card.name);
                assert!(range.most_mib >= card.context.most_mib, "{}", card.name);
            }
            // A bare name that is another card's with a size would be ambiguous.
            let bare = card.name.rsplit_once('-').map_or("", |(bare, _)| bare);
            assert_eq!(Card::named(bare), None);
        }
        assert_eq!(Card::named("rtx4090").map(Card::total_bytes), Some(25_254_407_700));
    }

    #[test]
    fn a_slice_has_less_than_its_card() {
        assert_eq!(slices().len(), 26);
        for slice in slices() {
            let whole = ALL.iter().rfind(|card| slice.name.starts_with(&format!("{}-", card.name))).unwrap();
            assert_eq!((Card::named(slice.name), slice.sm), (Some(slice), whole.sm), "{}", slice.name);
            assert!(slice.total_bytes() <= whole.total_bytes(), "{}", slice.name);
            assert!(slice.multiprocessors <= whole.multiprocessors && slice.context.source.is_none(), "{}", slice.name);
            assert!(slice.context.least_bytes() <= whole.context.least_bytes(), "{}", slice.name);
            assert_eq!(slice.context.most_bytes(), whole.context.most_bytes(), "{}", slice.name);
        }
    }

    #[test]
    fn the_context_of_the_h200_is_what_was_measured() {
        let read = |name: &str| -> serde_json::Value {
            let path = format!("{}/../../benches/results/{name}", env!("CARGO_MANIFEST_DIR"));
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let [contexts, trainings] = ["2026-11-26-h200-contexts.json", "2026-11-26-h200-trainings.json"].map(read);
        let lazy = contexts["rows"].as_array().unwrap().iter().filter(|row| row["loading"] == "LAZY");
        let alone = lazy.flat_map(|row| row["stages"].as_array().unwrap()).filter(|stage| stage[0] == "context");
        let alone: Vec<u64> = alone.map(|stage| stage[1].as_u64().unwrap()).collect();
        assert!(alone.len() > 10);
        let rows = trainings["rows"].as_array().unwrap().iter();
        let beside = |row: &serde_json::Value| {
            Some((row["process_bytes"].as_u64()? - row["reserved_at_end"].as_u64()?).div_ceil(1 << 20))
        };
        let largest = rows.filter_map(beside).max().unwrap();
        for name in ["h100", "h200"] {
            let context = Card::named(name).unwrap().context;
            assert!(alone.iter().all(|mib| *mib == u64::from(context.least_mib)), "{name}: {alone:?}");
            assert_eq!(u64::from(context.most_mib), largest, "{name}");
        }
    }

    #[test]
    fn a_card_has_the_names_that_the_driver_prints() {
        for (printed, name) in [
            ("RTX 4090", "rtx4090"),
            ("NVIDIA GeForce RTX 4090", "rtx4090"),
            ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"),
            ("NVIDIA GeForce RTX 4060 Ti 16GB", "rtx4060ti-16"),
            ("GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
            ("NVIDIA RTX A6000", "a6000"),
            ("NVIDIA A100-SXM4-80GB", "a100-80"),
            ("NVIDIA A100 80GB PCIe", "a100-80"),
            ("A100-PCIE-40GB", "a100-40"),
            ("Tesla V100-SXM2-32GB", "v100-32"),
            ("Tesla T4", "t4"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA L40", "l40"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
            ("NVIDIA RTX A4000", "a4000"),
            ("Quadro RTX 8000", "rtx8000"),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-1g.10gb"),
            ("H100 MIG 3g.40gb", "h100-3g.40gb"),
            ("NVIDIA A100-SXM4-80GB MIG 2g.20gb", "a100-80-2g.20gb"),
            ("NVIDIA A100-PCIE-40GB MIG 3g.20gb", "a100-40-3g.20gb"),
            ("NVIDIA H200 MIG 1g.18gb+me", "h200-1g.18gb"),
            ("4090", "rtx4090"),
            ("3090 Ti", "rtx3090ti"),
        ] {
            assert_eq!(Card::named(printed).map(|card| card.name), Some(name), "{printed}");
        }
        // Other cards, with other memory, or one of several.
        for other in
            ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 NVL", "NVIDIA A100", "RTX", "4060ti", "", "24GB"]
        {
            assert_eq!(Card::named(other), None, "{other}");
        }
    }

    #[test]
    fn a_card_without_kernels_in_the_usual_release_takes_the_newest_that_has_them() {
        let names =
            ["native", "torch-2.15-sm75", "torch-2.11-sm75", "torch-2.10-sm70", "torch-2.9-sm70", "torch-2.7-sm60"];
        assert_eq!(profile_of(75, names), Some("torch-2.11-sm75"));
        assert_eq!(profile_of(70, names), Some("torch-2.10-sm70"));
        assert_eq!(profile_of(60, names), Some("torch-2.7-sm60"));
        assert_eq!(profile_of(50, names), None);
    }

    #[test]
    fn what_is_no_name_is_like_some() {
        assert_eq!(Card::like("a100"), ["a100-40", "a100-80"]);
        assert_eq!(Card::like("rtx4060ti"), ["rtx4060ti-8", "rtx4060ti-16"]);
        assert_eq!(Card::like("4090"), ["rtx4090"]);
        assert_eq!(Card::like("NVIDIA A100"), ["a100-40", "a100-80"]);
        assert_eq!(Card::like("rtx4091"), ["rtx4090"]);
        assert!(!Card::like("").is_empty() && !Card::like("ünknown").is_empty());
    }
}
