//! `vramlab tune`: the best settings of the allocator for a recorded run.

use lab::replay::Machine;
use lab::results::{SelfCheck, TuneResult};
use lab::snapshot::tune;

use super::recording::Recording;
use crate::args::TuneArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::ui::Ui;

/// Searches and reports.
///
/// # Errors
/// A file that is not a recording; results that cannot be written; with code 1, a snapshot that its own settings do not reproduce: the costs of other
/// settings are not known then.
pub(super) fn run(args: &TuneArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let recording = Recording::open(&args.file, args.device)?;
    let check = recording.self_check()?.as_ref().map(SelfCheck::from);
    let file = lab::input::name(&args.file);
    if let Some(failed) = check.clone().filter(|check| !check.repeats()) {
        let found = TuneResult::not_reproduced(&file, recording.trace.lower_bound().bytes, failed);
        let found = TuneResult { device: recording.device(), ..found };
        output::deliver_findings(ui, &args.output, None, &found)?;
        let problem = anyhow::anyhow!("{file}: the recorded settings do not reproduce the recording");
        return Err(Failure::new(Code::Check, problem));
    }
    let machine = Machine {
        capacity_bytes: args.memory_limit.or(recording.trace.settings.capacity_bytes),
        memory_fraction: args.memory_fraction.or(recording.trace.settings.memory_fraction),
    };
    let releases = recording.releases();
    let tuned = tune(&recording.trace, &recording.config, &machine, releases, &mut interrupt::asked)?;
    let found = TuneResult { device: recording.device(), ..TuneResult::new(&file, tuned, releases, check) };
    output::deliver_findings(ui, &args.output, None, &found)?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}
