//! Optimizers by name.

use lab_base::error::{Error, Result};
use lab_base::named;
use memcore::nn::Parameter;
use memcore::optim::{
    Adagrad, AdagradOptions, Adam, AdamOptions, Implementation, Optimizer, RmsProp, RmsPropOptions, Sgd, SgdOptions,
};
use serde::Serialize;

/// Kind of optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Stochastic gradient descent.
    Sgd,
    /// SGD with a momentum of 0.9.
    Momentum,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// RMSprop.
    RmsProp,
    /// Adagrad.
    Adagrad,
}

named!(OptimizerKind, "optimizer", {
    Sgd = "sgd" | "torch.optim.sgd",
    Momentum = "momentum" | "sgd-momentum",
    Adam = "adam" | "torch.optim.adam",
    AdamW = "adamw" | "torch.optim.adamw" | "adamw-torch",
    RmsProp = "rmsprop" | "torch.optim.rmsprop",
    Adagrad = "adagrad" | "torch.optim.adagrad",
});

impl OptimizerKind {
    /// Parses a name.
    ///
    /// # Errors
    /// [`Error::Usage`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        name.parse().map_err(|problem: String| Error::usage("optimizer", problem))
    }

    /// PyTorch's default weight decay.
    pub fn weight_decay(self) -> f64 {
        if self == Self::AdamW { 0.01 } else { 0.0 }
    }

    fn is_adam(self) -> bool {
        matches!(self, Self::Adam | Self::AdamW)
    }
}

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
    /// Loop, foreach or fused.
    #[serde(serialize_with = "implementation_name")]
    pub implementation: Implementation,
}

fn implementation_name<S: serde::Serializer>(implementation: &Implementation, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match implementation {
        Implementation::Loop => "loop",
        Implementation::Foreach => "foreach",
        Implementation::Fused => "fused",
    })
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
            implementation: Implementation::default(),
        }
    }

    /// Builds the optimizer over `parameters`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a setting that the optimizer does not have.
    pub fn build(&self, parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
        let adam = self.kind.is_adam();
        if self.amsgrad && !adam {
            return Err(Error::usage("amsgrad", "only adam and adamw have it"));
        }
        if self.capturable && (!adam || self.implementation == Implementation::Loop) {
            return Err(Error::usage("capturable", "adam and adamw have it, in their foreach and fused forms"));
        }
        if self.nesterov && self.kind != OptimizerKind::Momentum {
            return Err(Error::usage("nesterov", "only momentum has it"));
        }
        let fused = self.implementation == Implementation::Fused;
        if fused && matches!(self.kind, OptimizerKind::RmsProp | OptimizerKind::Adagrad) {
            return Err(Error::usage("optimizer-impl", format!("{} has no fused form", self.kind.name())));
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
            OptimizerKind::RmsProp => {
                let base = RmsPropOptions::default();
                let options = RmsPropOptions { lr, weight_decay, maximize, implementation, ..base };
                Box::new(RmsProp::new(parameters, options)?)
            }
            OptimizerKind::Adagrad => {
                let base = AdagradOptions::default();
                let options = AdagradOptions { lr, weight_decay, maximize, implementation, ..base };
                Box::new(Adagrad::new(parameters, options)?)
            }
        })
    }
}
