//! `vramlab predict`: makes a dry run, and says whether it fits and what would change that.

use std::path::Path;

use lab::figures::short;
use lab::models::Recompute;
use lab::results::{AS_IT_IS, Checkpoints, Held, NeedsResult, OnCard, PeakResult, Prediction};
use lab::run::{DryRunner, Figures, Gpu, RequestsPlace, RunSpec, Session, Technique, techniques};

use super::any_model::{Prepared, kept_graph, predict_by_rehearsal, prepare};
use super::outcome::{Report, Steps};
use super::plan::{Plan, dry_runner};
use super::workspaces::Workspaces;
use super::{cards, endless, speeds, train, tries, warnings};
use crate::args::PredictArgs;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;

/// Largest number of micro-batches for which the moments below the peak are searched, unless every step is to be written.
const MAX_STEPS: usize = 256;

/// Error of a network that no library of Python builds by a word.
const PHASES_OF_OTHERS: &str = "--phases is for networks that your Python builds (a config.json, a name, a class, file.py:make_model); those of a script: \
    vramlab rehearse --phases --gpu h100 python train.py";

/// Predicts and reports.
///
/// # Errors
/// Settings that cannot work, a card that is too small (what is known is written), files that cannot be written.
pub(super) fn run(args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    match prepare(spec, args.any.program || args.any.phases.is_some()) {
        _ if args.any.phases.is_some() && is_of_a_file(spec) => Err(Failure::usage(PHASES_OF_OTHERS)),
        Prepared::BuiltIn(_) if args.any.phases.is_some() => Err(Failure::usage(PHASES_OF_OTHERS)),
        Prepared::BuiltIn(spec) => endless::answered(built_in(args, &spec, None, ui), args, &spec, ui),
        Prepared::ByPython(..) if args.checkpoint_budget.is_some() => Err(Failure::usage(
            "--checkpoint-budget chooses blocks of networks that vramlab builds: --checkpoint blocks is for others",
        )),
        Prepared::ByPython(word, why) => {
            let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
            if let Some((with_graph, origin)) = kept_graph(&word, args, spec, &workspaces) {
                match built_in(args, &with_graph, Some(origin), ui) {
                    // What the graph does not hold for is rehearsed.
                    Err(failure) if failure.code == Code::Usage => {
                        ui.tell(format!("not from the graph that is kept: {:#}", failure.error));
                    }
                    answered => return answered,
                }
            }
            predict_by_rehearsal(&word, why.as_deref(), args, spec, ui)
        }
    }
}

/// True if a file says what the network is, in a form that only this program reads.
fn is_of_a_file(spec: &RunSpec) -> bool {
    let ending = spec.model.model_file.as_deref().and_then(Path::extension);
    ending.is_some_and(|ending| ending == "pt2" || ending == "toml")
}

/// Predicts a network of this program by a dry run. `origin`: a sentence on where the network comes from.
fn built_in(args: &PredictArgs, spec: &RunSpec, origin: Option<String>, ui: &Ui) -> Result<Code> {
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
    let runner = dry_runner().with_workspaces_of(&workspaces);
    let (chosen, checkpoints) = match &args.checkpoint_budget {
        Some(budget) => within(budget.0, spec, &runner)?,
        None => (spec.clone(), None),
    };
    let spec = &chosen;
    let plan = Plan::predict(args, spec, ui)?.for_page(&args.page).rows_for(&args.output);
    // What only the details show is not computed for an answer without them.
    let in_full = ui.view.full || plan.writes_steps(&args.output);
    let plan = if !in_full {
        plan
    } else if is_short(&plan) || plan.writes_steps(&args.output) {
        plan.with_history()
    } else {
        ui.tell_after(format!(
            "more than {MAX_STEPS} micro-batches: the peaks below the highest are not looked for (--json keeps every step)"
        ));
        plan
    };
    let steps = if in_full || plan.summary || plan.stats { Steps::Every } else { Steps::First };
    let asked = Asked { in_full, changes: true, steps };
    let mut report =
        answer(&runner, spec, &plan, asked, origin, |steps| train::measured(&plan, steps, &args.output, ui))?;
    if let Some(found) = &mut report.result.prediction {
        found.checkpoints = checkpoints;
    }
    if let (Some(tries), Some(recipe)) = (&mut report.result.tries, &args.dry_run.training.recipe) {
        tries::in_keys(tries, recipe, spec)?;
    }
    let is_no = is_no(&report.failure);
    answered(is_no, train::deliver(&plan, report, &args.output, ui))
}

