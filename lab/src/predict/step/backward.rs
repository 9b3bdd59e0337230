//! What backward and the optimizer make, and what they let go.

use super::super::{ConvScratch, Layer, Objective, Update};
use super::{Forecast, Id, Kept};

impl Forecast {
    pub(super) fn backward(&mut self) {
        let seed = self.take("gradient of the loss", 4, &[], false);
        let mut kept_by_loss = std::mem::take(&mut self.kept_by_loss);
        let grad = match self.network.objective {
            Objective::CrossEntropy(classes) => {
                let of_log_probs = self.take("gradient of the log-probabilities", 4, &[classes], true);
                let by_softmax = kept_by_loss.split_off(3);
                self.let_all_go(std::mem::take(&mut kept_by_loss));
                let grad = self.take("gradient of the logits", 4, &[classes], true);
                self.let_go(of_log_probs);
                self.let_all_go(by_softmax);
                grad
            }
            Objective::MeanSquaredError(n) => self.take("gradient of the result", 4, &[n], true),
        };
        self.let_all_go(kept_by_loss);
        let mut grad = Some(grad);
        let mut last = self.parameters.len();
        for (i, kept) in std::mem::take(&mut self.kept).into_iter().enumerate().rev() {
            if kept.layer == Layer::Flatten {
                continue;
            }
            let (next, scratch) = self.layer_backward(i, &kept, &mut last);
            if let Some(consumed) = std::mem::replace(&mut grad, next) {
                self.let_go(consumed);
            }
            self.let_all_go(scratch);
            self.let_all_go(kept.saved);
        }
        self.let_go(seed);
    }

    /// The gradients that a layer makes: its input's (where anything before it is trained) and its parameters'. `last` counts the
    /// parameters before the layers that were done. Also returns scratch that goes after the incoming gradient.
    fn layer_backward(&mut self, i: usize, kept: &Kept, last: &mut usize) -> (Option<Id>, Option<Id>) {
        let dims = kept.dims.clone();
        let of_input = |this: &mut Self| this.take(format!("gradient before layer {i}"), 4, &dims, true);
        match kept.layer {
            Layer::Conv2d { inputs, outputs, kernel, padding } => {
                *last -= 2;
                let weight = [outputs, inputs, kernel, kernel];
                let mut shared = None;
                let mut next = None;
                if kept.has_history {
                    next = Some(of_input(self));
                    shared = self.scratch_pass(true, &kept.dims, weight, padding);
                }
                self.accumulate(*last + 1, None);
                let gradient = self.take_gradient(*last);
                if shared.is_none() {
                    shared = self.scratch_pass(true, &kept.dims, weight, padding);
                }
                self.accumulate(*last, Some(gradient));
                (next, shared)
            }
            Layer::Linear { .. } => {
                *last -= 2;
                let next = kept.has_history.then(|| of_input(self));
                if next.is_some() {
                    self.workspace("autograd", "cuBLAS");
                }
                let gradient = self.take_gradient(*last);
                self.workspace("autograd", "cuBLAS");
                self.accumulate(*last + 1, None);
                self.accumulate(*last, Some(gradient));
                (next, None)
            }
            Layer::Relu | Layer::MaxPool2d(_) => (Some(of_input(self)), None),
            Layer::Flatten => (None, None),
        }
    }

    /// Scratch of a convolution's gradient; kept for the other gradients where it is the unfolded picture, gone at once otherwise.
    fn scratch_pass(&mut self, gradient: bool, dims: &[usize], weight: [usize; 4], padding: usize) -> Option<Id> {
        let scratch = self.conv_scratch(gradient, dims, weight, padding);
        if self.rules.conv == ConvScratch::Im2col {
            self.workspace("autograd", "cuBLAS");
            return scratch;
        }
        self.let_all_go(scratch);
        None
    }

    fn take_gradient(&mut self, parameter: usize) -> Id {
        self.like_parameter("gradient of", parameter)
    }

    fn like_parameter(&mut self, what: &str, parameter: usize) -> Id {
        let (name, dims, _) = self.parameters[parameter].clone();
        self.take(format!("{what} {name}"), 4, &dims, false)
    }

    /// The first gradient stays; a later one is added to it and goes.
    fn accumulate(&mut self, parameter: usize, gradient: Option<Id>) {
        let gradient = gradient.unwrap_or_else(|| self.take_gradient(parameter));
        match self.gradients[parameter] {
            None => self.gradients[parameter] = Some(gradient),
            Some(_) => self.let_go(gradient),
        }
    }

    pub(super) fn update(&mut self) {
        if self.network.update == Update::Sgd {
            return;
        }
        if self.state.is_empty() {
            for i in 0..self.parameters.len() {
                for moment in ["first moment of", "second moment of"] {
                    let id = self.like_parameter(moment, i);
                    self.state.push(id);
                }
            }
        }
        let roots: Vec<Id> = (0..self.parameters.len()).map(|i| self.like_parameter("root for", i)).collect();
        self.let_all_go(roots.into_iter().rev());
    }
}
