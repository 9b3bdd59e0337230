//! What forward and the loss make and keep.

use super::super::{ConvScratch, Layer, Objective};
use super::{Forecast, Id, Kept};

impl Forecast {
    pub(super) fn forward(&mut self) {
        let Some(input) = self.input else { return };
        let mut x = self.hold(input);
        let mut dims = self.network.input.clone();
        let mut has_history = false;
        for (i, layer) in self.network.layers.clone().into_iter().enumerate() {
            let (y, saved) = self.layer(i, &layer, x, &dims);
            let after = output_dims(&layer, &dims);
            let before = std::mem::replace(&mut dims, after);
            self.kept.push(Kept { layer: layer.clone(), saved, dims: before, has_history });
            has_history |= matches!(layer, Layer::Conv2d { .. } | Layer::Linear { .. });
            if let Some(y) = y {
                self.let_go(std::mem::replace(&mut x, y));
            }
        }
        if let Some(old) = self.output.replace(x) {
            self.let_go(old);
        }
    }

    /// One layer: its result (`None` for a view), and what is kept for backward.
    fn layer(&mut self, i: usize, layer: &Layer, x: Id, dims: &[usize]) -> (Option<Id>, Vec<Id>) {
        let result = output_dims(layer, dims);
        match *layer {
            Layer::Conv2d { inputs, outputs, kernel, padding } => {
                let y = self.take(format!("layer {i} convolution"), 4, &result, true);
                let scratch = self.conv_scratch(false, dims, [outputs, inputs, kernel, kernel], padding);
                if self.rules.conv == ConvScratch::Im2col {
                    self.workspace("main", "cuBLAS");
                }
                self.let_all_go(scratch);
                (Some(y), vec![self.hold(x)])
            }
            Layer::Relu => {
                let y = self.take(format!("layer {i} ReLU"), 4, &result, true);
                if self.keeps_activations {
                    self.hold(y);
                }
                (Some(y), vec![self.hold(y)])
            }
            Layer::MaxPool2d(_) => {
                let y = self.take(format!("layer {i} pooling"), 4, &result, true);
                let indices = self.take(format!("layer {i} positions"), 8, &result, true);
                (Some(y), vec![self.hold(x), indices])
            }
            Layer::Flatten => (None, Vec::new()),
            Layer::Linear { inputs, outputs } => {
                let y = self.take(format!("layer {i} linear"), 4, &result, true);
                self.workspace("main", "cuBLAS");
                if inputs > 1 && outputs > 1 {
                    self.workspace("main", "cuBLASLt");
                }
                (Some(y), vec![self.hold(x)])
            }
        }
    }

    pub(super) fn conv_scratch(
        &mut self,
        gradient: bool,
        dims: &[usize],
        weight: [usize; 4],
        padding: usize,
    ) -> Option<Id> {
        let [_, c, k, _] = weight;
        let side = |i: usize| dims[i] + 2 * padding + 1 - k;
        match self.rules.conv {
            ConvScratch::Im2col => Some(self.take("im2col of one example", 4, &[c, k, k, side(1), side(2)], false)),
            ConvScratch::Fixed(0) => None,
            ConvScratch::Fixed(bytes) => {
                Some(self.take_bytes("convolution workspace".into(), bytes.to_string(), bytes, false))
            }
            ConvScratch::Backend => {
                let x = [self.batch, dims[0], dims[1], dims[2]];
                let bytes = self.rules.backend_scratch(gradient, &x, &weight, padding);
                (bytes > 0).then(|| self.take_bytes("convolution workspace".into(), bytes.to_string(), bytes, false))
            }
        }
    }

    pub(super) fn compute_loss(&mut self) {
        let (Some(output), Some(target)) = (self.output, self.target) else { return };
        let target = self.hold(target);
        let loss = match self.network.objective {
            Objective::CrossEntropy(classes) => {
                let log_probs = self.take("log-probabilities", 4, &[classes], true);
                let loss = self.take("loss", 4, &[], false);
                let total_weight = self.take("total weight", 4, &[], false);
                // Kept by both nodes of the loss; the variable is gone.
                self.kept_by_loss = vec![self.hold(log_probs), target, total_weight, log_probs];
                loss
            }
            Objective::MeanSquaredError(n) => {
                let result = self.rules.wide_mse.then(|| self.take("loss, at full size", 4, &[n], true));
                let squares = self.take("squared differences", 4, &[n], true);
                let loss = result.unwrap_or_else(|| self.take("loss", 4, &[], false));
                self.let_go(squares);
                self.kept_by_loss = vec![self.hold(output), target];
                loss
            }
        };
        if let Some(old) = self.loss.replace(loss) {
            self.let_go(old);
        }
    }
}

/// Sizes of one example after a layer.
fn output_dims(layer: &Layer, dims: &[usize]) -> Vec<usize> {
    match *layer {
        Layer::Conv2d { outputs, kernel, padding, .. } => {
            vec![outputs, dims[1] + 2 * padding + 1 - kernel, dims[2] + 2 * padding + 1 - kernel]
        }
        Layer::Relu => dims.to_vec(),
        Layer::MaxPool2d(side) => vec![dims[0], dims[1] / side, dims[2] / side],
        Layer::Flatten => vec![dims.iter().product()],
        Layer::Linear { outputs, .. } => vec![outputs],
    }
}
