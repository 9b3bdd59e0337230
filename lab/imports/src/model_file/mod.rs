//! Model files: a network, its loss and how it is trained, as TOML, so that one's own network needs no Rust.
//!
//! ```
//! let model = lab_imports::model_file::parse(
//!     "digits.toml",
//!     r#"
//!     [input]
//!     shape = [64]
//!     [[layer]]
//!     type = "linear"
//!     out = 32
//!     [[layer]]
//!     type = "relu"
//!     [[layer]]
//!     type = "linear"
//!     out = 10
//!     [loss]
//!     type = "cross-entropy"
//!     [optimizer]
//!     name = "adam"
//!     "#,
//! )?;
//! assert_eq!(model.architecture.name(), "digits");
//! # Ok::<(), lab_base::Error>(())
//! ```
//!
//! Sizes follow from the layer before. Everything is checked here, before a device is touched: an error names file, line and key, what
//! arrived and what would fit. `examples/models` has worked examples.
//!
//! This stands above [`training`](lab_training), because a file also says how its network is trained.

mod build;
mod layers;
mod reader;
#[cfg(test)]
mod tests;

use std::path::Path;

use build::FileArchitecture;
use lab_base::error::{Error, Result};
use lab_base::files;
use lab_models::{Architecture, Defaults, Input, Loss, Task};
use lab_training::{OptimizerKind, OptimizerSettings, Precision, RunSettings, Schedule};
use layers::{MAX_ELEMENTS, Shape, Totals, read_layers};
use memcore::optim::Implementation;
use reader::{Section, Text};
use toml::de::DeTable;

/// Largest file that is read: a network of ten thousand layers takes less.
const MAX_BYTES: u64 = 16 << 20;

/// Contents of a model file. Absent settings are `None`; the network's [`Defaults`] hold the rest.
pub struct FileModel {
    /// The network.
    pub architecture: Box<dyn Architecture>,
    /// `[optimizer]`
    pub optimizer: Option<OptimizerSettings>,
    /// Examples per step.
    pub batch: Option<usize>,
    /// Optimizer steps.
    pub steps: Option<usize>,
    /// Micro-batches per optimizer step.
    pub accumulate: Option<usize>,
    /// Largest norm of the gradients.
    pub clip_grad_norm: Option<f64>,
    /// Types of parameters, inputs and products.
    pub precision: Option<Precision>,
    /// True if gradients are freed (`"none"`), false if zeroed (`"zero"`).
    pub set_to_none: Option<bool>,
    /// Seed of parameters and data.
    pub seed: Option<u64>,
    /// `[schedule]`
    pub schedule: Option<Schedule>,
}

impl FileModel {
    /// Makes a model of a network without training settings of a file.
    pub fn new(architecture: Box<dyn Architecture>) -> Self {
        Self {
            architecture,
            optimizer: None,
            batch: None,
            steps: None,
            accumulate: None,
            clip_grad_norm: None,
            precision: None,
            set_to_none: None,
            seed: None,
            schedule: None,
        }
    }

    /// Returns the training settings of the file; absent ones are the network's defaults, and `steps`.
    ///
    /// # Errors
    /// [`Error::Usage`] when the network's default optimizer is unknown.
    pub fn settings(&self, steps: usize) -> Result<RunSettings> {
        let defaults = self.architecture.defaults();
        let optimizer = match self.optimizer {
            Some(optimizer) => optimizer,
            None => OptimizerSettings::new(OptimizerKind::parse(defaults.optimizer)?, defaults.lr),
        };
        let base = RunSettings::new(self.batch.unwrap_or(defaults.batch), self.steps.unwrap_or(steps), optimizer);
        Ok(RunSettings {
            accumulate: self.accumulate.unwrap_or(base.accumulate),
            set_to_none: self.set_to_none.unwrap_or(base.set_to_none),
            clip_grad_norm: self.clip_grad_norm,
            precision: self.precision.unwrap_or(base.precision),
            schedule: self.schedule.clone().unwrap_or_default(),
            seed: self.seed.unwrap_or(base.seed),
            ..base
        })
    }
}

/// Reads a model file. A model without a `name` is named after its file.
///
/// # Errors
/// [`Error::Usage`] for a file that cannot be read, and as [`parse`].
pub fn load(path: &Path) -> Result<FileModel> {
    let text = files::text(path, MAX_BYTES, "a model file")?;
    parse(&path.display().to_string(), &text)
}

