//! Releases of the transformers library: by which one's rules a network is predicted, and how far other releases were from them.

use std::fmt;
use std::str::FromStr;

use super::keys::Keys;
use super::options::{Attention, Options};
use crate::error;

/// A release, by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

/// The release whose networks are represented.
pub const REPRESENTED: Release = Release { major: 5, minor: 23 };

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = String;

    /// `4.51`, or with what may follow: `4.51.3`, `5.0.0.dev0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
            _ => Err(format!("{text:?}: expected a release of transformers, such as 4.51 or {REPRESENTED}")),
        }
    }
}

/// How far the peak of a release was from that of [`REPRESENTED`], in per mille of the latter: the lowest and the highest of the recorded programs.
struct Measured {
    release: Release,
    families: &'static [(&'static str, [i32; 2])],
}

const fn at(minor: u32, families: &'static [(&'static str, [i32; 2])]) -> Measured {
    Measured { release: Release { major: 4, minor }, families }
}

/// Three programs of each family with each release: in float32, in bfloat16 with checkpointing, under autocast with written-out attention.
const MEASURED: &[Measured] = &[
    at(
        45,
        &[
            ("bert", [-4, 2]),
            ("distilbert", [-3, 272]),
            ("gemma", [-122, 63]),
            ("gpt2", [-262, 15]),
            ("gpt_neox", [-224, 107]),
            ("llama", [-115, 59]),
            ("mistral", [-114, 59]),
            ("mt5", [73, 135]),
            ("opt", [-266, 327]),
            ("phi3", [38, 104]),
            ("qwen2", [-115, 57]),
            ("roberta", [-3, 0]),
            ("t5", [14, 41]),
            ("vit", [-1, 0]),
        ],
    ),
    at(
        51,
        &[
            ("bert", [-4, 2]),
            ("distilbert", [-3, 0]),
            ("gemma", [-131, 2]),
            ("gpt2", [6, 18]),
            ("gpt_neox", [0, 49]),
            ("llama", [-122, 0]),
            ("mistral", [-122, 0]),
            ("mt5", [73, 135]),
            ("opt", [0, 17]),
            ("phi3", [-4, 78]),
            ("qwen2", [-122, 0]),
            ("qwen3", [-117, 0]),
            ("roberta", [-3, 0]),
            ("t5", [14, 41]),
            ("vit", [-1, 6]),
        ],
    ),
    at(
        57,
        &[
            ("bert", [-2, 10]),
            ("distilbert", [-3, 0]),
            ("gemma", [-1, 1]),
            ("gpt2", [2, 6]),
            ("gpt_neox", [0, 2]),
            ("llama", [0, 1]),
            ("mistral", [0, 1]),
            ("mt5", [53, 135]),
            ("opt", [0, 1]),
            ("phi3", [-2, 0]),
            ("qwen2", [0, 2]),
            ("qwen3", [-1, 0]),
            ("roberta", [-3, 0]),
            ("t5", [0, 41]),
            ("vit", [-2, 0]),
        ],
    ),
];

/// The release that a network is meant for, and what is said where that is not the one whose rules are used.
pub(super) struct Meant {
    /// Options as the release has them.
    pub(super) options: Options,
    pub(super) warning: Option<String>,
}

impl Meant {
    /// What the options say, else the file, else [`REPRESENTED`].
    ///
    /// # Errors
    /// [`error::Error::Usage`] for what is not a release.
    pub(super) fn read(keys: &Keys<'_>, model_type: &str, options: &Options) -> error::Result<Self> {
        let written = keys.name("transformers_version", "")?;
        let (of, release) = match options.transformers {
            Some(release) => ("transformers".to_string(), release),
            None if written.is_empty() => (String::new(), REPRESENTED),
            None => {
                let release = written.parse().map_err(|problem: String| keys.error("transformers_version", problem))?;
                (format!("{}: transformers_version", keys.file()), release)
            }
        };
        let mut options = options.clone();
        if matches!(model_type, "t5" | "mt5") && release.major < 5 {
            options.attention = Attention::Eager;
        }
        let warning = (release != REPRESENTED).then(|| format!("{of}: {release}: {}", deviation(release, model_type)));
        Ok(Self { options, warning })
    }
}

/// By which rules a network of this release is predicted, and how far from them the nearest recorded release was.
fn deviation(release: Release, model_type: &str) -> String {
    let rules = format!("predicted by the rules of {REPRESENTED}");
    if release.major >= REPRESENTED.major {
        return format!("{rules}; how far this release is from them is not measured");
    }
    let nearest = MEASURED.iter().min_by_key(|measured| measured.release.minor.abs_diff(release.minor));
    let range = nearest.and_then(|nearest| {
        let family = nearest.families.iter().find(|(family, _)| *family == model_type);
        family.map(|(_, range)| (nearest.release, *range))
    });
    let eager =
        if matches!(model_type, "t5" | "mt5") { ", with written-out attention, the only one it has" } else { "" };
    match range {
        Some((nearest, [0, 0])) => format!("{rules}{eager}; recorded peaks of {nearest} are the same"),
        Some((nearest, [low, high])) => {
            let percent = |per_mille: i32| f64::from(per_mille) / 10.0;
            format!(
                "{rules}{eager}; recorded peaks of {nearest} lie {:+.1} to {:+.1} % from these",
                percent(low),
                percent(high)
            )
        }
        None => format!("{rules}{eager}; how far this release is from them is not measured"),
    }
}
