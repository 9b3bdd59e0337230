//! Settings of a run.

use std::borrow::Cow;

use lab_base::error::{Error, Result};
use lab_base::named;
use lab_models::{Architecture, Freeze, Lora, Quantized, Task};
use memcore::memory::Category;
use memcore::nn::{Init, Parameter};
use memcore::optim::Implementation;
use memcore::{DType, Device, Tensor, context};
use serde::Serialize;

use super::average::Ema;
use super::between::{CheckpointSave, Evaluation, Hold, SavedOn};
use super::optimizer::OptimizerSettings;
use super::schedule::{Phase, Schedule};
use super::turns::Turns;
use crate::record::RowsKept;

/// Types of parameters, inputs and products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// float32 for everything.
    #[default]
    Fp32,
    /// Parameters in float32, products in float16 under autocast, with a loss scaler.
    AutocastFp16,
    /// Parameters in float32, products in bfloat16 under autocast.
    AutocastBf16,
    /// float16 for everything.
    Fp16,
    /// bfloat16 for everything.
    Bf16,
    /// Parameters in bfloat16, products in bfloat16 under autocast: a checkpoint in bfloat16 that is trained with `bf16=True`.
    Bf16AutocastBf16,
}

named!(Precision, "precision", {
    Fp32 = "fp32" | "float32" | "torch.float32" | "float" | "f32" | "32" | "32-true",
    AutocastFp16 = "autocast-fp16" | "autocast-float16" | "amp-fp16" | "16-mixed" | "fp16-mixed",
    AutocastBf16 = "autocast-bf16" | "autocast-bfloat16" | "amp-bf16" | "bf16-mixed",
    Fp16 = "fp16" | "float16" | "torch.float16" | "half" | "f16" | "16-true",
    Bf16 = "bf16" | "bfloat16" | "torch.bfloat16" | "bf16-true",
    Bf16AutocastBf16 = "bf16-autocast-bf16",
});

impl Precision {
    /// Parameters and products in one type; float32 if parameters cannot have the type.
    pub fn throughout(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Precision::Fp16,
            DType::BF16 => Precision::Bf16,
            _ => Precision::Fp32,
        }
    }

    /// Type of parameters and inputs.
    pub fn dtype(self) -> DType {
        match self {
            Precision::Fp32 | Precision::AutocastFp16 | Precision::AutocastBf16 => DType::F32,
            Precision::Fp16 => DType::F16,
            Precision::Bf16 | Precision::Bf16AutocastBf16 => DType::BF16,
        }
    }

    /// The type that autocast computes products in; `None` without autocast.
    pub fn autocast(self) -> Option<DType> {
        match self {
            Precision::AutocastFp16 => Some(DType::F16),
            Precision::AutocastBf16 | Precision::Bf16AutocastBf16 => Some(DType::BF16),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
        }
    }

    /// Whether the loss is scaled so that small gradients do not become 0: under autocast to float16, whose range is small.
    pub fn scales_loss(self) -> bool {
        self == Precision::AutocastFp16
    }
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSettings {
    /// Examples per step (per micro-batch, with accumulation); of batches of several sizes, the largest.
    pub batch: usize,
    /// Sizes of the batches, if they are not all alike.
    pub turns: Turns,
    /// What is evaluated between steps; `None` for nothing.
    pub evaluation: Option<Evaluation>,
    /// The average of the weights that is kept; `None` for none.
    pub ema: Option<Ema>,
    /// The names that outlive a step.
    pub hold: Hold,
    /// True if the network and its pictures are put in channels-last before the training.
    pub channels_last: bool,
    /// Memory of the host that keeps what forward saves for backward; `None` if the device does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_on_cpu: Option<SavedOn>,
    /// The operators whose results are kept of blocks that are computed again; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_save: Option<CheckpointSave>,
    /// Optimizer steps.
    pub steps: usize,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// The parameters that are not trained; `None` if all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// The adapters that are trained instead of the network; `None` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
    /// How bitsandbytes keeps the weights of linear layers; `None` if they are as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantized: Option<Quantized>,
    /// Micro-batches per optimizer step.
    pub accumulate: usize,
    /// True to free gradients, false to zero them.
    pub set_to_none: bool,
    /// Largest norm of the gradients; `None` without clipping.
    pub clip_grad_norm: Option<f64>,
    /// Types of parameters, inputs and products.
    pub precision: Precision,
    /// Order of the phases.
    pub schedule: Schedule,
    /// Seed of parameters and data.
    pub seed: u64,
    /// Which rows and values of its steps a run keeps in memory.
    #[serde(skip)]
    pub rows: RowsKept,
}

