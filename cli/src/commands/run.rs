//! `vramlab run`

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use lab::claims;
use lab::experiments::{self, Experiment, Outcome, Setup};
use lab::figures::short;
use lab::predict::product_workspaces;
use lab::results::{ClaimsResult, DeviceInfo, ExperimentResult, Settings, Shard};
use lab::run::{self, DEFAULT_PROFILE, Gpu, RunSpec, Target};
use memcore::memory::Category;
use memcore::{Deviations, Device, Profile};
use serde_json::{Map, Value, json};

use super::shard;
use crate::args::{RunArgs, config_text};
use crate::backends;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// Steps of a progress bar that knows only shares.
const PROGRESS: f64 = 100.0;

/// Fields of a run that experiments use, in the order in which they are shown.
const IN_FORCE: [&str; 14] = [
    "model",
    "seed",
    "gpu",
    "devices",
    "backend",
    "device",
    "like",
    "cudnn-workspace",
    "env",
    "multiprocessors",
    "allocator",
    "alloc-conf",
    "memory-limit",
    "memory-fraction",
];

/// Size of an experiment that spreads a network: the number of devices.
const DEVICES: &str = "devices";

/// Runs experiments, one after the other, and judges their claims.
///
/// # Errors
/// Unknown names or sizes, a device that fails, a prediction that the measurement contradicts.
pub(super) fn run(args: &RunArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    let asked = Asked { spec: spec.clone(), sizes: args.sizes() };
    let chosen = checked(args, &asked)?;
    output::check(args.output.destinations().chain(&args.page.html))?;
    let whole = chosen.iter().map(|experiment| experiment.name().to_string()).collect();
    let shard = shard::from_scan(&args.scan, asked_of(args, spec), whole);
    let chosen = shard::mine(args.scan.shard, chosen);
    if chosen.is_empty() {
        ui.tell("this part has no experiment");
        return Ok(Code::Done);
    }
    let measured = Measured { shard, ..measured(&asked, &chosen, ui)? };
    if args.claims {
        deliver_claims(args, ui, &measured)?;
        return ended(measured.failures);
    }
    deliver(args, ui, &measured)?;
    ended(measured.failures)
}

/// Settings requested for experiments.
pub(super) struct Asked {
    /// Network, seed, devices, profile and allocator.
    pub spec: RunSpec,
    /// Sizes in place of the experiments' defaults.
    pub sizes: BTreeMap<String, Vec<usize>>,
}

/// Returns the request that all parts share, for the result of a part.
pub(super) fn asked_of(args: &RunArgs, spec: &RunSpec) -> Map<String, Value> {
    let sizes = args.sizes().into_iter().map(|(name, values)| (format!("set {name}"), joined(&values).into()));
    let names = ("names".to_string(), args.names.clone().into());
    spec.said().into_iter().chain(sizes).chain([names]).collect()
}

/// Results of the experiments.
pub(super) struct Measured {
    /// Outcomes in the requested order; the last one may be missing.
    pub found: Vec<Found>,
    /// Failures, and contradicted predictions.
    pub failures: Vec<Failure>,
    settings: Settings,
    device: DeviceInfo,
    shard: Option<Shard>,
}

impl Measured {
    /// Returns the result of each experiment.
    pub(super) fn results(&self) -> Vec<ExperimentResult> {
        let result = |(e, outcome): &Found| ExperimentResult {
            shard: self.shard.clone(),
            ..ExperimentResult::new(*e, outcome, &self.settings, &self.device)
        };
        self.found.iter().map(result).collect()
    }
}

/// Returns the requested experiments, after checking that each supports the settings.
///
/// # Errors
/// Unknown names, impossible sizes, a model for an experiment that has networks of its own.
pub(super) fn checked(args: &RunArgs, asked: &Asked) -> Result<Vec<&'static dyn Experiment>> {
    let chosen = chosen(&args.names)?;
    check_sizes(asked, &chosen)?;
    check_model(asked, &chosen)?;
    Ok(chosen)
}