/// Parts of an answer that take longer than the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The table of techniques.
    pub in_full: bool,
    /// Changes that make it fit.
    pub changes: bool,
    /// Steps of the run. The first are followed by all if one of those takes more.
    pub steps: Steps,
}

/// The answer of a dry run, before it is shown. `run` makes the run itself, or its first steps.
///
/// # Errors
/// Those of dry runs, except a lack of memory: that is in the report.
pub(super) fn answer(
    runner: &DryRunner<'_>,
    spec: &RunSpec,
    plan: &Plan,
    asked: Asked,
    origin: Option<String>,
    run: impl Fn(Steps) -> Result<Report>,
) -> Result<Report> {
    // Who asks for the requests waits for this run where it tells them.
    let place = match asked.steps {
        Steps::First => runner.place_of_requests(spec, &plan.session)?,
        Steps::Every => None,
    };
    let kept = place.as_ref().map(RequestsPlace::keep);
    let (ran, needs) = beside(
        || -> Result<_> {
            let mut report = run(asked.steps)?;
            if let Some(kept) = kept {
                kept.give(report.made.take());
            }
            let needs_peak = peak_of_failed(runner, spec, &report)?;
            runner.with_convolutions(spec, report.deviations)?;
            Ok((report, needs_peak))
        },
        || with_enough_memory(runner, spec, &plan.session, asked.in_full),
    );
    let ((mut report, mut needs_peak), (figures, mut techniques)) = (ran?, needs?);
    let mut needs = of_run(figures, &report);
    if asked.steps == Steps::First && is_of_later_steps(&report, &needs) {
        report = run(Steps::Every)?;
        needs = of_run(figures, &report);
        needs_peak = peak_of_failed(runner, spec, &report)?;
    }
    // One run is one line: the table says the same as the verdict.
    let rows = techniques.iter_mut().filter(|one| one.name == AS_IT_IS);
    rows.filter_map(|one| one.figures.as_mut().ok()).for_each(|row| *row = needs);
    report.deviations = needs.unaccounted(report.deviations);
    report.result.warnings = warnings::all(&plan.session.warnings(), report.deviations);
    if asked.changes {
        report.result.tries = tries::of_predicted(runner, spec, &plan.session, &needs)?;
    }
    let in_words = |deviations| warnings::all(&[], deviations);
    let found = prediction(spec, runner, &needs, needs_peak)?;
    report.result.prediction = Some(Prediction {
        local_peaks: report.peaks.take(),
        techniques: techniques.iter().map(|one| one.result(in_words)).collect(),
        notes: origin.into_iter().chain(found.notes).collect(),
        ..found
    });
    judge(&mut report.failure, &needs);
    Ok(report)
}

/// Contents of memory at the peak with enough memory, of a run that failed.
fn peak_of_failed(runner: &DryRunner<'_>, spec: &RunSpec, report: &Report) -> Result<Option<PeakResult>> {
    Ok(report.failure.as_ref().map(|_| runner.peak(spec)).transpose()?)
}

/// True if what an answer is about happened after the steps that were made: the run takes more than they did, or runs out of memory later.
fn is_of_later_steps(report: &Report, needs: &Figures) -> bool {
    let is_higher = report.result.peak.as_ref().is_none_or(|peak| peak.bytes < needs.allocated_bytes);
    report.failure.is_none() && (is_higher || needs.missing_bytes().is_some())
}

/// Chooses the blocks that are computed again so that the run reserves at most so many bytes.
///
/// # Errors
/// A run that takes more with every block computed again, or that has no blocks; those of dry runs.
fn within(budget: u64, spec: &RunSpec, runner: &DryRunner<'_>) -> Result<(RunSpec, Option<Checkpoints>)> {
    if spec.model.checkpoint.is_some() {
        return Err(Failure::usage("--checkpoint-budget chooses the blocks: leave --checkpoint out"));
    }
    let speed = speeds::of_gpu(spec.card.gpu)?;
    let Some(choice) = runner.checkpoints_within(spec, speed, Some(budget))? else {
        let mut every = spec.clone();
        every.model.checkpoint = Some(Recompute::Blocks);
        let least = runner.figures(&every)?.reserved_bytes;
        if least <= budget {
            let problem = format!(
                "the network has no numbered blocks; with --checkpoint blocks the run reserves {}",
                short(least)
            );
            return Err(Failure::usage(format!("--checkpoint-budget {}: {problem}", short(budget))));
        }
        return Err(Failure::usage(format!(
            "--checkpoint-budget {}: with every block computed again the run reserves {}",
            short(budget),
            short(least)
        )));
    };
    let beside = runner.beside_others(&choice, speed, budget)?;
    Ok((choice.spec, Some(beside)))
}

