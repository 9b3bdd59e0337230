//! Makes a complete run of the fields that were set: fills in and checks everything before anything runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use lab_base::backends::{Entry, Remark};
use lab_base::error::{Error, Result};
use lab_base::figures::counted;
use lab_imports::huggingface::{self, Keep, MAX_GRAD_NORM};
use lab_imports::model_file;
use lab_models::{Defaults, Input, Lora, LoraTarget, Quantized};
use lab_training::data::{DataSpec, Split, Synthetic};
use lab_training::pipeline;
use lab_training::record::RowsKept;
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Schedule, Source};
use memcore::optim::Implementation;

use super::choices::{LossChoice, OptimizerForm, SizeList, ZeroGrad};
use super::network::Network;
use super::premises::{self, OfFile};
use super::profile;
use super::session::Session;
use super::spec::{LoopSpec, ModelSpec, RunSpec, TrainingSpec};
use super::target::Target;

/// Default number of steps.
const STEPS: usize = 10;
/// Default number of epochs of a data set.
const EPOCHS: usize = 20;

/// Resolves the fields of a run, on a device of these backends.
///
/// # Errors
/// Fields that cannot be read or combined, a file of the wrong kind, a device that is absent.
pub fn resolve(spec: &RunSpec, backends: &'static [Entry]) -> Result<Session> {
    spec.check()?;
    one_device(spec)?;
    let unsaid = spec.model.sequence.is_none() && spec.shape.lengths.is_some();
    let spec = &as_long_as_its_batches(spec);
    let (network, says) = network(spec).map_err(|error| match error {
        Error::Usage { what, problem } if unsaid && what == "sequence" => Error::usage("lengths", problem),
        other => other,
    })?;
    let run = settings(spec, &network, &says)?;
    let (data, source, own_steps) = data(spec, &network, &run)?;
    check_loop(spec, &network, &run)?;
    let of_a_data_set = matches!(source, Source::Dataset { .. }).then_some(own_steps);
    let steps_said = spec.training.steps.or(says.steps).or(of_a_data_set);
    let run = RunSettings { steps: steps_said.unwrap_or(own_steps), ..run };
    let of_file = OfFile { precision: says.precision.is_some(), batch: says.batch.is_some() };
    let mut premises = premises::all(&network, &run, spec, of_file);
    premises.extend(profile::environment(&spec.profile));
    let (target, remarks) = target(&with_seed(spec, run.seed), backends)?;
    computed(spec, &run, &target)?;
    let in_force = in_force(spec, &run, data, &network, &target);
    let notes = unreached(&run).into_iter().chain(spec.left_out.iter().cloned()).collect();
    Ok(Session { network, run, source, target, premises, steps_said, in_force, notes, remarks })
}

/// Returns the device of a run, with remarks on the choice.
///
/// # Errors
/// Those of [`resolve`] that concern the device.
pub fn target(spec: &RunSpec, backends: &'static [Entry]) -> Result<(Target, Vec<Remark>)> {
    spec.check()?;
    let (target, remarks) = Target::from_spec(spec, backends)?;
    Ok((profile::counted(target, spec, backends)?, remarks))
}

/// Refuses an optimizer, and a loss, that its library alone computes, on a device with values.
fn computed(spec: &RunSpec, run: &RunSettings, target: &Target) -> Result<()> {
    let kind = run.optimizer.kind;
    if spec.device.backend.is_none() || target.backend_name() == "meta" {
        return Ok(());
    }
    if spec.model.liger {
        let problem = "no device here has Liger's kernels. `vramlab predict` counts their memory";
        return Err(Error::usage("liger", problem));
    }
    if spec.model.loss == Some(LossChoice::Liger) {
        let problem =
            "liger: no device here has its kernels. `vramlab predict` counts their memory, and --loss chunked trains";
        return Err(Error::usage("loss", problem));
    }
    if kind.is_computed() {
        return Ok(());
    }
    let (name, class) = (kind.name(), kind.class());
    let problem = format!(
        "{name}: {class} computes it, and no device does here. `vramlab predict --model {} --optimizer {name}` counts its memory",
        spec.model.name()
    );
    Err(Error::usage("optimizer", problem))
}

