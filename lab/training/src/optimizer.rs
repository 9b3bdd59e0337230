//! Optimizers by name.

use lab_base::error::{Error, Result};
use lab_base::named;
use memcore::nn::Parameter;
use memcore::optim::{
    Adadelta, AdadeltaOptions, Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Adamax,
    AdamaxOptions, Asgd, AsgdOptions, BitsAndBytes, BitsAndBytesOptions, Implementation, Muon, MuonOptions, NAdam,
    NAdamOptions, Optimizer, PretrainedAdafactor, PretrainedAdafactorOptions, RAdam, RAdamOptions, RmsProp,
    RmsPropOptions, Rprop, RpropOptions, Sgd, SgdOptions,
};
use serde::Serialize;

use super::groups::Groups;
use super::in_backward::InBackward;

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
    /// RMSprop with a momentum of 0.9.
    RmsPropMomentum,
    /// RMSprop, centred.
    RmsPropCentered,
    /// Adagrad.
    Adagrad,
    /// Adadelta.
    Adadelta,
    /// Adam with Nesterov momentum.
    NAdam,
    /// NAdam with decoupled weight decay.
    NAdamW,
    /// Rectified Adam.
    RAdam,
    /// RAdam with decoupled weight decay.
    RAdamW,
    /// Adamax.
    Adamax,
    /// Averaged SGD.
    Asgd,
    /// Resilient backpropagation.
    Rprop,
    /// Muon of `torch.optim` for the matrices of numbered modules, AdamW for the rest.
    Muon,
    /// Adafactor of `torch.optim`.
    TorchAdafactor,
    /// Adafactor of transformers, as its `Trainer` makes it.
    Adafactor,
    /// AdamW of bitsandbytes with states of 8 bits.
    AdamW8bit,
    /// The same with large states in managed memory.
    PagedAdamW8bit,
    /// AdamW of bitsandbytes with large states in managed memory.
    PagedAdamW,
    /// Adam of bitsandbytes with states of 8 bits.
    Adam8bit,
    /// The same with large states in managed memory.
    PagedAdam8bit,
    /// Lion.
    Lion,
    /// Lion with a state of 8 bits.
    Lion8bit,
    /// Lion with large states in managed memory.
    PagedLion,
    /// The same with a state of 8 bits.
    PagedLion8bit,
    /// LAMB.
    Lamb,
    /// RMSprop of bitsandbytes with a state of 8 bits.
    RmsProp8bit,
    /// SGD of bitsandbytes with a momentum of 0.9 in 8 bits.
    Momentum8bit,
    /// Adagrad of bitsandbytes with a state of 8 bits.
    Adagrad8bit,
    /// AdEMAMix.
    AdEmaMix,
    /// AdEMAMix with states of 8 bits.
    AdEmaMix8bit,
    /// AdEMAMix with large states in managed memory.
    PagedAdEmaMix,
    /// The same with states of 8 bits.
    PagedAdEmaMix8bit,
}

