//! `equation`: is the total the sum of model, activations, optimizer and batch?

use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::memory::Category;

use super::default_allocator::predictable;
use super::perceptron::perceptron;
use super::progress::Progress;
use super::session::{Session, StepRecord, undisturbed};
use super::tables::{table, text};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct Equation;

const SOURCE: &str = "The Hidden Relationship: Batch Size and GPU Memory";

const CLAIMS: &[Claim] = &[
    Claim { text: "Model memory = N·4 bytes, independent of the batch.", source: SOURCE },
    Claim { text: "Activation memory ≈ B·L·H·4 bytes.", source: SOURCE },
    Claim { text: "Optimizer memory = 2·N·4 bytes (Adam), independent of the batch.", source: SOURCE },
    Claim { text: "Batch data memory = B·D·4 bytes.", source: SOURCE },
    Claim { text: "Total memory = model + activations + optimizer states + batch data.", source: SOURCE },
    Claim { text: "Double the batch, and activations and batch data double.", source: SOURCE },
];

/// The four parts, in the order of the claims.
const PARTS: [(&str, Category); 4] = [
    ("model_bytes", Category::Parameter),
    ("activation_bytes", Category::Activation),
    ("optimizer_bytes", Category::OptimizerState),
    ("batch_bytes", Category::Input),
];

/// Sizes of a network: L hidden layers of H neurons on D values, with classes at the end; B examples.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    layers: usize,
    width: usize,
    features: usize,
    classes: usize,
}

/// Figures of the second step of a network's training.
struct Trial {
    sizes: Sizes,
    parameters: u64,
    step: StepRecord,
    /// True if the rules of its blocks are known.
    predictable: bool,
}

impl Experiment for Equation {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "equation",
                question: "Is total = model + activations + optimizer + batch?",
                claims: CLAIMS,
                sizes: &[
                    Size::many("batch", "examples per step; 32, 128 and 512"),
                    Size::one("layers", "hidden layers; 4"),
                    Size::one("width", "neurons of a hidden layer; 256"),
                    Size::one("features", "values of an example; 256"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let batches = setup.sizes("batch", &[32, 128, 512]);
        let layers = setup.size("layers", 4);
        let (width, features) = (setup.size("width", 256), setup.size("features", 256));
        if batches.is_empty() || batches.contains(&0) || [layers, width, features].contains(&0) {
            return Err(Error::usage("batch, layers, width, features", "each must be at least 1"));
        }
        let mut progress = Progress::new(setup, batches.len());
        let predictable = predictable(setup)?;
        let mut trials = Vec::new();
        for batch in batches {
            progress.next(&format!("batch {batch}"))?;
            let trial = attempt(setup, predictable, Sizes { batch, layers, width, features, classes: 10 })?;
            outcome.rows.push(trial.measurement());
            outcome.tables.push(trial.table());
            trials.push(trial);
        }
        if let Some(last) = trials.last() {
            outcome.claims = judge(last, &trials);
            outcome.claims.push(doubling(&trials));
            outcome.answer = answer(last);
        }
        Ok(())
    }
}

fn attempt(setup: &Setup<'_>, predictable: bool, sizes: Sizes) -> Result<Trial> {
    // Only the history has the requested sizes, before rounding.
    let device = (setup.open)()?;
    device.set_history(true);
    let Sizes { layers, width, features, classes, .. } = sizes;
    let network = perceptron(layers, width, features, classes)?;
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_f32(&device, &*network, &adam, setup.seed)?;
    session.whole_step("s0", sizes.batch)?;
    let step = session.whole_step("s1", sizes.batch)?;
    let predictable = predictable && undisturbed(&device);
    Ok(Trial { sizes, parameters: session.network.model.parameter_count(), step, predictable })
}

impl Sizes {
    /// Bytes of the four parts by the article's formulas.
    fn article(&self, parameters: u64) -> [u64; 4] {
        let Sizes { batch, layers, width, features, .. } = *self;
        [4 * parameters, 4 * (batch * layers * width) as u64, 8 * parameters, 4 * (batch * features) as u64]
    }

