//! An optimizer with its settings, and how it is built.

use lab_base::error::{Error, Result};
use memcore::nn::Parameter;
use memcore::optim::{
    Adadelta, AdadeltaOptions, Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Adamax,
    AdamaxOptions, Asgd, AsgdOptions, BitsAndBytes, BitsAndBytesOptions, Implementation, Muon, MuonOptions, NAdam,
    NAdamOptions, Optimizer, PretrainedAdafactor, PretrainedAdafactorOptions, RAdam, RAdamOptions, RmsProp,
    RmsPropOptions, Rprop, RpropOptions, Sgd, SgdOptions,
};
use serde::Serialize;

use super::{BITSANDBYTES, Maker, OptimizerKind};
use crate::groups::Groups;
use crate::in_backward::InBackward;

/// An optimizer and its settings. `None` means PyTorch's default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OptimizerSettings {
    /// Kind of optimizer.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f64,
    /// Weight decay; PyTorch's default is 0.01 for AdamW and 0 otherwise.
    pub weight_decay: Option<f64>,
    /// True for Nesterov momentum.
    pub nesterov: bool,
    /// True for AMSGrad: Adam with the largest second moment.
    pub amsgrad: bool,
    /// True to ascend instead of descend.
    pub maximize: bool,
    /// True if Adam's step counters are on the device.
    pub capturable: bool,
    /// True if each parameter's step is taken in backward, as soon as its gradient is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_backward: bool,
    /// Loop, foreach or fused.
    #[serde(serialize_with = "implementation_name")]
    pub implementation: Implementation,
}

fn implementation_name<S: serde::Serializer>(implementation: &Implementation, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(implementation.name())
}

impl OptimizerSettings {
    /// Settings with PyTorch's defaults.
    pub fn new(kind: OptimizerKind, lr: f64) -> Self {
        Self {
            kind,
            lr,
            weight_decay: None,
            nesterov: false,
            amsgrad: false,
            maximize: false,
            capturable: false,
            in_backward: false,
            implementation: if kind.is_loop() { Implementation::Loop } else { Implementation::default() },
        }
    }

    /// Builds the optimizer over `parameters`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a setting that the optimizer does not have.
    pub fn build(&self, parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
        self.check()?;
        if self.in_backward {
            let alone = Self { in_backward: false, ..*self };
            return Ok(Box::new(InBackward::new(parameters, |parameter| alone.build(vec![parameter]))?));
        }
        let (lr, maximize, implementation) = (self.lr, self.maximize, self.implementation);
        let weight_decay = self.weight_decay.unwrap_or(self.kind.weight_decay());
        Ok(match self.kind {
            OptimizerKind::Adam | OptimizerKind::AdamW => {
                let base = if self.kind == OptimizerKind::Adam { AdamOptions::adam() } else { AdamOptions::adamw() };
                let (amsgrad, capturable) = (self.amsgrad, self.capturable);
                let options = AdamOptions { lr, weight_decay, amsgrad, maximize, capturable, implementation, ..base };
                Box::new(Adam::new(parameters, options)?)
            }
            OptimizerKind::Sgd | OptimizerKind::Momentum => {
                let momentum = if self.kind == OptimizerKind::Momentum { 0.9 } else { 0.0 };
                let nesterov = self.nesterov;
                let base = SgdOptions::default();
                let options = SgdOptions { lr, momentum, weight_decay, nesterov, maximize, implementation, ..base };
                Box::new(Sgd::new(parameters, options)?)
            }
            OptimizerKind::RmsProp | OptimizerKind::RmsPropMomentum | OptimizerKind::RmsPropCentered => {
                let momentum = if self.kind == OptimizerKind::RmsPropMomentum { 0.9 } else { 0.0 };
                let centered = self.kind == OptimizerKind::RmsPropCentered;
                let base = RmsPropOptions { momentum, centered, ..RmsPropOptions::default() };
                let options = RmsPropOptions { lr, weight_decay, maximize, implementation, ..base };
                Box::new(RmsProp::new(parameters, options)?)
            }
            OptimizerKind::Adagrad => {
                let base = AdagradOptions::default();
                let options = AdagradOptions { lr, weight_decay, maximize, implementation, ..base };
                Box::new(Adagrad::new(parameters, options)?)
            }
            OptimizerKind::Adadelta => {
                let base = AdadeltaOptions::default();
                let options = AdadeltaOptions { lr, weight_decay, maximize, implementation, ..base };
                Box::new(Adadelta::new(parameters, options)?)
            }
            OptimizerKind::NAdam | OptimizerKind::NAdamW => {
                let decoupled_weight_decay = self.kind == OptimizerKind::NAdamW;
                let base = NAdamOptions { decoupled_weight_decay, ..NAdamOptions::default() };
                Box::new(NAdam::new(parameters, NAdamOptions { lr, weight_decay, maximize, implementation, ..base })?)
            }
            OptimizerKind::RAdam | OptimizerKind::RAdamW => {
                let decoupled_weight_decay = self.kind == OptimizerKind::RAdamW;
                let base = RAdamOptions { decoupled_weight_decay, ..RAdamOptions::default() };
                Box::new(RAdam::new(parameters, RAdamOptions { lr, weight_decay, maximize, implementation, ..base })?)
            }
            OptimizerKind::Adamax => {
                let base = AdamaxOptions::default();
                Box::new(Adamax::new(parameters, AdamaxOptions { lr, weight_decay, maximize, implementation, ..base })?)
            }
            OptimizerKind::Asgd => {
                let base = AsgdOptions::default();
                Box::new(Asgd::new(parameters, AsgdOptions { lr, weight_decay, maximize, implementation, ..base })?)
            }
            OptimizerKind::Rprop => {
                let base = RpropOptions::default();
                Box::new(Rprop::new(parameters, RpropOptions { lr, maximize, implementation, ..base })?)
            }
            OptimizerKind::Muon => Box::new(self.muon(parameters)?),
            OptimizerKind::TorchAdafactor => {
                let options = AdafactorOptions { lr, weight_decay, maximize, ..AdafactorOptions::default() };
                Box::new(Adafactor::new(parameters, options)?)
            }
            OptimizerKind::Adafactor => {
                let base = PretrainedAdafactorOptions::default();
                let options = PretrainedAdafactorOptions { lr, weight_decay, ..base };
                Box::new(PretrainedAdafactor::new(parameters, options)?)
            }
            kind => Box::new(BitsAndBytes::new(parameters, bitsandbytes_options(kind)?)?),
        })
    }

