//! `vramlab replay`: a recording through any allocation policy.

use lab::replay::{Figures, Machine, Observer, Policy, Recorder, Trace, measure, replay};
use lab::report::Part;
use lab::snapshot::Agreement;
use memcore::memory::AllocatorConfig;
use serde_json::{Map, Value, json};

use super::recording::Recording;
use super::report;
use crate::args::{ReplayArgs, ReplayPolicy, config_text};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::render::replay::{Replayed, Taken};
use crate::render::snapshot::agreement;
use crate::render::{WIDTH, counted, replay as render, wrapped};
use crate::ui::Ui;

/// Replays a recording through one policy, or several side by side.
///
/// # Errors
/// A file that is no recording, settings that cannot be, results that cannot be written; with code 1, a limit given by
/// flags under which requests fail that the recorded program got.
pub(super) fn run(args: &ReplayArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.columns).chain(&args.page.html))?;
    let config = given_config(args)?;
    let recording = Recording::open(&args.file, args.device)?;
    let self_check = recording.self_check()?;
    let config = config.unwrap_or_else(|| recording.config.clone());
    let trace = recording.trace;
    let machine = Machine {
        capacity_bytes: args.memory.memory_limit.or(trace.settings.capacity_bytes),
        memory_fraction: args.memory.memory_fraction.or(trace.settings.memory_fraction),
    };
    let names = chosen(args);
    let settings = settings(args, &config, &machine, &names);
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    if let Some(destination) = &args.columns {
        let policy = Policy::by_name(args.memory.allocator.name(), &config)?;
        destination.write(ui, &columns(&trace, &policy, &machine)?)?;
        if *destination == Destination::Stdout && args.output.destinations().next().is_none() {
            return Ok(Code::Done);
        }
    }
    let mut policies = Vec::new();
    for name in names {
        if interrupt::asked() {
            break;
        }
        policies.push((name, measure(&trace, &Policy::by_name(name, &config)?, &machine)?));
    }
    let bound = trace.lower_bound();
    deliver(&Replayed { trace, bound, settings, policies, self_check }, args, ui)
}

fn deliver(replayed: &Replayed, args: &ReplayArgs, ui: &Ui) -> Result<Code> {
    if !replayed.policies.is_empty() {
        let tables = render::tables(replayed);
        let columns_take_stdout = args.columns == Some(Destination::Stdout);
        let text = match &replayed.self_check {
            _ if columns_take_stdout => String::new(),
            None => render::text(replayed, &tables, ui.style),
            Some(check) => {
                render::text(replayed, &tables, ui.style) + &format!("\n{}\n", wrapped(&agreement(check), WIDTH, 2))
            }
        };
        let json = as_json(replayed);
        if let Some(destination) = &args.page.html {
            report::page(destination, &[Part::Result(&json)], ui)?;
        }
        output::deliver(ui, &args.output, &Results { json: &json, tables: &tables, text: &text })?;
    }
    if interrupt::asked() {
        return Ok(Code::Interrupted);
    }
    let limited = args.memory.memory_limit.is_some() || args.memory.memory_fraction.is_some();
    let misfit = |(_, figures): &&Taken| {
        figures.newly_failed > 0 || figures.certificate.is_some_and(|certificate| !certificate.fits)
    };
    match replayed.policies.iter().find(misfit).filter(|_| limited) {
        Some((name, figures)) => Err(Failure::new(Code::Check, anyhow::Error::msg(does_not_fit(name, figures)))),
        None => Ok(Code::Done),
    }
}

fn does_not_fit(name: &str, figures: &Figures) -> String {
    match figures.first_failure {
        Some((operation, bytes)) => format!(
            "{name}: does not fit the given limit: {}, the first at operation {operation}, of {bytes} bytes",
            counted(figures.newly_failed, "failed request")
        ),
        None => format!("{name}: does not fit the given limit: the plan takes {} bytes", figures.peak_reserved),
    }
}

/// The settings on the command line, understood before a file is read.
fn given_config(args: &ReplayArgs) -> Result<Option<AllocatorConfig>> {
    let Some(text) = &args.memory.alloc_conf else { return Ok(None) };
    let any = |name: &str| chosen(args).contains(&name);
    if !any("caching") && !any("expandable") {
        return Err(Failure::usage("--alloc-conf: only the caching allocator has settings"));
    }
    let config = AllocatorConfig::parse(text);
    config.map(Some).map_err(|error| Failure::usage(format!("--alloc-conf: {error}")))
}

