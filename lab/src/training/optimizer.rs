//! Optimizers by name.

use memcore::nn::Parameter;
use memcore::optim::{Adam, AdamOptions, Implementation, Optimizer, Sgd, SgdOptions};
use serde::Serialize;

use crate::error::{Error, Result};

/// Which optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Stochastic gradient descent.
    Sgd,
    /// The same with a momentum of 0.9.
    Momentum,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
}

impl OptimizerKind {
    /// The names that [`OptimizerKind::parse`] knows.
    pub const NAMES: [&'static str; 4] = ["sgd", "momentum", "adam", "adamw"];

    /// By name.
    ///
    /// # Errors
    /// [`Error::Usage`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "sgd" => Ok(Self::Sgd),
            "momentum" => Ok(Self::Momentum),
            "adam" => Ok(Self::Adam),
            "adamw" => Ok(Self::AdamW),
            _ => {
                let problem = format!("unknown optimizer {name:?}; known: {}", Self::NAMES.join(", "));
                Err(Error::usage("--optimizer", problem))
            }
        }
    }
}

/// An optimizer and its settings. What is `None` is PyTorch's default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OptimizerSettings {
    /// Which.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f64,
    /// Weight decay; PyTorch's default is 0.01 for AdamW and 0 otherwise.
    pub weight_decay: Option<f64>,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// Adam's variant with the largest second moment.
    pub amsgrad: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
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
    /// With PyTorch's defaults.
    pub fn new(kind: OptimizerKind, lr: f64) -> Self {
        Self {
            kind,
            lr,
            weight_decay: None,
            nesterov: false,
            amsgrad: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }

    /// The optimizer over `parameters`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a setting that the optimizer does not have.
    pub fn build(&self, parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
        let adam = matches!(self.kind, OptimizerKind::Adam | OptimizerKind::AdamW);
        if self.amsgrad && !adam {
            return Err(Error::usage("--amsgrad", "only adam and adamw have it"));
        }
        if self.nesterov && self.kind != OptimizerKind::Momentum {
            return Err(Error::usage("--nesterov", "only momentum has it"));
        }
        let (lr, maximize, implementation) = (self.lr, self.maximize, self.implementation);
        if adam {
            let base = if self.kind == OptimizerKind::Adam { AdamOptions::adam() } else { AdamOptions::adamw() };
            let weight_decay = self.weight_decay.unwrap_or(base.weight_decay);
            let options = AdamOptions { lr, weight_decay, amsgrad: self.amsgrad, maximize, implementation, ..base };
            return Ok(Box::new(Adam::new(parameters, options)));
        }
        let options = SgdOptions {
            lr,
            momentum: if self.kind == OptimizerKind::Momentum { 0.9 } else { 0.0 },
            weight_decay: self.weight_decay.unwrap_or(0.0),
            nesterov: self.nesterov,
            maximize,
            implementation,
            ..SgdOptions::default()
        };
        Ok(Box::new(Sgd::new(parameters, options)?))
    }
}
