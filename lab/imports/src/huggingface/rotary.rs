//! Rotary position embedding, written out as the library does.

use std::sync::{Mutex, PoisonError};

use lab_base::error;
use memcore::amp::Autocast;
use memcore::memory::ScopeId;
use memcore::nn::Init;
use memcore::{Array, DType, Device, Result, Tensor, context, ops};
use serde_json::Value;

use super::keys::Keys;
use super::options::Options;
use super::scaling::{Positions, Scaling};

#[derive(Clone, Debug)]
pub(super) struct Rope {
    theta: f64,
    /// Share of each head that is rotated.
    pub(super) share: f64,
    scaling: Scaling,
    /// True if the module is made on the device itself.
    built_there: bool,
    /// True if angles are a product of matrices, and the device holds the frequencies once.
    matrices: bool,
}

/// RoPE's keys in a configuration, and their defaults.
pub(super) struct RopeKeys {
    pub(super) theta: &'static str,
    pub(super) share: &'static str,
    /// Default share of each head that is rotated.
    pub(super) usual_share: f64,
    pub(super) positions: usize,
    /// Original number of positions, if the model has a key of its own for it.
    pub(super) original: Option<usize>,
}

impl Rope {
    /// Reads `rope_parameters`, or the older `rope_theta` and `rope_scaling`.
    pub(super) fn read(keys: &Keys<'_>, names: RopeKeys, options: &Options) -> error::Result<Self> {
        let theta = keys.number(names.theta, 10_000.0)?;
        let share = keys.number(names.share, names.usual_share)?;
        let nothing = Value::Object(serde_json::Map::new());
        let (key, given) = match (keys.get("rope_parameters"), keys.get("rope_scaling")) {
            (Some(given), _) => ("rope_parameters", given),
            (None, Some(given)) => ("rope_scaling", given),
            (None, None) => ("rope_parameters", &nothing),
        };
        let number = |name: &str| given.get(name).and_then(Value::as_f64);
        // The model's own key has precedence.
        let outside = keys.optional_size("original_max_position_embeddings")?.or(names.original);
        let inside = given.get("original_max_position_embeddings").and_then(Value::as_u64).map(|n| n as usize);
        let original = outside.or(inside).unwrap_or(names.positions);
        let scaling = Scaling::read(keys, key, given, Positions { now: names.positions, original })?;
        let (built_there, matrices) = (options.built_on_device, options.rules().multiplies_matrices);
        let plain = matches!(scaling, Scaling::None | Scaling::Linear { .. } | Scaling::Llama3 { .. });
        if matrices && (built_there || !plain) {
            return Err(
                keys.error(key, "made on the device, or with such a scaling, is not supported for transformers 4.51")
            );
        }
        if built_there && !matches!(scaling, Scaling::None) {
            return Err(
                keys.error(key, "frequencies for longer contexts that are made on the device are not supported")
            );
        }
        if options.packing.is_some() && matches!(scaling, Scaling::Dynamic | Scaling::LongRope(_)) {
            let problem = "frequencies that depend on the length are not recorded with it; rehearse the script (vramlab predict train.py)";
            return Err(error::Error::usage("packing", problem));
        }
        Ok(Self {
            theta: number("rope_theta").unwrap_or(theta),
            share: number("partial_rotary_factor").unwrap_or(share),
            scaling,
            built_there,
            matrices,
        })
    }

    /// True if frequencies are unchanged.
    pub(super) fn is_default(&self) -> bool {
        matches!(self.scaling, Scaling::None)
    }

    /// True if they are divided by lists of numbers.
    pub(super) fn is_longrope(&self) -> bool {
        matches!(self.scaling, Scaling::LongRope(_))
    }

    pub(super) fn check(&self, keys: &Keys<'_>, rotated: usize) -> error::Result<()> {
        self.scaling.check(keys, rotated)
    }
}

/// Sines and cosines of positions' angles. Python frees a pair from its end.
#[derive(Clone)]
pub(super) struct Angles {
    pub(super) sin: Tensor,
    pub(super) cos: Tensor,
}

/// The module: two equal buffers of frequencies in f32, one frequency for each pair of rotated elements.
pub(super) struct RotaryEmbedding {
    scope: ScopeId,
    rope: Rope,
    rotated: usize,
    frequencies: Array,
    original: Array,
    /// Frequencies of long sequences, if any: made by the first forward pass.
    long: Mutex<Option<Array>>,
}

impl RotaryEmbedding {
    /// Makes the module for heads of which `rotated` elements are rotated.
    pub(crate) fn new(init: &Init, rope: &Rope, rotated: usize) -> Result<Self> {
        let _scope = context::scope(init.scope());
        let buffer = || {
            let array = init.plain_buffer(&[rotated.div_ceil(2)], DType::F32)?;
            if init.device().computes() {
                array.write(&rope.scaling.frequencies(rope.theta, rotated, false))?;
            }
            Ok::<_, memcore::Error>(array)
        };
        let temporaries = if rope.built_there { Some(temporaries(init.device(), rotated)?) } else { None };
        let frequencies = buffer()?;
        drop(temporaries);
        let original = if rope.matrices { frequencies.clone() } else { buffer()? };
        let (scope, rope) = (init.scope(), rope.clone());
        Ok(Self { scope, rope, rotated, frequencies, original, long: Mutex::default() })
    }

