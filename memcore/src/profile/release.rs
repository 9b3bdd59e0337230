//! Releases of PyTorch that profiles stand for, and what is nearest to those that none stands for.

use std::fmt;

/// A release of PyTorch, 2.`minor`, that has profiles, since its wheel was recorded; [`Profile::torch`](super::Profile::torch) says of each rule from which one on it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The number after `2.`.
    pub minor: u32,
}

impl Release {
    /// All that have profiles.
    pub const ALL: [Self; 9] = [
        Self::of(7),
        Self::of(8),
        Self::of(9),
        Self::of(10),
        Self::of(11),
        Self::of(12),
        Self::of(13),
        Self::of(14),
        Self::of(15),
    ];

    /// The release of that name without a card, such as `torch-2.13`.
    pub fn named(name: &str) -> Option<Self> {
        let (major, minor, sm) = Self::parse(name)?;
        let release = Self::ALL.into_iter().find(|release| major == 2 && release.minor == minor)?;
        (sm.is_none() && name == format!("torch-{release}")).then_some(release)
    }

    /// 2.`minor`.
    pub(super) const fn of(minor: u32) -> Self {
        Self { minor }
    }

    /// What `torch-2.12` or `torch-2.12-sm90` names: a release, and a compute capability where there is one; `None` for what is written otherwise.
    pub(super) fn parse(name: &str) -> Option<(u32, u32, Option<u32>)> {
        let (release, sm) = match name.strip_prefix("torch-")?.split_once("-sm") {
            Some((release, sm)) => (release, Some(sm.parse().ok()?)),
            None => (name.strip_prefix("torch-")?, None),
        };
        let (major, minor) = release.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?, sm))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2.{}", self.minor)
    }
}

/// What there is in place of a profile that there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The release that was asked for, such as `2.6`.
    pub(super) asked: String,
    /// Ten times the compute capability, where it is that which is lacking.
    pub(super) sm: Option<u32>,
    /// A profile's name.
    pub name: &'static str,
    /// How many recorded programs had the peaks that it gives them, of a release that was recorded and has no profile.
    pub(super) programs: Option<u32>,
}

/// Releases, 2.`minor`, that were recorded and have no profile, and of how many training programs: all peaked where they do under 2.7.
pub(super) const RECORDED_BEFORE: [(u32, u32); 3] = [(4, 149), (5, 149), (6, 149)];

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, sm, name, programs } = self;
        let not_measured = format!("the nearest profile is {name} (how far it is off was not measured)");
        match (programs, sm) {
            (Some(programs), _) => write!(
                f,
                "PyTorch {asked} has no profile; the nearest is {name}: {programs} recorded programs have the same peaks; fused attention and \
                 RMS normalisation differ"
            ),
            (None, Some(sm)) => {
                write!(
                    f,
                    "PyTorch {asked} was not recorded on compute capability {}.{}; {not_measured}",
                    sm / 10,
                    sm % 10
                )
            }
            (None, None) => write!(f, "PyTorch {asked} was not recorded; {not_measured}"),
        }
    }
}
