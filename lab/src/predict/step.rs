//! A step as the list of tensors that come and go.

use std::collections::BTreeMap;

use super::{ConvScratch, Layer, Network, Objective, Piece, PredictedPeak, PredictedRow, Rules, Shelf, Update};

/// Names a tensor of the list.
type Id = u64;

/// A tensor and how many hold it.
#[derive(Clone)]
struct Held {
    piece: Piece,
    holders: u32,
}

/// What a layer keeps for its backward.
#[derive(Clone)]
struct Kept {
    layer: Layer,
    saved: Vec<Id>,
    /// Sizes of one example before the layer.
    dims: Vec<usize>,
    /// Whether something before the layer is trained.
    has_history: bool,
}

/// What a script can delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The network's result.
    Output,
    /// The loss.
    Loss,
    /// Input and targets.
    Batch,
    /// What `zero_grad()` lets go.
    Gradients,
    /// The optimizer.
    OptimizerState,
    /// The model.
    Parameters,
    /// What the libraries keep.
    Workspaces,
}

/// Follows the phases of training runs on one device, one run after the other.
#[derive(Clone)]
pub struct Forecast {
    rules: Rules,
    network: Network,
    shelf: Shelf,
    held: BTreeMap<Id, Held>,
    batch: usize,
    /// Libraries' workspaces that are there: thread, library, memory.
    workspaces: Vec<(&'static str, &'static str, Id)>,
    /// Name, sizes and tensor of each parameter.
    parameters: Vec<(String, Vec<usize>, Id)>,
    gradients: Vec<Option<Id>>,
    state: Vec<Id>,
    input: Option<Id>,
    target: Option<Id>,
    output: Option<Id>,
    loss: Option<Id>,
    kept: Vec<Kept>,
    kept_by_loss: Vec<Id>,
    /// Activations of ReLU layers are held for ever: the leak of a list that grows.
    keeps_activations: bool,
    phase: String,
    phase_peak: u64,
    peak: PredictedPeak,
    rows: Vec<PredictedRow>,
}

impl Forecast {
    /// A device with nothing on it.
    pub fn new(rules: Rules, network: Network) -> Self {
        Self {
            rules,
            network,
            shelf: Shelf::default(),
            held: BTreeMap::new(),
            batch: 0,
            workspaces: Vec::new(),
            parameters: Vec::new(),
            gradients: Vec::new(),
            state: Vec::new(),
            input: None,
            target: None,
            output: None,
            loss: None,
            kept: Vec::new(),
            kept_by_loss: Vec::new(),
            keeps_activations: false,
            phase: String::new(),
            phase_peak: 0,
            peak: PredictedPeak::default(),
            rows: Vec::new(),
        }
    }

    /// From here on the results of ReLU layers are held for ever, as by a list that grows.
    pub fn keep_activations(&mut self) {
        self.keeps_activations = true;
    }

    /// The rows so far.
    pub fn rows(&self) -> &[PredictedRow] {
        &self.rows
    }

    /// What there is at the highest moment so far.
    pub fn peak(&self) -> &PredictedPeak {
        &self.peak
    }

    /// `memory_reserved()` now, which without a call of `empty_cache()` is also the most that it ever was.
    pub fn reserved(&self) -> u64 {
        self.shelf.reserved()
    }

    /// `memory_allocated()` now.
    pub fn allocated(&self) -> u64 {
        self.shelf.allocated()
    }

    /// Free bytes of segments that also have held blocks.
    pub fn inactive_split(&self) -> u64 {
        self.shelf.inactive_split()
    }

    // ── tensors ──

    fn take(&mut self, what: impl Into<String>, element: u64, dims: &[usize], per_example: bool) -> Id {
        let count = dims.iter().product::<usize>() * if per_example { self.batch } else { 1 };
        let mut formula = element.to_string();
        if per_example {
            formula += "·B";
        }
        dims.iter().for_each(|d| formula += &format!("·{d}"));
        self.take_bytes(what.into(), formula, element * count as u64, per_example)
    }

    fn take_bytes(&mut self, what: String, formula: String, requested_bytes: u64, per_example: bool) -> Id {
        let (id, block_bytes) = self.shelf.take(requested_bytes);
        let piece = Piece { what, formula, requested_bytes, block_bytes, per_example };
        self.held.insert(id, Held { piece, holders: 1 });
        let allocated = self.shelf.allocated();
        self.phase_peak = self.phase_peak.max(allocated);
        if allocated > self.peak.allocated {
            let pieces = self.held.values().map(|held| held.piece.clone()).collect();
            self.peak = PredictedPeak { allocated, phase: self.phase.clone(), pieces };
        }
        id
    }

    fn hold(&mut self, id: Id) -> Id {
        if let Some(held) = self.held.get_mut(&id) {
            held.holders += 1;
        }
        id
    }