/// True if the answer is a No.
pub(super) fn is_no(failure: &Option<Failure>) -> bool {
    failure.as_ref().is_some_and(|failure| failure.code == Code::Check)
}

/// Returns the code of a delivered answer. A No is an answer, not an error: it was printed.
///
/// # Errors
/// Those of the delivery.
pub(super) fn answered(is_no: bool, delivered: Result<Code>) -> Result<Code> {
    match delivered {
        Err(failure) if is_no && failure.code == Code::Check => Ok(Code::Check),
        delivered => delivered,
    }
}

/// What the process of a run with these figures takes on the card.
pub(super) fn on_card(spec: &RunSpec, figures: &Figures) -> OnCard {
    let uses = spec.uses(figures.with_cudnn.is_some());
    OnCard::new(Held::from(figures), spec.card.gpu.and_then(Gpu::card), uses)
}

/// The verdict of a dry run with these figures; no moments below the peak and no techniques. `needs_peak`: contents of memory at the peak, for a run
/// that did not complete.
///
/// # Errors
/// Those of a dry run with expandable segments.
pub(super) fn prediction(
    spec: &RunSpec,
    runner: &DryRunner<'_>,
    needs: &Figures,
    needs_peak: Option<PeakResult>,
) -> Result<Prediction> {
    let expandable = match needs.is_fragmented() {
        true => runner.with_expandable_segments(spec)?,
        false => None,
    };
    Ok(Prediction {
        card: cards::of_gpu(spec.card.gpu),
        budget_bytes: needs.room.map(|room| room.budget_bytes),
        fits: needs.fits_surely(),
        on_card: on_card(spec, needs),
        with_cudnn: needs.with_cudnn,
        needs: NeedsResult::from(needs),
        needs_peak,
        with_expandable_segments: expandable.as_ref().map(NeedsResult::from),
        notes: spec.notes().into_iter().map(String::from).collect(),
        checkpoints: None,
        local_peaks: None,
        techniques: Vec::new(),
    })
}

/// Makes the failure say what the answer says: the answer gives the reason, the error only how much is missing. A run of few steps may complete where more steps
/// do not.
pub(super) fn judge(failure: &mut Option<Failure>, needs: &Figures) {
    let Some(missing) = needs.missing_bytes() else { return };
    let code = failure.as_ref().map_or(Code::Check, |failure| failure.code);
    *failure = Some(Failure::new(code, anyhow::anyhow!("out of memory: {} more than there is", short(missing))));
}

/// The run with enough memory, and in full the table of techniques, one of which it is.
fn with_enough_memory(
    runner: &DryRunner<'_>,
    spec: &RunSpec,
    session: &Session,
    in_full: bool,
) -> Result<(Figures, Vec<Technique>)> {
    let techniques = if in_full { techniques(runner, spec, session)? } else { Vec::new() };
    let known = techniques.iter().find(|one| one.name == AS_IT_IS).and_then(|one| one.figures.as_ref().ok().copied());
    let figures = match known {
        Some(figures) => figures,
        None => runner.figures(spec)?,
    };
    Ok((figures, techniques))
}

/// Runs both closures, in parallel if another thread is available.
fn beside<A, B: Send>(here: impl FnOnce() -> A, there: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, &there) {
        Ok(thread) => (here(), thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
        Err(_) => (here(), there()),
    })
}

/// True if every event of the run can be kept in memory, for the moments below the peak.
fn is_short(plan: &Plan) -> bool {
    let run = &plan.session.run;
    run.steps.saturating_mul(run.accumulate) <= MAX_STEPS
}

/// Combines the figures of the run with enough memory with the actual run's outcome, not that of the shorter run of the table.
fn of_run(mut figures: Figures, report: &Report) -> Figures {
    match (&report.failure, &report.result.peak) {
        (None, Some(peak)) => {
            figures.with_at_least(peak.bytes, peak.reserved_bytes);
        }
        (None, None) => {}
        (Some(failure), _) => {
            if let Some(known) = failure.out_of_memory().and_then(|report| report.needs) {
                figures.with_at_least(known.allocated_bytes, known.reserved_bytes);
            }
            if let Some(room) = &mut figures.room {
                (room.reserved_bytes, room.surely) = (None, false);
            }
        }
    }
    figures
}
