//! Optimizers by name.

mod settings;

use lab_base::error::{Error, Result};
use lab_base::named;
use memcore::optim::Implementation;

pub use settings::OptimizerSettings;

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
    /// `torch.optim`, by default one parameter after the other; its lists are not supported.
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

    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.iter().filter_map(|name| name.parse().ok())
    }

    /// The library's default weight decay.
    pub fn weight_decay(self) -> f64 {
        self.known().weight_decay
    }

    /// The class, as a script writes it.
    pub fn class(self) -> &'static str {
        self.known().class
    }

    /// The arguments after the parameters, as a script writes them.
    pub fn arguments(self) -> &'static str {
        self.known().arguments
    }

    /// The arguments that make the class this kind of it, besides a learning rate and, if it is said, the weight decay.
    pub fn own_arguments(self, decay_is_said: bool) -> impl Iterator<Item = &'static str> {
        let is_said =
            move |argument: &str| argument.starts_with("lr=") || decay_is_said && argument.starts_with("weight_decay=");
        self.arguments().split(", ").filter(move |argument| !is_said(argument))
    }

    /// Values of the parameters' type that it keeps for each of them, as closed formulas count them; 0 for a part of one.
    pub fn states(self) -> u64 {
        self.known().states
    }

    /// The optimizer of a name of transformers' `OptimizerNames`, and its form. Where torch chooses the form, it chooses lists.
    pub fn of_transformers(name: &str) -> Option<(Self, Implementation)> {
        Self::all().find_map(|kind| {
            let named = kind.known().transformers.iter().find(|(known, _)| *known == name)?;
            Some((kind, named.1))
        })
    }

    /// Its name in transformers' `OptimizerNames` in a form; `None` if it has none.
    pub fn name_in_transformers(self, form: Implementation) -> Option<&'static str> {
        self.known().transformers.iter().find(|(_, known)| *known == form).map(|(name, _)| *name)
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
        self.known().maker
    }
}

/// What is known of an optimizer besides how it is built.
#[derive(Clone, Copy)]
struct Known {
    maker: Maker,
    class: &'static str,
    arguments: &'static str,
    states: u64,
    weight_decay: f64,
    transformers: &'static [(&'static str, Implementation)],
}

/// Class, arguments in a script, and values that it keeps for each value of a parameter.
const fn known(maker: Maker, class: &'static str, arguments: &'static str, states: u64) -> Known {
    Known { maker, class, arguments, states, weight_decay: 0.0, transformers: &[] }
}

impl Known {
    /// With this weight decay by default.
    const fn decays(self, weight_decay: f64) -> Self {
        Self { weight_decay, ..self }
    }

    /// With these names in transformers' `OptimizerNames`, of each form the one to write first.
    const fn named(self, transformers: &'static [(&'static str, Implementation)]) -> Self {
        Self { transformers, ..self }
    }
}

impl OptimizerKind {
    #[rustfmt::skip]
    fn known(self) -> Known {
        use Implementation::{Foreach, Fused, Loop};
        use Maker::{Torch, TorchFused, TorchLoop, Transformers};
        match self {
            Self::Sgd => known(TorchFused, "torch.optim.SGD", "lr=1e-3", 0).named(&[("sgd", Foreach)]),
            Self::Momentum => known(TorchFused, "torch.optim.SGD", "lr=1e-3, momentum=0.9", 1),
            Self::Adam => known(TorchFused, "torch.optim.Adam", "lr=1e-4", 2),
            Self::AdamW => known(TorchFused, "torch.optim.AdamW", "lr=1e-4", 2).decays(0.01)
                .named(&[("adamw_torch", Foreach), ("adamw_torch_fused", Fused)]),
            Self::RmsProp => known(Torch, "torch.optim.RMSprop", "lr=1e-3", 1).named(&[("rmsprop", Foreach)]),
            Self::RmsPropMomentum => known(Torch, "torch.optim.RMSprop", "lr=1e-3, momentum=0.9", 2),
            Self::RmsPropCentered => known(Torch, "torch.optim.RMSprop", "lr=1e-3, centered=True", 2),
            Self::Adagrad => known(Torch, "torch.optim.Adagrad", "lr=1e-3", 1).named(&[("adagrad", Foreach)]),
            Self::Adadelta => known(Torch, "torch.optim.Adadelta", "lr=1.0", 2),
            Self::NAdam => known(Torch, "torch.optim.NAdam", "lr=1e-4", 2),
            Self::NAdamW => known(Torch, "torch.optim.NAdam", "lr=1e-4, weight_decay=0.01, decoupled_weight_decay=True", 2).decays(0.01),
            Self::RAdam => known(Torch, "torch.optim.RAdam", "lr=1e-4", 2),
            Self::RAdamW => known(Torch, "torch.optim.RAdam", "lr=1e-4, weight_decay=0.01, decoupled_weight_decay=True", 2).decays(0.01),
            Self::Adamax => known(Torch, "torch.optim.Adamax", "lr=1e-4", 2),
            Self::Asgd => known(Torch, "torch.optim.ASGD", "lr=1e-3", 1),
            Self::Rprop => known(Torch, "torch.optim.Rprop", "lr=1e-3", 2),
            Self::Muon => known(TorchLoop, "torch.optim.Muon", "lr=1e-3", 1).decays(0.1),
            Self::TorchAdafactor => known(TorchLoop, "torch.optim.Adafactor", "lr=1e-3", 0),
            Self::Adafactor => known(Transformers, "transformers.Adafactor", "lr=1e-3, scale_parameter=False, relative_step=False", 0)
                .named(&[("adafactor", Loop)]),
            other => match BITSANDBYTES.iter().find(|row| row.kind == other) {
                Some(row) => row.known,
                None => known(Maker::BitsAndBytes, "", "", 0),
            },
        }
    }
}