/// Reads the text of a model file; `name` is the file's, for messages.
///
/// # Errors
/// [`Error::Usage`] naming file, line and key: a mistake in the syntax, an unknown key (the known ones are listed), a value of another type,
/// sizes that do not fit, sizes beyond any device.
pub fn parse(name: &str, text: &str) -> Result<FileModel> {
    let place = Text { name, text };
    let parsed = DeTable::parse(text)
        .map_err(|error| place.error(error.span().map_or(0, |span| span.start), "", error.message().to_string()))?;
    let top = Section::new(place, 0, "", parsed.get_ref());
    top.only(&[
        "name",
        "batch",
        "steps",
        "accumulate",
        "clip_grad_norm",
        "precision",
        "zero_grad",
        "seed",
        "input",
        "layer",
        "loss",
        "optimizer",
        "schedule",
    ])?;
    let batch = top.size("batch")?;
    let input = top.required("input", top.table("input")?, "{ shape = [3, 32, 32] }")?;
    let shape = read_input(&input)?;
    let sections = top.tables("layer")?;
    if sections.is_empty() {
        return Err(top.error("has no layers: write them as [[layer]] tables"));
    }
    let mut totals = Totals::default();
    let (layers, out) = read_layers(sections, "", shape.clone(), &mut totals)?;
    if totals.largest.checked_mul(batch.unwrap_or(1) as u64).is_none_or(|n| n > MAX_ELEMENTS) {
        let problem = format!("{} elements per example in a layer are too many for it", totals.largest);
        return Err(top.key_error("batch", problem));
    }
    let loss_section = top.required("loss", top.table("loss")?, "{ type = \"cross-entropy\" }")?;
    let loss = read_loss(&loss_section, &shape, &out)?;
    let optimizer = top.table("optimizer")?.map(|section| read_optimizer(&section)).transpose()?;
    let schedule = top.table("schedule")?.map(|section| read_schedule(&section)).transpose()?;
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
    let (kind, lr) = optimizer.map_or((OptimizerKind::Adam, 1e-3), |settings| (settings.kind, settings.lr));
    let architecture = FileArchitecture {
        name: top.string("name")?.unwrap_or(stem).to_string(),
        description: format!("{} layers: {shape} → {out}", layers.len()),
        layers,
        task: Task { input: input_of(&shape), loss },
        defaults: Defaults { batch: batch.unwrap_or(32), optimizer: kind.name(), lr },
    };
    Ok(FileModel {
        architecture: Box::new(architecture),
        optimizer,
        batch,
        steps: top.size("steps")?,
        accumulate: top.size("accumulate")?,
        clip_grad_norm: top.number("clip_grad_norm")?,
        precision: read_precision(&top)?,
        set_to_none: read_zero_grad(&top)?,
        seed: top.whole("seed", 0)?,
        schedule,
    })
}

fn read_precision(top: &Section<'_>) -> Result<Option<Precision>> {
    let parse = |name: &str| name.parse::<Precision>().map_err(|problem| top.key_error("precision", problem));
    top.string("precision")?.map(parse).transpose()
}

fn read_zero_grad(top: &Section<'_>) -> Result<Option<bool>> {
    match top.string("zero_grad")? {
        None => Ok(None),
        Some("none") => Ok(Some(true)),
        Some("zero") => Ok(Some(false)),
        Some(other) => Err(top.key_error("zero_grad", format!("unknown kind {other:?}; known: none, zero"))),
    }
}

fn input_of(shape: &Shape) -> Input {
    match shape {
        Shape::Values(dims) => Input::Values(dims.clone()),
        Shape::Tokens { length, vocabulary } => Input::Tokens { length: *length, vocabulary: *vocabulary },
    }
}

fn read_input(s: &Section<'_>) -> Result<Shape> {
    s.only(&["shape", "tokens", "vocabulary"])?;
    let (shape, tokens, vocabulary) = (s.sizes("shape")?, s.size("tokens")?, s.size("vocabulary")?);
    match (shape, tokens, vocabulary) {
        (Some(dims), None, None) if dims.len() > 4 => {
            Err(s.key_error("shape", format!("has {} sizes; without the batch there are at most 4", dims.len())))
        }
        (Some(dims), None, None) => {
            let elements = dims.iter().try_fold(1u64, |n, &size| n.checked_mul(size as u64));
            match elements {
                Some(n) if n <= MAX_ELEMENTS => Ok(Shape::Values(dims)),
                _ => Err(s.key_error("shape", "has more than 2^48 elements")),
            }
        }
        (None, Some(length), Some(vocabulary)) => Ok(Shape::Tokens { length, vocabulary }),
        _ => Err(s.error("needs either shape = [3, 32, 32], or tokens = 64 and vocabulary = 512")),
    }
}

