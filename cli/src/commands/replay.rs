//! `vramlab replay`: a recording through any allocation policy.

use lab::replay::{Machine, Observer, Policy, Recorder, Trace, measure};
use lab::results::{PolicyResult, ReplayResult, Settings};
use memcore::memory::AllocatorConfig;
use serde_json::json;

use super::recording::Recording;
use crate::args::{ReplayArgs, ReplayPolicy, config_text};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::ui::Ui;

/// Replays a recording through one policy, or several side by side.
///
/// # Errors
/// A file that is not a recording; invalid settings; results that cannot be written; with code 1, a limit given by flags under which requests fail
/// that the recorded program was granted.
pub(super) fn run(args: &ReplayArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.columns).chain(&args.page.html))?;
    let config = given_config(args)?;
    let recording = Recording::open(&args.file, args.device)?;
    let (self_check, device) = (recording.self_check()?, recording.device());
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
    let found = ReplayResult::new(&trace, &trace.lower_bound(), settings, &policies, self_check.as_ref());
    let found = ReplayResult { device, ..found };
    deliver(&found, args, ui)
}

fn deliver(found: &ReplayResult, args: &ReplayArgs, ui: &Ui) -> Result<Code> {
    if !found.policies.is_empty() {
        let shown = output::write_all(ui, &args.output, args.page.html.as_ref(), std::slice::from_ref(found), true)?;
        if !args.output.takes_stdout() && args.columns != Some(Destination::Stdout) {
            shown.print(ui)?;
        }
    }
    if interrupt::asked() {
        return Ok(Code::Interrupted);
    }
    let limited = args.memory.memory_limit.is_some() || args.memory.memory_fraction.is_some();
    match found.policies.iter().find_map(PolicyResult::misfit).filter(|_| limited) {
        Some(misfit) => Err(Failure::new(Code::Check, anyhow::Error::msg(misfit))),
        None => Ok(Code::Done),
    }
}

/// Returns the settings on the command line, parsed before a file is read.
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
    // The columns number segments from the first one on: a recording that begins in mid-run is placed anew.
    let trace = trace.clone().starting(None);
    let mut opened = policy.open(&trace, machine, &mut |event| recorder.driver(0, event))?;
    opened.replay(&trace, &mut recorder)?;
    Ok(recorder.finish(&*opened.allocator))
}

fn settings(args: &ReplayArgs, config: &AllocatorConfig, machine: &Machine, names: &[&str]) -> Settings {
    let mut settings = Settings::new();
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
