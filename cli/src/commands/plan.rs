//! From flags to a run: everything resolved and checked before anything is done.

use std::sync::Arc;

use lab::data::{DataSpec, Split, Synthetic};
use lab::huggingface::{self, Head, MAX_GRAD_NORM};
use lab::model_file::{self, FileModel};
use lab::models::{Defaults, Input};
use lab::pipeline;
use lab::record::RowsKept;
use lab::training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Schedule, Source};
use memcore::Device;
use memcore::optim::Implementation;
use serde_json::{Map, Value, json};

use super::environment;
use super::opening::Opening;
use lab::results::Premise;

use super::premises::{self, OfFile};
use super::profile;
use super::snapshot::format_of;
use super::subject::Subject;
use super::weights;
use crate::args::{
    AllocatorArgs, AttentionName, DEFAULT_PROFILE, DeviceArgs, ExportArgs, Gpu, HtmlArgs, ImplementationName, KeepName,
    LoopName, MaskName, ModelArgs, OutputArgs, PaperArgs, ProfileArgs, RecordArgs, SnapshotFormat, TrainArgs,
    TrainingArgs, WeightsArgs, ZeroGrad,
};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;

/// Steps, unless said.
const STEPS: usize = 10;
/// Times through a data set, unless said.
const EPOCHS: usize = 20;

/// One run.
pub(super) struct Plan {
    /// The network.
    pub subject: Subject,
    /// How it is trained.
    pub run: RunSettings,
    /// On what.
    pub source: Source,
    /// The device.
    pub opening: Opening,
    /// What the answer rests on, and where that came from.
    pub premises: Vec<Premise>,
    /// Every setting in force, under the names of the flags.
    pub settings: Map<String, Value>,
    /// Where the events go.
    pub events: Option<Destination>,
    /// Where the snapshot goes, and how.
    pub snapshot: Option<(Destination, SnapshotFormat)>,
    /// Whether PyTorch's table is wanted.
    pub summary: bool,
    /// Whether PyTorch's counters are wanted.
    pub stats: bool,
    /// What happened to memory, for other programs.
    pub exports: ExportArgs,
    /// Where the page goes.
    pub page: HtmlArgs,
    /// Where it begins, and where it leaves its state.
    pub weights: WeightsArgs,
    /// What was taken from files instead of from flags.
    pub notes: Vec<String>,
}

/// What `train` and `predict` have in common.
struct Common<'a> {
    model: &'a ModelArgs,
    training: &'a TrainingArgs,
    allocator: &'a AllocatorArgs,
    profile: &'a ProfileArgs,
    /// The profile, unless said.
    like: &'a str,
    /// Multiprocessors of the card, where they are known.
    multiprocessors: Option<u16>,
    record: &'a RecordArgs,
}

impl Plan {
    /// On a device.
    ///
    /// # Errors
    /// Settings that cannot work; a device that is absent.
    pub(super) fn train(args: &TrainArgs, ui: &Ui) -> Result<Self> {
        weights::check(&args.weights)?;
        let resumed = weights::profile(&args.weights)?.filter(|_| args.profile.like.is_none());
        let like = match &resumed {
            Some(state) => state.profile.as_deref().unwrap_or(profile::FORMER_DEFAULT),
            None => DEFAULT_PROFILE,
        };
        let common = Common {
            model: &args.model,
            training: &args.training,
            allocator: &args.allocator,
            profile: &args.profile,
            like,
            multiprocessors: args.profile.multiprocessors,
            record: &args.record,
        };
        let mut plan = common.plan_on(&args.device, ui)?;
        for (name, file) in [("load", &args.weights.load), ("resume", &args.weights.resume)] {
            let setting = file.as_ref().map(|file| (name.to_string(), json!(file.display().to_string())));
            plan.settings.extend(setting);
        }
        plan.opening = plan.opening.graphs(args.cuda_graph)?.tf32(args.tf32.map(Into::into))?;
        plan.settings.extend(args.cuda_graph.then(|| ("cuda-graph".into(), true.into())));
        plan.settings.extend(args.tf32.map(|which| ("tf32".into(), which.name().into())));
        plan.notes.extend(resumed.and_then(|state| profile::taken_from(&state.name, state.profile.as_deref())));
        Ok(Self { weights: args.weights.clone(), ..plan })
    }