    /// Bytes of the four parts with every tensor counted, rounded up to 512 bytes as the allocator does. `None` if a tensor is above 1 MiB,
    /// because its block may be larger.
    fn exact(&self) -> Option<[u64; 4]> {
        let Sizes { batch, layers, width, features, classes } = *self;
        let inputs = std::iter::once(features).chain(std::iter::repeat_n(width, layers));
        let outputs = std::iter::repeat_n(width, layers).chain([classes]);
        let tensors = inputs.zip(outputs).flat_map(|(inputs, outputs)| [inputs * outputs, outputs]);
        let parameters: Vec<u64> = tensors.map(|values| 4 * values as u64).collect();
        let per_example = [4 * batch * width, 4 * batch * classes, 4 * batch * features].map(|n| n as u64);
        if parameters.iter().chain(&per_example).any(|bytes| *bytes > 1 << 20) {
            return None;
        }
        let model: u64 = parameters.iter().copied().map(rounded).sum();
        // The loss keeps log-probabilities and the sum of the class weights. The batch has targets of 8 bytes.
        let activations = layers as u64 * rounded(per_example[0]) + rounded(per_example[1]) + rounded(4);
        let batch = rounded(per_example[2]) + rounded(8 * batch as u64);
        Some([model, activations, 2 * model, batch])
    }
}

impl Trial {
    /// Bytes of the four parts when the loss exists: all four exist then, and activations are at their most.
    fn parts(&self) -> [u64; 4] {
        PARTS.map(|(_, category)| self.step.moments[3].by_category[category as usize])
    }

    /// Bytes of the four parts as the program requested them. Rounding belongs to the allocator, not to the equation: no verdict rests
    /// on it.
    fn requested(&self) -> [u64; 4] {
        let all = self.step.moments[3].requested.unwrap_or_default();
        PARTS.map(|(_, category)| all[category as usize])
    }

    fn peak(&self) -> u64 {
        self.step.peak.allocated_bytes
    }

    fn article_total(&self) -> u64 {
        self.sizes.article(self.parameters).iter().sum()
    }

    fn measurement(&self) -> Measurement {
        let mut m = Measurement::with_setting([("batch", self.sizes.batch.into())]);
        let exact = self.sizes.exact().filter(|_| self.predictable);
        for (i, (quantity, _)) in PARTS.into_iter().enumerate() {
            m.measure(quantity, self.parts()[i]);
            m.measure(&format!("requested_{quantity}"), self.requested()[i]);
            if let Some(exact) = exact {
                m.predict(quantity, exact[i]);
            }
        }
        m.measure("peak_bytes", self.peak());
        m
    }

