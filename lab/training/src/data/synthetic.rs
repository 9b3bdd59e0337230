//! Data of any shape, made of noise.

use super::dataset::{Dataset, Targets, example_len};
use super::error::{DataError, Result};
use super::rng::SplitMix64;

/// Noise with random labels, for runs in which only memory and time matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Sizes of one example.
    pub input_dims: Vec<usize>,
    /// Number of classes that the labels are drawn from.
    pub n_classes: usize,
    /// Number of examples in both splits together.
    pub len: usize,
    /// Seed of all values; the same seed gives the same data on every machine.
    pub seed: u64,
}

impl Synthetic {
    /// Makes the data: inputs uniform in [0, 1), then classes, all independent.
    ///
    /// # Errors
    /// [`DataError::Invalid`] if there would be no class or no value, or more values than this machine can hold.
    pub fn generate(&self) -> Result<Dataset> {
        let what = "synthetic data";
        let Ok(max_class) = i64::try_from(self.n_classes) else {
            return Err(DataError::invalid(what, format!("{} classes do not fit in an i64", self.n_classes)));
        };
        if max_class == 0 {
            return Err(DataError::invalid(what, "needs at least one class"));
        }
        let too_large = || {
            let problem = format!("{} examples of {:?} do not fit in memory", self.len, self.input_dims);
            DataError::invalid(what, problem)
        };
        let values = example_len(&self.input_dims)?.checked_mul(self.len).ok_or_else(too_large)?;
        let (mut inputs, mut classes) = (Vec::new(), Vec::new());
        inputs.try_reserve_exact(values).map_err(|_| too_large())?;
        classes.try_reserve_exact(self.len).map_err(|_| too_large())?;
        let mut rng = SplitMix64::new(self.seed);
        inputs.extend((0..values).map(|_| rng.next_f32()));
        classes.extend((0..self.len).map(|_| rng.below(self.n_classes as u64) as i64));
        let targets = Targets::Classes(classes, self.n_classes);
        Dataset::new("synthetic", inputs, self.input_dims.clone(), targets, self.len).map(Dataset::with_drawn_split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Split;

    fn spec() -> Synthetic {
        Synthetic { input_dims: vec![3, 4, 4], n_classes: 5, len: 100, seed: 9 }
    }

    #[test]
    fn the_seed_decides_everything() {
        let data = spec().generate().unwrap();
        assert_eq!(data, spec().generate().unwrap());
        assert_ne!(data.inputs(), Synthetic { seed: 10, ..spec() }.generate().unwrap().inputs());
    }

    #[test]
    fn shapes_and_ranges_are_those_asked_for() {
        let data = spec().generate().unwrap();
        assert_eq!((data.len(), data.input_dims(), data.n_classes()), (100, [3, 4, 4].as_slice(), 5));
        assert_eq!(data.inputs().len(), 100 * 48);
        assert!(data.inputs().iter().all(|v| (0.0..1.0).contains(v)));
        let Targets::Classes(classes, _) = data.targets();
        assert_eq!((0..5).filter(|class| classes.contains(class)).count(), 5);
        assert_eq!((data.split(Split::Train).len(), data.split(Split::Test).len()), (80, 20));
    }

    #[test]
    fn absurd_requests_are_errors() {
        let error = |spec: Synthetic| spec.generate().unwrap_err().to_string();
        assert!(error(Synthetic { n_classes: 0, ..spec() }).contains("at least one class"));
        assert!(error(Synthetic { input_dims: vec![3, 0], ..spec() }).contains("no values"));
        assert!(error(Synthetic { input_dims: vec![usize::MAX, 3], ..spec() }).contains("address space"));
        assert!(error(Synthetic { len: usize::MAX, ..spec() }).contains("do not fit in memory"));
        assert!(error(Synthetic { len: usize::MAX / 64, ..spec() }).contains("do not fit in memory"));
    }
}