/// An optimizer of bitsandbytes.
struct Row {
    kind: OptimizerKind,
    known: Known,
    names: [&'static str; 2],
    states: &'static [usize],
    eight_bits: bool,
    paged: bool,
}

/// The sum of some states, as closed formulas count them.
const fn summed(states: &[usize], bits: u32) -> u64 {
    match states {
        _ if bits == 8 => 0,
        [one] => *one as u64,
        [one, other, ..] => (*one + *other) as u64,
        [] => 0,
    }
}

macro_rules! bitsandbytes {
    ($($kind:ident = $class:literal, $arguments:literal, $states:expr, $bits:literal, $paged:literal, $decay:literal, [$($name:literal),*];)*) => {
        &[$(Row {
            kind: OptimizerKind::$kind,
            known: known(
                Maker::BitsAndBytes, concat!("bitsandbytes.optim.", $class), $arguments, summed(&$states, $bits),
            ).decays($decay).named(&[$(($name, Implementation::Loop)),*]),
            names: [concat!($class, ".step"), concat!("zero_grad:", $class, ".zero_grad")],
            states: &$states,
            eight_bits: $bits == 8,
            paged: $paged,
        }),*]
    };
}

/// The class, its arguments in a script, how many values it keeps for each value of a parameter in each state, the states' bits, whether large ones are
/// paged, the weight decay, and the names in transformers.
const BITSANDBYTES: &[Row] = bitsandbytes! {
    AdamW8bit = "AdamW8bit", "lr=1e-4", [1, 1], 8, false, 0.01, ["adamw_bnb_8bit", "adamw_8bit"];
    PagedAdamW8bit = "PagedAdamW8bit", "lr=1e-4", [1, 1], 8, true, 0.01, ["paged_adamw_8bit"];
    PagedAdamW = "PagedAdamW32bit", "lr=1e-4", [1, 1], 32, true, 0.01, ["paged_adamw", "paged_adamw_32bit"];
    Adam8bit = "Adam8bit", "lr=1e-4", [1, 1], 8, false, 0.0, [];
    PagedAdam8bit = "PagedAdam8bit", "lr=1e-4", [1, 1], 8, true, 0.0, [];
    Lion = "Lion32bit", "lr=1e-4", [1], 32, false, 0.0, ["lion", "lion_32bit"];
    Lion8bit = "Lion8bit", "lr=1e-4", [1], 8, false, 0.0, ["lion_8bit"];
    PagedLion = "PagedLion32bit", "lr=1e-4", [1], 32, true, 0.0, ["paged_lion", "paged_lion_32bit"];
    PagedLion8bit = "PagedLion8bit", "lr=1e-4", [1], 8, true, 0.0, ["paged_lion_8bit"];
    Lamb = "LAMB32bit", "lr=1e-4", [1, 1], 32, false, 0.0, [];
    RmsProp8bit = "RMSprop8bit", "lr=1e-4", [1], 8, false, 0.0, ["rmsprop_bnb_8bit"];
    Momentum8bit = "SGD8bit", "lr=1e-3, momentum=0.9", [1], 8, false, 0.0, [];
    Adagrad8bit = "Adagrad8bit", "lr=1e-4", [1], 8, false, 0.0, [];
    AdEmaMix = "AdEMAMix32bit", "lr=1e-4", [2, 1], 32, false, 0.01, ["ademamix"];
    AdEmaMix8bit = "AdEMAMix8bit", "lr=1e-4", [2, 1], 8, false, 0.01, ["ademamix_8bit"];
    PagedAdEmaMix = "PagedAdEMAMix32bit", "lr=1e-4", [2, 1], 32, true, 0.01, ["paged_ademamix", "paged_ademamix_32bit"];
    PagedAdEmaMix8bit = "PagedAdEMAMix8bit", "lr=1e-4", [2, 1], 8, true, 0.01, ["paged_ademamix_8bit"];
};
