//! A generator and a discriminator that are trained in turns, each with an optimizer: the loop of PyTorch's tutorial of DCGAN.
//!
//! ```python
//! netD.zero_grad(); real = data.to(device); label = torch.full((b,), 1., device=device)
//! output = netD(real).view(-1); errD_real = criterion(output, label); errD_real.backward(); output.mean().item()
//! noise = torch.randn(...); fake = netG(noise); label.fill_(0)
//! output = netD(fake.detach()).view(-1); errD_fake = criterion(output, label); errD_fake.backward(); output.mean().item()
//! errD = errD_real + errD_fake; optimizerD.step()
//! netG.zero_grad(); label.fill_(1)
//! output = netD(fake).view(-1); errG = criterion(output, label); errG.backward(); output.mean().item(); optimizerG.step()
//! ```

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use lab_training::{
    Begin, Continuation, Failed, Parts, Phase, Precision, Progress, Rows, RunResult, RunSettings, Schedule, Source,
    TrainStep, Trainer, Update, bound, run, value_of,
};
use memcore::memory::Category;
use memcore::nn::{Init, Parameter};
use memcore::ops::{self, Reduction};
use memcore::{Array, DType, Device, Tensor, context};

use super::inputs::Input;
use super::model::Exported;
use super::network::Network;

/// One of the two networks, with its optimizer.
struct Side {
    network: Network,
    parameters: Vec<Parameter>,
    update: Update,
    /// Index of the output that the other network, or the loss, is given.
    output: usize,
}

impl Side {
    fn new(model: &Exported, device: &Device, settings: &RunSettings) -> Result<Self> {
        let init = Init::new(device, settings.precision.dtype(), settings.seed);
        let network = model.network(&init)?;
        let parameters = model.optimizer_order(init.parameters());
        if parameters.is_empty() {
            return Err(Error::usage(&model.contents().file, "has no parameters that are trained (requires_grad)"));
        }
        let update = Update::new(settings, &parameters)?;
        Ok(Self { network, parameters, update, output: model.loss.output })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let made = self.network.outputs(std::slice::from_ref(x), false, None)?.into_iter().nth(self.output).flatten();
        made.ok_or_else(|| Error::usage("adversary", "an output is not a tensor"))
    }
}

/// The variables of the script, in the order of their first assignment.
#[derive(Default)]
struct Names {
    real: Option<Tensor>,
    label: Option<Tensor>,
    output: Option<Tensor>,
    error_of_real: Option<Tensor>,
    noise: Option<Tensor>,
    fake: Option<Tensor>,
    error_of_fake: Option<Tensor>,
    error: Option<Tensor>,
    error_of_generator: Option<Tensor>,
}

/// The two networks, with the variables of the script that trains them.
struct Adversaries<'a> {
    models: [&'a Exported; 2],
    device: Device,
    generator: Side,
    discriminator: Side,
    settings: RunSettings,
    names: Names,
    /// Number of the step, which decides the labels of its rows.
    step: usize,
}

/// Which rows follow, and in which phase.
struct Told<'a> {
    rows: &'a mut Rows,
    step: usize,
}

impl Told<'_> {
    /// Runs a part of the step, and takes its row.
    fn part(&mut self, phase: Phase, label: &str, part: impl FnOnce() -> Result<()>) -> Result<()> {
        self.rows.phase(phase.name());
        part()?;
        self.rows.take(&format!("s{}.{label}", self.step));
        Ok(())
    }
}