/// Runs the experiments.
///
/// # Errors
/// An absent device; settings that cannot work.
pub(super) fn measured(asked: &Asked, chosen: &[&'static dyn Experiment], ui: &Ui) -> Result<Measured> {
    let targets = targets(asked, chosen, ui)?;
    let settings = settings(asked, &targets[0]);
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    let device = targets[0].describe(&targets[0].open()?);
    let (mut found, mut failures): (Vec<Found>, Vec<Failure>) = (Vec::new(), Vec::new());
    for (number, experiment) in chosen.iter().enumerate() {
        let place = match chosen.len() {
            1 => String::new(),
            all => format!("experiment {} of {all}, ", number + 1),
        };
        match one(*experiment, &place, asked, &targets, ui) {
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
    Ok(Measured { found, failures, settings, device, shard: None })
}

/// Returns the exit code: that of the first failure, if there is one.
pub(super) fn ended(failures: Vec<Failure>) -> Result<Code> {
    match failures.into_iter().next() {
        _ if interrupt::asked() => Ok(Code::Interrupted),
        Some(failure) => Err(failure),
        None => Ok(Code::Done),
    }
}

/// Writes one table of all claims.
fn deliver_claims(args: &RunArgs, ui: &Ui, measured: &Measured) -> Result<()> {
    let named: Vec<(&str, &Outcome)> = measured.found.iter().map(|(e, outcome)| (e.name(), outcome)).collect();
    let found = ClaimsResult {
        claims: claims::checked(&named),
        interrupted: interrupt::asked(),
        settings: measured.settings.clone(),
        device: measured.device.clone(),
    };
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &found)
}

/// An experiment and its outcome.
pub(super) type Found = (&'static dyn Experiment, Outcome);

/// Writes the results: one as an object, several as a list.
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

/// Checks all sizes before the first experiment: nothing is written if one is impossible. A size that no chosen experiment has is a mistake that
/// would go unnoticed.
fn check_sizes(asked: &Asked, chosen: &[&'static dyn Experiment]) -> Result<()> {
    let known: Vec<&str> = chosen.iter().flat_map(|e| e.sizes().iter().map(|size| size.name)).collect();
    match asked.sizes.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => {
            return Err(Failure::usage(format!("--set: no size {name:?} here; known: {}", known.join(", "))));
        }
        None if asked.sizes.is_empty() => return Ok(()),
        None => {}
    }
    chosen.iter().try_for_each(|experiment| {
        let checked = experiments::check_sizes(*experiment, &asked.sizes);
        checked.map_err(|error| Failure::usage(format!("--set: {}: {error}", experiment.name())))
    })
}

/// Refuses a model for an experiment that has networks of its own.
fn check_model(asked: &Asked, chosen: &[&'static dyn Experiment]) -> Result<()> {
    let own = chosen.iter().find(|experiment| !experiment.takes_model());
    match (&asked.spec.model.model, own) {
        (Some(_), Some(own)) => {
            let takes = experiments::ALL.iter().filter(|experiment| experiment.takes_model());
            let takes: Vec<&str> = takes.map(|experiment| experiment.name()).collect();
            let problem = "has networks of its own; --model works with";
            Err(Failure::usage(format!("--model: {} {problem} {}", own.name(), takes.join(", "))))
        }
        _ => Ok(()),
    }
}

/// Returns the device, or those that a network is spread over; at least one.
fn targets(asked: &Asked, chosen: &[&'static dyn Experiment], ui: &Ui) -> Result<Vec<Target>> {
    let target = |spec: &RunSpec| -> Result<Target> {
        let (target, remarks) = run::target(spec, backends::all())?;
        remarks.iter().for_each(|remark| ui.remark(remark));
        Ok(target)
    };
    let Some(names) = &asked.spec.parallel.split.devices else { return Ok(vec![target(&asked.spec)?]) };
    let spreads = |e: &&&dyn Experiment| e.sizes().iter().any(|size| size.name == DEVICES);
    if let Some(other) = chosen.iter().find(|e| !spreads(e)) {
        return Err(Failure::usage(format!("--devices: {} runs on one device (--backend, --device)", other.name())));
    }
    if asked.sizes.contains_key(DEVICES) {
        return Err(Failure::usage("--set devices: --devices says already how many there are"));
    }
    names.0.iter().map(|name| target(&asked.spec.on(name, backends::all()))).collect()
}

/// Runs one experiment; `place` is its position among all, for the progress bar.
fn one(experiment: &dyn Experiment, place: &str, asked: &Asked, targets: &[Target], ui: &Ui) -> Result<Outcome> {
    let progress = Progress::new(ui, PROGRESS as u64);
    let last = RefCell::new(String::new());
    let on_progress = |what: &str, share: f64| {
        let name = experiment.name();
        progress.set((share.clamp(0.0, 1.0) * PROGRESS) as u64, format!("{place}{name}: {what}"));
        if *last.borrow() != what {
            ui.note(format!("{}: {what}", experiment.name()));
            last.replace(what.to_string());
        }
        interrupt::flow()
    };
    let target = &targets[0];
    let watch = Watch::default();
    let open = || watch.open(target);
    let all: Vec<_> = targets.iter().map(|target| || watch.open(target)).collect();
    let named: Vec<&dyn Fn() -> lab::Result<Device>> = all.iter().map(|open| open as _).collect();
    let places = if asked.spec.parallel.split.devices.is_some() { &named[..] } else { &[] };
    let setup = Setup {
        open: &open,
        places,
        model: asked.spec.model.model.as_deref(),
        sizes: asked.sizes.clone(),
        seed: asked.spec.training.seed.unwrap_or(0),
        progress: &on_progress,
    };
    let mut outcome = experiment.ask(&setup).map_err(|error| {
        let failure = Failure::from(error).limited(target.limited());
        Failure { code: failure.code, error: failure.error.context(experiment.name()) }
    })?;
    let card = stands_for(&asked.spec, watch.workspace_bytes());
    outcome.notes.extend(card.map(|card| format!("In these figures {card}.")));
    let deviations = watch.deviations();
    outcome.notes.extend(deviations.iter().map(|deviation| format!("In these figures {deviation}.")));
    Ok(outcome)
}

/// Collects the deviations of an experiment's devices from the program that they stand for. Each device is asked when the next one is opened, so that
/// none is kept while another one needs the memory.
#[derive(Default)]
struct Watch {
    last: RefCell<Option<Device>>,
    before: Cell<Deviations>,
    /// The most bytes of workspaces at a peak, of the devices before.
    workspaces: Cell<u64>,
}

impl Watch {
    fn open(&self, target: &Target) -> lab::Result<Device> {
        self.before.set(self.deviations());
        self.workspaces.set(self.workspace_bytes());
        self.last.replace(None);
        let device = target.open()?;
        self.last.replace(Some(device.clone()));
        Ok(device)
    }

    fn workspace_bytes(&self) -> u64 {
        let last = self.last.borrow();
        let bytes = |device: &Device| device.usage().at_peak().by_category[Category::Workspace as usize];
        last.iter().map(bytes).fold(self.workspaces.get(), u64::max)
    }

    fn deviations(&self) -> Deviations {
        let last = self.last.borrow();
        last.iter().fold(self.before.get(), |all, device| all.union(device.deviations()))
    }
}

/// Says which card the figures are of, and how much of them is cuBLAS' workspaces there; `None` where they stand for no card. `workspace_bytes`: the most that
/// was seen.
fn stands_for(spec: &RunSpec, workspace_bytes: u64) -> Option<String> {
    let like = spec.like();
    let profile = Profile::named(&like).filter(|_| spec.is_torch())?;
    let (card, others) = match spec.card.gpu.and_then(Gpu::card) {
        Some(card) => (format!("the card is the {} ({like})", card.title), ""),
        None if like == DEFAULT_PROFILE => (format!("the card is an H100 ({like})"), "; --gpu NAME asks for another"),
        None => (format!("the card is one of {like}"), ""),
    };
    // Buckets of a divided run count as workspaces, too.
    let kept = workspace_bytes.min(product_workspaces(&profile));
    let kept = if kept == 0 { String::new() } else { format!(", where cuBLAS keeps {} of workspaces", short(kept)) };
    Some(format!("{card}{kept}{others}"))
}

fn unexplained(experiment: &dyn Experiment, outcome: &Outcome) -> Option<Failure> {
    let residuals = outcome.unexplained();
    let (quantity, residual) = residuals.first()?;
    let more = if residuals.len() > 1 { format!(", and {} more", residuals.len() - 1) } else { String::new() };
    let text = format!("{}: {quantity} is {residual:+} from its prediction{more}", experiment.name());
    Some(Failure::new(Code::Check, anyhow::Error::msg(text)))
}

/// Returns the settings in force, under the names of the flags.
fn settings(asked: &Asked, target: &Target) -> Settings {
    let mut spec = asked.spec.clone();
    if spec.device.backend.is_some() {
        spec.device.backend = Some(target.backend_name().into());
    }
    spec.training.seed.get_or_insert(0);
    spec.profile.like = Some(spec.like());
    spec.allocator.allocator.get_or_insert_default();
    let set = asked.sizes.iter().map(|(name, values)| format!("{name}={}", joined(values)));
    let set = std::iter::once(("set".to_string(), json!(set.collect::<Vec<_>>())));
    let fields = spec.fields();
    let own = IN_FORCE.iter().map(|name| (name.to_string(), fields.get(*name).cloned().unwrap_or_default()));
    set.chain(own).collect()
}

fn joined(values: &[usize]) -> String {
    values.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}