    fn let_go(&mut self, id: Id) {
        let Some(held) = self.held.get_mut(&id) else { return };
        held.holders -= 1;
        if held.holders == 0 {
            self.held.remove(&id);
            self.shelf.free(id);
        }
    }

    fn let_all_go(&mut self, ids: impl IntoIterator<Item = Id>) {
        ids.into_iter().for_each(|id| self.let_go(id));
    }

    fn row(&mut self, label: &str) {
        let requested = self.held.values().map(|held| held.piece.requested_bytes).sum();
        let (allocated, reserved, phase_peak) = (self.shelf.allocated(), self.shelf.reserved(), self.phase_peak);
        self.rows.push(PredictedRow { label: label.into(), allocated, requested, reserved, phase_peak });
        self.phase_peak = allocated;
    }

    fn workspace(&mut self, thread: &'static str, library: &'static str) {
        let bytes = if library == "cuBLAS" { self.rules.gemm_workspace } else { self.rules.epilogue_workspace };
        let there = self.workspaces.iter().any(|(t, l, _)| (*t, *l) == (thread, library));
        if bytes > 0 && !there {
            let what = format!("{library} workspace, {thread} thread");
            let id = self.take_bytes(what, bytes.to_string(), bytes, false);
            self.workspaces.push((thread, library, id));
        }
    }

    // ── phases ──

    /// The parameters are made.
    pub fn model(&mut self, label: &str) {
        self.phase = label.into();
        for (name, dims) in self.network.parameters() {
            let id = self.take(name.clone(), 4, &dims, false);
            self.parameters.push((name, dims, id));
            self.gradients.push(None);
        }
        self.row(label);
    }

    /// One step with a batch of `batch`; one row per phase.
    pub fn step(&mut self, label: &str, batch: usize) {
        self.batch = batch;
        for (name, phase) in [
            ("input", Self::load as fn(&mut Self)),
            ("zero_grad", Self::zero_grad),
            ("forward", Self::forward),
            ("loss", Self::compute_loss),
            ("backward", Self::backward),
            ("step", Self::update),
        ] {
            self.phase = format!("{label}.{name}");
            phase(self);
            let label = self.phase.clone();
            self.row(&label);
        }
    }

    /// Everything is dropped; the libraries' workspaces stay.
    pub fn finish(&mut self, label: &str) {
        for variable in [
            Variable::OptimizerState,
            Variable::Batch,
            Variable::Output,
            Variable::Loss,
            Variable::Gradients,
            Variable::Parameters,
        ] {
            self.let_go_of(variable);
        }
        self.gradients.clear();
        self.row(label);
    }

    /// A variable of the script is deleted.
    pub fn delete(&mut self, variable: Variable, label: &str) {
        self.let_go_of(variable);
        self.row(label);
    }

    /// `empty_cache()`.
    pub fn empty_cache(&mut self, label: &str) {
        self.shelf.empty_cache();
        self.row(label);
    }

    /// Something that neither takes nor gives.
    pub fn nothing(&mut self, label: &str) {
        self.row(label);
    }

    fn let_go_of(&mut self, variable: Variable) {
        let ids: Vec<Id> = match variable {
            Variable::Output => self.output.take().into_iter().collect(),
            Variable::Loss => self.loss.take().into_iter().collect(),
            Variable::Batch => [self.input.take(), self.target.take()].into_iter().flatten().collect(),
            Variable::Gradients => self.gradients.iter_mut().filter_map(Option::take).collect(),
            Variable::OptimizerState => std::mem::take(&mut self.state),
            Variable::Parameters => std::mem::take(&mut self.parameters).into_iter().map(|(.., id)| id).collect(),
            Variable::Workspaces => std::mem::take(&mut self.workspaces).into_iter().map(|(.., id)| id).collect(),
        };
        self.let_all_go(ids);
    }

    /// The new batch is there before the old one goes.
    fn load(&mut self) {
        let dims = self.network.input.clone();
        let input = self.take("input", 4, &dims, true);
        if let Some(old) = self.input.replace(input) {
            self.let_go(old);
        }
        let target = match self.network.objective {
            Objective::CrossEntropy(_) => self.take("targets", 8, &[], true),
            Objective::MeanSquaredError(n) => self.take("targets", 4, &[n], true),
        };
        if let Some(old) = self.target.replace(target) {
            self.let_go(old);
        }
    }

    fn zero_grad(&mut self) {
        self.let_go_of(Variable::Gradients);
    }

    fn forward(&mut self) {
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

    fn conv_scratch(&mut self, gradient: bool, dims: &[usize], weight: [usize; 4], padding: usize) -> Option<Id> {
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

    fn compute_loss(&mut self) {
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

    fn backward(&mut self) {
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

    fn update(&mut self) {
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
