//! Changes of a rotary embedding's frequencies for longer contexts.

use lab_base::error;
use serde_json::Value;

use super::keys::Keys;

#[derive(Clone, Debug)]
pub(super) enum Scaling {
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
    /// `dynamic`: changes frequencies for sequences longer than the positions. Such sequences are not read here; only the library's check remains.
    Dynamic,
    LongRope(LongRope),
}

/// `longrope`: each pair's frequency is divided by a number of its own, and by another one in sequences longer than `original`.
#[derive(Clone, Debug)]
pub(super) struct LongRope {
    short: Vec<f64>,
    long: Vec<f64>,
    /// Positions that the network was first made for.
    pub(super) original: usize,
    /// Factor of cosines and sines.
    attention: f64,
}

/// `yarn`: between `low` and `high` rotations within the original positions, frequencies change gradually from divided to unchanged.
#[derive(Clone, Debug)]
pub(super) struct Yarn {
    factor: f64,
    /// Rotations above which a frequency stays, and below which it is divided.
    fast: f64,
    slow: f64,
    /// Positions that the network was first made for.
    original: f64,
    /// True if the bounds are whole pairs of elements, not fractions.
    truncate: bool,
    /// Factor of cosines and sines.
    attention: f64,
}

/// Numbers of positions in a configuration.
pub(super) struct Positions {
    /// Current number.
    pub(super) now: usize,
    /// Original number.
    pub(super) original: usize,
}

impl Scaling {
    /// Reads the object `given` under `key`.
    ///
    /// # Errors
    /// A kind that takes other memory, or whose values are not known here.
    pub(super) fn read(keys: &Keys<'_>, key: &str, given: &Value, positions: Positions) -> error::Result<Self> {
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
                original: positions.original as f64,
            },
            "yarn" => Self::Yarn(Yarn::read(need("factor")?, given, positions.original as f64)),
            "dynamic" => {
                need("factor")?;
                Self::Dynamic
            }
            "longrope" => Self::LongRope(LongRope::read(keys, key, given, positions)?),
            other => {
                let known = "default, dynamic, linear, llama3, longrope, yarn";
                return Err(keys.error(key, format!("rope type {other:?} is not supported; known: {known}")));
            }
        })
    }

    /// Returns the factor of cosines and sines.
    pub(super) fn attention(&self) -> f64 {
        match self {
            Self::Yarn(yarn) => yarn.attention,
            Self::LongRope(long) => long.attention,
            _ => 1.0,
        }
    }

    /// Returns the frequencies for heads of which `rotated` elements are rotated, in radians per position of each pair: those of a short sequence, or
    /// of a `long` one.
    pub(super) fn frequencies(&self, theta: f64, rotated: usize, long: bool) -> Vec<f32> {
        let plain = |i: usize| theta.powf(-2.0 * i as f64 / rotated as f64);
        let scaled = |i: usize| match self {
            Self::None | Self::Dynamic => plain(i),
            Self::Linear { factor } => plain(i) / factor,
            Self::Llama3 { factor, low, high, original } => llama3(plain(i), [*factor, *low, *high, *original]),
            Self::Yarn(yarn) => plain(i) * yarn.share_of(i, rotated, theta),
            Self::LongRope(rope) => plain(i) / if long { &rope.long } else { &rope.short }.get(i).unwrap_or(&1.0),
        };
        (0..rotated.div_ceil(2)).map(|i| scaled(i) as f32).collect()
    }

    /// # Errors
    /// [`error::Error::Usage`] for another number of divisors than pairs of `rotated` elements.
    pub(super) fn check(&self, keys: &Keys<'_>, rotated: usize) -> error::Result<()> {
        match self {
            Self::LongRope(_) if !rotated.is_multiple_of(2) => {
                Err(keys.error("rope_scaling", format!("longrope for {rotated} elements: the library fails")))
            }
            Self::LongRope(rope) if [&rope.short, &rope.long].iter().any(|list| list.len() != rotated / 2) => {
                let problem = format!("short_factor and long_factor need {} numbers each", rotated / 2);
                Err(keys.error("rope_scaling", problem))
            }
            _ => Ok(()),
        }
    }
}

