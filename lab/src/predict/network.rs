//! What a prediction needs to know of a network: its layers' sizes.

/// A layer, without the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// `[inputs, h, w] → [outputs, h', w']`, square kernel, stride 1, with bias.
    Conv2d {
        /// Channels in.
        inputs: usize,
        /// Channels out.
        outputs: usize,
        /// Side of the kernel.
        kernel: usize,
        /// Zeros at each border.
        padding: usize,
    },
    /// `max(x, 0)`.
    Relu,
    /// Windows of this side, next to each other.
    MaxPool2d(usize),
    /// All sizes become one: a view.
    Flatten,
    /// `inputs → outputs`, with bias.
    Linear {
        /// Features in.
        inputs: usize,
        /// Features out.
        outputs: usize,
    },
}

/// What the result is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Cross entropy over this many classes.
    CrossEntropy(usize),
    /// Mean squared error against this many values.
    MeanSquaredError(usize),
}

/// What the optimizer keeps and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing.
    Sgd,
    /// Two moments per parameter, and one root per parameter during the step (the foreach form).
    Adam,
}

/// Layers in a row, the loss and the optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Sizes of one example.
    pub input: Vec<usize>,
    /// The layers.
    pub layers: Vec<Layer>,
    /// The loss.
    pub objective: Objective,
    /// The optimizer.
    pub update: Update,
}

impl Network {
    /// `simple-cnn` with Adam.
    pub fn simple_cnn() -> Self {
        Self {
            input: vec![3, 32, 32],
            layers: vec![
                Layer::Conv2d { inputs: 3, outputs: 16, kernel: 3, padding: 1 },
                Layer::Relu,
                Layer::MaxPool2d(2),
                Layer::Flatten,
                Layer::Linear { inputs: 16 * 16 * 16, outputs: 10 },
            ],
            objective: Objective::CrossEntropy(10),
            update: Update::Adam,
        }
    }

    /// `linear` with SGD.
    pub fn linear() -> Self {
        Self::regression(&[10, 1])
    }

    /// `two-layer` with SGD.
    pub fn two_layer() -> Self {
        Self::regression(&[10, 20, 1])
    }

    fn regression(sizes: &[usize]) -> Self {
        let mut layers = Vec::new();
        for pair in sizes.windows(2) {
            if !layers.is_empty() {
                layers.push(Layer::Relu);
            }
            layers.push(Layer::Linear { inputs: pair[0], outputs: pair[1] });
        }
        let objective = Objective::MeanSquaredError(sizes[sizes.len() - 1]);
        Self { input: vec![sizes[0]], layers, objective, update: Update::Sgd }
    }

    /// Name and sizes of every parameter, in the order of their creation.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut parameters = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            let (weight, outputs) = match *layer {
                Layer::Conv2d { inputs, outputs, kernel, .. } => (vec![outputs, inputs, kernel, kernel], outputs),
                Layer::Linear { inputs, outputs } => (vec![outputs, inputs], outputs),
                Layer::Relu | Layer::MaxPool2d(_) | Layer::Flatten => continue,
            };
            parameters.push((format!("layer {i} weight"), weight));
            parameters.push((format!("layer {i} bias"), vec![outputs]));
        }
        parameters
    }

    /// Number of trained values.
    pub fn parameter_count(&self) -> u64 {
        self.parameters().iter().map(|(_, dims)| dims.iter().product::<usize>() as u64).sum()
    }

    /// Nodes of the graph of one step: one per operation, two per linear layer (its weight is transposed first), two for cross entropy.
    pub fn nodes(&self) -> u64 {
        let per_layer = |layer: &Layer| if matches!(layer, Layer::Linear { .. }) { 2 } else { 1 };
        let loss = if matches!(self.objective, Objective::CrossEntropy(_)) { 2 } else { 1 };
        self.layers.iter().map(per_layer).sum::<u64>() + loss
    }
}
