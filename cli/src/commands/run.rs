//! `vramlab run`

use std::cell::{Cell, RefCell};

use lab::claims;
use lab::experiments::{self, Experiment, Outcome, Setup};
use lab::results::{DeviceInfo, ExperimentResult, Settings};
use memcore::{Departures, Device};
use serde_json::{Value, json};

use super::opening::Opening;
use super::{environment, profile};
use crate::args::{DEFAULT_PROFILE, DeviceArgs, DeviceList, RunArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::claims as render_claims;
use crate::ui::Ui;

/// Steps of a progress bar that knows only shares.
const PROGRESS: f64 = 100.0;

/// The size of an experiment that spreads a network: how many devices there are.
const DEVICES: &str = "devices";

/// Runs experiments, one after the other, and judges their claims.
///
/// # Errors
/// Unknown names or sizes, a device that fails, a prediction that the measurement does not bear out.
pub(super) fn run(args: &RunArgs, ui: &Ui) -> Result<Code> {
    let chosen = checked(args)?;
    output::check(args.output.destinations().chain(&args.page.html))?;
    let measured = measured(args, &chosen, ui)?;
    if args.claims {
        deliver_claims(args, ui, &measured)?;
        return ended(measured.failures);
    }
    deliver(args, ui, &measured)?;
    ended(measured.failures)
}

/// What came of the experiments.
pub(super) struct Measured {
    /// In the order in which they were asked for; the last one may be missing.
    pub found: Vec<Found>,
    /// What failed, or was predicted otherwise.
    pub failures: Vec<Failure>,
    settings: Settings,
    device: DeviceInfo,
}

impl Measured {
    /// Of each experiment.
    pub(super) fn results(&self) -> Vec<ExperimentResult> {
        let result = |(e, outcome): &Found| ExperimentResult::of(*e, outcome, &self.settings, &self.device);
        self.found.iter().map(result).collect()
    }
}

/// The experiments that are asked for, all of which take what is asked of them.
///
/// # Errors
/// Unknown names, sizes that cannot be, a model where the question is about networks of its own.
pub(super) fn checked(args: &RunArgs) -> Result<Vec<&'static dyn Experiment>> {
    let chosen = chosen(&args.names)?;
    check_sizes(args, &chosen)?;
    check_model(args, &chosen)?;
    Ok(chosen)
}

/// Runs them.
///
/// # Errors
/// A device that is absent; settings that cannot work.
pub(super) fn measured(args: &RunArgs, chosen: &[&'static dyn Experiment], ui: &Ui) -> Result<Measured> {
    let openings = openings(args, chosen, ui)?;
    let settings = settings(args, &openings[0]);
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    let device = openings[0].describe(&openings[0].open()?);
    let (mut found, mut failures): (Vec<Found>, Vec<Failure>) = (Vec::new(), Vec::new());
    for experiment in chosen {
        match one(*experiment, args, &openings, ui) {
            Ok(outcome) => {
                failures.extend(unexplained(*experiment, &outcome));
                found.push((*experiment, outcome));
            }
            Err(failure) => {
                failures.push(failure);
                break;
            }
        }
        if interrupt::asked() {
            break;
        }
    }
    Ok(Measured { found, failures, settings, device })
}

/// The exit code: of the first failure, if there is one.
pub(super) fn ended(failures: Vec<Failure>) -> Result<Code> {
    match failures.into_iter().next() {
        _ if interrupt::asked() => Ok(Code::Interrupted),
        Some(failure) => Err(failure),
        None => Ok(Code::Done),
    }
}

/// One table of all claims.
fn deliver_claims(args: &RunArgs, ui: &Ui, measured: &Measured) -> Result<()> {
    let named: Vec<(&str, &Outcome)> = measured.found.iter().map(|(e, outcome)| (e.name(), outcome)).collect();
    let claims = claims::checked(&named);
    let json = json!({
        "schema": "vramlab-claims-1",
        "claims": claims,
        "interrupted": interrupt::asked(),
        "settings": measured.settings,
        "device": measured.device,
    });
    let text = render_claims::text(&claims, ui.style);
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[render_claims::table(&claims)], text: &text })
}

/// An experiment and what it found.
pub(super) type Found = (&'static dyn Experiment, Outcome);

/// One result is an object, several are a list.
fn deliver(args: &RunArgs, ui: &Ui, measured: &Measured) -> Result<()> {
    let results = measured.results();
    if results.is_empty() {
        return Ok(());
    }
    let single = args.names.len() == 1 && args.names[0] != "all";
    output::deliver_all(ui, &args.output, args.page.html.as_ref(), &results, single)
}

fn chosen(names: &[String]) -> Result<Vec<&'static dyn Experiment>> {
    if names.is_empty() || names.iter().any(|name| name == "all") {
        return Ok(experiments::ALL.to_vec());
    }
    names.iter().map(|name| experiments::by_name(name).map_err(Failure::from)).collect()
}

/// All sizes, before the first experiment: nothing is written when one cannot be. A size that no chosen experiment has is a slip that would
/// go unnoticed.
fn check_sizes(args: &RunArgs, chosen: &[&'static dyn Experiment]) -> Result<()> {
    let known: Vec<&str> = chosen.iter().flat_map(|e| e.sizes().iter().map(|size| size.name)).collect();
    match args.set.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => {
            return Err(Failure::usage(format!("--set: no size {name:?} here; known: {}", known.join(", "))));
        }
        None if args.set.is_empty() => return Ok(()),
        None => {}
    }
    chosen.iter().try_for_each(|experiment| {
        let checked = experiments::check_sizes(*experiment, &args.sizes());
        checked.map_err(|error| Failure::usage(format!("--set: {}: {error}", experiment.name())))
    })
}