    /// On a device, what could as well be on paper.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub(super) fn on_device(device: &DeviceArgs, args: &PaperArgs, ui: &Ui) -> Result<Self> {
        let common = Common {
            model: &args.model,
            training: &args.training,
            allocator: &args.allocator,
            profile: &args.profile,
            like: DEFAULT_PROFILE,
            multiprocessors: args.profile.multiprocessors,
            record: &RecordArgs::default(),
        };
        common.plan_on(device, ui)
    }

    /// On paper.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub(super) fn predict(args: &PaperArgs, record: &RecordArgs) -> Result<Self> {
        let common = Common {
            model: &args.model,
            training: &args.training,
            allocator: &args.allocator,
            profile: &args.profile,
            like: args.default_like(),
            multiprocessors: args.multiprocessors(),
            record,
        };
        common.plan(|seed| {
            let opening = Opening::on_paper(args, seed)?;
            Ok((opening, json!({ "gpu": args.gpu.map(Gpu::setting) })))
        })
    }

    /// What the user is told before the run: what was taken from files, and what the network's file says and nobody here knows.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.notes.iter().chain(self.subject.warnings()).cloned().collect()
    }

    /// The same, keeping every event on the way.
    pub(super) fn with_history(self) -> Self {
        Self { opening: self.opening.history(true), ..self }
    }

    /// The same, shown on a page.
    pub(super) fn for_page(self, page: &HtmlArgs) -> Self {
        let plan = Self { page: page.clone(), ..self };
        if plan.page.html.is_some() { plan.with_history() } else { plan }
    }

    /// Keeps the figures of every step only where they are to be written: those of a long run take more memory than all else.
    pub(super) fn rows_for(mut self, output: &OutputArgs) -> Self {
        self.run.rows = if self.writes_steps(output) { RowsKept::Every } else { RowsKept::Ends };
        self
    }

    /// Whether a file is to have every step, or what happened in it.
    pub(super) fn writes_steps(&self, output: &OutputArgs) -> bool {
        let further =
            self.events.is_some() || self.snapshot.is_some() || self.exports.any() || self.page.html.is_some();
        further || output.destinations().next().is_some()
    }

    /// Trains on an opened device, for what it leaves in the device's books.
    ///
    /// # Errors
    /// Settings that cannot work; those of the device, running out of memory among them.
    pub(super) fn train_on(&self, device: &Device) -> lab::Result<()> {
        self.subject
            .train(device, &self.run, &self.source, &mut |_| crate::interrupt::flow())
            .map(drop)
            .map_err(lab::Error::from)
    }

    /// The same for this many steps at most.
    pub(super) fn at_most(mut self, steps: usize) -> Self {
        self.run.steps = self.run.steps.min(steps);
        self
    }
}

/// What a file says of training its network.
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

fn at_least_1(what: &str, value: usize) -> Result<usize> {
    if value == 0 { Err(Failure::usage(format!("{what}: must be at least 1"))) } else { Ok(value) }
}