/// Refuses a run over several devices. Callers that divide a run resolve each part [`alone`](RunSpec::alone).
fn one_device(spec: &RunSpec) -> Result<()> {
    let divided = RunSpec { parallel: spec.parallel.clone(), ..RunSpec::default() }.said();
    match divided.keys().next() {
        Some(name) => Err(Error::usage(name, "this is a run on one device")),
        None => Ok(()),
    }
}

/// Returns the run with a network of transformers whose longest batch is the longest of the list, unless another length is said.
fn as_long_as_its_batches(spec: &RunSpec) -> RunSpec {
    let mut spec = spec.clone();
    if let (Some(lengths), Some(_)) = (&spec.shape.lengths, spec.model.configuration()) {
        spec.model.sequence.get_or_insert(lengths.largest());
    }
    spec
}

/// A file's settings for training its network.
#[derive(Default)]
struct FileSays {
    optimizer: Option<OptimizerSettings>,
    batch: Option<usize>,
    steps: Option<usize>,
    accumulate: Option<usize>,
    set_to_none: Option<bool>,
    clip_grad_norm: Option<f64>,
    precision: Option<Precision>,
    seed: Option<u64>,
    schedule: Option<Schedule>,
}

/// Returns the network, and the training settings of its file.
fn network(spec: &RunSpec) -> Result<(Network, FileSays)> {
    if let Some(network) = Network::pretrained(&spec.model)? {
        return Ok((network, FileSays::default()));
    }
    if let Some(network) = Network::exported(&spec.model)? {
        return Ok((network, FileSays::default()));
    }
    let Some(path) = &spec.model.model_file else {
        return Ok((Network::Architecture(spec.model.architecture()?), FileSays::default()));
    };
    let model = model_file::load(path)?;
    spec.model.options().only(&path.display().to_string(), &[])?;
    let says = FileSays {
        optimizer: model.optimizer,
        batch: model.batch,
        steps: model.steps,
        accumulate: model.accumulate,
        set_to_none: model.set_to_none,
        clip_grad_norm: model.clip_grad_norm,
        precision: model.precision,
        seed: model.seed,
        schedule: model.schedule,
    };
    Ok((Network::Architecture(model.architecture), says))
}

/// Returns the settings of the training, except the number of steps.
fn settings(spec: &RunSpec, network: &Network, says: &FileSays) -> Result<RunSettings> {
    let training = &spec.training;
    let defaults = network.architecture().defaults();
    let clip = training.clip_grad_norm.or(says.clip_grad_norm);
    let zero_grad = training.zero_grad.map(|kind| kind == ZeroGrad::None);
    let batches = spec.shape.batches.as_ref();
    let precision = match training.precision {
        Some(precision) => precision,
        None => premises::precision(network, says.precision)?,
    };
    let lora = lora(spec, network)?;
    let batch = batches.map(SizeList::largest).or(training.batch).or(says.batch).unwrap_or(defaults.batch);
    Ok(RunSettings {
        batch: at_least_1("batch", batch)?,
        turns: spec.shape.turns(),
        evaluation: spec.shape.evaluation(batch),
        ema: spec.shape.ema,
        hold: spec.shape.hold.unwrap_or_default(),
        channels_last: spec.shape.channels_last,
        save_on_cpu: spec.shape.save_on_cpu,
        checkpoint_save: spec.model.checkpoint_save.clone(),
        steps: 0,
        optimizer: optimizer(spec, says.optimizer, &defaults)?,
        freeze: training.freeze.clone().map(|freeze| network.named_for(freeze)),
        quantized: quantized(spec, network, lora.as_ref(), precision)?,
        lora,
        accumulate: at_least_1("accumulate", training.accumulate.or(says.accumulate).unwrap_or(1))?,
        set_to_none: zero_grad.or(says.set_to_none).unwrap_or(true),
        clip_grad_norm: clip.or(spec.model.by_trainer().then_some(MAX_GRAD_NORM)),
        precision,
        schedule: schedule(training.schedule.as_deref(), says.schedule.clone())?,
        seed: training.seed.or(says.seed).unwrap_or(0),
        rows: RowsKept::default(),
    })
}