fn chosen(args: &ReplayArgs) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for name in args.compare.iter().flat_map(|compared| compared.names()) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    if names.is_empty() { vec![args.memory.allocator.name()] } else { names }
}

fn columns(trace: &Trace, policy: &Policy, machine: &Machine) -> Result<Vec<u8>> {
    let mut recorder = Recorder::default();
    let mut opened = policy.open(trace, machine, &mut |event| recorder.driver(0, event))?;
    replay(trace, &mut *opened.allocator, &mut recorder)?;
    Ok(recorder.finish(&*opened.allocator))
}

fn settings(args: &ReplayArgs, config: &AllocatorConfig, machine: &Machine, names: &[&str]) -> Map<String, Value> {
    let mut settings = Map::new();
    if args.compare.is_empty() {
        settings.insert("allocator".into(), json!(args.memory.allocator.name()));
    } else {
        settings.insert("compare".into(), json!(names));
    }
    if args.memory.allocator == ReplayPolicy::Caching {
        settings.insert("alloc-conf".into(), json!(config.last_settings));
    }
    settings.insert("memory-limit".into(), json!(machine.capacity_bytes));
    settings.insert("memory-fraction".into(), json!(machine.memory_fraction));
    settings
}

fn as_json(replayed: &Replayed) -> Value {
    let Replayed { trace, bound, settings, policies, self_check } = replayed;
    json!({
        "schema": "vramlab-replay-1",
        "trace": {
            "name": trace.name,
            "format": trace.format,
            "operations": trace.operations().len(),
            "allocations": trace.allocations(),
        },
        "settings": settings,
        "lower_bound": { "bytes": bound.bytes, "operation": bound.operation, "allocations": bound.allocations },
        "self_check": self_check.as_ref().map(agreement_json),
        "policies": policies.iter().map(|(name, figures)| policy_json(name, figures, trace)).collect::<Vec<_>>(),
    })
}

/// How far a replay repeats a recording.
pub(super) fn agreement_json(found: &Agreement) -> Value {
    json!({
        "exact": found.is_exact(),
        "segments": found.segments,
        "equal_segments": found.equal_segments,
        "allocations": found.allocations,
        "placed": found.placed,
        "peak_reserved": { "recorded": found.peak_reserved.0, "replayed": found.peak_reserved.1 },
        "final_reserved": { "recorded": found.final_reserved.0, "replayed": found.final_reserved.1 },
        "failed": { "recorded": found.failed.0, "replayed": found.failed.1 },
        "allocations_before": found.before,
    })
}

fn policy_json(name: &str, figures: &Figures, trace: &Trace) -> Value {
    let driver = &figures.driver;
    let samples: Vec<[u64; 5]> = figures
        .samples
        .iter()
        .map(|s| [s.operation as u64, s.allocated_bytes, s.reserved_bytes, s.unused_bytes, s.inactive_split_bytes])
        .collect();
    json!({
        "policy": name,
        "peak": { "allocated": figures.peak_allocated, "reserved": figures.peak_reserved },
        "final": { "allocated": figures.final_allocated, "reserved": figures.final_reserved },
        "fragmentation": {
            "unused_bytes_at_peak": figures.unused_at_peak,
            "unused_share_at_peak": figures.unused_share_at_peak(),
            "peak_operation": figures.peak_operation,
            "mean_unused_share": figures.mean_unused_share,
            "final_free_bytes": figures.final_free,
            "final_largest_free_bytes": figures.final_largest_free,
        },
        "driver_calls": {
            "total": driver.total(),
            "segment_allocs": driver.segment_allocs,
            "segment_frees": driver.segment_frees,
            "maps": driver.maps,
            "unmaps": driver.unmaps,
            "refusals": driver.refusals,
        },
        "retries": figures.retries,
        "out_of_memory": figures.out_of_memory,
        "newly_failed": figures.newly_failed,
        "first_failure": figures.first_failure.map(|(operation, bytes)| json!({ "operation": operation, "bytes": bytes })),
        "last_oom_message": figures.last_message,
        "ns_per_operation": figures.nanoseconds_per_operation(trace),
        "sample_columns": ["operation", "allocated", "reserved", "unused", "inactive_split"],
        "samples": samples,
        "plan": figures.certificate.map(|plan| json!({
            "bytes": plan.plan_bytes,
            "packing": plan.packing,
            "bound_bytes": plan.bound_bytes,
            "bound_operation": plan.bound_operation,
            "bound_allocations": plan.bound_allocations,
            "optimal": plan.is_optimal(),
            "fits": plan.fits,
            "departures": figures.departures,
        })),
    })
}
