//! Values that PyTorch computed: `golden/optimizers.json`, recorded by `golden/optimizers.py`.

use std::sync::OnceLock;

use memcore::optim::{
    Adadelta, AdadeltaOptions, Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Adamax,
    AdamaxOptions, Asgd, AsgdOptions, Implementation, NAdam, NAdamOptions, Optimizer, RAdam, RAdamOptions, RmsProp,
    RmsPropOptions, Rprop, RpropOptions, Sgd, SgdOptions,
};
use memcore::{Result, nn::Parameter};
use serde_json::Value;

/// Elements of each parameter, in row-major order.
pub(super) type Values = Vec<Vec<f64>>;

/// The whole recording.
pub(super) struct Recording {
    /// Sizes of each parameter.
    pub(super) shapes: Vec<Vec<usize>>,
    /// Initial values of the parameters.
    pub(super) parameters: Values,
    /// The gradients of each step; `None` for a parameter without one.
    pub(super) gradients: Vec<Vec<Option<Vec<f64>>>>,
    pub(super) runs: Vec<Run>,
    pub(super) clips: Vec<Clip>,
}

/// One optimizer with one set of options.
pub(super) struct Run {
    optimizer: String,
    name: String,
    options: Value,
    /// The parameters after each step, in float64, where PyTorch's forms agree.
    pub(super) parameters: Vec<Values>,
    /// PyTorch's names of the state, and its final values for each parameter.
    pub(super) state: Vec<(String, Values)>,
    /// Each of PyTorch's forms, with the final parameters in float32.
    pub(super) forms: Vec<(String, Values)>,
}

/// One call of gradient clipping, on the gradients of the first step.
pub(super) struct Clip {
    pub(super) name: String,
    /// The bound of the norm, or of each element.
    pub(super) bound: f64,
    /// The norm before clipping; `None` if elements are clipped.
    pub(super) norm: Option<f64>,
    pub(super) gradients: Values,
}

/// The recording, read once.
pub(super) fn recording() -> &'static Recording {
    static READ: OnceLock<Recording> = OnceLock::new();
    READ.get_or_init(|| read().expect("golden/optimizers.json is what golden/optimizers.py writes"))
}

fn read() -> Option<Recording> {
    let text = include_str!("../../../golden/optimizers.json");
    let json: Value = serde_json::from_str(text).ok()?;
    let shapes = list(&json["shapes"], |shape| list(shape, |size| Some(size.as_u64()? as usize)))?;
    let step = |step: &Value| list(step, |g| if g.is_null() { Some(None) } else { list(g, Value::as_f64).map(Some) });
    Some(Recording {
        shapes,
        parameters: values(&json["parameters"])?,
        gradients: list(&json["gradients"], step)?,
        runs: list(&json["runs"], run)?,
        clips: list(&json["clips"], clip)?,
    })
}

fn run(json: &Value) -> Option<Run> {
    let double = &json["float64"];
    Some(Run {
        optimizer: json["optimizer"].as_str()?.into(),
        name: json["name"].as_str()?.into(),
        options: json["options"].clone(),
        parameters: list(&double["parameters"], values)?,
        state: named(&double["state"])?,
        forms: named(&json["float32"])?,
    })
}

fn clip(json: &Value) -> Option<Clip> {
    let (_, bound) = json["options"].as_object()?.iter().next()?;
    let double = &json["float64"];
    Some(Clip {
        name: json["name"].as_str()?.into(),
        bound: bound.as_f64()?,
        norm: double["norm"].as_f64(),
        gradients: values(&double["gradients"])?,
    })
}

fn list<T>(json: &Value, one: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    json.as_array()?.iter().map(one).collect()
}

fn values(json: &Value) -> Option<Values> {
    list(json, |row| list(row, Value::as_f64))
}

fn named(json: &Value) -> Option<Vec<(String, Values)>> {
    json.as_object()?.iter().map(|(name, json)| Some((name.clone(), values(json)?))).collect()
}

impl Run {
    /// The full name, such as `adamw_amsgrad`.
    pub(super) fn full_name(&self) -> String {
        format!("{}_{}", self.optimizer.to_lowercase(), self.name)
    }

    /// Creates the optimizer in one of PyTorch's forms.
    ///
    /// # Panics
    /// For an unknown optimizer, form or option: the test would not test the recording.
    pub(super) fn optimizer(&self, form: &str, parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
        let (form, capturable) = form.strip_suffix("_capturable").map_or((form, false), |form| (form, true));
        let implementation = match form {
            "for" => Implementation::Loop,
            "foreach" => Implementation::Foreach,
            "fused" => Implementation::Fused,
            other => panic!("no form {other}"),
        };
        match &*self.optimizer {
            "SGD" => Ok(Box::new(Sgd::new(parameters, self.sgd(implementation))?)),
            "Adam" => {
                let options = AdamOptions { implementation, capturable, ..AdamOptions::adam() };
                Ok(Box::new(Adam::new(parameters, self.adam(options))?))
            }
            "AdamW" => {
                let options = AdamOptions { implementation, capturable, ..AdamOptions::adamw() };
                Ok(Box::new(Adam::new(parameters, self.adam(options))?))
            }
            "RMSprop" => Ok(Box::new(RmsProp::new(parameters, self.rms_prop(implementation))?)),
            "Adagrad" => Ok(Box::new(Adagrad::new(parameters, self.adagrad(implementation))?)),
            _ => self.further(implementation, parameters),
        }
    }