/// Returns how bitsandbytes keeps the weights of linear layers. What is not recorded is left to the user's Python.
fn quantized(
    spec: &RunSpec,
    network: &Network,
    lora: Option<&Lora>,
    precision: Precision,
) -> Result<Option<Quantized>> {
    let ModelSpec { load_in_4bit, load_in_8bit, double_quant, .. } = spec.model;
    let (bits, flag) = match (load_in_4bit, load_in_8bit) {
        (true, _) => (4, "load-in-4bit"),
        (false, true) => (8, "load-in-8bit"),
        (false, false) => return Ok(None),
    };
    let by_python = |what: &str| {
        let problem = format!(
            "vramlab does not support {what}: your Python and its bitsandbytes build the network of a config.json, or of a model's name on the hub (vramlab predict config.json)"
        );
        Err(Error::usage(flag, problem))
    };
    let kept = match network {
        Network::Pretrained(model, _) => model.not_quantized(),
        Network::Architecture(_) | Network::Exported(..) => None,
    };
    let Some(kept) = kept else { return by_python("quantized weights of this network") };
    let Some(lora) = lora else { return by_python("quantized weights without adapters") };
    let others = [
        ("8-bit weights with DoRA", bits == 8 && lora.dora),
        ("quantized weights with --loop trainer", spec.model.by_trainer()),
        ("quantized weights with --built-on-device", spec.model.built_on_device),
        (
            "weights that are quantized from float32",
            !matches!(precision, Precision::Bf16 | Precision::Fp16 | Precision::Bf16AutocastBf16),
        ),
    ];
    if let Some((what, _)) = others.into_iter().find(|(_, asked)| *asked) {
        return by_python(what);
    }
    Ok(Some(Quantized { bits, twice: double_quant, kept }))
}

/// Returns the adapters that are trained instead of the network.
fn lora(spec: &RunSpec, network: &Network) -> Result<Option<Lora>> {
    let TrainingSpec { lora: Some(rank), lora_target, lora_dropout, dora, rslora, modules_to_save, .. } =
        &spec.training
    else {
        return Ok(None);
    };
    let target = match lora_target {
        Some(target) => target.clone(),
        None => network.lora_target()?,
    };
    if matches!(target, LoraTarget::Pattern(_)) {
        let problem = "vramlab does not support regular expressions for names of layers by itself; your Python does";
        return Err(Error::usage("lora", format!("{problem}: vramlab predict config.json --python PATH")));
    }
    let dropout = lora_dropout.unwrap_or(0.0);
    if !(0.0..1.0).contains(&dropout) {
        return Err(Error::usage("lora-dropout", format!("probability {dropout} is outside 0..1")));
    }
    let saved = saved_modules(modules_to_save.as_deref())?;
    network.check_lora(&target, !saved.is_empty())?;
    if !saved.is_empty() && network.architecture().shares_ends() {
        let problem = "PEFT's copies share no weights, and the ends of this network do, which vramlab does not support; rehearse the script (vramlab predict train.py)";
        return Err(Error::usage("modules-to-save", problem));
    }
    if spec.model.built_on_device {
        return Err(Error::usage(
            "lora",
            "vramlab does not support adapters with --built-on-device; leave it out, or rehearse the script (vramlab predict train.py)",
        ));
    }
    Ok(Some(Lora { rank: at_least_1("lora", *rank)?, target, dropout, dora: *dora, rslora: *rslora, saved }))
}

/// The names of modules that are copied.
fn saved_modules(names: Option<&str>) -> Result<Vec<String>> {
    let names: Vec<String> = names.iter().flat_map(|names| names.split(',')).map(|name| name.trim().into()).collect();
    match names.iter().any(String::is_empty) {
        true => Err(Error::usage("modules-to-save", "expected names of modules, as in lm_head,embed_tokens")),
        false => Ok(names),
    }
}