impl Adversaries<'_> {
    /// Makes the input of a network.
    fn made(&self, model: &Exported, seed: u64) -> Result<Tensor> {
        let input: &Input = &model.inputs()[0];
        let dtype = model.contents().in_run(input.dtype, self.settings.precision.dtype());
        input.made(&self.device, model.sizes(), self.settings.batch, dtype, seed)
    }

    fn load(&mut self) -> Result<()> {
        let seed = self.settings.seed;
        self.names.real = Some({
            let _op = context::op("to>_to_copy");
            self.made(self.models[1], seed)?
        });
        self.names.label = Some({
            let _op = context::op("full");
            let label = Array::empty_as(&self.device, &[self.settings.batch], DType::F32, Category::Input)?;
            label.fill_(1.0)?;
            Tensor::from_array(label)
        });
        Ok(())
    }

    fn generate(&mut self) -> Result<()> {
        let seed = self.settings.seed.wrapping_add(1);
        self.names.noise = Some({
            let _op = context::op("randn");
            self.made(self.models[0], seed)?
        });
        self.names.fake = Some(self.generator.forward(bound(&self.names.noise)?)?);
        Ok(())
    }

    /// `output = netD(pictures).view(-1)`
    fn judge(&mut self, pictures: &Tensor) -> Result<()> {
        let scores = self.discriminator.forward(pictures)?;
        let output = ops::view(&scores, &[self.settings.batch])?;
        drop(scores);
        self.names.output = Some(output);
        Ok(())
    }

    /// `criterion(output, label)`
    fn criterion(&self) -> Result<Option<Tensor>> {
        let (output, label) = (bound(&self.names.output)?, bound(&self.names.label)?);
        Ok(Some(ops::binary_cross_entropy(output, label, Reduction::Mean)?))
    }

    /// `output.mean().item()`
    fn tell_mean(&self) -> Result<()> {
        let mean = ops::mean(bound(&self.names.output)?)?;
        if self.device.computes() {
            mean.item()?;
        }
        Ok(())
    }

    fn relabel(&self, value: f64) -> Result<()> {
        Ok(bound(&self.names.label)?.array().fill_(value)?)
    }

    /// Updates the discriminator: on real pictures, then on pictures that the generator made.
    fn discriminate(&mut self, told: &mut Told<'_>) -> Result<()> {
        told.part(Phase::ZeroGrad, "discriminator.zero_grad", || zero_grad(&self.discriminator))?;
        told.part(Phase::Input, "input", || self.load())?;
        told.part(Phase::Forward, "real.forward", || {
            let real = bound(&self.names.real)?.clone();
            self.judge(&real)
        })?;
        told.part(Phase::Loss, "real.loss", || {
            self.names.error_of_real = self.criterion()?;
            Ok(())
        })?;
        told.part(Phase::Backward, "real.backward", || {
            self.discriminator.update.backward(bound(&self.names.error_of_real)?)
        })?;
        told.part(Phase::Forward, "fake.generated", || {
            self.tell_mean()?;
            self.generate()
        })?;
        told.part(Phase::Forward, "fake.forward", || {
            self.relabel(0.0)?;
            let fake = bound(&self.names.fake)?.detach();
            self.judge(&fake)
        })?;
        told.part(Phase::Loss, "fake.loss", || {
            self.names.error_of_fake = self.criterion()?;
            Ok(())
        })?;
        told.part(Phase::Backward, "fake.backward", || {
            self.discriminator.update.backward(bound(&self.names.error_of_fake)?)
        })?;
        told.part(Phase::Step, "discriminator.step", || {
            self.tell_mean()?;
            let sum = ops::add(bound(&self.names.error_of_real)?, bound(&self.names.error_of_fake)?)?;
            self.names.error = Some(sum);
            self.discriminator.update.apply()
        })
    }

    /// Updates the generator. The discriminator's parameters receive gradients, too, which its next `zero_grad` frees.
    fn deceive(&mut self, told: &mut Told<'_>) -> Result<()> {
        told.part(Phase::ZeroGrad, "generator.zero_grad", || zero_grad(&self.generator))?;
        told.part(Phase::Forward, "generator.forward", || {
            self.relabel(1.0)?;
            let fake = bound(&self.names.fake)?.clone();
            self.judge(&fake)
        })?;
        told.part(Phase::Loss, "generator.loss", || {
            self.names.error_of_generator = self.criterion()?;
            Ok(())
        })?;
        told.part(Phase::Backward, "generator.backward", || {
            self.generator.update.backward(bound(&self.names.error_of_generator)?)
        })?;
        told.part(Phase::Step, "generator.step", || {
            self.tell_mean()?;
            self.generator.update.apply()
        })
    }
}

