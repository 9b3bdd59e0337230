//! `vramlab train`: runs once, and delivers the report.

use lab::report::Part;
use lab::results::Findings;

use super::outcome::{Report, Steps, execute};
use super::plan::Plan;
use super::report;
use super::snapshot::write;
use super::{tries, warnings, weights};
use crate::args::{HtmlArgs, OutputArgs, config_text};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// Runs a plan and reports.
///
/// # Errors
/// Settings that cannot work; a device that fails; memory that runs out (the figures until then are written); files that cannot be written.
pub(super) fn run(plan: Plan, args: &OutputArgs, page: &HtmlArgs, ui: &Ui) -> Result<Code> {
    let plan = plan.for_page(page).rows_for(args);
    let mut report = measured(&plan, Steps::Every, args, ui)?;
    if report.failure.is_some() {
        report.result.tries = tries::of_trained(&plan.spec, &plan.session)?;
    }
    deliver(&plan, report, args, ui)
}

/// Checks that every output can be written in the end, and runs.
pub(super) fn measured(plan: &Plan, steps: Steps, args: &OutputArgs, ui: &Ui) -> Result<Report> {
    let snapshot = plan.snapshot.as_ref().map(|(out, _)| out);
    let pages = plan.page.html.iter().chain(plan.exports.destinations());
    let files = plan.events.iter().chain(snapshot).chain(pages).chain(&plan.weights.save);
    output::check(args.destinations().chain(files))?;
    ui.note(format!("settings:\n{}", config_text(&plan.session.in_force.said()).trim_end()));
    let progress = Progress::new(ui, plan.session.run.steps as u64);
    execute(plan, steps, ui, Some(&progress))
}

/// Writes and prints a report.
pub(super) fn deliver(plan: &Plan, report: Report, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    warnings::tell(report.deviations, ui);
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
        write(out, document, *format, "--snapshot", ui)?;
    }
    if let Some(recording) = &report.recording {
        report::exports(&plan.exports, recording, ui)?;
    }
    if let Some(destination) = &plan.page.html {
        let result = report.result.to_json().map_err(|error| Failure::new(Code::Usage, error))?;
        let part = Part::Result { result: &result, recording: report.drawn.as_ref().or(report.recording.as_ref()) };
        report::page(destination, &[part], ui)?;
    }
    let shown = output::write_all(ui, args, None, std::slice::from_ref(&report.result), true)?;
    if !args.takes_stdout() && !events_take_stdout {
        shown.print(ui)?;
        ui.print(&as_pytorch(&report))?;
    }
    match report.failure {
        Some(failure) => Err(failure),
        None => Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done }),
    }
}

/// Returns PyTorch's own table and counters, if requested.
fn as_pytorch(report: &Report) -> String {
    let mut out = report.summary.as_ref().map_or(String::new(), |summary| format!("\n{summary}"));
    if let Some(stats) = &report.result.memory_stats {
        out += "\nmemory_stats() after the last step\n";
        out.extend(stats.iter().map(|(name, value)| format!("{name} {value}\n")));
    }
    out
}