fn read_loss(s: &Section<'_>, input: &Shape, out: &Shape) -> Result<Loss> {
    s.only(&["type", "classes"])?;
    let Shape::Values(dims) = out else {
        return Err(s.error(format!("{out} arrive from the last layer, and a loss takes floats")));
    };
    match s.required("type", s.string("type")?, "\"cross-entropy\"")? {
        "mse" => {
            s.only(&["type"])?;
            Ok(Loss::MeanSquaredError { dims: dims.clone() })
        }
        "cross-entropy" => {
            let classes = s.size("classes")?.or(dims.last().copied()).unwrap_or(1);
            let expected = match input {
                Shape::Tokens { length, .. } => vec![*length, classes],
                Shape::Values(_) => vec![classes],
            };
            if *dims == expected {
                return Ok(Loss::CrossEntropy { classes });
            }
            let problem = format!("{dims:?} arrives from the last layer, and cross-entropy takes {expected:?}");
            let flatten = if dims.len() > expected.len() { "; a flatten layer makes one row of it" } else { "" };
            Err(s.error(format!("{problem}{flatten}")))
        }
        other => Err(s.key_error("type", format!("unknown loss {other:?}; known: cross-entropy, mse"))),
    }
}

fn read_optimizer(s: &Section<'_>) -> Result<OptimizerSettings> {
    s.only(&["name", "lr", "weight_decay", "nesterov", "amsgrad", "maximize", "capturable", "implementation"])?;
    let name = s.required("name", s.string("name")?, "\"adam\"")?;
    let kind = OptimizerKind::parse(name).map_err(|error| s.key_error("name", problem_of(error)))?;
    let adam = matches!(kind, OptimizerKind::Adam | OptimizerKind::AdamW);
    let lr = s.number("lr")?.unwrap_or(if adam { 1e-3 } else { 1e-2 });
    let implementation = match s.string("implementation")? {
        None => OptimizerSettings::new(kind, lr).implementation,
        Some("loop") => Implementation::Loop,
        Some("foreach") => Implementation::Foreach,
        Some("fused") => Implementation::Fused,
        Some(other) => {
            let problem = format!("unknown implementation {other:?}; known: loop, foreach, fused");
            return Err(s.key_error("implementation", problem));
        }
    };
    let settings = OptimizerSettings {
        weight_decay: s.number("weight_decay")?,
        nesterov: s.flag("nesterov")?.unwrap_or(false),
        amsgrad: s.flag("amsgrad")?.unwrap_or(false),
        maximize: s.flag("maximize")?.unwrap_or(false),
        capturable: s.flag("capturable")?.unwrap_or(false),
        implementation,
        ..OptimizerSettings::new(kind, lr)
    };
    if settings.amsgrad && !adam {
        return Err(s.key_error("amsgrad", format!("{name} does not have it; adam and adamw do")));
    }
    if settings.capturable && (!adam || implementation == Implementation::Loop) {
        return Err(s.key_error("capturable", "adam and adamw have it, in their foreach and fused forms"));
    }
    if implementation == Implementation::Fused && !kind.has_fused() {
        return Err(s.key_error("implementation", format!("{name} has no fused form")));
    }
    if settings.nesterov && kind != OptimizerKind::Momentum {
        return Err(s.key_error("nesterov", format!("{name} does not have it; momentum does")));
    }
    Ok(settings)
}

fn read_schedule(s: &Section<'_>) -> Result<Schedule> {
    s.only(&["order", "prefix", "rows", "cast", "one_batch"])?;
    let default = Schedule::default();
    let prefix = s.string("prefix")?.map_or(default.prefix.clone(), str::to_string);
    let mut schedule = match s.strings("order")? {
        None => Schedule { prefix, ..default },
        Some(names) => Schedule::new(&names, prefix).map_err(|error| s.key_error("order", problem_of(error)))?,
    };
    if let Some(rows) = s.strings("rows")? {
        schedule = schedule.with_rows(&rows).map_err(|error| s.key_error("rows", problem_of(error)))?;
    }
    schedule.cast = s.flag("cast")?.unwrap_or(false);
    schedule.one_batch = s.flag("one_batch")?.unwrap_or(false);
    Ok(schedule)
}

/// Returns the problem without the name of the flag, which a file does not have.
fn problem_of(error: Error) -> String {
    match error {
        Error::Usage { problem, .. } => problem,
        other => other.to_string(),
    }
}
