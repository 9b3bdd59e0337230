//! `vramlab plan --example-lengths`: the memory of a training whose examples have different lengths.

use lab::error::Error;
use lab::lengths::{self, Lengths, QUANTILES};
use lab::results::{LengthOrder, LengthsPlanResult};
use lab::run::{LengthsPlan, LengthsPlanner, OrderRun, RunSpec};

use super::plan::dry_runner;
use super::planner::{deliver, settings};
use super::workspaces::Workspaces;
use super::{cards, warnings};
use crate::args::{LengthsArgs, PlanArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Reads the lengths, makes the dry runs, and reports.
///
/// # Errors
/// A file without lengths; a network that does not take them; settings that cannot work.
pub(super) fn run(args: &PlanArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    check(args, spec)?;
    let LengthsArgs { example_lengths: Some(file), column, pad_to_multiple_of, .. } = &args.lengths else {
        return Err(Failure::usage("--example-lengths: names no file"));
    };
    let multiple = pad_to_multiple_of.map_or(1, |multiple| multiple as usize);
    let lengths = lengths::read(file, column.as_deref())?.collated(spec.model.sequence, multiple);
    let pack = args.lengths.packed();
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
    let runs = dry_runner().with_workspaces_of(&workspaces);
    let mut of_longest = spec.clone();
    of_longest.model.sequence.get_or_insert(lengths.longest().max(pack.unwrap_or(1)));
    let takes_none = |error: Error| match error {
        Error::Usage { what, .. } if what == "sequence" && spec.model.sequence.is_none() => {
            Error::usage("example-lengths", "this network takes no tokens; plan NETWORK --global-batch N plans for it")
        }
        other => other,
    };
    let session = runs.session(&of_longest).map_err(takes_none)?;
    let batch = session.run.batch;
    let seed = spec.training.seed.unwrap_or(0);
    let planner = LengthsPlanner { runs, spec, lengths: &lengths, batch, packed: pack, seed };
    let plan = planner.plan()?;
    let mut settings = settings(args, spec, &session);
    settings.remove("global-batch");
    settings.insert("batch".into(), batch.into());
    for (name, value) in args.lengths.settings() {
        settings.insert(name.into(), value);
    }
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    let deviations = plan.deviations();
    warnings::tell_first(session.network.warnings(), true, ui);
    warnings::tell(deviations, ui);
    let found = LengthsPlanResult {
        settings,
        model: format!("{}: {}", session.name(), session.description()),
        warnings: warnings::all(session.network.warnings(), deviations),
        card: cards::of_gpu(spec.card.gpu),
        budget_bytes: session.target.budget_bytes()?,
        notes: spec.notes().into_iter().map(String::from).collect(),
        premises: session.premises.into_iter().filter(|premise| premise.name != "tokens").collect(),
        ..figures(&lengths, batch, &plan, pack)
    };
    let fits = found.orders.first().is_none_or(|order| found.budget_bytes.is_none() || order.fits == Some(true));
    deliver(&found, fits, args, ui)
}

/// Settings that this question does not have.
fn check(args: &PlanArgs, spec: &RunSpec) -> Result<()> {
    let not_here = [
        ("--global-batch", args.global_batch.is_some()),
        ("--gpus", args.gpus.is_some()),
        ("--allow", !args.allow.is_empty()),
        ("--hand-over", args.hand_over.is_some()),
        ("--data-parallel", spec.parallel.ranks.data_parallel.is_some()),
        ("--lengths", spec.shape.lengths.is_some()),
        ("--batches", spec.shape.batches.is_some()),
        ("--packing", spec.model.packing.is_some()),
    ];
    match not_here.iter().find(|(_, is_set)| *is_set) {
        Some((flag, _)) => Err(Failure::usage(format!(
            "{flag} and --example-lengths: give one; --batch N says how many examples a batch of one card has"
        ))),
        None => Ok(()),
    }
}

/// The dataset's figures, and the plan's.
fn figures(lengths: &Lengths, batch: usize, plan: &LengthsPlan, pack: Option<usize>) -> LengthsPlanResult {
    let by = |chance: lengths::Chance| QUANTILES.map(|share| chance.batch_of(share)).to_vec();
    let is_limited = plan.orders.first().is_some_and(|run| run.figures.room.is_some());
    LengthsPlanResult {
        batch,
        examples: lengths.count(),
        tokens: lengths.tokens(),
        median: lengths.quantile(0.5),
        percentile_99: lengths.quantile(0.99),
        longest: lengths.longest(),
        longest_that_fits: plan.longest_that_fits,
        too_long: is_limited.then(|| plan.too_long.map_or(0, |chance| chance.marked)),
        too_long_by: plan.too_long.map(by).unwrap_or_default(),
        orders: plan.orders.iter().map(|run| order(run, pack)).collect(),
        ..LengthsPlanResult::default()
    }
}

fn order(run: &OrderRun, pack: Option<usize>) -> LengthOrder {
    let packed = || format!("packed to {}", pack.unwrap_or(run.longest));
    let within = run.figures.room.and_then(|room| room.reserved_bytes);
    LengthOrder {
        order: run.order.map_or_else(packed, |order| order.in_words().into()),
        batches: run.batches,
        longest: run.longest,
        longest_batch: run.longest_batch,
        padding: run.padding,
        peak_bytes: run.figures.allocated_bytes,
        reserved_bytes: within.unwrap_or(run.figures.reserved_bytes),
        fits: run.figures.fits_surely(),
    }
}
