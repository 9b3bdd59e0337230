//! `network-size`: what does a wider network cost, and what does a larger batch cost?

mod filters;
mod shares;

use filters::SIDES;
use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_training::OptimizerKind;
use memcore::memory::Category;
use shares::Share;

use super::columns::Columns;
use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::{Session, StepRecord, undisturbed};
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts};

pub(super) struct NetworkSize;

const SOURCE: &str = "How does changing network parameters affect GPU memory usage in PyTorch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "More filters inflate the parameters, by a number that is easily calculated.", source: SOURCE },
    Claim { text: "More filters also need more memory for activations.", source: SOURCE },
    Claim {
        text: "A larger batch leaves the parameters alone and makes the activations grow linearly.",
        source: SOURCE,
    },
    Claim { text: "Activations are the majority of memory usage.", source: SOURCE },
    Claim { text: "Smaller filters in convolutional layers reduce memory.", source: SOURCE },
    Claim {
        text: "Matrix products and convolutions contribute heavily.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025)",
    },
];

/// The article's networks: name, and number of filters of the convolution.
const NETWORKS: [(&str, usize); 2] = [("small-network", 16), ("larger-conv", 64)];

/// Side of a picture after the convolution. Below it, the outputs of the linear layer.
const SIDE: usize = 30;
const OUTPUTS: usize = 128;

/// Figures of one network with one batch.
struct Trial {
    name: &'static str,
    filters: usize,
    batch: usize,
    parameters: u64,
    model_bytes: u64,
    step: StepRecord,
    /// Share of the peak that products and convolutions made.
    products: Share,
    /// True if the rules of its blocks are known.
    predictable: bool,
}

impl Experiment for NetworkSize {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "network-size",
                question: "What does a wider network cost, and what a larger batch?",
                claims: CLAIMS,
                sizes: &[Size::many("batch", "examples per step, two or more values; 1, 2 and 4")],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let mut batches = setup.sizes("batch", &[1, 2, 4]);
        batches.sort_unstable();
        batches.dedup();
        if batches.len() < 2 || batches[0] == 0 {
            return Err(Error::usage("batch", "two or more different numbers of examples, each at least 1"));
        }
        let mut progress = Progress::new(setup, NETWORKS.len() * batches.len() + 2 * SIDES.len());
        let predictable = predictable(setup)?;
        let columns = columns();
        let mut trials = Vec::new();
        for (name, filters) in NETWORKS {
            for &batch in &batches {
                progress.next(&format!("{name}, batch {batch}"))?;
                let trial = attempt(setup, predictable, name, filters, batch)?;
                outcome.rows.push(columns.measurement(&trial));
                trials.push(trial);
            }
        }
        let title = "Parameters, what the graph keeps, and the peak of a step";
        outcome.tables.push(columns.table(title, &trials));
        let (columns, mut sizes) = (filters::columns(), Vec::new());
        for (padded, side) in [false, true].into_iter().flat_map(|padded| SIDES.map(|side| (padded, side))) {
            progress.next(&format!("filters of {side} × {side}"))?;
            let filters = filters::attempt(setup, side, padded)?;
            outcome.rows.push(columns.measurement(&filters));
            sizes.push(filters);
        }
        outcome.tables.push(columns.table(filters::TITLE, &sizes));
        outcome.claims = judge(&trials, batches.len());
        outcome.answer = answer(&trials, batches.len());
        let named = |of: fn(&Trial) -> Share| -> Vec<(String, Share)> {
            trials.iter().map(|t| (format!("{}, batch {}", t.name, t.batch), of(t))).collect()
        };
        let kept = "activations when the loss is there, of all that was asked for but libraries' workspaces";
        let made = "parameters, gradients and results made in convolutions and linear layers, of the peak without libraries' workspaces";
        let number = |label: &str, of: &str, figures: fn(&Trial) -> [u64; 2]| {
            let [part, whole] = trials.last().map(figures).unwrap_or_default();
            in_bytes([(label, part), (of, whole)])
        };
        let asked = number("activations", "of", |t| [t.kept().part, t.kept().whole]);
        outcome.claims.push(shares::judge(CLAIMS[3], kept, &named(Trial::kept), asked));
        outcome.claims.push(filters::judge(CLAIMS[4], &sizes));
        let at_peak = number("by products", "peak", |t| [t.products.part, t.step.peak.allocated_bytes]);
        outcome.claims.push(shares::judge(CLAIMS[5], made, &named(|trial| trial.products), at_peak));
        Ok(())
    }
}

fn attempt(setup: &Setup<'_>, predictable: bool, name: &'static str, filters: usize, batch: usize) -> Result<Trial> {
    // Only the history has the requested sizes, before rounding.
    let device = (setup.open)()?;
    device.set_history(true);
    let mut session = Session::new(&device, name, OptimizerKind::Sgd, 1e-3, setup.seed)?;
    let model_bytes = session.moment("model").row.allocated;
    let step = session.whole_step("s0", batch)?;
    let parameters = session.network.model.parameter_count();
    let products = shares::of_products(&device, &step.peak);
    Ok(Trial {
        name,
        filters,
        batch,
        parameters,
        model_bytes,
        step,
        products,
        predictable: predictable && undisturbed(&device),
    })
}

impl Trial {
    /// Bytes of activations when the loss exists.
    fn activation_bytes(&self) -> u64 {
        self.step.moments[3].by_category[Category::Activation as usize]
    }

    /// Bytes of activations as the program requested them. Rounding belongs to the allocator, not to the network: no verdict rests on
    /// it.
    fn requested_activation_bytes(&self) -> u64 {
        self.step.moments[3].requested.map_or(0, |bytes| bytes[Category::Activation as usize])
    }