    /// Makes the table of the article's parts and the measured ones, followed by the rest of the peak.
    fn table(&self) -> Table {
        let article = self.sizes.article(self.parameters);
        let at_peak = &self.step.peak.by_category;
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for (i, (_, category)) in PARTS.into_iter().enumerate() {
            let measured = self.parts()[i];
            rows.push(vec![
                text(category.name().replace('_', " ")),
                Cell::Bytes(article[i]),
                Cell::Bytes(measured),
                Cell::Difference(measured as i64 - article[i] as i64),
                Cell::Bytes(at_peak[category as usize]),
            ]);
        }
        let forgotten = Category::ALL.into_iter().filter(|c| PARTS.iter().all(|(_, part)| part != c));
        for category in forgotten.filter(|c| at_peak[*c as usize] > 0) {
            let measured = self.step.moments[3].by_category[category as usize];
            rows.push(vec![
                text(category.name().replace('_', " ")),
                text("-"),
                Cell::Bytes(measured),
                Cell::Difference(measured as i64),
                Cell::Bytes(at_peak[category as usize]),
            ]);
        }
        let total = self.step.moments[3].row.allocated;
        rows.push(vec![
            text("total"),
            Cell::Bytes(self.article_total()),
            Cell::Bytes(total),
            Cell::Difference(total as i64 - self.article_total() as i64),
            Cell::Bytes(self.peak()),
        ]);
        let Sizes { batch, layers, width, .. } = self.sizes;
        let title = format!(
            "B {batch}, L {layers}, H {width}: after the loss of step 1, and at its peak ({})",
            self.step.peak_phase
        );
        table(title, &["part", "article", "after loss", "difference", "at the peak"], rows)
    }
}

/// Compares the sum with the peak.
fn answer(trial: &Trial) -> ShortAnswer {
    let (sum, peak) = (trial.article_total(), trial.peak());
    let at_peak = &trial.step.peak.by_category;
    let of = |category: Category| bytes(at_peak[category as usize]);
    ShortAnswer::new(
        if sum == peak { "Yes" } else { "No" },
        [
            format!("Batch {}: the sum is {}, the peak {}.", trial.sizes.batch, bytes(sum), bytes(peak)),
            format!(
                "Not in the sum, at the peak: gradients {}, temporaries {}, libraries' workspaces {}.",
                of(Category::Gradient),
                of(Category::Temporary),
                of(Category::Workspace)
            ),
        ],
    )
}

/// Compares activations and batch data of the largest batch with those of the smallest.
fn doubling(trials: &[Trial]) -> JudgedClaim {
    let batch = |trial: &&Trial| trial.sizes.batch;
    let (small, large) = (trials.iter().min_by_key(batch), trials.iter().max_by_key(batch));
    let judged = |verdict: Verdict, number: String, condition: String| JudgedClaim {
        lead: "",
        claim: CLAIMS[5],
        verdict,
        number,
        condition,
    };
    let (Some(small), Some(large)) =
        (small, large.filter(|large| Some(large.sizes.batch) != small.map(|s| s.sizes.batch)))
    else {
        return judged(Verdict::NotTested, String::new(), "1 batch was run; it takes two".into());
    };
    let factor = large.sizes.batch as f64 / small.sizes.batch as f64;
    let (few, many) = (small.requested(), large.requested());
    let grown = |part: usize| many[part] as f64 / few[part].max(1) as f64;
    // The part that does not grow is the loss's sum of the class weights: four bytes.
    let doubles = |part: usize| (many[part] as f64 - factor * few[part] as f64).abs() <= 4.0 * factor;
    let (activations, data) = (1, 3);
    let verdict = if doubles(activations) && doubles(data) { Verdict::Holds } else { Verdict::Fails };
    let so = |part: usize| format!("{:.3} times ({} to {})", grown(part), bytes(few[part]), bytes(many[part]));
    let labels = [format!("activations, batch {}", small.sizes.batch), large.sizes.batch.to_string()];
    judged(
        verdict,
        in_bytes([(&labels[0], few[activations]), (&labels[1], many[activations])]),
        format!(
            "{factor} times the batch ({} to {}) asks for {} of activations and {} of batch data; in blocks they are rounded up, and the peak \
             of the step grows {:.3} times only",
            small.sizes.batch,
            large.sizes.batch,
            so(activations),
            so(data),
            large.peak() as f64 / small.peak().max(1) as f64
        ),
    )
}

fn judge(last: &Trial, trials: &[Trial]) -> Vec<JudgedClaim> {
    let article = last.sizes.article(last.parameters);
    let (parts, asked) = (last.parts(), last.requested());
    let so = |i: usize| {
        format!("{} asked for, {} by the formula ({} in blocks)", bytes(asked[i]), bytes(article[i]), bytes(parts[i]))
    };
    let exact = |i: usize| if asked[i] == article[i] { Verdict::Holds } else { Verdict::Depends };
    let gap: Vec<String> =
        trials.iter().map(|t| format!("{} where the peak is {}", bytes(t.article_total()), bytes(t.peak()))).collect();
    let at_peak = &last.step.peak.by_category;
    let of = |category: Category| bytes(at_peak[category as usize]);
    let claim = |i: usize, verdict: Verdict, condition: String| {
        // The last claim is about the sum: the peak decides it.
        let number =
            asked.get(i).map_or_else(|| in_bytes([("peak", trials[0].peak())]), |part| in_bytes([("", *part)]));
        JudgedClaim {
            lead: ["not to the byte", "for ReLU, not GELU", "not to the byte", "plus targets", ""][i],
            claim: CLAIMS[i],
            verdict,
            number,
            condition,
        }
    };
    vec![
        claim(0, exact(0), format!("{}: each tensor's block is rounded up to 512 bytes", so(0))),
        claim(
            1,
            Verdict::Depends,
            format!(
                "{}: for a ReLU, which keeps its result and shares it with the next layer; the loss keeps log-probabilities besides. An \
                 activation that keeps its input as well (GELU, SiLU) doubles it",
                so(1)
            ),
        ),
        claim(2, exact(2), format!("{}; SGD has none", so(2))),
        claim(3, exact(3), format!("{}; targets are 8 bytes each besides", so(3))),
        claim(
            4,
            Verdict::Fails,
            format!(
                "the sum is {}. A peak is a maximum over time: in {} there are also gradients ({}), temporaries ({}) and libraries' \
                 workspaces ({}), while activations may have gone already; what the cache holds and the device's context come on top",
                gap.join("; "),
                last.step.peak_phase,
                of(Category::Gradient),
                of(Category::Temporary),
                of(Category::Workspace)
            ),
        ),
    ]
}
