//! `vramlab train` and `vramlab predict`: one run.

use super::outcome::{Report, execute};
use super::plan::Plan;
use crate::args::{OutputArgs, config_text};
use crate::exit::{Code, Result};
use crate::interrupt;
use crate::output::{self, Destination, Results};
use crate::progress::Progress;
use crate::render::memory;
use crate::ui::Ui;

/// Runs a plan and reports.
///
/// # Errors
/// Settings that cannot work, a device that fails, memory that runs out (what is known then is written), files that cannot be written.
pub(super) fn run(plan: &Plan, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    output::check(args.destinations().chain(&plan.events))?;
    ui.note(format!("settings:\n{}", config_text(&plan.settings).trim_end()));
    let report = {
        let progress = Progress::new(ui, plan.run.steps as u64);
        execute(plan, ui, Some(&progress))?
    };
    let json = report.json();
    let events_take_stdout = plan.events == Some(Destination::Stdout);
    if let (Some(destination), Some(events)) = (&plan.events, &report.events) {
        destination.write(ui, &output::json_line(events)?)?;
    }
    let (tables, text) = match &report.outcome {
        Ok(outcome) => {
            (vec![memory::rows(outcome), memory::composition(outcome)], memory::text(&report, outcome, ui.style))
        }
        Err(_) => (Vec::new(), memory::header(&report, ui.style)),
    };
    let text = if events_take_stdout { String::new() } else { text };
    output::deliver(ui, args, &Results { json: &json, tables: &tables, text: &text })?;
    end(report)
}

fn end(report: Report) -> Result<Code> {
    report.outcome?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}
