//! Release whose rules predict a network, and the distance of the requested release from them.

use lab_base::error;

use super::keys::Keys;
use super::options::{Attention, Options, Script};
use super::releases::{EARLIER, MASKING, REPRESENTED, Release, TURN, WIDENING};

/// Families whose recorded programs of [`EARLIER`] are supported, equal in every row.
const EARLIER_FAMILIES: [&str; 6] = ["gemma", "gpt2", "llama", "mistral", "qwen2", "qwen3"];

/// Returns the release whose rules stand for this one's.
fn rules_for(release: Release, model_type: &str) -> Release {
    match release {
        release if release < TURN && EARLIER_FAMILIES.contains(&model_type) => EARLIER,
        release if model_type == "opt" && release.major == MASKING.major && release <= MASKING => MASKING,
        release if release < REPRESENTED => WIDENING,
        _ => REPRESENTED,
    }
}

/// What a deviation was measured on.
const PROGRAMS: &str = "three programs of some GiB (4 layers of width 512: float32, bfloat16 with checkpointing, autocast with written-out attention)";

/// Reserved memory at its peak of a release relative to what the rules that stand for it say, in per mille: the lowest and the highest of
/// [`PROGRAMS`] of a family, on the rehearsal library with the compute capability 9.0 (`scripts/huggingface/deviation.py`).
struct Measured {
    release: Release,
    rules: Release,
    families: &'static [(&'static str, [i32; 2])],
}

const MEASURED: &[Measured] = &[
    Measured {
        release: Release { major: 4, minor: 45 },
        rules: EARLIER,
        families: &[("gemma", [-8, 114]), ("llama", [0, 0]), ("mistral", [0, 111]), ("qwen2", [0, 114])],
    },
    Measured {
        release: Release { major: 4, minor: 45 },
        rules: WIDENING,
        families: &[
            ("bert", [4, 13]),
            ("mt5", [30, 101]),
            ("phi3", [-89, 18]),
            ("roberta", [4, 13]),
            ("t5", [29, 208]),
            ("vit", [-131, 44]),
        ],
    },
    Measured {
        release: Release { major: 4, minor: 51 },
        rules: WIDENING,
        families: &[
            ("bert", [4, 13]),
            ("distilbert", [-19, 21]),
            ("gpt_neox", [7, 51]),
            ("mt5", [30, 101]),
            ("opt", [-12, 4]),
            ("phi3", [-90, 8]),
            ("roberta", [4, 13]),
            ("t5", [29, 135]),
            ("vit", [-123, 0]),
        ],
    },
    Measured {
        release: Release { major: 4, minor: 57 },
        rules: WIDENING,
        families: &[
            ("bert", [4, 47]),
            ("distilbert", [-19, 21]),
            ("gemma", [3, 8]),
            ("gpt2", [-11, 0]),
            ("gpt_neox", [0, 8]),
            ("llama", [0, 0]),
            ("mistral", [0, 0]),
            ("mt5", [15, 77]),
            ("opt", [-2, 4]),
            ("phi3", [0, 8]),
            ("qwen2", [0, 0]),
            ("qwen3", [0, 0]),
            ("roberta", [4, 30]),
            ("t5", [14, 135]),
            ("vit", [-131, 35]),
        ],
    },
    Measured {
        release: Release { major: 5, minor: 17 },
        rules: WIDENING,
        families: &[
            ("bert", [0, 0]),
            ("distilbert", [0, 0]),
            ("gemma", [0, 0]),
            ("gpt2", [-12, 0]),
            ("gpt_neox", [0, 8]),
            ("llama", [0, 0]),
            ("mistral", [0, 0]),
            ("mt5", [0, 0]),
            ("phi3", [0, 8]),
            ("qwen2", [0, 0]),
            ("qwen3", [0, 0]),
            ("roberta", [0, 0]),
            ("t5", [0, 0]),
            ("vit", [0, 0]),
        ],
    },
];

/// A key that changes what earlier releases compute, and that later ones ignore.
struct EarlierKey {
    families: &'static [&'static str],
    name: &'static str,
    /// The value without effect.
    usual: &'static str,
    /// The first release that ignores it.
    ignored_from: Release,
}

