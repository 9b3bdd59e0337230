//! `optimizer`: how much does each optimizer hold, and how much does its step take temporarily?

use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::memory::Category;
use memcore::optim::Implementation;

use super::columns::Columns;
use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::{Session, undisturbed};
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct OptimizerChoice;

const CLAIMS: &[Claim] = &[
    Claim {
        text: "Adam tracks two values per parameter: 2·N·4 bytes.",
        source: "The Hidden Relationship: Batch Size and GPU Memory",
    },
    Claim {
        text: "AdamW instead of SGD can improve memory usage.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025)",
    },
];

const IMPLEMENTATIONS: [(Implementation, &str); 3] =
    [(Implementation::Loop, "loop"), (Implementation::Foreach, "foreach"), (Implementation::Fused, "fused")];

/// Figures of one optimizer in one form, after it has made its state.
struct Trial {
    kind: OptimizerKind,
    form: (Implementation, &'static str),
    parameter_bytes: Vec<u64>,
    state_bytes: u64,
    /// Bytes of the state as the optimizer requested them.
    requested_state_bytes: u64,
    /// Peak of the update above the bytes allocated after it.
    spike_bytes: u64,
    step_peak_bytes: u64,
    predictable: bool,
}

impl Experiment for OptimizerChoice {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "optimizer",
                question: "What does each optimizer hold, and what does its step take?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("width", "neurons of each of four hidden layers; 256"),
                    Size::one("batch", "examples per step; 32"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (width, batch) = (setup.size("width", 256), setup.size("batch", 32));
        if width == 0 || batch == 0 {
            return Err(Error::usage("width, batch", "each must be at least 1"));
        }
        let forms = |kind| IMPLEMENTATIONS.into_iter().filter(move |form| exists(kind, form.0));
        let mut progress = Progress::new(setup, OPTIMIZERS.into_iter().map(|kind| forms(kind).count()).sum());
        let predictable = predictable(setup)?;
        let columns = columns();
        let mut trials = Vec::new();
        for kind in OPTIMIZERS {
            for form in forms(kind) {
                progress.next(&format!("{} ({})", kind.name(), form.1))?;
                let trial = attempt(setup, kind, form, width, batch, predictable)?;
                outcome.rows.push(columns.measurement(&trial));
                trials.push(trial);
            }
        }
        let title = "What is held between steps, and what the update takes besides";
        outcome.tables.push(columns.table(title, &trials));
        outcome.claims = judge(&trials);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

const OPTIMIZERS: [OptimizerKind; 6] = [
    OptimizerKind::Sgd,
    OptimizerKind::Momentum,
    OptimizerKind::RmsProp,
    OptimizerKind::Adagrad,
    OptimizerKind::Adam,
    OptimizerKind::AdamW,
];

/// True if PyTorch has this form of the optimizer. RMSprop and Adagrad have no fused form that runs on a GPU.
fn exists(kind: OptimizerKind, implementation: Implementation) -> bool {
    implementation != Implementation::Fused || kind.has_fused()
}

fn attempt(
    setup: &Setup<'_>,
    kind: OptimizerKind,
    form: (Implementation, &'static str),
    width: usize,
    batch: usize,
    predictable: bool,
) -> Result<Trial> {
    // Only the history has the requested sizes, before rounding.
    let device = (setup.open)()?;
    device.set_history(true);
    let options =
        ModelOptions { layers: Some(4), width: Some(width), features: Some(width), ..ModelOptions::default() };
    let settings = OptimizerSettings { implementation: form.0, ..OptimizerSettings::new(kind, 1e-3) };
    let mut session = Session::in_f32(&device, &*architecture("mlp", &options)?, &settings, setup.seed)?;
    session.whole_step("s0", batch)?;
    let step = session.whole_step("s1", batch)?;
    let update = &step.moments[5];
    let parameter_bytes: Vec<u64> =
        session.network.model.parameters.iter().map(|p| 4 * p.array().numel() as u64).collect();
    let small = parameter_bytes.iter().all(|bytes| *bytes <= 1 << 20);
    Ok(Trial {
        kind,
        form,
        state_bytes: update.by_category[Category::OptimizerState as usize],
        requested_state_bytes: update.requested.map_or(0, |bytes| bytes[Category::OptimizerState as usize]),
        spike_bytes: update.row.phase_peak_allocated - update.row.allocated,
        step_peak_bytes: step.peak.allocated_bytes,
        // Above 1 MiB a block may be larger than the request.
        predictable: predictable && small && undisturbed(&device),
        parameter_bytes,
    })
}

impl Trial {
    fn is_adam(&self) -> bool {
        matches!(self.kind, OptimizerKind::Adam | OptimizerKind::AdamW)
    }

    /// Predicts the state: a buffer per parameter for momentum, RMSprop and Adagrad, two for Adam. The fused form also has a step counter per
    /// parameter on the device.
    fn foreseen_state_bytes(&self) -> u64 {
        let buffers = self.kind.states();
        let counters = if self.is_adam() && self.form.0 == Implementation::Fused { rounded(4) } else { 0 };
        self.parameter_bytes.iter().map(|bytes| buffers * rounded(*bytes) + counters).sum()
    }

    /// Predicts the temporaries: denominators and their results. Foreach makes them for all parameters at the same time. The loop makes them for
    /// one parameter, while the variable still holds those of the parameter before. Fused and SGD have none.
    fn foreseen_spike_bytes(&self) -> u64 {
        let all: Vec<u64> = self.parameter_bytes.iter().copied().map(rounded).collect();
        // Adam's loop makes a root and then a quotient. Adagrad's foreach form also scales the gradients.
        let (in_loop, at_once) = match self.kind {
            OptimizerKind::Sgd | OptimizerKind::Momentum => return 0,
            OptimizerKind::Adagrad => (1, 2),
            OptimizerKind::Adam | OptimizerKind::AdamW => (2, 1),
            // RMSprop, the last of those that are measured.
            _ => (1, 1),
        };
        match self.form.0 {
            Implementation::Fused => 0,
            Implementation::Foreach => at_once * all.iter().sum::<u64>(),
            Implementation::Loop => {
                let before = std::iter::once(0).chain(all.iter().copied());
                all.iter().zip(before).map(|(this, before)| in_loop * this + before).max().unwrap_or(0)
            }
        }
    }
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("optimizer", "optimizer", |t: &Trial| t.kind.name())
        .words("implementation", "form", |t| t.form.1)
        .few("state_bytes", "state", |t| t.state_bytes)
        .measured("requested_state_bytes", |t| t.requested_state_bytes)
        .few("spike_bytes", "temporary", |t| t.spike_bytes)
        .bytes("peak_bytes", "peak of the step", |t| t.step_peak_bytes)
        .predicted("state_bytes", |t| t.predictable.then(|| t.foreseen_state_bytes()))
        .predicted("spike_bytes", |t| t.predictable.then(|| t.foreseen_spike_bytes()))
}

/// States the state of each optimizer, and the temporaries of its usual form.
fn answer(trials: &[Trial]) -> ShortAnswer {
    let usual = || trials.iter().filter(|trial| trial.form.1 == "foreach");
    let parameters: u64 = trials.first().map_or(0, |trial| trial.parameter_bytes.iter().sum());
    let most = usual().map(|trial| trial.requested_state_bytes).max().unwrap_or(0);
    let listed = |of: fn(&Trial) -> u64| {
        usual().map(|trial| format!("{} {}", trial.kind.name(), bytes(of(trial)))).collect::<Vec<_>>().join(", ")
    };
    ShortAnswer::new(
        format!("Up to {:.1} times the parameters", most as f64 / parameters.max(1) as f64),
        [
            format!("State, of {} of parameters: {}.", bytes(parameters), listed(|trial| trial.state_bytes)),
            format!("Temporary, in the update (foreach): {}.", listed(|trial| trial.spike_bytes)),
        ],
    )
}

fn judge(trials: &[Trial]) -> Vec<JudgedClaim> {
    let of = |kind: OptimizerKind, form: &str| trials.iter().find(|t| t.kind == kind && t.form.1 == form);
    let (Some(sgd), Some(adam), Some(adamw)) =
        (of(OptimizerKind::Sgd, "foreach"), of(OptimizerKind::Adam, "foreach"), of(OptimizerKind::AdamW, "foreach"))
    else {
        return Vec::new();
    };
    let eight: u64 = adam.parameter_bytes.iter().map(|bytes| 2 * bytes).sum();
    // Rounding belongs to the allocator: no verdict rests on it.
    let two = adam.requested_state_bytes == eight;
    let lower = trials.iter().any(|t| t.kind == OptimizerKind::AdamW && t.step_peak_bytes < sgd.step_peak_bytes);
    vec![
        JudgedClaim {
            lead: "not to the byte",
            claim: CLAIMS[0],
            verdict: if two { Verdict::Holds } else { Verdict::Depends },
            number: in_bytes([("state", adam.requested_state_bytes)]),
            condition: format!(
                "{} asked for, {} by the formula ({} in blocks); besides, the usual (foreach) update needs {} temporarily, the loop {}, the fused one {}",
                bytes(adam.requested_state_bytes),
                bytes(eight),
                bytes(adam.state_bytes),
                bytes(adam.spike_bytes),
                bytes(of(OptimizerKind::Adam, "loop").map_or(0, |t| t.spike_bytes)),
                bytes(of(OptimizerKind::Adam, "fused").map_or(0, |t| t.spike_bytes)),
            ),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: if lower { Verdict::Holds } else { Verdict::Fails },
            number: in_bytes([("peak, AdamW", adamw.step_peak_bytes), ("SGD", sgd.step_peak_bytes)]),
            condition: format!(
                "AdamW holds {} more than SGD, and its step peaks {} above SGD's; in no form is it below",
                bytes(adamw.state_bytes - sgd.state_bytes),
                bytes(adamw.step_peak_bytes.saturating_sub(sgd.step_peak_bytes)),
            ),
        },
    ]
}