impl RunSettings {
    /// Settings in float32, with one micro-batch per step, gradients freed, phases in their usual order, seed 0.
    pub fn new(batch: usize, steps: usize, optimizer: OptimizerSettings) -> Self {
        Self {
            batch,
            turns: Turns::default(),
            evaluation: None,
            ema: None,
            hold: Hold::default(),
            channels_last: false,
            save_on_cpu: None,
            checkpoint_save: None,
            steps,
            optimizer,
            freeze: None,
            lora: None,
            quantized: None,
            accumulate: 1,
            set_to_none: true,
            clip_grad_norm: None,
            precision: Precision::default(),
            schedule: Schedule::default(),
            seed: 0,
            rows: RowsKept::default(),
        }
    }

    /// # Errors
    /// [`Error::Usage`] for a step of nothing, and for micro-batches without gradients to add up.
    pub fn check(&self) -> Result<()> {
        if self.accumulate > 1 && !self.schedule.names(Phase::Backward) {
            return Err(Error::usage("accumulate", "the schedule has no backward to accumulate gradients in"));
        }
        self.turns.check()?;
        self.evaluation.map_or(Ok(()), |evaluation| evaluation.check())?;
        if self.ema.is_some() && !self.schedule.names(Phase::Step) {
            return Err(Error::usage("ema", "the schedule takes no step whose weights could be averaged"));
        }
        self.check_channels_last()?;
        self.check_in_backward()?;
        match [("batch", self.batch), ("accumulate", self.accumulate)].into_iter().find(|(_, n)| *n == 0) {
            Some((flag, _)) => Err(Error::usage(flag, "must be at least 1")),
            None => Ok(()),
        }
    }

    /// Refuses what needs the gradients of all parameters at once, beside a step that is taken in backward.
    fn check_in_backward(&self) -> Result<()> {
        let together = [
            ("accumulate", self.accumulate > 1),
            ("clip-grad-norm", self.clip_grad_norm.is_some()),
            ("zero-grad zero", !self.set_to_none),
            ("the loss scaler of precision autocast-fp16", self.precision.scales_loss()),
            ("a schedule without backward, step and zero_grad", {
                [Phase::Backward, Phase::Step, Phase::ZeroGrad].iter().any(|phase| !self.schedule.names(*phase))
            }),
        ];
        match together.into_iter().find(|(_, asked)| self.optimizer.in_backward && *asked) {
            Some((with, _)) => {
                let problem = format!("it frees each gradient at once, and {with} needs all: leave out one of them");
                Err(Error::usage("step-in-backward", problem))
            }
            None => Ok(()),
        }
    }

    /// Refuses what was not recorded together with channels-last.
    fn check_channels_last(&self) -> Result<()> {
        let unrecorded = [
            ("eval-every", self.evaluation.is_some()),
            ("ema", self.ema.is_some()),
            ("optimizer-impl fused", self.optimizer.implementation == Implementation::Fused),
            ("a schedule that casts the network", self.schedule.cast),
        ];
        match unrecorded.into_iter().find(|(_, asked)| self.channels_last && *asked) {
            Some((with, _)) => Err(Error::usage("channels-last", format!("vramlab does not support it with {with}"))),
            None => Ok(()),
        }
    }

    /// Returns an `Init` that makes the adapters, and the parameters that are not trained without gradients.
    #[must_use]
    pub fn tuned(&self, init: Init) -> Init {
        match (self.lora.clone(), self.freeze.clone()) {
            (Some(lora), _) => {
                let of_adapters = lora.clone();
                let init = init.freezing(|name| !Lora::trains(name)).saving(move |path| lora.saves(path));
                init.adapting(move |path, kind| of_adapters.of_layer(path, kind))
            }
            (None, Some(freeze)) => init.freezing(move |name| freeze.covers(name)),
            (None, None) => init,
        }
    }

    /// The type of the parameters that are trained: adapters are float32 beside weights of 16 bits (PEFT's `autocast_adapter_dtype`).
    pub fn trained_dtype(&self) -> DType {
        if self.lora.is_some() { DType::F32 } else { self.precision.dtype() }
    }

