//! Rotary position embedding, written out as the library does.

use memcore::memory::{Category, ScopeId};
use memcore::nn::Init;
use memcore::{Array, DType, Device, Result, Tensor, context, ops};
use serde_json::Value;

use super::Options;
use super::keys::Keys;
use crate::error;

/// Which angles.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    theta: f64,
    /// Share of each head that is turned.
    pub(super) share: f64,
    scaling: Scaling,
    /// Whether the module is made on the device itself.
    built_there: bool,
}

/// How frequencies are changed for longer contexts.
#[derive(Clone, Debug)]
enum Scaling {
    None,
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    Yarn(Yarn),
    /// `dynamic`: for sequences that are longer than the positions, which are not read here; only that the library looks is left.
    Dynamic,
}

/// `yarn`: between `low` and `high` rotations within the original positions, frequencies go over from divided to unchanged ones.
#[derive(Clone, Debug)]
struct Yarn {
    factor: f64,
    /// Rotations above which a frequency stays, and below which it is divided.
    fast: f64,
    slow: f64,
    /// Positions that the network was made for at first.
    original: f64,
    /// Whether the bounds are pairs of elements, not fractions of them.
    truncate: bool,
    /// What cosines and sines are multiplied with.
    attention: f64,
}

impl Rope {
    /// `rope_parameters`, or the older `rope_theta` and `rope_scaling`, of a network with so many `positions`; `share` of a head is turned unless said.
    ///
    /// # Errors
    /// A kind that takes other memory, or whose values are not known here.
    pub(super) fn read(
        keys: &Keys<'_>,
        theta_key: &'static str,
        share_key: &'static str,
        share: f64,
        positions: usize,
        options: &Options,
    ) -> error::Result<Self> {
        let theta = keys.number(theta_key, 10_000.0)?;
        let share = keys.number(share_key, share)?;
        let nothing = Value::Object(serde_json::Map::new());
        let (key, given) = match (keys.get("rope_parameters"), keys.get("rope_scaling")) {
            (Some(given), _) => ("rope_parameters", given),
            (None, Some(given)) => ("rope_scaling", given),
            (None, None) => ("rope_parameters", &nothing),
        };
        let number = |name: &str| given.get(name).and_then(Value::as_f64);
        // A key of its own has precedence.
        let outside = keys.optional_size("original_max_position_embeddings")?.map(|n| n as f64);
        let original = outside.or_else(|| number("original_max_position_embeddings")).unwrap_or(positions as f64);
        let scaling = Scaling::read(keys, key, given, original)?;
        let built_there = options.built_on_device;
        if built_there && !matches!(scaling, Scaling::None) {
            return Err(
                keys.error(key, "frequencies for longer contexts that are made on the device are not represented")
            );
        }
        Ok(Self {
            theta: number("rope_theta").unwrap_or(theta),
            share: number("partial_rotary_factor").unwrap_or(share),
            scaling,
            built_there,
        })
    }

    /// Whether the library looks for the longest position in each forward pass.
    fn is_dynamic(&self) -> bool {
        matches!(self.scaling, Scaling::Dynamic)
    }

    /// What cosines and sines are multiplied with.
    fn attention(&self) -> f64 {
        match &self.scaling {
            Scaling::Yarn(yarn) => yarn.attention,
            _ => 1.0,
        }
    }

    /// Radians per position of each pair of `turned` elements.
    fn frequencies(&self, turned: usize) -> Vec<f32> {
        let plain = |i: usize| self.theta.powf(-2.0 * i as f64 / turned as f64);
        let scaled = |i: usize| match &self.scaling {
            Scaling::None | Scaling::Dynamic => plain(i),
            Scaling::Linear { factor } => plain(i) / factor,
            Scaling::Llama3 { factor, low, high, original } => llama3(plain(i), [*factor, *low, *high, *original]),
            Scaling::Yarn(yarn) => plain(i) * yarn.share_of(i, turned, self.theta),
        };
        (0..turned.div_ceil(2)).map(|i| scaled(i) as f32).collect()
    }
}

impl Scaling {
    /// From the object `given` under `key`, for a network made for `original` positions at first.
    ///
    /// # Errors
    /// As [`Rope::read`].
    fn read(keys: &Keys<'_>, key: &str, given: &Value, original: f64) -> error::Result<Self> {
        let number = |name: &str| given.get(name).and_then(Value::as_f64);
        let need = |name: &str| number(name).ok_or_else(|| keys.error(key, format!("needs the number {name}")));
        let kind = given.get("rope_type").or_else(|| given.get("type")).and_then(Value::as_str).unwrap_or("default");
        Ok(match kind {
            "default" => Self::None,
            "linear" => Self::Linear { factor: need("factor")? },
            "llama3" => Self::Llama3 {
                factor: need("factor")?,
                low: need("low_freq_factor")?,
                high: need("high_freq_factor")?,
                original,
            },
            "yarn" => Self::Yarn(Yarn::read(need("factor")?, given, original)),
            "dynamic" => {
                need("factor")?;
                Self::Dynamic
            }
            other => {
                let known = "default, dynamic, linear, llama3, yarn";
                return Err(keys.error(key, format!("rope type {other:?} is not represented; known: {known}")));
            }
        })
    }
}

