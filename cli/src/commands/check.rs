//! `vramlab check`: a memory lock file for continuous integration.

use std::io::{ErrorKind, Read};
use std::path::Path;

use lab::input;
use lab::lock::{Comparison, Lock, Locked};
use lab::results::{CheckResult, CheckedRun};
use lab::run::{BuiltInWorkspaces, ParallelSpec, RunSpec, UsualRelease};
use lab::section::Section;
use serde_json::{Map, Value};

use super::{plan, profile, tries, warnings};
use crate::args::{CheckArgs, config_text};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::file_lock::FileLock;
use crate::interrupt;
use crate::output;
use crate::render::sections;
use crate::ui::Ui;

/// Default name of a run.
const DEFAULT: &str = "default";

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Repeats the runs of a lock file and compares, or writes the file.
///
/// # Errors
/// With code 1, memory that does not fit the given limit, and where JSON goes to standard output memory that grew (with `--strict`, events that
/// changed); files that are not lock files, settings that cannot work.
pub(super) fn run(args: &CheckArgs, typed: &RunSpec, ui: &Ui) -> Result<Code> {
    let file = Destination::File(args.baseline.clone());
    output::check(args.output.destinations().chain(args.update.then_some(&file)))?;
    let lock = match read(&args.baseline)? {
        Some(lock) => lock,
        None if args.update => Lock::new(env!("CARGO_PKG_VERSION")),
        None => {
            let file = args.baseline.display();
            let network = network(typed);
            return Err(Failure::usage(format!(
                "{file}: no such file; this writes it: vramlab check {file} --update {network}"
            )));
        }
    };
    let usual_release = typed.model.usual_release;
    let typed = typed.said();
    let mut checked = Vec::new();
    for Wanted { name, flags, settings } in wanted(args, &lock, &typed)? {
        let at = |failure: Failure| Failure { code: failure.code, error: failure.error.context(format!("run {name}")) };
        let in_file = |error: lab::Error| in_file(args, at(Failure::usage(format!("flags.{error}"))));
        let spec = RunSpec::of_fields(&flags).map_err(in_file)?;
        let over = if args.update { Map::new() } else { typed.clone() };
        let spec = spec.with(over.iter().map(|(name, value)| (name.as_str(), value)))?;
        let (mut spec, note) = under_its_profile(&name, spec, settings.as_ref());
        spec.model.usual_release = locked_release(settings.as_ref()).unwrap_or(usual_release);
        let Some(found) = measured(&name, spec, flags, note, ui).map_err(at)? else {
            // Neither the file nor a result has been written.
            return Err(lab::Error::Interrupted.into());
        };
        let comparison =
            lock.runs.get(&name).map(|baseline| Comparison::new(baseline, &found.now, args.tolerance.value));
        checked.push(CheckedRun { comparison, ..found });
    }
    if args.update {
        update(&args.baseline, &checked, ui)?;
    }
    let file = args.baseline.display().to_string();
    let found = CheckResult::new(file, args.tolerance.text.clone(), args.strict, args.update, checked);
    output::deliver_findings(ui, &args.output, None, &found)?;
    let failures: Vec<String> = found.runs.iter().filter_map(|run| run.failure.clone()).collect();
    if args.update || failures.is_empty() {
        return Ok(Code::Done);
    }
    // A No is an answer, not an error: it was printed, unless standard output is for programs.
    match args.output.takes_stdout() {
        true => Err(Failure::new(Code::Check, anyhow::Error::msg(failures.join("; ")))),
        false => Ok(Code::Check),
    }
}

/// The network of these flags as it is typed; without one, an example.
fn network(typed: &RunSpec) -> String {
    let (name, file) = (&typed.model.model, &typed.model.model_file);
    let file = file.as_ref().map(|file| file.display().to_string());
    file.or_else(|| name.clone()).unwrap_or_else(|| "gpt2".into())
}

/// Writes these runs into the file. The file is read again under a lock, so what other processes wrote since the runs began stays.
fn update(path: &Path, checked: &[CheckedRun], ui: &Ui) -> Result<()> {
    let _alone = FileLock::acquire(path)?;
    let mut lock = read(path)?.unwrap_or_else(|| Lock::new(env!("CARGO_PKG_VERSION")));
    lock.version = env!("CARGO_PKG_VERSION").into();
    lock.runs.extend(checked.iter().map(|run| (run.name.clone(), run.now.clone())));
    let text = lock.text().map_err(Failure::usage)?;
    Destination::File(path.to_path_buf()).write(ui, text.as_bytes())
}

/// A run to be made.
struct Wanted {
    name: String,
    /// Flags: the typed ones with `--update`, those of the file otherwise.
    flags: Map<String, Value>,
    /// Settings in force when the run was locked; `None` for a run whose flags are typed.
    settings: Option<Map<String, Value>>,
}

