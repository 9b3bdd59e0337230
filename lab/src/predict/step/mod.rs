//! A step as the list of tensors that come and go.

mod backward;
mod forward;

use std::collections::BTreeMap;

use super::{Layer, Network, Objective, Piece, PredictedPeak, PredictedRow, Rules, Shelf};

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
}
