//! `--load`, `--resume` and `--save`: files in the safetensors format.

use lab::run::{BeginSpec, RunSpec};
use lab::training::{Begin, Continuation, PROFILE_KEY, StateFile, TrainingState};

use super::profile;
use crate::args::SaveArgs;
use crate::destination::Destination;
use crate::exit::{Failure, Result};
use crate::mapped_file;
use crate::output;

/// Refuses destinations that are not files.
///
/// # Errors
/// Standard output, which is for text.
pub(super) fn check(args: &SaveArgs) -> Result<()> {
    match &args.save {
        Some(Destination::Stdout) => Err(Failure::usage("--save: needs a file")),
        _ => Ok(()),
    }
}

/// The files that a training begins with and ends in.
#[derive(Default)]
pub(super) struct Weights {
    begin: BeginSpec,
    /// Destination of the state.
    pub(super) save: Option<Destination>,
}

impl Weights {
    pub(super) fn new(spec: &RunSpec, args: &SaveArgs) -> Self {
        Self { begin: spec.begin.clone(), save: args.save.clone() }
    }
}

/// Trains from the beginning that was requested, which `train` receives. Returns the result, and the final state if requested.
///
/// # Errors
/// A file to begin with that is not a state or weights, or is damaged.
pub(super) fn train<T>(
    weights: &Weights,
    train: impl FnOnce(&mut Continuation<'_>) -> T,
) -> Result<(T, Option<TrainingState>)> {
    let Weights { begin: BeginSpec { load, resume }, save } = weights;
    let path = resume.as_deref().or(load.as_deref());
    let mapped = path.map(mapped_file::map).transpose()?;
    let file = match (path, &mapped) {
        (Some(path), Some(bytes)) => Some(StateFile::read(path.display().to_string(), bytes)?),
        _ => None,
    };
    let begin = match &file {
        None => Begin::Fresh,
        Some(file) if resume.is_some() => Begin::Resume(file),
        Some(file) => Begin::Weights(file),
    };
    let mut continuation = Continuation { begin, save: save.is_some(), saved: None };
    let result = train(&mut continuation);
    Ok((result, continuation.saved))
}

/// Resumes a state under the profile that it was made under, unless another one is named. Returns the run and a remark on that.
///
/// # Errors
/// A file that is not a state, or is damaged.
pub(super) fn under_its_profile(mut spec: RunSpec) -> Result<(RunSpec, Option<String>)> {
    let (Some(path), None) = (&spec.begin.resume, &spec.profile.like) else { return Ok((spec, None)) };
    let bytes = mapped_file::map(path)?;
    let file = StateFile::read(path.display().to_string(), &bytes)?;
    let recorded = file.metadata.get(PROFILE_KEY).cloned();
    let note = profile::taken_from(&file.name, recorded.as_deref());
    spec.profile.like = Some(recorded.unwrap_or_else(|| profile::FORMER_DEFAULT.into()));
    Ok((spec, note))
}

/// Writes a state, whole or not at all.
pub(super) fn write(destination: &Destination, state: &TrainingState) -> Result<()> {
    match destination {
        Destination::Stdout => Err(Failure::usage("--save: needs a file")),
        Destination::File(path) => output::fill(path, &mut |out| state.write(out)),
    }
}
