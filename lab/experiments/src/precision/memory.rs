//! Memory that training takes in each precision: one network with many parameters and few examples, one with few parameters and many
//! examples.

use lab_analysis::predict::rounded;
use lab_base::error::Result;
use lab_training::{OptimizerKind, OptimizerSettings, Precision};
use memcore::memory::{Category, CategoryBytes};

use super::super::Setup;
use super::super::columns::Columns;
use super::super::perceptron::perceptron;
use super::super::session::{Session, StepRecord, undisturbed};

const LAYERS: usize = 4;
const CLASSES: usize = 10;
/// Above 1 MiB, a block may be larger than the request.
const MIB: u64 = 1 << 20;

/// Sizes of a network. Its examples have as many values as its hidden layers have neurons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) batch: usize,
}

/// Figures of the second step of a network's training, in one precision.
pub(super) struct Weighed {
    pub(super) precision: Precision,
    pub(super) sizes: Sizes,
    /// Bytes that the graph keeps when the loss exists.
    pub(super) activation_bytes: u64,
    pub(super) after: CategoryBytes,
    pub(super) peak_bytes: u64,
    /// Workspaces of the libraries, the same in every precision.
    pub(super) workspace_bytes: u64,
    /// Number of values of each parameter, in the order of their creation: weight, bias, weight …
    parameters: Vec<u64>,
    calm: bool,
}

pub(super) fn weigh(setup: &Setup<'_>, precision: Precision, sizes: Sizes) -> Result<Weighed> {
    let device = (setup.open)()?;
    let network = perceptron(LAYERS, sizes.width, sizes.width, CLASSES)?;
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_precision(&device, &*network, &adam, precision, setup.seed)?;
    session.whole_step("s0", sizes.batch)?;
    let StepRecord { moments, peak, .. } = session.whole_step("s1", sizes.batch)?;
    Ok(Weighed {
        precision,
        sizes,
        activation_bytes: moments[3].by_category[Category::Activation as usize],
        after: moments[5].by_category,
        peak_bytes: peak.allocated_bytes,
        workspace_bytes: peak.by_category[Category::Workspace as usize],
        parameters: session.network.model.parameters.iter().map(|p| p.array().numel() as u64).collect(),
        calm: undisturbed(&device),
    })
}

impl Weighed {
    pub(super) fn bytes_in(&self, category: Category) -> u64 {
        match category {
            Category::Activation => self.activation_bytes,
            other => self.after[other as usize],
        }
    }

    /// The peak without the libraries' workspaces.
    pub(super) fn own_peak(&self) -> u64 {
        self.peak_bytes - self.workspace_bytes
    }

    /// Predicts the bytes of a category, from the sizes of the layers.
    fn foreseen(&self, category: Category) -> u64 {
        let element = self.precision.dtype().size();
        let (batch, width) = (self.sizes.batch as u64, self.sizes.width as u64);
        let all: u64 = self.parameters.iter().map(|n| rounded(element * n)).sum();
        match category {
            Category::Parameter | Category::Gradient => all,
            // Two moments, and the loss scaler's scale and step count.
            Category::OptimizerState => 2 * all + if self.precision.scales_loss() { 2 * rounded(4) } else { 0 },
            Category::Input => rounded(element * batch * width) + rounded(8 * batch),
            _ => self.foreseen_activations(element, batch, width),
        }
    }

    /// Predicts the activations: results of the ReLUs, log-probabilities and the sum of the class weights. Under autocast also the input in the
    /// lower type, and the weights in it of all layers that pass a gradient on: all except the first. Log-probabilities exist twice, because the
    /// loss needs them in float32.
    fn foreseen_activations(&self, element: u64, batch: u64, width: u64) -> u64 {
        let log_probs = |element: u64| rounded(element * batch * CLASSES as u64);
        let hidden = |element: u64| LAYERS as u64 * rounded(element * batch * width);
        match self.precision.autocast() {
            None => hidden(element) + log_probs(element) + rounded(element),
            Some(lower) => {
                let low = lower.size();
                let weights = self.parameters.iter().step_by(2).skip(1);
                let casts: u64 = weights.map(|n| rounded(low * n)).sum();
                rounded(low * batch * width) + casts + hidden(low) + log_probs(low) + log_probs(4) + rounded(4)
            }
        }
    }
}

/// Categories, their quantities in JSON and their titles.
const CATEGORIES: [(&str, &str, Category); 5] = [
    ("parameter_bytes", "weights", Category::Parameter),
    ("gradient_bytes", "gradients", Category::Gradient),
    ("optimizer_bytes", "Adam", Category::OptimizerState),
    ("activation_bytes", "kept", Category::Activation),
    ("input_bytes", "input", Category::Input),
];

pub(super) fn columns(predictable: bool) -> Columns<'static, Weighed> {
    let largest = |w: &Weighed| 4 * (w.sizes.width * w.sizes.width.max(w.sizes.batch)) as u64;
    let known = move |w: &Weighed| predictable && w.calm && largest(w) <= MIB;
    let settings = Columns::new()
        .words("precision", "precision", |w: &Weighed| w.precision.name())
        .set("width", |w| w.sizes.width)
        .set("batch", |w| w.sizes.batch);
    let add = |all: Columns<'static, Weighed>, (quantity, title, category)| {
        let all = all.bytes(quantity, title, move |w| w.bytes_in(category));
        all.predicted(quantity, move |w| known(w).then(|| w.foreseen(category)))
    };
    CATEGORIES.into_iter().fold(settings, add).bytes("peak_bytes", "peak", |w| w.peak_bytes)
}