const EARLIER_KEYS: [EarlierKey; 2] = [
    EarlierKey {
        families: &["bert", "camembert", "roberta", "xlm-roberta"],
        name: "position_embedding_type",
        usual: "absolute",
        ignored_from: Release { major: 5, minor: 0 },
    },
    EarlierKey {
        families: &["gemma", "llama", "mistral"],
        name: "pretraining_tp",
        usual: "1",
        ignored_from: Release { major: 4, minor: 48 },
    },
];

/// Refuses a key that changes what this release computes.
fn check_earlier_keys(keys: &Keys<'_>, model_type: &str, release: Release) -> error::Result<()> {
    for EarlierKey { families, name, usual, ignored_from } in EARLIER_KEYS {
        let Some(value) = keys.get(name) else { continue };
        let written = value.as_str().map_or_else(|| value.to_string(), String::from);
        if families.contains(&model_type) && release < ignored_from && written != usual {
            let problem = format!("{value}: what transformers {release} computes with it is not supported");
            return Err(keys.error(name, problem));
        }
    }
    Ok(())
}

/// Release requested for a network, and a note if it is not the one whose rules are used.
pub(super) struct ReleaseRules {
    /// Options with the release whose rules are used in `transformers`.
    pub(super) options: Options,
    pub(super) warning: Option<String>,
}

impl ReleaseRules {
    /// Takes the release of the options, else [`REPRESENTED`]. The file's `transformers_version` decides nothing: it is the release that once saved it.
    ///
    /// # Errors
    /// [`error::Error::Usage`] for the `Trainer` that vramlab does not support in a release, and for a key whose effect in this release is not.
    pub(super) fn read(keys: &Keys<'_>, model_type: &str, options: &Options) -> error::Result<Self> {
        let release = options.transformers.unwrap_or(REPRESENTED);
        check_earlier_keys(keys, model_type, release)?;
        if options.script == Script::Trainer && !release.has_trainer() {
            let problem = format!(
                "vramlab does not support the Trainer of transformers {release}; --transformers {REPRESENTED} has one"
            );
            return Err(error::Error::usage("loop", problem));
        }
        let rules = rules_for(release, model_type);
        let plain_embeds = release.major < 5;
        let mut options = Options { transformers: Some(rules), plain_embeds, ..options.clone() };
        if written_out_only(release, model_type) {
            options.attention = Attention::Eager;
        }
        if attends_by_operators(release, model_type) && options.attention == Attention::Sdpa {
            let problem = format!(
                "vramlab does not support it with transformers {release}, whose positions PyTorch's attention takes with its slowest kernel; --attention eager works"
            );
            return Err(keys.error("model_type", problem));
        }
        let warning =
            (release != rules).then(|| format!("transformers {release}: {}", deviation(release, rules, model_type)));
        Ok(Self { options, warning })
    }
}

/// True if a release has only written-out attention for this family.
fn written_out_only(release: Release, model_type: &str) -> bool {
    matches!(model_type, "t5" | "mt5") && release.major < 5
}

/// True if the positions of this family lie in an order that no kernel of fused attention takes, so that PyTorch composes it of operators: later
/// releases copy them first.
fn attends_by_operators(release: Release, model_type: &str) -> bool {
    matches!(model_type, "t5" | "mt5") && release.major == WIDENING.major && release < WIDENING
}

/// Describes the rules that predict a network of this release, and the distance of the nearest recorded release from them.
fn deviation(release: Release, rules: Release, model_type: &str) -> String {
    let eager =
        if written_out_only(release, model_type) { " with written-out attention, the only one it has" } else { "" };
    let predicted = format!("predicted by the rules of {rules}{eager}");
    let of_family = |measured: &Measured| {
        let family = measured.families.iter().find(|(family, _)| *family == model_type);
        family.map(|(_, range)| (measured.release, *range))
    };
    let comparable = MEASURED.iter().filter(|m| m.rules == rules && m.release.major == release.major);
    let nearest = comparable.filter_map(of_family).min_by_key(|(nearest, _)| nearest.minor.abs_diff(release.minor));
    match nearest {
        Some((nearest, [low, high])) => {
            let percent = |per_mille: i32| f64::from(per_mille) / 10.0;
            let (low, high) = (percent(low), percent(high));
            format!(
                "{predicted}; the reserved memory of {PROGRAMS}, recorded with {nearest}, lies {low:+.1} to {high:+.1} % from this"
            )
        }
        None => format!("{predicted}; how far this release is from them is not measured"),
    }
}