/// Refuses a loss of hidden states where it was not recorded.
fn check_end(spec: &RunSpec, network: &Network, run: &RunSettings) -> Result<()> {
    let of_a_data_set = spec.training.data.as_deref().is_some_and(|data| data != "synthetic");
    if of_a_data_set && spec.model.logits_to_keep.is_some() {
        let problem = "the accuracy on a data set needs the scores of all tokens; leave out --data";
        return Err(Error::usage("logits-to-keep", problem));
    }
    if spec.model.loss.and_then(LossChoice::end).is_none() && !spec.model.liger {
        return Ok(());
    }
    let of_liger = spec.model.loss == Some(LossChoice::Liger) || spec.model.liger;
    // Autocast widens what a layer norm gives, and what an RMS norm gives has the type of the weights.
    let keeps_type = run.precision == Precision::Bf16AutocastBf16
        && matches!(network, Network::Pretrained(model, _) if model.has_rms_norms());
    let autocast_unrecorded = run.precision.autocast().is_some() && !keeps_type;
    let problem = match spec {
        _ if of_liger && autocast_unrecorded => {
            "Liger's loss is not recorded with this autocast; --precision bf16 has it, and --loss chunked has autocast"
        }
        _ if of_liger && run.precision == Precision::Fp16 => {
            "Liger's loss is not recorded in float16; --precision bf16 has it"
        }
        _ if spec.shape.eval_every.is_some() => "an evaluation has the network's own loss; leave out --eval-every",
        _ if of_a_data_set => "the accuracy on a data set needs the scores of all tokens; leave out --data",
        _ if spec.model.keep == Some(Keep::Output) && !spec.model.liger => {
            "of a loss of hidden states nothing else is held; leave out --keep"
        }
        _ => return Ok(()),
    };
    Err(Error::usage(if spec.model.liger { "liger" } else { "loss" }, problem))
}

/// Refuses what the network or the data cannot have of a loop.
fn check_loop(spec: &RunSpec, network: &Network, run: &RunSettings) -> Result<()> {
    check_end(spec, network, run)?;
    if spec.shape == LoopSpec::default() {
        return Ok(());
    }
    if spec.model.by_trainer() {
        run.check_usual("with --loop trainer")?;
    }
    let of_a_data_set = spec.training.data.as_deref().is_some_and(|data| data != "synthetic");
    if spec.shape.batches.is_some() && of_a_data_set {
        return Err(Error::usage("batches", "batches of a data set have one size"));
    }
    if spec.shape.eval_every.is_some() && of_a_data_set {
        return Err(Error::usage("eval-every", "with a data set, its test examples are evaluated after the last step"));
    }
    let exported = matches!(network, Network::Exported(..));
    let unrecorded = [
        (
            "with --checkpoint it is not recorded for a .pt2; leave one of them out",
            exported && spec.model.checkpoint.is_some(),
        ),
        (
            "it is recorded in the usual order of a step alone; leave out the file's schedule",
            run.schedule != Schedule::default(),
        ),
    ];
    if let Some((problem, _)) = unrecorded.into_iter().find(|(_, asked)| run.save_on_cpu.is_some() && *asked) {
        return Err(Error::usage("save-on-cpu", problem));
    }
    run.check_network(network.architecture(), run.batch)?;
    let lengths: BTreeSet<usize> = run.turns.lengths.iter().copied().collect();
    lengths.into_iter().try_for_each(|length| network.check_length(&spec.model, length, run))
}

/// A note where the run ends before everything in its loop has had its turn.
fn unreached(run: &RunSettings) -> Option<String> {
    let period = run.period();
    let steps = |n: usize| counted(n as u64, "step");
    let text =
        || format!("The run ends after {}; all of its loop has had a turn after {}.", steps(run.steps), steps(period));
    (run.steps < period).then(text)
}

fn at_least_1(field: &str, value: usize) -> Result<usize> {
    if value == 0 { Err(Error::usage(field, "must be at least 1")) } else { Ok(value) }
}

fn with_seed(spec: &RunSpec, seed: u64) -> RunSpec {
    let mut spec = spec.clone();
    spec.training.seed = Some(seed);
    spec
}

/// Returns the given schedule, or the file's, or the usual one.
fn schedule(text: Option<&str>, file: Option<Schedule>) -> Result<Schedule> {
    let Some(text) = text else { return Ok(file.unwrap_or_default()) };
    if pipeline::Schedule::NAMES.contains(&text) {
        let problem = "it orders the passes of several devices, not the phases of a step; --pipeline-schedule takes it";
        return Err(Error::usage("schedule", format!("{text}: {problem}")));
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_string()).collect();
    let prefix = file.unwrap_or_default().prefix;
    Schedule::new(&names, prefix).map_err(|error| match error {
        Error::Usage { problem, .. } => Error::usage("schedule", problem),
        other => other,
    })
}

