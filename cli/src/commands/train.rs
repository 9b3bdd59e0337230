//! `vramlab train`: one run; and how the report of a run is handed over.

use std::path::Path;

use lab::report::Part;
use lab::section::Table;
use serde_json::{Map, Value};

use super::outcome::{Report, execute};
use super::plan::Plan;
use super::report;
use super::snapshot::written;
use super::{warnings, weights};
use crate::args::{HtmlArgs, OutputArgs, config_text};
use crate::destination::Destination;
use crate::exit::{Code, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::{memory, premises};
use crate::ui::Ui;

/// What a command has to say beyond the report of its run.
#[derive(Default)]
pub(super) struct Extra {
    /// Further keys.
    pub json: Map<String, Value>,
    /// Further tables.
    pub tables: Vec<Table>,
    /// For people: stands between the header and the tables.
    pub text: String,
}

/// Runs a plan and reports.
///
/// # Errors
/// Settings that cannot work, a device that fails, memory that runs out (what is known then is written), files that cannot be written.
pub(super) fn run(plan: Plan, args: &OutputArgs, page: &HtmlArgs, ui: &Ui) -> Result<Code> {
    let plan = plan.for_page(page).rows_for(args);
    let report = measured(&plan, args, ui)?;
    deliver(&plan, report, Extra::default(), args, ui)
}

/// Checks that everything can be written in the end, and runs.
///
/// # Errors
/// As [`run`].
pub(super) fn measured(plan: &Plan, args: &OutputArgs, ui: &Ui) -> Result<Report> {
    let snapshot = plan.snapshot.as_ref().map(|(out, _)| out);
    let pages = plan.page.html.iter().chain(plan.exports.destinations());
    let files = plan.events.iter().chain(snapshot).chain(pages).chain(&plan.weights.save);
    output::check(args.destinations().chain(files))?;
    ui.note(format!("settings:\n{}", config_text(&plan.session.in_force.said()).trim_end()));
    let progress = Progress::new(ui, plan.session.run.steps as u64);
    execute(plan, ui, Some(&progress))
}

/// Writes and prints a report.
///
/// # Errors
/// As [`run`].
pub(super) fn deliver(plan: &Plan, report: Report, extra: Extra, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    warnings::tell(report.departures, ui);
    let mut json = report.json();
    if let Value::Object(json) = &mut json {
        json.extend(extra.json);
    }
    if let (Some(destination), Some(state)) = (&plan.weights.save, &report.saved) {
        weights::write(destination, state)?;
    }
    let to_stdout = |out: &Destination| *out == Destination::Stdout;
    let events_take_stdout =
        plan.events.as_ref().is_some_and(to_stdout) || plan.snapshot.as_ref().is_some_and(|(out, _)| to_stdout(out));
    if let (Some(destination), Some(events)) = (&plan.events, &report.events) {
        destination.write(ui, &output::json_line(events)?)?;
    }
    if let (Some((out, format)), Some(document)) = (&plan.snapshot, &report.snapshot) {
        out.write(ui, &written(document, *format, Path::new("--snapshot"))?)?;
    }
    if let Some(recording) = &report.recording {
        report::exports(&plan.exports, recording, ui)?;
    }
    if let Some(destination) = &plan.page.html {
        let run = Part::Run { result: Some(&json), recording: report.recording.as_ref() };
        report::page(destination, &[run], ui)?;
    }
    let mut tables = match &report.outcome {
        Ok(outcome) => vec![memory::rows(report.rows()), memory::composition(outcome)],
        Err(_) => vec![memory::rows(report.rows())],
    };
    tables.extend(extra.tables);
    let premises = premises::line(&report.premises);
    // A prediction has them below its verdict.
    let more = if extra.text.is_empty() { format!("{premises}\n") } else { extra.text };
    let text = memory::header(&report, ui.style) + &more;
    let text = match &report.outcome {
        _ if events_take_stdout => String::new(),
        Ok(outcome) => text + "\n" + &memory::text(&report, outcome, ui.style),
        Err(_) if report.rows().is_empty() => text,
        Err(_) => text + "\n" + &memory::until_it_failed(&report, ui.style),
    };
    output::deliver(ui, args, &Results { json: &json, tables: &tables, text: &text })?;
    report.outcome?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}