    /// Sorts parameters from the order of their creation into that of `model.parameters()`. Adapters are made where they stand there, so that a network
    /// with adapters, of which nothing else is trained, keeps its order.
    pub fn in_optimizer_order(&self, architecture: &dyn Architecture, parameters: Vec<Parameter>) -> Vec<Parameter> {
        if self.lora.is_some() { parameters } else { architecture.optimizer_order(parameters) }
    }

    /// Refuses names that none of these parameters has, and a training of none.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the pattern.
    pub fn check_tuned(&self, parameters: &[Parameter]) -> Result<()> {
        self.lora.as_ref().map_or(Ok(()), |lora| lora.check(parameters))?;
        self.freeze.as_ref().map_or(Ok(()), |freeze| freeze.check(parameters))
    }

    /// Refuses channels-last on a device that computes.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the field.
    pub fn check_device(&self, device: &Device) -> Result<()> {
        if self.channels_last && device.computes() {
            let problem =
                format!("its kernels are counted, not computed: --backend meta (or predict), not {}", device.name());
            return Err(Error::usage("channels-last", problem));
        }
        match &self.quantized {
            Some(quantized) if device.computes() => Err(Error::usage(
                quantized.flag(),
                format!(
                    "no backend computes with these weights: --backend meta predicts their memory (vramlab predict), not {}",
                    device.name()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Checks that this network can be trained with these settings and batches of this size, or of their own sizes.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is not supported.
    pub fn check_network(&self, architecture: &dyn Architecture, batch: usize) -> Result<()> {
        self.turns.check_network(architecture)?;
        // An export looks through all its nodes for the reason.
        if self.evaluation.is_some()
            && let Some(reason) = architecture.not_evaluated()
        {
            return Err(Error::usage("eval-every", reason));
        }
        if self.channels_last
            && let Some(reason) = architecture.not_channels_last()
        {
            return Err(Error::usage("channels-last", reason));
        }
        let evaluated = self.evaluation.map(|evaluation| evaluation.batch);
        let sizes = self.turns.batches.iter().copied().chain([batch]).chain(evaluated);
        sizes.into_iter().try_for_each(|batch| architecture.check(batch, self.precision.dtype()))
    }

    /// Refuses what only the plain loops on one device have; `here` says which loop this is.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the field.
    pub fn check_usual(&self, here: &str) -> Result<()> {
        let asked = [
            ("batches", !self.turns.batches.is_empty()),
            ("lengths", !self.turns.lengths.is_empty()),
            ("eval-every", self.evaluation.is_some()),
            ("ema", self.ema.is_some()),
            ("hold", self.hold != Hold::default()),
            ("channels-last", self.channels_last),
            ("save-on-cpu", self.save_on_cpu.is_some()),
        ];
        match asked.into_iter().find(|(_, asked)| *asked) {
            Some((field, _)) => Err(Error::usage(field, format!("vramlab does not support it {here}"))),
            None => Ok(()),
        }
    }

    /// Puts a picture of a batch in channels-last, if the network is; the one in row-major order is freed.
    ///
    /// # Errors
    /// Those of the device.
    pub fn in_format(&self, input: Tensor) -> Result<Tensor> {
        if !self.channels_last {
            return Ok(input);
        }
        let last = {
            let _op = context::op("to>_to_copy");
            input.array().to_channels_last()?.with_category(Category::Input)
        };
        Ok(Tensor::from_array(last))
    }

    /// Examples of the batch with this number, counted over all micro-batches.
    pub fn examples(&self, number: usize) -> usize {
        self.turns.examples(number).unwrap_or(self.batch)
    }

    /// Examples of the largest batch, evaluated ones included.
    pub fn largest_batch(&self) -> usize {
        self.evaluation.map_or(self.batch, |evaluation| evaluation.batch.max(self.batch))
    }

    /// The task of the batch with this number: that of the network, with as many tokens as the batch has.
    pub fn task<'a>(&self, task: &'a Task, number: usize) -> Cow<'a, Task> {
        self.turns.task(task, number)
    }

    /// Number of steps after which everything in the loop has had its turn.
    pub fn period(&self) -> usize {
        self.turns.period(self.accumulate, self.evaluation.map_or(1, |evaluation| evaluation.every))
    }
}