/// `module.zero_grad()`
fn zero_grad(side: &Side) -> Result<()> {
    side.parameters.iter().for_each(|parameter| parameter.tensor().set_grad(None));
    Ok(())
}

impl TrainStep for Adversaries<'_> {
    fn settings(&self) -> &RunSettings {
        &self.settings
    }

    fn update(&mut self) -> &mut Update {
        &mut self.discriminator.update
    }

    fn input(&mut self, _: usize) -> Result<()> {
        self.load()
    }

    fn passes(&mut self, rows: &mut Rows) -> Result<()> {
        let mut told = Told { rows, step: self.step };
        self.discriminate(&mut told)?;
        self.deceive(&mut told)
    }

    fn end(&mut self) -> Result<()> {
        self.step += 1;
        Ok(())
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.names.error)
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.discriminator.parameters,
            buffers: &[],
            update: &mut self.discriminator.update,
            settings: &self.settings,
            data: "synthetic".into(),
        }
    }

    fn parameter_count(&self) -> u64 {
        let both = [&self.generator, &self.discriminator].into_iter().flat_map(|side| &side.parameters);
        both.map(|parameter| parameter.array().numel() as u64).sum()
    }

    /// Frees the variables in the order of their first assignment: both networks, both optimizers, then the tensors.
    fn release(self) {
        let Self { generator, discriminator, names, .. } = self;
        drop((generator.network, discriminator.network));
        drop((generator.parameters, discriminator.parameters));
        drop((discriminator.update, generator.update));
        drop(names);
    }
}

/// Returns the settings of the run with the order of this loop, which is its own.
fn scheduled(settings: &RunSettings) -> Result<RunSettings> {
    settings.check_usual("with --adversary")?;
    let not_here = [
        ("schedule", settings.schedule != Schedule::default()),
        ("accumulate", settings.accumulate > 1),
        ("clip-grad-norm", settings.clip_grad_norm.is_some()),
        ("zero-grad", !settings.set_to_none),
        ("precision", settings.precision != Precision::Fp32),
    ];
    if let Some((field, _)) = not_here.into_iter().find(|(_, asked)| *asked) {
        return Err(Error::usage(
            field,
            "--adversary trains as PyTorch's tutorial of DCGAN does, which does otherwise",
        ));
    }
    // The optimizers are there because the order before this one has a phase for them.
    Ok(settings.clone())
}

/// Trains a generator against its discriminator from the first to the last step.
///
/// # Errors
/// Settings that this loop does not have, data sets, files of a run; those of the device; with what was measured before.
pub(super) fn train_from(
    models: [&Exported; 2],
    device: &Device,
    settings: &RunSettings,
    source: &Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    if continuation.save || !matches!(continuation.begin, Begin::Fresh) {
        return Err(Error::usage("adversary", "files of a run hold one network: no --save, no --resume").into());
    }
    if matches!(source, Source::Dataset { .. }) {
        return Err(Error::usage("adversary", "real pictures are synthetic here: no --data").into());
    }
    let settings = scheduled(settings)?;
    models.into_iter().try_for_each(|model| model.check(settings.batch, DType::F32))?;
    let trainer = Trainer::built(device, settings.rows, |rows| {
        let generator = Side::new(models[0], device, &settings)?;
        let discriminator = Side::new(models[1], device, &settings)?;
        rows.take("model");
        let schedule = Schedule { order: vec![Phase::Passes], rows: Vec::new(), ..Schedule::default() };
        let settings = RunSettings { schedule, ..settings };
        let (device, names) = (device.clone(), Names::default());
        Ok(Adversaries { models, device, generator, discriminator, settings, names, step: 0 })
    })?;
    run(trainer, device, continuation, progress)
}