named!(OptimizerKind, "optimizer", {
    Sgd = "sgd" | "torch.optim.sgd",
    Momentum = "momentum" | "sgd-momentum",
    Adam = "adam" | "torch.optim.adam",
    AdamW = "adamw" | "torch.optim.adamw" | "adamw-torch",
    RmsProp = "rmsprop" | "torch.optim.rmsprop",
    RmsPropMomentum = "rmsprop-momentum",
    RmsPropCentered = "rmsprop-centered",
    Adagrad = "adagrad" | "torch.optim.adagrad",
    Adadelta = "adadelta" | "torch.optim.adadelta",
    NAdam = "nadam" | "torch.optim.nadam",
    NAdamW = "nadamw",
    RAdam = "radam" | "torch.optim.radam",
    RAdamW = "radamw",
    Adamax = "adamax" | "torch.optim.adamax",
    Asgd = "asgd" | "torch.optim.asgd",
    Rprop = "rprop" | "torch.optim.rprop",
    Muon = "muon" | "torch.optim.muon",
    TorchAdafactor = "torch-adafactor" | "torch.optim.adafactor",
    Adafactor = "adafactor" | "transformers.adafactor",
    AdamW8bit = "adamw8bit" | "adamw-8bit" | "adamw-bnb-8bit" | "bnb.optim.adamw8bit" | "bitsandbytes.optim.adamw8bit",
    PagedAdamW8bit = "paged-adamw8bit" | "paged-adamw-8bit" | "pagedadamw8bit" | "bnb.optim.pagedadamw8bit" | "bitsandbytes.optim.pagedadamw8bit",
    PagedAdamW = "paged-adamw" | "paged-adamw-32bit" | "pagedadamw" | "pagedadamw32bit" | "bnb.optim.pagedadamw32bit",
    Adam8bit = "adam8bit" | "adam-8bit" | "bnb.optim.adam8bit" | "bitsandbytes.optim.adam8bit",
    PagedAdam8bit = "paged-adam8bit" | "paged-adam-8bit" | "pagedadam8bit" | "bnb.optim.pagedadam8bit",
    Lion = "lion" | "lion-32bit" | "bnb.optim.lion" | "bitsandbytes.optim.lion",
    Lion8bit = "lion8bit" | "lion-8bit" | "bnb.optim.lion8bit" | "bitsandbytes.optim.lion8bit",
    PagedLion = "paged-lion" | "paged-lion-32bit" | "pagedlion" | "bnb.optim.pagedlion",
    PagedLion8bit = "paged-lion8bit" | "paged-lion-8bit" | "pagedlion8bit" | "bnb.optim.pagedlion8bit",
    Lamb = "lamb" | "bnb.optim.lamb" | "bitsandbytes.optim.lamb",
    RmsProp8bit = "rmsprop8bit" | "rmsprop-bnb-8bit" | "bnb.optim.rmsprop8bit",
    Momentum8bit = "momentum8bit" | "sgd8bit" | "bnb.optim.sgd8bit",
    Adagrad8bit = "adagrad8bit" | "bnb.optim.adagrad8bit",
    AdEmaMix = "ademamix" | "bnb.optim.ademamix",
    AdEmaMix8bit = "ademamix8bit" | "ademamix-8bit" | "bnb.optim.ademamix8bit",
    PagedAdEmaMix = "paged-ademamix" | "paged-ademamix-32bit" | "bnb.optim.pagedademamix",
    PagedAdEmaMix8bit = "paged-ademamix8bit" | "paged-ademamix-8bit" | "bnb.optim.pagedademamix8bit",
});

/// Who has an optimizer, and in which forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// `torch.optim`, with a fused form.
    TorchFused,
    /// `torch.optim`, one parameter after the other or lists of them.
    Torch,
    /// `torch.optim`, by default one parameter after the other; its lists are not represented.
    TorchLoop,
    /// transformers, one parameter after the other.
    Transformers,
    /// bitsandbytes, one parameter after the other.
    BitsAndBytes,
}

impl OptimizerKind {
    /// Parses a name.
    ///
    /// # Errors
    /// [`Error::Usage`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        name.parse().map_err(|problem: String| Error::usage("optimizer", problem))
    }

    /// The library's default weight decay.
    pub fn weight_decay(self) -> f64 {
        match self {
            Self::Muon => 0.1,
            Self::AdamW | Self::NAdamW | Self::RAdamW => 0.01,
            Self::AdamW8bit | Self::PagedAdamW8bit | Self::PagedAdamW => 0.01,
            Self::AdEmaMix | Self::AdEmaMix8bit | Self::PagedAdEmaMix | Self::PagedAdEmaMix8bit => 0.01,
            _ => 0.0,
        }
    }

    /// The class, as a script writes it.
    pub fn class(self) -> &'static str {
        self.class_and_states().0
    }

    /// True if PyTorch has a fused form of it for cards.
    pub fn has_fused(self) -> bool {
        self.maker() == Maker::TorchFused
    }

    /// True if it updates one parameter after the other, and nothing else.
    pub fn is_loop(self) -> bool {
        matches!(self.maker(), Maker::TorchLoop | Maker::Transformers | Maker::BitsAndBytes)
    }

    /// True if its states, or its steps, follow the shape of a parameter: factors of rows and columns, a norm of each parameter.
    pub fn follows_shapes(self) -> bool {
        matches!(self, Self::Muon | Self::TorchAdafactor | Self::Adafactor | Self::Lamb)
    }

    /// True if devices compute it here. Of the others the memory is known, on a device without values.
    pub fn is_computed(self) -> bool {
        // Muon's values were not compared with PyTorch's.
        self.maker() != Maker::BitsAndBytes && self != Self::Muon
    }

    fn is_adam(self) -> bool {
        matches!(self, Self::Adam | Self::AdamW)
    }

    fn maker(self) -> Maker {
        match self {
            Self::Sgd | Self::Momentum | Self::Adam | Self::AdamW => Maker::TorchFused,
            Self::Muon | Self::TorchAdafactor => Maker::TorchLoop,
            Self::Adafactor => Maker::Transformers,
            other if BITSANDBYTES.iter().any(|row| row.kind == other) => Maker::BitsAndBytes,
            _ => Maker::Torch,
        }
    }
}

