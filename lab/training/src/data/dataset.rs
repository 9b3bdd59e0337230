//! Examples, their targets, and which of them are for training.

use super::error::{DataError, Result};
use super::rng::{SplitMix64, shuffle};

/// Targets of the examples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Targets {
    /// A class index below the second field for each example.
    Classes(Vec<i64>, usize),
}

impl Targets {
    /// Number of targets.
    pub fn len(&self) -> usize {
        match self {
            Targets::Classes(classes, _) => classes.len(),
        }
    }

    /// Whether there are no targets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The two parts of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Examples for training.
    Train,
    /// Examples for testing.
    Test,
}

/// A data set in host memory. It is consistent by construction: as many inputs as targets, every class in
/// range, and every example in exactly one of the two splits.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    name: String,
    inputs: Vec<f32>,
    input_dims: Vec<usize>,
    targets: Targets,
    train: Vec<usize>,
    test: Vec<usize>,
}

/// Seed of every split that the source itself does not define. It is fixed so that results can be compared.
const SPLIT_SEED: u64 = 0x5eed;

impl Dataset {
    /// Makes a data set whose first `train_len` examples are for training and the rest for testing.
    ///
    /// `inputs` holds the examples one after the other, each of `input_dims` in row-major order.
    ///
    /// # Errors
    /// [`DataError::Invalid`] if the lengths do not match, a class is out of range, a dimension is 0 or `train_len` is beyond the number of examples.
    pub fn new(
        name: impl Into<String>,
        inputs: Vec<f32>,
        input_dims: Vec<usize>,
        targets: Targets,
        train_len: usize,
    ) -> Result<Self> {
        let what = "data set";
        let len = targets.len();
        let expected = example_len(&input_dims)?.checked_mul(len);
        if expected != Some(inputs.len()) {
            let problem = format!("{} input values are not {len} examples of {input_dims:?}", inputs.len());
            return Err(DataError::invalid(what, problem));
        }
        let Targets::Classes(classes, n_classes) = &targets;
        let in_range = |class: i64| usize::try_from(class).is_ok_and(|class| class < *n_classes);
        if let Some(at) = classes.iter().position(|class| !in_range(*class)) {
            let problem = format!("class {} of example {at} is not one of 0..{n_classes}", classes[at]);
            return Err(DataError::invalid(what, problem));
        }
        if train_len > len {
            return Err(DataError::invalid(what, format!("{train_len} training examples of {len}")));
        }
        let (train, test) = ((0..train_len).collect(), (train_len..len).collect());
        Ok(Dataset { name: name.into(), inputs, input_dims, targets, train, test })
    }

    /// Divides the same data anew: a fifth of the examples is for testing, drawn at random but always the same ones.
    #[must_use]
    pub fn with_drawn_split(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.len()).collect();
        shuffle(&mut order, SPLIT_SEED);
        self.test = order.split_off(self.len() - self.len() / 5);
        self.train = order;
        self
    }

    /// Name of the data set in results.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of examples in both splits.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sizes of one example; images are channels × height × width.
    pub fn input_dims(&self) -> &[usize] {
        &self.input_dims
    }

    /// All inputs, example after example, each in row-major order.
    pub fn inputs(&self) -> &[f32] {
        &self.inputs
    }

    /// All targets.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        let Targets::Classes(_, n_classes) = self.targets;
        n_classes
    }

    /// Examples of a split, as indices for [`Dataset::batch`].
    pub fn split(&self, split: Split) -> &[usize] {
        match split {
            Split::Train => &self.train,
            Split::Test => &self.test,
        }
    }

    /// Returns a split's examples in the random order of this seed and epoch. Cut it into batches with [`chunks`](slice::chunks) (the last one may be
    /// smaller) or [`chunks_exact`](slice::chunks_exact).
    pub fn epoch_order(&self, split: Split, seed: u64, epoch: u64) -> Vec<usize> {
        let mut order = self.split(split).to_vec();
        // Seed and epoch pass through the generator one after the other. If they were added up, seed 1 in epoch 0 would be seed 0 in epoch 1.
        let mixed = SplitMix64::new(SplitMix64::new(seed).next_u64() ^ epoch).next_u64();
        shuffle(&mut order, mixed);
        order
    }

    /// Gathers examples: their inputs (`indices.len()` × [`input_dims`](Dataset::input_dims), row-major) and classes.
    /// An index may occur more than once.
    ///
    /// # Errors
    /// [`DataError::Invalid`] when an index is beyond the data.
    pub fn batch(&self, indices: &[usize]) -> Result<(Vec<f32>, Vec<i64>)> {
        let Targets::Classes(classes, _) = &self.targets;
        if let Some(index) = indices.iter().find(|index| **index >= classes.len()) {
            return Err(DataError::invalid("batch", format!("example {index} of {}", classes.len())));
        }
        let example_len: usize = self.input_dims.iter().product();
        let mut inputs = Vec::with_capacity(indices.len() * example_len);
        for index in indices {
            inputs.extend_from_slice(&self.inputs[index * example_len..][..example_len]);
        }
        Ok((inputs, indices.iter().map(|index| classes[*index]).collect()))
    }
}