/// Returns the file's optimizer, or the given one, or the network's default, with the given settings.
fn optimizer(spec: &RunSpec, file: Option<OptimizerSettings>, defaults: &Defaults) -> Result<OptimizerSettings> {
    let training = &spec.training;
    let mut settings = match (training.optimizer, file) {
        (None, Some(settings)) => settings,
        (Some(kind), _) => OptimizerSettings::new(kind, defaults.lr),
        (None, None) => OptimizerSettings::new(OptimizerKind::parse(defaults.optimizer)?, defaults.lr),
    };
    if spec.model.by_trainer() {
        settings = huggingface::trainer_optimizer(settings.kind);
    }
    settings.lr = training.lr.unwrap_or(settings.lr);
    settings.weight_decay = training.weight_decay.or(settings.weight_decay);
    settings.nesterov |= training.nesterov;
    settings.amsgrad |= training.amsgrad;
    settings.maximize |= training.maximize;
    settings.capturable |= training.capturable;
    settings.in_backward |= training.step_in_backward;
    settings.implementation = training.optimizer_impl.map_or(settings.implementation, Implementation::from);
    // Built without parameters, so that wrong settings fail before anything runs.
    settings.build(Vec::new())?;
    Ok(settings)
}

/// Returns the data's name, the source of batches, and the number of steps.
fn data(spec: &RunSpec, network: &Network, run: &RunSettings) -> Result<(String, Source, usize)> {
    let seed = run.seed;
    let data = DataSpec::parse(spec.training.data.as_deref().unwrap_or("synthetic"));
    let data = data.map_err(|error| Error::usage("data", error.to_string()))?;
    let name = data.to_string();
    if data == DataSpec::Synthetic {
        return Ok((name, network.synthetic(seed), STEPS.max(run.period().saturating_mul(2))));
    }
    // Used by synthetic data only.
    let unused = Synthetic { input_dims: Vec::new(), n_classes: 0, len: 0, seed };
    let examples = data.load(&unused).map_err(|error| Error::usage("data", error.to_string()))?;
    let steps = EPOCHS * (examples.split(Split::Train).len() / run.batch).max(1);
    Ok((name, Source::Dataset { data: Arc::new(examples), seed }, steps))
}

/// Returns every field with the value in force: these fields repeat the run.
fn in_force(spec: &RunSpec, run: &RunSettings, data: String, network: &Network, target: &Target) -> RunSpec {
    let mut spec = spec.clone();
    if spec.model.model_file.is_none() {
        spec.model.model = Some(spec.model.name().into());
    }
    if let (Network::Pretrained(..), Input::Tokens { length, .. }) = (network, network.architecture().task().input) {
        spec.model.sequence = Some(length);
    }
    if matches!(network, Network::Pretrained(..)) {
        spec.model.transformers = Some(spec.model.release());
    }
    let optimizer = &run.optimizer;
    let training = &mut spec.training;
    (training.steps, training.data) = (Some(run.steps), Some(data));
    training.batch = spec.shape.batches.is_none().then_some(run.batch);
    (training.optimizer, training.lr) = (Some(optimizer.kind), Some(optimizer.lr));
    training.optimizer_impl = Some(OptimizerForm::from(optimizer.implementation));
    training.weight_decay = Some(optimizer.weight_decay.unwrap_or(optimizer.kind.weight_decay()));
    (training.nesterov, training.amsgrad) = (optimizer.nesterov, optimizer.amsgrad);
    (training.maximize, training.capturable) = (optimizer.maximize, optimizer.capturable);
    (training.precision, training.accumulate) = (Some(run.precision), Some(run.accumulate));
    training.zero_grad = Some(if run.set_to_none { ZeroGrad::None } else { ZeroGrad::Zero });
    if let Some(evaluation) = &run.evaluation {
        (spec.shape.eval_batch, spec.shape.eval_steps) = (Some(evaluation.batch), Some(evaluation.batches));
    }
    (training.clip_grad_norm, training.seed) = (run.clip_grad_norm, Some(run.seed));
    (spec.profile.like, spec.profile.multiprocessors) = (Some(spec.like()), spec.multiprocessors());
    spec.allocator.allocator = Some(spec.allocator.allocator.unwrap_or_default());
    if spec.device.backend.is_some() {
        spec.device.backend = Some(target.backend_name().into());
        spec.device.device = Some(spec.device.device.unwrap_or(0));
    }
    spec
}