/// An optimizer of bitsandbytes.
struct Row {
    kind: OptimizerKind,
    class: &'static str,
    names: [&'static str; 2],
    states: &'static [usize],
    eight_bits: bool,
    paged: bool,
}

macro_rules! bitsandbytes {
    ($($kind:ident = $class:literal, $states:expr, $bits:literal, $paged:literal;)*) => {
        &[$(Row {
            kind: OptimizerKind::$kind,
            class: concat!("bitsandbytes.optim.", $class),
            names: [concat!($class, ".step"), concat!("zero_grad:", $class, ".zero_grad")],
            states: &$states,
            eight_bits: $bits == 8,
            paged: $paged,
        }),*]
    };
}

/// The class, how many values it keeps for each value of a parameter in each state, the states' bits, and whether large ones are paged.
const BITSANDBYTES: &[Row] = bitsandbytes! {
    AdamW8bit = "AdamW8bit", [1, 1], 8, false;
    PagedAdamW8bit = "PagedAdamW8bit", [1, 1], 8, true;
    PagedAdamW = "PagedAdamW32bit", [1, 1], 32, true;
    Adam8bit = "Adam8bit", [1, 1], 8, false;
    PagedAdam8bit = "PagedAdam8bit", [1, 1], 8, true;
    Lion = "Lion32bit", [1], 32, false;
    Lion8bit = "Lion8bit", [1], 8, false;
    PagedLion = "PagedLion32bit", [1], 32, true;
    PagedLion8bit = "PagedLion8bit", [1], 8, true;
    Lamb = "LAMB32bit", [1, 1], 32, false;
    RmsProp8bit = "RMSprop8bit", [1], 8, false;
    Momentum8bit = "SGD8bit", [1], 8, false;
    Adagrad8bit = "Adagrad8bit", [1], 8, false;
    AdEmaMix = "AdEMAMix32bit", [2, 1], 32, false;
    AdEmaMix8bit = "AdEMAMix8bit", [2, 1], 8, false;
    PagedAdEmaMix = "PagedAdEMAMix32bit", [2, 1], 32, true;
    PagedAdEmaMix8bit = "PagedAdEMAMix8bit", [2, 1], 8, true;
};

impl OptimizerKind {
    /// The class, and the values that it keeps for each value of a parameter; 0 for a part of one.
    fn class_and_states(self) -> (&'static str, u64) {
        match self {
            Self::Sgd => ("torch.optim.SGD", 0),
            Self::Momentum => ("torch.optim.SGD", 1),
            Self::Adam => ("torch.optim.Adam", 2),
            Self::AdamW => ("torch.optim.AdamW", 2),
            Self::RmsProp => ("torch.optim.RMSprop", 1),
            Self::RmsPropMomentum | Self::RmsPropCentered => ("torch.optim.RMSprop", 2),
            Self::Adagrad => ("torch.optim.Adagrad", 1),
            Self::Adadelta => ("torch.optim.Adadelta", 2),
            Self::NAdam | Self::NAdamW => ("torch.optim.NAdam", 2),
            Self::RAdam | Self::RAdamW => ("torch.optim.RAdam", 2),
            Self::Adamax => ("torch.optim.Adamax", 2),
            Self::Asgd => ("torch.optim.ASGD", 1),
            Self::Rprop => ("torch.optim.Rprop", 2),
            Self::Muon => ("torch.optim.Muon", 1),
            Self::TorchAdafactor => ("torch.optim.Adafactor", 0),
            Self::Adafactor => ("transformers.Adafactor", 0),
            other => BITSANDBYTES.iter().find(|row| row.kind == other).map_or(("", 0), |row| {
                (row.class, if row.eight_bits { 0 } else { row.states.iter().sum::<usize>() as u64 })
            }),
        }
    }

    /// Values of the parameters' type that it keeps for each of them, as closed formulas count them.
    pub fn states(self) -> u64 {
        self.class_and_states().1
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
    /// True if each parameter's step is taken in backward, as soon as its gradient is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_backward: bool,
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
        let (matrices, others): (Vec<Parameter>, Vec<Parameter>) =
            parameters.into_iter().partition(|parameter| is_of_muon(parameter));
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