/// A frequency by the rule of Llama 3.
fn llama3(frequency: f64, [factor, low, high, original]: [f64; 4]) -> f64 {
    let wavelength = std::f64::consts::TAU / frequency;
    if wavelength < original / high {
        frequency
    } else if wavelength > original / low {
        frequency / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

impl Yarn {
    fn read(factor: f64, given: &Value, original: f64) -> Self {
        // As the library: 0 is as absent.
        let number = |name: &str| given.get(name).and_then(Value::as_f64);
        let some = |name: &str| number(name).filter(|&n| n != 0.0);
        let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
        let usual = match (some("mscale"), some("mscale_all_dim")) {
            (Some(above), Some(below)) => scale(above) / scale(below),
            _ => scale(1.0),
        };
        Self {
            factor,
            fast: some("beta_fast").unwrap_or(32.0),
            slow: some("beta_slow").unwrap_or(1.0),
            original,
            truncate: given.get("truncate").and_then(Value::as_bool).unwrap_or(true),
            attention: number("attention_factor").unwrap_or(usual),
        }
    }

    /// What becomes of the frequency of pair `i` of `turned` elements: from 1 for fast ones to 1/factor for slow ones.
    fn share_of(&self, i: usize, turned: usize, theta: f64) -> f64 {
        let pair_with = |rotations: f64| {
            turned as f64 * (self.original / (rotations * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let (mut low, mut high) = (pair_with(self.fast), pair_with(self.slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(turned as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        divided / self.factor + (1.0 - divided)
    }
}

/// The module: two equal buffers of frequencies, one for each pair of turned elements, in f32.
pub(super) struct RotaryEmbedding {
    scope: ScopeId,
    frequencies: Array,
    _original: Array,
    attention: f64,
    dynamic: bool,
}

impl RotaryEmbedding {
    /// For heads of which `turned` elements are turned.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn new(init: &Init, rope: &Rope, turned: usize) -> Result<Self> {
        let _scope = context::scope(init.scope());
        let buffer = || {
            let array = Array::empty_as(init.device(), &[turned.div_ceil(2)], DType::F32, Category::Buffer)?;
            if init.device().computes() {
                array.write(&rope.frequencies(turned))?;
            }
            Ok::<_, memcore::Error>(array)
        };
        let _temporaries = if rope.built_there { Some(temporaries(init.device(), turned)?) } else { None };
        let frequencies = buffer()?;
        drop(_temporaries);
        let original = buffer()?;
        let (attention, dynamic) = (rope.attention(), rope.is_dynamic());
        Ok(Self { scope: init.scope(), frequencies, _original: original, attention, dynamic })
    }

    /// Cosines and sines for positions `[1, time]`, `[1, time, turned]` each in `dtype`.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn forward(&self, positions: &Tensor, dtype: DType) -> Result<(Tensor, Tensor)> {
        let _scope = context::scope(self.scope);
        if self.dynamic {
            look_for_growth(positions.device())?;
        }
        let angles = {
            let positions = ops::cast(&ops::unsqueeze(positions, 2)?, DType::F32)?;
            let frequencies = Tensor::from_array(self.frequencies.view(&[1, 1, self.frequencies.numel()])?);
            ops::mul(&positions, &frequencies)?
        };
        let both = ops::cat(&[&angles, &angles], 2)?;
        let scaled = |function: fn(&Tensor) -> Result<Tensor>| {
            let raw = function(&both)?;
            ops::mul_scalar(&raw, self.attention)
        };
        let (cos, sin) = (scaled(ops::cos)?, scaled(ops::sin)?);
        Ok((ops::cast(&cos, dtype)?, ops::cast(&sin, dtype)?))
    }
}

/// What `1.0 / (base ** (torch.arange(0, dim, 2) / dim))` makes before its result, and lets go behind it: the power and its reciprocal.
///
/// # Errors
/// Those of the device.
fn temporaries(device: &Device, turned: usize) -> Result<[Array; 2]> {
    let floats = || Array::empty(device, &[turned.div_ceil(2)], DType::F32);
    let power = {
        let share = {
            let _range = floats()?;
            floats()?
        };
        let power = floats()?;
        // The base, as a scalar on the device.
        let _base = Array::empty(device, &[], DType::F64)?;
        drop(share);
        power
    };
    Ok([power, floats()?])
}

/// `seq_len = torch.max(position_ids) + 1`, then whether that is more than the frequencies are for, and whether fewer: no, and it does not matter.
///
/// # Errors
/// Those of the device.
fn look_for_growth(device: &Device) -> Result<()> {
    let _length = {
        let _most = Array::empty(device, &[], DType::I64)?;
        Array::empty(device, &[], DType::I64)?
    };
    Array::empty(device, &[], DType::Bool)?;
    Array::empty(device, &[], DType::Bool)?;
    Ok(())
}

/// `x` `[b, h, t, d]` turned: `x·cos + rotate_half(x)·sin`, with `cos` and `sin` `[1, 1, t, d]`.
///
/// # Errors
/// Shapes that do not fit; those of the device.
pub(super) fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let direct = ops::mul(x, cos)?;
    let mut crossed = rotate_half(x)?;
    crossed = ops::mul(&crossed, sin)?;
    ops::add(&direct, &crossed)
}

/// The second half of the last dimension negated, then the first.
fn rotate_half(x: &Tensor) -> Result<Tensor> {
    let d = x.dims()[3];
    let first = ops::narrow(x, 3, 0, d / 2)?;
    let second = ops::neg(&ops::narrow(x, 3, d / 2, d - d / 2)?)?;
    ops::cat(&[&second, &first], 3)
}
