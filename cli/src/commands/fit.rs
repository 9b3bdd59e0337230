//! `vramlab fit`: the largest batch or sequence for a card, with the law of the peak.

use lab::results::FitResult;
use lab::run::{Quantity, RunSpec, Search, WithCudnn, maximum};

use super::plan::dry_runner;
use super::workspaces::Workspaces;
use super::{cards, predict, tries, warnings};
use crate::args::{FitArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// Searches, explains, verifies.
///
/// # Errors
/// No budget, settings that cannot work; with code 1, a budget that not even one example fits into.
pub(super) fn run(args: &FitArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    let of = args.of;
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
    let runner = || dry_runner().with_workspaces_of(&workspaces);
    let session = dry_runner().session(spec)?;
    if spec.parallel.ranks.data_parallel.is_some() {
        // What does not go together is refused before the search.
        let one = if of == Quantity::Batch { spec.sized(of, Some(1)) } else { spec.clone() };
        dry_runner().divided(&one)?;
    }
    let budget_bytes = session
        .target
        .budget_bytes()?
        .ok_or_else(|| Failure::usage("on which card? Add --gpu rtx4090, or a size such as --gpu 24GiB"))?;
    let maximum = args.maximum.map_or_else(|| maximum(of, spec, &dry_runner()), Ok)?;
    let mut settings = RunSpec { parallel: spec.parallel.clone(), ..session.in_force.clone() }.fields();
    settings.insert("of".into(), of.name().into());
    settings.remove(of.name());
    if session.steps_said.is_none() {
        settings.remove("steps");
    }
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    warnings::tell_first(&session.warnings(), true, ui);
    let found = {
        // A spinner: the number of runs is not known.
        let progress = Progress::new(ui, 0);
        let on_run = &|size| progress.set(0, format!("{of} {size}"));
        Search { of, spec: spec.clone(), maximum, runner: runner(), on_run }.largest(budget_bytes)?
    };
    warnings::tell(found.deviations, ui);
    let tries = match found.fit.largest {
        Some(_) => None,
        None => Some(tries::that_fit(runner(), &spec.sized(of, Some(1)), budget_bytes)?),
    };
    let mut found = FitResult {
        settings,
        model: format!("{}: {}", session.name(), session.description()),
        warnings: warnings::all(&session.warnings(), found.deviations),
        premises: session.premises.into_iter().filter(|premise| premise.name != of.premise()).collect(),
        card: cards::of_gpu(spec.card.gpu),
        largest_with_least_context: found.perhaps.or(found.fit.largest),
        tries,
        notes: spec.notes().into_iter().map(String::from).collect(),
        ..with_cudnn(FitResult::new(of.name(), budget_bytes, &found.fit, &found.law), found.with_cudnn)
    };
    let size = found.largest.or(found.at_best()).or(found.largest_with_least_context);
    found.on_card = size
        .map(|size| {
            let spec = spec.sized(of, Some(size));
            runner().figures(&spec).map(|figures| predict::on_card(&spec, &figures))
        })
        .transpose()?;
    deliver(&found, args, ui)
}

/// Makes it the result of a network with convolutions, of which these sizes fit with the most that cuDNN may take besides.
fn with_cudnn(found: FitResult, surely: Option<WithCudnn>) -> FitResult {
    match surely {
        Some(WithCudnn { largest, gaps, named_by }) => {
            FitResult { largest_without_cudnn: found.largest, largest, gaps, cudnn_version: named_by, ..found }
        }
        None => found,
    }
}

fn deliver(found: &FitResult, args: &FitArgs, ui: &Ui) -> Result<Code> {
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), found)?;
    // Not even one is an answer, not an error.
    Ok(if found.at_best().is_some() { Code::Done } else { Code::Check })
}