/// Number of values in one example.
///
/// # Errors
/// If a dimension is 0 or the product overflows.
pub(super) fn example_len(dims: &[usize]) -> Result<usize> {
    if dims.contains(&0) {
        return Err(DataError::invalid("input shape", format!("{dims:?} holds no values")));
    }
    let product = dims.iter().try_fold(1_usize, |product, dim| product.checked_mul(*dim));
    product.ok_or_else(|| DataError::invalid("input shape", format!("{dims:?} is beyond this machine's address space")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten() -> Dataset {
        let inputs = (0..60).map(|v| v as f32).collect();
        let classes = Targets::Classes((0..10).map(|i| i % 3).collect(), 3);
        Dataset::new("ten", inputs, vec![2, 3], classes, 8).unwrap()
    }

    #[test]
    fn a_batch_holds_the_examples_in_the_order_asked_for() {
        let (inputs, classes) = ten().batch(&[9, 0, 9]).unwrap();
        let example = |i: i32| (6 * i..6 * i + 6).map(|v| v as f32);
        assert_eq!(inputs, example(9).chain(example(0)).chain(example(9)).collect::<Vec<_>>());
        assert_eq!(classes, [0, 0, 0]);
        assert_eq!(ten().batch(&[5, 1]).unwrap().1, [2, 1]);
        assert_eq!(ten().batch(&[]).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn an_index_beyond_the_data_is_an_error() {
        let error = ten().batch(&[0, 10]).unwrap_err();
        assert_eq!(error.to_string(), "batch: example 10 of 10");
    }

    #[test]
    fn every_example_is_in_one_split() {
        assert_eq!(ten().split(Split::Train), (0..8).collect::<Vec<_>>());
        assert_eq!(ten().split(Split::Test), [8, 9]);
        let drawn = ten().with_drawn_split();
        assert_eq!((drawn.split(Split::Train).len(), drawn.split(Split::Test).len()), (8, 2));
        let mut all = [drawn.split(Split::Train), drawn.split(Split::Test)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(drawn, ten().with_drawn_split());
    }

    #[test]
    fn an_epochs_order_depends_on_seed_and_epoch() {
        let data = ten();
        let order = |seed, epoch| data.epoch_order(Split::Train, seed, epoch);
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(0, 1));
        let mut sorted = order(3, 4);
        sorted.sort_unstable();
        assert_eq!(sorted, data.split(Split::Train));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let new = |inputs: usize, dims: &[usize], classes: &[i64], train| {
            Dataset::new("x", vec![0.0; inputs], dims.to_vec(), Targets::Classes(classes.to_vec(), 2), train)
                .map(|data| data.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(new(4, &[2], &[0, 1], 1), Ok(2));
        assert_eq!(new(5, &[2], &[0, 1], 1), Err("data set: 5 input values are not 2 examples of [2]".into()));
        assert_eq!(new(4, &[2], &[0, 2], 1), Err("data set: class 2 of example 1 is not one of 0..2".into()));
        assert_eq!(new(4, &[2], &[-1, 0], 1), Err("data set: class -1 of example 0 is not one of 0..2".into()));
        assert_eq!(new(4, &[2], &[0, 1], 3), Err("data set: 3 training examples of 2".into()));
        assert_eq!(new(0, &[0], &[0, 1], 1), Err("input shape: [0] holds no values".into()));
        let huge = new(0, &[usize::MAX, 2], &[], 0).unwrap_err();
        assert!(huge.contains("address space"), "{huge}");
    }
}