/// Returns the runs to be made.
fn wanted(args: &CheckArgs, lock: &Lock, typed: &Map<String, Value>) -> Result<Vec<Wanted>> {
    let of = |(name, run): (&String, &Locked)| Wanted {
        name: name.clone(),
        flags: run.flags.clone(),
        settings: Some(run.settings.clone()),
    };
    if args.update && (!typed.is_empty() || lock.runs.is_empty()) {
        let name = args.name.clone().unwrap_or(DEFAULT.into());
        if name.trim().is_empty() {
            return Err(Failure::usage("--name: a run needs a name"));
        }
        return Ok(vec![Wanted { name, flags: typed.clone(), settings: None }]);
    }
    let runs: Vec<_> = lock.runs.iter().filter(|(name, _)| args.name.as_ref().is_none_or(|n| n == *name)).collect();
    if runs.is_empty() {
        let known: Vec<&str> = lock.runs.keys().map(String::as_str).collect();
        let file = args.baseline.display();
        return Err(Failure::usage(match &args.name {
            Some(name) => format!("--name {name}: no such run in {file}; there are: {}", known.join(", ")),
            None => format!("{file}: runs: there is none"),
        }));
    }
    Ok(runs.into_iter().map(of).collect())
}

/// Measures a locked run whose flags name no profile under the profile that it was locked under, and says so.
fn under_its_profile(
    name: &str,
    mut spec: RunSpec,
    settings: Option<&Map<String, Value>>,
) -> (RunSpec, Option<String>) {
    let (Some(settings), None) = (settings, &spec.profile.like) else { return (spec, None) };
    // In a dry run the named card's profile is the default.
    if spec.is_on_paper() {
        return (spec, None);
    }
    let recorded = settings.get("like").and_then(Value::as_str);
    spec.profile.like = Some(recorded.unwrap_or(profile::FORMER_DEFAULT).into());
    (spec, profile::taken_from(&format!("run {name}"), recorded))
}

/// Returns the release of transformers that counted when a run was locked, whatever is installed by now.
fn locked_release(settings: Option<&Map<String, Value>>) -> Option<UsualRelease> {
    let release = settings?.get("transformers")?.as_str()?.parse().ok()?;
    Some(UsualRelease::Locked(release))
}

fn in_file(args: &CheckArgs, failure: Failure) -> Failure {
    let file = args.baseline.display().to_string();
    Failure { code: failure.code, error: failure.error.context(file) }
}

/// Reads the file, if it exists.
fn read(path: &Path) -> Result<Option<Lock>> {
    let failed = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
    let file = match input::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(format!("more than {MAX_BYTES} bytes are not a lock file")));
    }
    Lock::read(&text).map(Some).map_err(failed)
}

/// Reserved bytes that are expected where cuDNN computes a run's convolutions, if the built-in tables have their workspaces.
fn expected(spec: &RunSpec) -> Result<Option<u64>> {
    let figures = plan::dry_runner().with_workspaces_of(&BuiltInWorkspaces).figures(&spec.endless())?;
    Ok(figures.with_cudnn.filter(|bound| bound.expected_bytes.is_some()).map(|bound| bound.reserved.expected))
}

/// Makes a run; `None` when the user stopped it.
fn measured(
    name: &str,
    spec: RunSpec,
    flags: Map<String, Value>,
    note: Option<String>,
    ui: &Ui,
) -> Result<Option<CheckedRun>> {
    let spec = spec.locked()?;
    let mut session = plan::session(&spec, ui)?;
    session.notes.extend(note);
    ui.note(format!("run {name}, settings:\n{}", config_text(&session.in_force.said()).trim_end()));
    warnings::tell_first(&session.warnings(), session.in_force.is_on_paper(), ui);
    let limited = |error: lab::Error| Failure::from(error).limited(session.target.limited());
    let taken = session.footprint(&interrupt::asked).map_err(limited);
    if taken.as_ref().is_err_and(Failure::is_out_of_memory)
        && let Some(tries) = tries::of_locked(&spec, &session)?
    {
        ui.tell(sections::text("", &[Section::Try(tries)], ui.view).trim_end());
    }
    let taken = taken?;
    let Some((mut memory, deviations)) = taken else { return Ok(None) };
    if session.in_force.is_on_paper() && deviations.convolution_bytes() > 0 && spec.parallel == ParallelSpec::default()
    {
        memory.expected = expected(&spec)?;
    }
    warnings::tell(deviations, ui);
    let warnings = warnings::all(&session.warnings(), deviations);
    let now = Locked { flags, settings: session.in_force.fields(), memory };
    let (model, premises) = (session.name().into(), session.premises);
    let (name, comparison) = (name.into(), None);
    Ok(Some(CheckedRun { name, model, premises, verdict: None, failure: None, comparison, warnings, now }))
}