impl Common<'_> {
    fn plan_on(&self, device: &DeviceArgs, ui: &Ui) -> Result<Plan> {
        self.plan(|seed| {
            let opening = Opening::on_device(device, self.allocator, seed, ui)?;
            let named = json!({ "backend": opening.backend_name(), "device": device.device });
            Ok((opening, named))
        })
    }

    /// `open` is given the seed.
    fn plan(&self, open: impl FnOnce(u64) -> Result<(Opening, Value)>) -> Result<Plan> {
        let (subject, model) = self.subject()?;
        let (defaults, training) = (subject.defaults(), self.training);
        let by_trainer = self.model.by_trainer();
        let optimizer = self.optimizer(model.optimizer, &defaults)?;
        let batch = at_least_1("--batch", training.batch.or(model.batch).unwrap_or(defaults.batch))?;
        let seed = training.seed.or(model.seed).unwrap_or(0);
        let (data, mut source, own_steps) = self.data(batch, seed)?;
        if !subject.takes_data() {
            if matches!(source, Source::Dataset { .. }) {
                return Err(Failure::usage("--data: networks of transformers are trained on synthetic batches only"));
            }
            source = Source::Renewed { seed };
        }
        let run = RunSettings {
            batch,
            steps: training.steps.or(model.steps).unwrap_or(own_steps),
            optimizer,
            accumulate: at_least_1("--accumulate", training.accumulate.or(model.accumulate).unwrap_or(1))?,
            set_to_none: training.zero_grad.map(|kind| kind == ZeroGrad::None).or(model.set_to_none).unwrap_or(true),
            clip_grad_norm: training.clip_grad_norm.or(model.clip_grad_norm).or(by_trainer.then_some(MAX_GRAD_NORM)),
            precision: match &training.precision {
                Some(name) => Precision::parse(name)?,
                None => premises::precision(&subject, model.precision)?,
            },
            schedule: self.schedule(model.schedule)?,
            seed,
            rows: RowsKept::default(),
        };
        let of_file = OfFile { precision: model.precision.is_some(), batch: model.batch.is_some() };
        let mut premises = premises::of(&subject, &run, self.model, training, of_file);
        premises.extend(environment::premises(&self.profile.env));
        let (opening, device) = open(seed)?;
        let mut settings = self.settings(&run, &data);
        if let (Subject::Pretrained(..), Input::Tokens { length, .. }) = (&subject, subject.task().input) {
            settings.insert("sequence".into(), length.into());
        }
        if let Value::Object(device) = device {
            settings.extend(device);
        }
        let kept = self.record.events.is_some() || self.record.snapshot.is_some() || self.record.exports.any();
        let opening = profile::counted_by(opening.history(kept), &self.like(), self.profile, self.multiprocessors)?;
        let RecordArgs { events, snapshot, summary, stats, exports } = self.record.clone();
        let snapshot = match snapshot {
            Some(out) => Some((out.clone(), format_of(&out, None)?)),
            None => None,
        };
        Ok(Plan {
            subject,
            run,
            source,
            opening,
            premises,
            settings,
            events,
            snapshot,
            summary,
            stats,
            exports,
            page: HtmlArgs::default(),
            weights: WeightsArgs::default(),
            notes: Vec::new(),
        })
    }

    /// The network, and what its file says of training it.
    fn subject(&self) -> Result<(Subject, FileSays)> {
        if let Some(subject) = Subject::pretrained(self.model)? {
            return Ok((subject, FileSays::default()));
        }
        let model = self.model()?;
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
        Ok((Subject::Architecture(model.architecture), says))
    }

    /// A network of our own, and what its file says.
    fn model(&self) -> Result<FileModel> {
        let options = self.model.options();
        let Some(path) = &self.model.model_file else {
            return Ok(FileModel::of(lab::models::architecture(self.model.name(), &options)?));
        };
        let model = model_file::load(path)?;
        options.only(&path.display().to_string(), &[])?;
        Ok(model)
    }

    /// The flag's order of phases, or the file's, or the usual one.
    fn schedule(&self, file: Option<Schedule>) -> Result<Schedule> {
        let Some(text) = &self.training.schedule else { return Ok(file.unwrap_or_default()) };
        if pipeline::Schedule::NAMES.contains(&text.as_str()) {
            let problem = "it orders the passes of several devices, and --devices names none";
            return Err(Failure::usage(format!("--schedule {text}: {problem}")));
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_string()).collect();
        let prefix = file.unwrap_or_default().prefix;
        Schedule::new(&names, prefix).map_err(|error| match error {
            lab::Error::Usage { problem, .. } => Failure::usage(format!("--schedule: {problem}")),
            other => other.into(),
        })
    }

    /// The file's optimizer, or the flag's, or the model's, with what the flags say about it.
    fn optimizer(&self, file: Option<OptimizerSettings>, defaults: &Defaults) -> Result<OptimizerSettings> {
        let training = self.training;
        let mut settings = match (&training.optimizer, file) {
            (None, Some(settings)) => settings,
            (name, _) => {
                let kind = OptimizerKind::parse(name.as_deref().unwrap_or(defaults.optimizer))?;
                OptimizerSettings::new(kind, defaults.lr)
            }
        };
        if self.model.by_trainer() {
            settings = huggingface::trainer_optimizer(settings.kind);
        }
        settings.lr = training.lr.unwrap_or(settings.lr);
        settings.weight_decay = training.weight_decay.or(settings.weight_decay);
        settings.nesterov |= training.nesterov;
        settings.amsgrad |= training.amsgrad;
        settings.maximize |= training.maximize;
        settings.capturable |= training.capturable;
        settings.implementation = match training.optimizer_impl {
            Some(ImplementationName::Loop) => Implementation::Loop,
            Some(ImplementationName::Foreach) => Implementation::Foreach,
            Some(ImplementationName::Fused) => Implementation::Fused,
            None => settings.implementation,
        };
        // Built over nothing, to hear its objections before anything is run.
        settings.build(Vec::new())?;
        Ok(settings)
    }

    fn like(&self) -> String {
        self.profile.like(self.like)
    }

    /// The data's name, where batches come from, and how many steps to take.
    fn data(&self, batch: usize, seed: u64) -> Result<(String, Source, usize)> {
        let spec = DataSpec::parse(&self.training.data)
            .map_err(|error| Failure::new(Code::Usage, anyhow::Error::new(error).context("--data")))?;
        if spec == DataSpec::Synthetic {
            return Ok((spec.to_string(), Source::Synthetic { seed }, STEPS));
        }
        // Only synthetic data look at it.
        let unused = Synthetic { input_dims: Vec::new(), n_classes: 0, len: 0, seed };
        let data = spec.load(&unused)?;
        let steps = EPOCHS * (data.split(Split::Train).len() / batch).max(1);
        Ok((spec.to_string(), Source::Dataset { data: Arc::new(data), seed }, steps))
    }

    /// What is in force, in the words of the flags: a configuration file that repeats the run.
    fn settings(&self, run: &RunSettings, data: &str) -> Map<String, Value> {
        let groups = [self.model_settings(), self.training_settings(run, data), self.memory_settings()];
        let groups = groups.into_iter().filter_map(|group| match group {
            Value::Object(settings) => Some(settings),
            _ => None,
        });
        groups.flatten().collect()
    }

    fn model_settings(&self) -> Value {
        let model = self.model;
        json!({
            "model": model.model_file.is_none().then(|| model.name()),
            "model-file": model.model_file.as_ref().map(|path| path.display().to_string()),
            "layers": model.layers,
            "width": model.width,
            "heads": model.heads,
            "sequence": model.sequence,
            "vocabulary": model.vocabulary,
            "features": model.features,
            "image": model.image,
            "classes": model.classes,
            "dropout": model.dropout,
            "attention": model.attention.map(|a| if a == AttentionName::Sdpa { "sdpa" } else { "eager" }),
            "checkpoint": model.checkpoint,
            "head": model.head.map(Head::name),
            "choices": model.choices,
            "transformers": model.transformers.map(|release| release.to_string()),
            "attention-mask": model.attention_mask.map(MaskName::name),
            "built-on-device": model.built_on_device,
            "loop": model.script.map(LoopName::name),
            "keep": model.keep.map(|keep| if keep == KeepName::Loss { "loss" } else { "output" }),
            "tied": model.tied,
            "keep-intermediate": model.keep_intermediate,
        })
    }

    fn training_settings(&self, run: &RunSettings, data: &str) -> Value {
        json!({
            "batch": run.batch,
            "steps": run.steps,
            "data": data,
            "optimizer": run.optimizer.kind.name(),
            "optimizer-impl": match run.optimizer.implementation {
                Implementation::Loop => "loop",
                Implementation::Foreach => "foreach",
                Implementation::Fused => "fused",
            },
            "lr": run.optimizer.lr,
            "weight-decay": run.optimizer.weight_decay.unwrap_or(run.optimizer.kind.weight_decay()),
            "nesterov": run.optimizer.nesterov,
            "amsgrad": run.optimizer.amsgrad,
            "maximize": run.optimizer.maximize,
            "capturable": run.optimizer.capturable,
            "precision": run.precision.name(),
            "accumulate": run.accumulate,
            "zero-grad": if run.set_to_none { "none" } else { "zero" },
            "clip-grad-norm": run.clip_grad_norm,
            "schedule": self.training.schedule,
            "seed": run.seed,
        })
    }

    fn memory_settings(&self) -> Value {
        let allocator = self.allocator;
        json!({
            "like": self.like(),
            "cudnn-workspace": self.profile.cudnn_workspace,
            "env": (!self.profile.env.is_empty()).then(|| environment::written(&self.profile.env)),
            "multiprocessors": self.multiprocessors,
            "allocator": allocator.allocator.name(),
            "alloc-conf": allocator.alloc_conf,
            "memory-limit": allocator.memory_limit,
            "memory-fraction": allocator.memory_fraction,
        })
    }
}