    /// Share of activations when the loss exists, in all requested bytes except libraries' workspaces.
    fn kept(&self) -> Share {
        let asked = self.step.moments[3].requested.unwrap_or_default();
        let whole = asked.iter().sum::<u64>() - asked[Category::Workspace as usize];
        Share { part: asked[Category::Activation as usize], whole }
    }

    /// Number of parameters: `3·3·3·F + F` and `900·F·128 + 128`.
    fn counted(&self) -> u64 {
        let f = self.filters as u64;
        28 * f + (SIDE * SIDE * OUTPUTS) as u64 * f + OUTPUTS as u64
    }

    /// Bytes of the ReLU's result, and of the network's result, which the loss keeps.
    fn kept_bytes(&self) -> [u64; 2] {
        [4 * self.batch * self.filters * SIDE * SIDE, 4 * self.batch * OUTPUTS].map(|n| n as u64)
    }

    /// Predicted bytes of the activations' blocks.
    fn foreseen_activation_bytes(&self) -> Option<u64> {
        let kept = self.kept_bytes();
        // Above 1 MiB a block may be larger than the request.
        (self.predictable && kept[0] <= 1 << 20).then(|| kept.into_iter().map(rounded).sum())
    }
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("network", "network", |t: &Trial| t.name)
        .number("batch", "batch", |t| t.batch)
        .count("parameters", "parameters", |t| t.parameters)
        .predicted("parameters", |t| Some(t.counted()))
        .measured("requested_with_loss_bytes", |t| t.kept().whole)
        .measured("made_by_products_bytes", |t| t.products.part)
        .measured("requested_activation_bytes", Trial::requested_activation_bytes)
        .predicted("requested_activation_bytes", |t| Some(t.kept_bytes().into_iter().sum()))
        .bytes("model_bytes", "model", |t| t.model_bytes)
        .bytes("activation_bytes", "activations", Trial::activation_bytes)
        .predicted("activation_bytes", Trial::foreseen_activation_bytes)
        .bytes("peak_bytes", "peak", |t| t.step.peak.allocated_bytes)
}

/// Compares the same network wider, and with a larger batch.
fn answer(trials: &[Trial], batches: usize) -> ShortAnswer {
    let (first, last, wide) = (&trials[0], &trials[batches - 1], &trials[batches]);
    let beside = |from: &Trial, to: &Trial| {
        format!(
            "model {} → {}, activations {} → {}, peak {} → {}.",
            bytes(from.model_bytes),
            bytes(to.model_bytes),
            bytes(from.activation_bytes()),
            bytes(to.activation_bytes()),
            bytes(from.step.peak.allocated_bytes),
            bytes(to.step.peak.allocated_bytes)
        )
    };
    ShortAnswer::new(
        "Parameters; activations alone",
        [
            format!("{} filters instead of {}: {}", wide.filters, first.filters, beside(first, wide)),
            format!("Batch {} instead of {}: {}", last.batch, first.batch, beside(first, last)),
        ],
    )
}

fn judge(trials: &[Trial], batches: usize) -> Vec<JudgedClaim> {
    let (small, large) = trials.split_at(batches);
    let counted = trials.iter().all(|t| t.parameters == t.counted());
    let (first, last) = (&small[0], &small[batches - 1]);
    let same_model = [small, large].iter().all(|of| of.iter().all(|t| t.model_bytes == of[0].model_bytes));
    let grown = |of: fn(&Trial) -> u64| of(last) as f64 / of(first).max(1) as f64;
    // Compares in whole numbers: the bytes of one batch, times the other batch size, are the same both ways.
    let per = |t: &Trial, other: &Trial| u128::from(t.requested_activation_bytes()) * other.batch as u128;
    let linear = per(last, first) == per(first, last);
    let wider = large[0].requested_activation_bytes() > small[0].requested_activation_bytes();
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Fails };
    let asked = |t: &Trial| t.requested_activation_bytes();
    let labels = [format!("batch {}", first.batch), last.batch.to_string()];
    vec![
        JudgedClaim {
            lead: "",
            claim: CLAIMS[0],
            verdict: verdict(counted),
            number: in_counts([("16 filters", Some(small[0].parameters)), ("64", Some(large[0].parameters))]),
            condition: format!(
                "16 filters: {} parameters, 64 filters: {}, as counted (28 per filter, and 900·128 per filter in the next layer, \
                 where nearly all of them are)",
                small[0].parameters, large[0].parameters
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: verdict(wider),
            number: in_bytes([("16 filters", asked(first)), ("64", asked(&large[0]))]),
            condition: format!(
                "with batch {}: {} asked for with 16 filters, {} with 64 (in blocks {} and {})",
                first.batch,
                bytes(first.requested_activation_bytes()),
                bytes(large[0].requested_activation_bytes()),
                bytes(first.activation_bytes()),
                bytes(large[0].activation_bytes())
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[2],
            verdict: verdict(same_model && linear),
            number: in_bytes([(&labels[0], asked(first)), (&labels[1], asked(last))]),
            condition: format!(
                "from batch {} to {} the model stays at {}, what the graph keeps grows {:.2}-fold in bytes asked for ({} to {}) and \
                 {:.2}-fold in blocks ({} to {}); the peak of the step only from {} to {}, since parameters and gradients do not grow",
                first.batch,
                last.batch,
                bytes(first.model_bytes),
                grown(Trial::requested_activation_bytes),
                bytes(first.requested_activation_bytes()),
                bytes(last.requested_activation_bytes()),
                grown(Trial::activation_bytes),
                bytes(first.activation_bytes()),
                bytes(last.activation_bytes()),
                bytes(first.step.peak.allocated_bytes),
                bytes(last.step.peak.allocated_bytes)
            ),
        },
    ]
}