impl LongRope {
    fn read(keys: &Keys<'_>, key: &str, given: &Value, positions: Positions) -> error::Result<Self> {
        let list = |name: &str| {
            let list = given.get(name).and_then(Value::as_array);
            let numbers = list.and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
            numbers.ok_or_else(|| keys.error(key, format!("needs the list of numbers {name}")))
        };
        let number = |name: &str| given.get(name).and_then(Value::as_f64);
        let original = positions.original as f64;
        let factor = number("factor").unwrap_or(positions.now as f64 / original);
        let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
        Ok(Self {
            short: list("short_factor")?,
            long: list("long_factor")?,
            original: positions.original,
            attention: number("attention_factor").unwrap_or(usual),
        })
    }
}

/// Changes a frequency by the rule of Llama 3.
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
        // As in the library, 0 counts as absent.
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

    /// Returns the factor of the frequency of pair `i` of `rotated` elements: from 1 for fast ones to 1/factor for slow ones.
    fn share_of(&self, i: usize, rotated: usize, theta: f64) -> f64 {
        let pair_with = |rotations: f64| {
            rotated as f64 * (self.original / (rotations * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let (mut low, mut high) = (pair_with(self.fast), pair_with(self.slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(rotated as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        divided / self.factor + (1.0 - divided)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Frequencies of heads of 16 elements, 256 positions now and 64 at first, and the factor of cosines and sines, as release 5.23 computes them.
    fn compare(given: &Value, long: bool, expected: [f64; 8], attention: f64) {
        let map = serde_json::Map::new();
        let keys = Keys::new("config.json", &map);
        let positions = Positions { now: 256, original: 64 };
        let scaling = Scaling::read(&keys, "rope_scaling", given, positions).unwrap();
        let ours = scaling.frequencies(10_000.0, 16, long);
        assert_eq!(ours.len(), expected.len());
        for (i, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            assert!(
                (f64::from(*ours) / expected - 1.0).abs() < 1e-5,
                "{given} pair {i}: {ours}, the library {expected}"
            );
        }
        assert!((scaling.attention() - attention).abs() < 1e-12, "{given}: {}", scaling.attention());
    }

    #[test]
    fn frequencies_are_the_librarys() {
        let yarn = json!({ "rope_type": "yarn", "factor": 4.0 });
        let expected = [1.0, 0.237_170_8, 0.05, 0.007_905_695, 0.002_5, 0.000_790_569_5, 0.000_25, 7.905_695e-5];
        compare(&yarn, false, expected, 1.138_629_436_111_989);
        let yarn =
            json!({ "rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": false });
        let expected = [1.0, 0.163_290_3, 0.003_273_824, 0.000_790_569_5, 0.000_25, 7.905_695e-5, 2.5e-5, 7.905_694e-6];
        compare(&yarn, false, expected, 1.087_954_607_506_612_2);
        let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0 });
        let expected =
            [1.0, 0.244_384_6, 0.013_042_26, 0.003_952_847, 0.001_25, 0.000_395_284_7, 0.000_125, 3.952_847e-5];
        compare(&llama3, false, expected, 1.0);
    }

    #[test]
    fn long_sequences_have_frequencies_of_their_own() {
        let rope = json!({ "rope_type": "longrope", "short_factor": [1, 1.5, 1, 1, 1, 2, 1, 1],
            "long_factor": [1, 2, 3, 4, 5, 6, 7, 8] });
        let short = [1.0, 0.210_818_5, 0.1, 0.031_622_78, 0.01, 0.001_581_139, 0.001, 0.000_316_227_8];
        let long =
            [1.0, 0.158_113_9, 0.033_333_34, 0.007_905_695, 0.002, 0.000_527_046_3, 0.000_142_857_1, 3.952_847e-5];
        compare(&rope, false, short, 1.154_700_538_379_251_7);
        compare(&rope, true, long, 1.154_700_538_379_251_7);
    }
}