    /// Returns sines and cosines of positions `[1, time]`: `[1, time, rotated]` each in `dtype`.
    pub(super) fn forward(&self, positions: &Tensor, dtype: DType) -> Result<Angles> {
        let _scope = context::scope(self.scope);
        match &self.rope.scaling {
            Scaling::Dynamic => look_for_growth(positions.device())?,
            Scaling::LongRope(rope) => self.choose(positions.numel() > rope.original)?,
            _ => {}
        }
        let mut kept = None;
        let angles = if self.rope.matrices {
            let _wide = Autocast::off();
            let positions = ops::cast(&ops::unsqueeze(positions, 1)?, DType::F32)?;
            let frequencies = Tensor::from_array(self.frequencies.view(&[1, self.frequencies.numel(), 1])?);
            let product = ops::matmul(&frequencies, &positions)?;
            kept = Some(positions);
            ops::transpose(&product, 1, 2)?
        } else {
            let positions = ops::cast(&ops::unsqueeze(positions, 2)?, DType::F32)?;
            let frequencies = Tensor::from_array(self.frequencies.view(&[1, 1, self.frequencies.numel()])?);
            ops::mul(&positions, &frequencies)?
        };
        let both = ops::cat(&[&angles, &angles], 2)?;
        let scaled = |function: fn(&Tensor) -> Result<Tensor>| {
            let raw = function(&both)?;
            ops::mul_scalar(&raw, self.rope.scaling.attention())
        };
        let (cos, sin) = (scaled(ops::cos)?, scaled(ops::sin)?);
        let (narrow_cos, narrow_sin) = (ops::cast(&cos, dtype)?, ops::cast(&sin, dtype)?);
        // In the order of the library's variables.
        drop((kept, angles, both, cos, sin));
        Ok(Angles { sin: narrow_sin, cos: narrow_cos })
    }

    /// `longrope_frequency_update`: copies the frequencies of this sequence, chosen on the device, over the current ones.
    fn choose(&self, is_long: bool) -> Result<()> {
        let device = self.frequencies.device();
        let _length = length(device)?;
        let long = self.long_frequencies()?;
        let chosen = {
            let _is_longer = Array::empty(device, &[], DType::Bool)?;
            self.original.empty_like()?
        };
        chosen.copy_(if is_long { &long } else { &self.original })?;
        self.frequencies.copy_(&chosen)
    }

    /// `_compute_longrope_parameters`: makes the frequencies of long sequences at their first use.
    fn long_frequencies(&self) -> Result<Array> {
        let mut slot = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(long) = &*slot {
            return Ok(long.clone());
        }
        let device = self.frequencies.device();
        let floats = || self.original.empty_like();
        let _factors = floats()?;
        let _shares = {
            let whole = Array::empty(device, self.original.dims(), DType::I64)?;
            let whole = {
                let converted = floats()?;
                drop(whole);
                converted
            };
            let shares = floats()?;
            drop(whole);
            shares
        };
        let product = {
            let _power = powers(device, self.original.numel())?;
            floats()?
        };
        let long = {
            let _reciprocal = floats()?;
            floats()?
        };
        drop(product);
        if device.computes() {
            long.write(&self.rope.scaling.frequencies(self.rope.theta, self.rotated, true))?;
        }
        *slot = Some(long.clone());
        Ok(long)
    }
}

/// Allocates the temporaries of `1.0 / (base ** (torch.arange(0, dim, 2) / dim))`, freed after its result exists: the reciprocal of the power, and
/// the power.
fn temporaries(device: &Device, rotated: usize) -> Result<[Array; 2]> {
    let floats = || Array::empty(device, &[rotated.div_ceil(2)], DType::F32);
    let power = {
        let share = {
            let _range = floats()?;
            floats()?
        };
        let power = powers(device, rotated.div_ceil(2))?;
        drop(share);
        power
    };
    Ok([floats()?, power])
}

/// Raises a number to the power of a tensor of `len` elements; meanwhile the number is a scalar on the device.
fn powers(device: &Device, len: usize) -> Result<Array> {
    let power = Array::empty(device, &[len], DType::F32)?;
    Array::empty(device, &[], DType::F64)?;
    Ok(power)
}

/// `seq_len = torch.max(position_ids) + 1`.
fn length(device: &Device) -> Result<Array> {
    let _most = Array::empty(device, &[], DType::I64)?;
    Array::empty(device, &[], DType::I64)
}

/// `dynamic_frequency_update`: checks whether the sequence is longer than the frequencies allow, and whether shorter. Neither changes anything here.
fn look_for_growth(device: &Device) -> Result<()> {
    let _length = length(device)?;
    Array::empty(device, &[], DType::Bool)?;
    Array::empty(device, &[], DType::Bool)?;
    Ok(())
}

/// Rotates `x` `[b, h, t, d]`: `x·cos + rotate_half(x)·sin`, with `cos` and `sin` `[1, 1, t, d]`.
pub(super) fn rotated(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let direct = ops::mul(x, cos)?;
    let mut crossed = rotate_half(x)?;
    crossed = ops::mul(&crossed, sin)?;
    let y = ops::add(&direct, &crossed)?;
    drop((direct, crossed));
    Ok(y)
}

/// Returns the second half of the last dimension negated, then the first.
fn rotate_half(x: &Tensor) -> Result<Tensor> {
    let d = x.dims()[3];
    let first = ops::narrow(x, 3, 0, d / 2)?;
    let second = ops::neg(&ops::narrow(x, 3, d / 2, d - d / 2)?)?;
    ops::cat(&[&second, &first], 3)
}
