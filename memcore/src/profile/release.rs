//! Releases of PyTorch that have profiles, and the nearest ones for those that have none.

use std::fmt;

/// A release of PyTorch, 2.`minor`, that has profiles because its wheel was recorded.
/// [`Profile::torch`](super::Profile::torch) tells from which release on each rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The number after `2.`.
    pub minor: u32,
}

impl Release {
    /// All releases that have profiles.
    pub const ALL: [Self; 9] = [
        Self::from_minor(7),
        Self::from_minor(8),
        Self::from_minor(9),
        Self::from_minor(10),
        Self::from_minor(11),
        Self::from_minor(12),
        Self::from_minor(13),
        Self::from_minor(14),
        Self::from_minor(15),
    ];

    /// Parses the name of a release without a card, such as `torch-2.13`.
    pub fn named(name: &str) -> Option<Self> {
        let (major, minor, sm) = Self::parse(name)?;
        let release = Self::ALL.into_iter().find(|release| major == 2 && release.minor == minor)?;
        (sm.is_none() && name == format!("torch-{release}")).then_some(release)
    }

    /// The release 2.`minor`.
    pub(super) const fn from_minor(minor: u32) -> Self {
        Self { minor }
    }

    /// Parses `torch-2.12` or `torch-2.12-sm90`: a release, and a compute capability if the name has one; `None` for
    /// any other form.
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

/// The nearest profile, for a name that has no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The release that was asked for, such as `2.6`.
    pub(super) asked: String,
    /// Ten times the compute capability, if it is the part that is missing.
    pub(super) sm: Option<u32>,
    /// A profile's name.
    pub name: &'static str,
    /// Number of recorded programs whose peaks this profile reproduces, for a release that was recorded but has no
    /// profile.
    pub(super) programs: Option<u32>,
}

/// Releases 2.`minor` that were recorded but have no profile, and the number of training programs recorded: all have
/// the peaks of 2.7.
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