    fn further(&self, implementation: Implementation, parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
        /// Sets options by PyTorch's names.
        macro_rules! made {
            ($kind:ident, $options:ident { $($field:ident),* } $(, $form:ident)?) => {{
                let mut o = $options { $($form: implementation,)? ..$options::default() };
                self.each_option(|name, value| match name {
                    $(stringify!($field) => o.$field = FromRecording::from_recording(value),)*
                    other => panic!("{} has no {other}", stringify!($kind)),
                });
                Ok(Box::new($kind::new(parameters, o)?))
            }};
        }
        match &*self.optimizer {
            "Adadelta" => made!(Adadelta, AdadeltaOptions { lr, rho, weight_decay, maximize }, implementation),
            "NAdam" => made!(
                NAdam,
                NAdamOptions { lr, betas, weight_decay, momentum_decay, decoupled_weight_decay, maximize },
                implementation
            ),
            "RAdam" => {
                made!(RAdam, RAdamOptions { lr, betas, weight_decay, decoupled_weight_decay, maximize }, implementation)
            }
            "Adamax" => made!(Adamax, AdamaxOptions { lr, betas, weight_decay, maximize }, implementation),
            "ASGD" => made!(Asgd, AsgdOptions { lr, lambd, t0, weight_decay, maximize }, implementation),
            "Rprop" => made!(Rprop, RpropOptions { lr, maximize }, implementation),
            "Adafactor" => made!(Adafactor, AdafactorOptions { lr, weight_decay, maximize }),
            other => panic!("no optimizer {other}"),
        }
    }

    fn sgd(&self, implementation: Implementation) -> SgdOptions {
        let mut o = SgdOptions { implementation, ..SgdOptions::default() };
        self.each_option(|name, value| match name {
            "lr" => o.lr = number(value),
            "momentum" => o.momentum = number(value),
            "dampening" => o.dampening = number(value),
            "weight_decay" => o.weight_decay = number(value),
            "nesterov" => o.nesterov = value == true,
            "maximize" => o.maximize = value == true,
            other => panic!("SGD has no {other}"),
        });
        o
    }

    fn adam(&self, mut o: AdamOptions) -> AdamOptions {
        self.each_option(|name, value| match name {
            "lr" => o.lr = number(value),
            "betas" => o.betas = [number(&value[0]), number(&value[1])],
            "eps" => o.eps = number(value),
            "weight_decay" => o.weight_decay = number(value),
            "amsgrad" => o.amsgrad = value == true,
            "maximize" => o.maximize = value == true,
            other => panic!("Adam has no {other}"),
        });
        o
    }

    fn rms_prop(&self, implementation: Implementation) -> RmsPropOptions {
        let mut o = RmsPropOptions { implementation, ..RmsPropOptions::default() };
        self.each_option(|name, value| match name {
            "lr" => o.lr = number(value),
            "alpha" => o.alpha = number(value),
            "eps" => o.eps = number(value),
            "weight_decay" => o.weight_decay = number(value),
            "momentum" => o.momentum = number(value),
            "centered" => o.centered = value == true,
            "maximize" => o.maximize = value == true,
            other => panic!("RMSprop has no {other}"),
        });
        o
    }

    fn adagrad(&self, implementation: Implementation) -> AdagradOptions {
        let mut o = AdagradOptions { implementation, ..AdagradOptions::default() };
        self.each_option(|name, value| match name {
            "lr" => o.lr = number(value),
            "lr_decay" => o.lr_decay = number(value),
            "weight_decay" => o.weight_decay = number(value),
            "initial_accumulator_value" => o.initial_accumulator_value = number(value),
            "eps" => o.eps = number(value),
            "maximize" => o.maximize = value == true,
            other => panic!("Adagrad has no {other}"),
        });
        o
    }

    fn each_option(&self, mut set: impl FnMut(&str, &Value)) {
        self.options.as_object().into_iter().flatten().for_each(|(name, value)| set(name, value));
    }
}

/// A type of an option.
trait FromRecording {
    fn from_recording(value: &Value) -> Self;
}

impl FromRecording for f64 {
    fn from_recording(value: &Value) -> Self {
        number(value)
    }
}

impl FromRecording for bool {
    fn from_recording(value: &Value) -> Self {
        value == true
    }
}

impl FromRecording for [f64; 2] {
    fn from_recording(value: &Value) -> Self {
        [number(&value[0]), number(&value[1])]
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}