/// Refuses another network where the question is about the experiment's own.
fn check_model(args: &RunArgs, chosen: &[&'static dyn Experiment]) -> Result<()> {
    let own = chosen.iter().find(|experiment| !experiment.takes_model());
    match (&args.model, own) {
        (Some(_), Some(own)) => {
            let takes = experiments::ALL.iter().filter(|experiment| experiment.takes_model());
            let takes: Vec<&str> = takes.map(|experiment| experiment.name()).collect();
            let problem = "asks about networks of its own; another one can be asked about in";
            Err(Failure::usage(format!("--model: {} {problem} {}", own.name(), takes.join(", "))))
        }
        _ => Ok(()),
    }
}

/// The device, or those that a network is spread over; at least one.
fn openings(args: &RunArgs, chosen: &[&'static dyn Experiment], ui: &Ui) -> Result<Vec<Opening>> {
    let like = args.profile.like(DEFAULT_PROFILE);
    let open = |device: &DeviceArgs| {
        let opening = Opening::on_device(device, &args.allocator, args.seed, ui)?;
        profile::counted_by(opening, &like, &args.profile, args.profile.multiprocessors)
    };
    let Some(names) = &args.devices else { return Ok(vec![open(&args.device)?]) };
    let spreads = |e: &&&dyn Experiment| e.sizes().iter().any(|size| size.name == DEVICES);
    if let Some(other) = chosen.iter().find(|e| !spreads(e)) {
        return Err(Failure::usage(format!("--devices: {} runs on one device (--backend, --device)", other.name())));
    }
    if args.set.iter().any(|(name, _)| name == DEVICES) {
        return Err(Failure::usage("--set devices: --devices says already how many there are"));
    }
    names.0.iter().map(|name| open(&name.args())).collect()
}

fn one(experiment: &dyn Experiment, args: &RunArgs, openings: &[Opening], ui: &Ui) -> Result<Outcome> {
    let progress = Progress::new(ui, PROGRESS as u64);
    let last = RefCell::new(String::new());
    let on_progress = |what: &str, share: f64| {
        progress.set((share.clamp(0.0, 1.0) * PROGRESS) as u64, what);
        if *last.borrow() != what {
            ui.note(format!("{}: {what}", experiment.name()));
            last.replace(what.to_string());
        }
        interrupt::flow()
    };
    let opening = &openings[0];
    let watch = Watch::default();
    let open = || watch.open(opening);
    let all: Vec<_> = openings.iter().map(|opening| || watch.open(opening)).collect();
    let named: Vec<&dyn Fn() -> lab::Result<Device>> = all.iter().map(|open| open as _).collect();
    let places = if args.devices.is_some() { &named[..] } else { &[] };
    let setup = Setup {
        open: &open,
        places,
        model: args.model.as_deref(),
        sizes: args.sizes(),
        seed: args.seed,
        progress: &on_progress,
    };
    let mut outcome = experiment.run(&setup).map_err(|error| {
        let failure = Failure::from(error).limited(opening.limited());
        Failure { code: failure.code, error: failure.error.context(experiment.name()) }
    })?;
    let departures = watch.departures();
    outcome.notes.extend(departures.iter().map(|departure| format!("In these figures {departure}.")));
    Ok(outcome)
}

/// What an experiment's devices did otherwise than the program that they stand for would. Of each it is asked when the next one is opened, so that
/// none is kept while another one needs the memory.
#[derive(Default)]
struct Watch {
    last: RefCell<Option<Device>>,
    before: Cell<Departures>,
}

impl Watch {
    fn open(&self, opening: &Opening) -> lab::Result<Device> {
        self.before.set(self.departures());
        self.last.replace(None);
        let device = opening.open()?;
        self.last.replace(Some(device.clone()));
        Ok(device)
    }

    fn departures(&self) -> Departures {
        let last = self.last.borrow();
        last.iter().fold(self.before.get(), |all, device| all.union(device.departures()))
    }
}

fn unexplained(experiment: &dyn Experiment, outcome: &Outcome) -> Option<Failure> {
    let residuals = outcome.unexplained();
    let (quantity, residual) = residuals.first()?;
    let more = if residuals.len() > 1 { format!(", and {} more", residuals.len() - 1) } else { String::new() };
    let text = format!("{}: {quantity} is {residual:+} from its prediction{more}", experiment.name());
    Some(Failure::new(Code::Check, anyhow::Error::msg(text)))
}

fn settings(args: &RunArgs, opening: &Opening) -> Settings {
    let values = |(name, values): &(String, Vec<usize>)| format!("{name}={}", joined(values));
    let set: Vec<String> = args.set.iter().map(values).collect();
    let settings = json!({
        "set": set,
        "model": args.model,
        "seed": args.seed,
        "devices": args.devices.as_ref().map(DeviceList::to_string),
        "backend": args.devices.is_none().then(|| opening.backend_name()),
        "device": args.devices.is_none().then_some(args.device.device),
        "like": args.profile.like(DEFAULT_PROFILE),
        "cudnn-workspace": args.profile.cudnn_workspace,
        "env": (!args.profile.env.is_empty()).then(|| environment::written(&args.profile.env)),
        "multiprocessors": args.profile.multiprocessors,
        "allocator": args.allocator.allocator.name(),
        "alloc-conf": args.allocator.alloc_conf,
        "memory-limit": args.allocator.memory_limit,
        "memory-fraction": args.allocator.memory_fraction,
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Settings::new(),
    }
}

fn joined(values: &[usize]) -> String {
    values.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}