    /// Muon of matrices, and AdamW of the rest, if there is any.
    fn muon(&self, parameters: Vec<Parameter>) -> Result<Groups> {
        let (matrices, others): (Vec<Parameter>, Vec<Parameter>) = parameters.into_iter().partition(is_of_muon);
        let weight_decay = self.weight_decay.unwrap_or(self.kind.weight_decay());
        let options = MuonOptions { lr: self.lr, weight_decay, ..MuonOptions::default() };
        let mut groups: Vec<Box<dyn Optimizer>> = Vec::new();
        if !matrices.is_empty() {
            groups.push(Box::new(Muon::new(matrices, options)?));
        }
        if !others.is_empty() {
            let of_others = Self { weight_decay: self.weight_decay, ..Self::new(OptimizerKind::AdamW, self.lr) };
            groups.push(of_others.build(others)?);
        }
        Ok(Groups::new(groups))
    }

    /// Checks that the optimizer has each setting.
    fn check(&self) -> Result<()> {
        let (kind, name) = (self.kind, self.kind.name());
        let adam = kind.is_adam();
        if self.amsgrad && !adam {
            return Err(Error::usage("amsgrad", "only adam and adamw have it"));
        }
        if self.capturable && (!adam || self.implementation == Implementation::Loop) {
            return Err(Error::usage("capturable", "adam and adamw have it, in their foreach and fused forms"));
        }
        if self.nesterov && kind != OptimizerKind::Momentum {
            return Err(Error::usage("nesterov", "only momentum has it"));
        }
        if self.implementation == Implementation::Fused && !kind.has_fused() {
            return Err(Error::usage("optimizer-impl", format!("{name} has no fused form")));
        }
        if self.implementation == Implementation::Foreach && kind.is_loop() {
            return Err(Error::usage("optimizer-impl", format!("{name} is supported in its form loop, its default")));
        }
        let ascends = !matches!(kind.maker(), Maker::BitsAndBytes | Maker::Transformers) && kind != OptimizerKind::Muon;
        if self.maximize && !ascends {
            return Err(Error::usage("maximize", format!("{name} has no such option")));
        }
        if self.weight_decay.is_some_and(|decay| decay != 0.0) && kind == OptimizerKind::Rprop {
            return Err(Error::usage("weight-decay", "rprop has none"));
        }
        Ok(())
    }
}

/// True for a matrix of a numbered module, as of a decoder's layers: not for embeddings, and not for an output layer.
fn is_of_muon(parameter: &Parameter) -> bool {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    parameter.array().rank() == 2 && parameter.path().split('.').any(is_number)
}

/// What decides the memory of an optimizer of bitsandbytes.
fn bitsandbytes_options(kind: OptimizerKind) -> Result<BitsAndBytesOptions> {
    let row = BITSANDBYTES.iter().find(|row| row.kind == kind);
    let row = row.ok_or_else(|| Error::usage("optimizer", format!("{} has no form here", kind.name())))?;
    // (bitsandbytes has a class LAMB8bit, whose step fails: "Unsupported optimizer name".)
    let norm = kind == OptimizerKind::Lamb;
    let (names, states, eight_bits, paged) = (row.names, row.states, row.eight_bits, row.paged);
    Ok(BitsAndBytesOptions { names, states, eight_bits, paged, norm, tables: Default::default() })
}
