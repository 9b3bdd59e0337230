//! Rotary position embedding, written out as the library does.

use memcore::memory::{Category, ScopeId};
use memcore::nn::Init;
use memcore::{Array, DType, Result, Tensor, context, ops};
use serde_json::Value;

use super::keys::Keys;
use crate::error;

/// Which angles.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    theta: f64,
    /// Share of each head that is turned.
    pub(super) share: f64,
    scaling: Scaling,
}

/// How frequencies are changed for longer contexts. These change values, not memory.
#[derive(Clone, Debug)]
enum Scaling {
    None,
    Linear { factor: f64 },
    Llama3 { factor: f64, low: f64, high: f64, original: f64 },
}

impl Rope {
    /// `rope_parameters`, or the older `rope_theta` and `rope_scaling`; `share` of a head is turned unless said.
    ///
    /// # Errors
    /// A kind that takes other memory, or whose values are not known here.
    pub(super) fn read(
        keys: &Keys<'_>,
        theta_key: &'static str,
        share_key: &'static str,
        share: f64,
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
        let need = |name: &str| number(name).ok_or_else(|| keys.error(key, format!("needs the number {name}")));
        let kind = given.get("rope_type").or_else(|| given.get("type")).and_then(Value::as_str).unwrap_or("default");
        let scaling = match kind {
            "default" => Scaling::None,
            "linear" => Scaling::Linear { factor: need("factor")? },
            "llama3" => Scaling::Llama3 {
                factor: need("factor")?,
                low: need("low_freq_factor")?,
                high: need("high_freq_factor")?,
                original: need("original_max_position_embeddings")?,
            },
            other => {
                let problem = format!("rope type {other:?} is not represented; known: default, linear, llama3");
                return Err(keys.error(key, problem));
            }
        };
        Ok(Self {
            theta: number("rope_theta").unwrap_or(theta),
            share: number("partial_rotary_factor").unwrap_or(share),
            scaling,
        })
    }

    /// Radians per position of each pair of `turned` elements.
    fn frequencies(&self, turned: usize) -> Vec<f32> {
        (0..turned.div_ceil(2)).map(|i| self.scaled(self.theta.powf(-2.0 * i as f64 / turned as f64)) as f32).collect()
    }

    fn scaled(&self, frequency: f64) -> f64 {
        match self.scaling {
            Scaling::None => frequency,
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Llama3 { factor, low, high, original } => {
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
        }
    }
}

/// The module: two equal buffers of frequencies, one for each pair of turned elements, in f32.
pub(super) struct RotaryEmbedding {
    scope: ScopeId,
    frequencies: Array,
    _original: Array,
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
        Ok(Self { scope: init.scope(), frequencies: buffer()?, _original: buffer()? })
    }

    /// Cosines and sines for positions `[1, time]`, `[1, time, turned]` each in `dtype`.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn forward(&self, positions: &Tensor, dtype: DType) -> Result<(Tensor, Tensor)> {
        let _scope = context::scope(self.scope);
        let angles = {
            let positions = ops::cast(&ops::unsqueeze(positions, 2)?, DType::F32)?;
            let frequencies = Tensor::from_array(self.frequencies.view(&[1, 1, self.frequencies.numel()])?);
            ops::mul(&positions, &frequencies)?
        };
        let both = ops::cat(&[&angles, &angles], 2)?;
        let scaled = |function: fn(&Tensor) -> Result<Tensor>| {
            let raw = function(&both)?;
            ops::mul_scalar(&raw, 1.0)
        };
        let (cos, sin) = (scaled(ops::cos)?, scaled(ops::sin)?);
        Ok((ops::cast(&cos, dtype)?, ops::cast(&sin, dtype)?))
    }
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
