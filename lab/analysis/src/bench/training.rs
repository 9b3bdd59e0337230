//! Training steps to measure: networks that programs of candle, burn and PyTorch train too, with the same weights, inputs and targets, so that the
//! losses must agree.
//!
//! A step is zero grad, forward, loss, backward and optimizer on a batch that is already on the device; it waits for the device and reads the loss.

use lab_base::error::Result;
use lab_models::{Input, Loss, Model, ModelOptions, architecture};
use lab_training::{
    ModelBatch, ModelStep, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, TrainStep, Update,
};
use memcore::nn::Init;
use memcore::optim::Implementation;
use memcore::{Array, DType, Device, Tensor};

use super::values::{INPUTS, TARGETS, labels, uniform};
use super::work::Work;

/// A network, and how it is trained.
pub struct Workload {
    /// Name.
    pub name: &'static str,
    /// Examples in a step.
    pub batch: usize,
    model: &'static str,
    options: fn() -> ModelOptions,
    optimizer: fn() -> OptimizerSettings,
}

/// Every workload; `linear` is the smallest network, the others are compared with other programs.
pub static ALL: [Workload; 7] = [
    Workload {
        name: "linear",
        batch: 32,
        model: "linear",
        options: ModelOptions::default,
        optimizer: || fused(OptimizerKind::Sgd, 0.01),
    },
    Workload {
        name: "mlp",
        batch: 128,
        model: "mlp",
        options: || ModelOptions { layers: Some(4), width: Some(1024), features: Some(784), ..ModelOptions::default() },
        optimizer: || fused(OptimizerKind::Adam, 1e-3),
    },
    Workload {
        name: "simplecnn-b32",
        batch: 32,
        model: "simple-cnn",
        options: ModelOptions::default,
        optimizer: || fused(OptimizerKind::Adam, 1e-3),
    },
    Workload {
        name: "simplecnn-b128",
        batch: 128,
        model: "simple-cnn",
        options: ModelOptions::default,
        optimizer: || fused(OptimizerKind::Adam, 1e-3),
    },
    Workload {
        name: "smallcnn64",
        batch: 4,
        model: "larger-conv",
        options: ModelOptions::default,
        optimizer: || fused(OptimizerKind::Sgd, 0.01),
    },
    Workload {
        name: "gpt-mini",
        batch: 8,
        model: "gpt",
        options: || {
            let (layers, width, heads) = (Some(4), Some(256), Some(4));
            let (sequence, vocabulary) = (Some(128), Some(1000));
            ModelOptions { layers, width, heads, sequence, vocabulary, ..ModelOptions::default() }
        },
        optimizer: || OptimizerSettings { weight_decay: Some(0.01), ..fused(OptimizerKind::AdamW, 1e-3) },
    },
    Workload {
        name: "resnet18-b8",
        batch: 8,
        model: "resnet18",
        options: ModelOptions::default,
        optimizer: || fused(OptimizerKind::Sgd, 0.01),
    },
];

fn fused(kind: OptimizerKind, lr: f64) -> OptimizerSettings {
    OptimizerSettings { implementation: Implementation::Fused, ..OptimizerSettings::new(kind, lr) }
}

/// Returns the workload with this name.
pub fn named(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}

/// A network that trains on one batch.
pub struct Training {
    phases: ModelStep,
}

impl Workload {
    /// The network in float32 on a device, with its batch.
    ///
    /// # Errors
    /// Those of the device.
    pub fn prepare(&self, device: &Device) -> Result<Training> {
        self.prepare_in(device, Precision::Fp32)
    }

    /// The network on a device, with its batch.
    ///
    /// # Errors
    /// Those of the device.
    pub fn prepare_in(&self, device: &Device, precision: Precision) -> Result<Training> {
        let architecture = architecture(self.model, &(self.options)())?;
        let model = Model::build(&*architecture, &Init::new(device, precision.dtype(), 0))?;
        set_parameters(&model)?;
        let settings = RunSettings { precision, ..RunSettings::new(self.batch, 1, (self.optimizer)()) };
        let update = Update::new(&settings, &model.parameters)?;
        let (input, target) = batch(device, &model, self.batch)?;
        let mut phases = ModelStep::of_model(device, model, update, &settings, Source::Synthetic { seed: 0 });
        phases.batch = ModelBatch { input: Some(input), target: Some(target) };
        Ok(Training { phases })
    }
}

impl Training {
    /// Takes one step. Returns the loss; `None` on a device that computes nothing.
    pub fn step(&mut self) -> Result<Option<f64>> {
        let phases = &mut self.phases;
        phases.zero_grad()?;
        phases.forward()?;
        phases.loss()?;
        phases.del()?;
        phases.backward()?;
        phases.step()?;
        phases.network.device.synchronize()?;
        phases.loss_value()
    }

    /// Turns steps into measurable work. One step is taken first, uncounted: it allocates the optimizer's state.
    pub fn into_work(mut self) -> Result<Work> {
        self.step()?;
        let device = self.phases.network.device.clone();
        Work::new(&device, move || self.step().map(drop))
    }
}

/// Fills the parameters with the common values: each takes the next stream, within 1/√fan-in; tables within 0.035; normalisations keep 1 and 0 and
/// take no stream. A vector is a normalisation's unless its layer also has a matrix.
fn set_parameters(model: &Model) -> Result<()> {
    let (mut stream, mut fan_in, mut layer) = (0, 1, "");
    for parameter in &model.parameters {
        let path = parameter.path();
        let of = path.rsplit_once('.').map_or("", |(of, _)| of);
        let dims = parameter.array().dims();
        if dims.len() > 1 {
            (fan_in, layer) = (dims[1..].iter().product(), of);
        } else if layer != of {
            continue;
        }
        let table = path.starts_with("tok.") || path.starts_with("pos.");
        let bound = if table { 0.035 } else { (1.0 / (fan_in as f64).sqrt()) as f32 };
        parameter.set(&uniform(stream, parameter.array().numel(), bound))?;
        stream += 1;
    }
    Ok(())
}

fn batch(device: &Device, model: &Model, batch: usize) -> Result<(Tensor, Tensor)> {
    let (x, rows) = match &model.task.input {
        Input::Values(dims) => {
            let dims: Vec<usize> = std::iter::once(batch).chain(dims.iter().copied()).collect();
            let values = Array::from_slice(device, &dims, &uniform(INPUTS, dims.iter().product(), 1.0))?;
            // In the type of the parameters, which autocast leaves as it is.
            let dtype = model.parameters.first().map_or(DType::F32, |parameter| parameter.array().dtype());
            (Tensor::from_array(if dtype == DType::F32 { values } else { values.cast(dtype)? }), vec![batch])
        }
        Input::Tokens { length, vocabulary } => {
            let tokens = labels(INPUTS, batch * length, *vocabulary as u64);
            (Tensor::from_slice(device, &[batch, *length], &tokens)?, vec![batch, *length])
        }
    };
    let y = match &model.task.loss {
        Loss::Inside => return Err(memcore::Error::invalid("loss", "the network computes its own").into()),
        Loss::CrossEntropy { classes } | Loss::NextToken { classes } | Loss::Reversal { classes } => {
            let n = rows.iter().product();
            Tensor::from_slice(device, &rows, &labels(TARGETS, n, *classes as u64))?
        }
        Loss::MeanSquaredError { dims } => {
            let dims: Vec<usize> = std::iter::once(batch).chain(dims.iter().copied()).collect();
            Tensor::from_array(Array::zeros(device, &dims, DType::F32)?)
        }
    };
    Ok((x, y))
}
