//! `vramlab tune`: the best settings of the allocator for a recorded run.

use lab::replay::Machine;
use lab::results::SelfCheck;
use lab::section::{Cell, Table};
use lab::snapshot::{Agreement, Candidate, Cost, Releases, Tuned, tune};
use serde_json::{Value, json};

use super::recording::Recording;
use crate::args::TuneArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::render::{WIDTH, bytes, counted, grouped, table, wrapped};
use crate::ui::Ui;

/// Choices that are listed.
const TOP: usize = 8;

/// Searches and reports.
///
/// # Errors
/// A file that is no recording; results that cannot be written; with code 1, a snapshot that its own settings do not
/// reproduce: what others would take is not known then.
pub(super) fn run(args: &TuneArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let recording = Recording::open(&args.file, args.device)?;
    let check = recording.self_check()?;
    let file = args.file.display().to_string();
    if let Some(failed) = check.as_ref().filter(|check| !check.is_exact()) {
        return not_reproduced(args, &recording, failed, &file, ui);
    }
    let machine = Machine {
        capacity_bytes: args.memory_limit.or(recording.trace.settings.capacity_bytes),
        memory_fraction: args.memory_fraction.or(recording.trace.settings.memory_fraction),
    };
    let releases = recording.releases();
    let tuned = tune(&recording.trace, &recording.config, &machine, releases, &mut interrupt::asked)?;
    let tables = vec![tried(&tuned)];
    let mut text = for_people(&tuned, releases, &file, &tables, ui);
    if let Some(check) = &check {
        text += &format!("{}\n", wrapped(&SelfCheck::from(check).in_words(), WIDTH, 2));
    }
    let mut json = as_json(&tuned);
    json["self_check"] = json!(check.as_ref().map(SelfCheck::from));
    output::deliver(ui, &args.output, &Results { json: &json, tables: &tables, text: &text })?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}

/// Nothing is proposed on the ground of a replay that is not what was recorded.
fn not_reproduced(args: &TuneArgs, recording: &Recording, check: &Agreement, file: &str, ui: &Ui) -> Result<Code> {
    let line = format!("{file}: nothing is proposed, as the replay does not reproduce this recording");
    let found = wrapped(&SelfCheck::from(check).in_words(), WIDTH, 2);
    let text = format!("{}\n{found}\n", ui.style.bold(&wrapped(&line, WIDTH, 2)));
    let json = json!({
        "schema": "vramlab-tune-1",
        "recorded": null,
        "best": null,
        "newer": null,
        "overfitted": null,
        "tried": [],
        "operations": null,
        "lower_bound_bytes": recording.trace.lower_bound().bytes,
        "self_check": json!(SelfCheck::from(check)),
    });
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[], text: &text })?;
    Err(Failure::new(Code::Check, anyhow::anyhow!("{file}: the recorded settings do not reproduce the recording")))
}

fn name(candidate: &Candidate) -> &str {
    match candidate.alloc_conf.as_str() {
        "" => "(defaults)",
        other => other,
    }
}

/// As it is set: the variable has this name in all releases from 1.10 on; from 2.10 on it has a second one.
fn setting(candidate: &Candidate) -> String {
    format!("PYTORCH_CUDA_ALLOC_CONF={}", candidate.alloc_conf)
}

fn tried(tuned: &Tuned) -> Table {
    let row = |candidate: &Candidate| {
        let Cost { failed, peak_reserved, driver_calls } = candidate.searched;
        vec![
            Cell::Text(name(candidate).replace(',', ", ")),
            Cell::Bytes(peak_reserved),
            Cell::Count(driver_calls),
            Cell::Count(failed),
        ]
    };
    let columns = ["settings", "peak reserved", "driver calls", "failed"].map(String::from).to_vec();
    let title = format!("Best of {} on the part that the search saw", counted(tuned.tried.len() as u64, "choice"));
    Table { title, columns, rows: tuned.tried.iter().take(TOP).map(row).collect() }
}

fn for_people(tuned: &Tuned, releases: Releases, file: &str, tables: &[Table], ui: &Ui) -> String {
    let Tuned { recorded, best, newer, operations, lower_bound, .. } = tuned;
    let nothing = best.alloc_conf == recorded.alloc_conf;
    let line = match nothing {
        true => format!("{file}: no settings are better than the recorded ones, {}", name(recorded)),
        false => setting(best),
    };
    let mut out = format!("{}\n", ui.style.bold(&wrapped(&line, WIDTH, 2)));
    let mut say = |text: String| out += &format!("{}\n", wrapped(&text, WIDTH, 2));
    if !nothing {
        if let (Some(before), Some(after)) = (&recorded.whole, &best.whole) {
            say(saves("In the whole recording", before, after));
        }
        say(saves("On the part that the search saw", &recorded.searched, &best.searched));
        if let (Some(before), Some(after)) = (&recorded.held_out, &best.held_out) {
            say(saves("On the rest, which it did not see", before, after));
        }
    }
    if let (Some(newer), Some(before)) = (newer, &recorded.whole) {
        let Releases { oldest, newest } = releases;
        let release = match oldest == newest {
            true => oldest.to_string(),
            false => format!("{oldest} to {newest}"),
        };
        let what = format!("The recording is of PyTorch {release}; the later of them also read {}", setting(newer));
        say(newer.whole.as_ref().map_or(what.clone(), |after| saves(&what, before, after)));
    }
    if let Some(overfitted) = &tuned.overfitted {
        say(format!("{} was better only on the part that the search saw, and is not proposed.", name(overfitted)));
    }
    say(format!(
        "Searched on the first {} operations, checked on the last {}. Nothing takes less than {}, which live together.",
        grouped(operations.0 as u64),
        grouped(operations.1 as u64),
        bytes::both(*lower_bound)
    ));
    for part in tables {
        out += &format!("\n{}", table::titled(part, ui.style));
    }
    out
}

fn saves(what: &str, before: &Cost, after: &Cost) -> String {
    let mut text = format!(
        "{what}: peak reserved {} instead of {} ({}), {} instead of {} calls of the driver",
        bytes::both(after.peak_reserved),
        bytes::both(before.peak_reserved),
        bytes::signed(after.peak_reserved as i64 - before.peak_reserved as i64),
        grouped(after.driver_calls),
        grouped(before.driver_calls)
    );
    if before.failed + after.failed > 0 {
        text += &format!(", {} instead of {} requests fail", after.failed, before.failed);
    }
    text + "."
}

fn as_json(tuned: &Tuned) -> Value {
    let cost = |cost: &Cost| json!({ "failed": cost.failed, "peak_reserved": cost.peak_reserved, "driver_calls": cost.driver_calls });
    let candidate = |candidate: &Candidate| {
        json!({
            "alloc_conf": candidate.alloc_conf,
            "searched": cost(&candidate.searched),
            "held_out": candidate.held_out.as_ref().map(cost),
            "whole": candidate.whole.as_ref().map(cost),
        })
    };
    json!({
        "schema": "vramlab-tune-1",
        "recorded": candidate(&tuned.recorded),
        "best": candidate(&tuned.best),
        "newer": tuned.newer.as_ref().map(candidate),
        "overfitted": tuned.overfitted.as_ref().map(candidate),
        "tried": tuned.tried.iter().map(candidate).collect::<Vec<_>>(),
        "operations": { "searched": tuned.operations.0, "held_out": tuned.operations.1 },
        "lower_bound_bytes": tuned.lower_bound,
    })
}
