//! `precision`: does 16-bit halve memory, and how does it affect training?

mod learning;
mod memory;

use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_training::Precision;
use lab_training::data;
use learning::{LESSONS, Learnt, learn};
use memcore::memory::Category;
use memory::{Sizes, Weighed, weigh};

use super::default_allocator::predictable;
use super::progress::Progress;
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes, in_counts};

pub(super) struct PrecisionChoice;

const FOURTH: &str = "How does changing network parameters affect GPU memory usage in PyTorch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim {
        text: "float16 instead of float32 halves the memory of tensors and gradients.",
        source: "Does PyTorch GPU memory usage increase per batch? (2025)",
    },
    Claim {
        text: "Mixed precision (autocast) can nearly halve memory usage.",
        source: "The Hidden Relationship: Batch Size and GPU Memory",
    },
    Claim {
        text: "Parameters in float16 halve weights and activations, often with comparable accuracy.",
        source: FOURTH,
    },
    Claim { text: "In float16 gradients can underflow.", source: FOURTH },
];

const PRECISIONS: [Precision; 5] =
    [Precision::Fp32, Precision::AutocastFp16, Precision::AutocastBf16, Precision::Fp16, Precision::Bf16];

/// Two sizes: many parameters with few examples, and few parameters with many examples.
const SIZES: [Sizes; 2] = [Sizes { width: 256, batch: 32 }, Sizes { width: 64, batch: 4096 }];

impl Experiment for PrecisionChoice {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "precision",
                question: "Does 16-bit halve memory, and what does it do to training?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("batch", "examples per step of the network with few parameters; 4096"),
                    Size::one("steps", "steps on the digits; 66"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (batch, steps) = (setup.size("batch", SIZES[1].batch), setup.size("steps", 66));
        if batch == 0 || steps == 0 {
            return Err(Error::usage("batch, steps", "each must be at least 1"));
        }
        let sizes = [SIZES[0], Sizes { batch, ..SIZES[1] }];
        let mut progress = Progress::new(setup, sizes.len() * PRECISIONS.len() + LESSONS.len());
        let predictable = predictable(setup)?;
        let (columns, mut weighed) = (memory::columns(predictable), Vec::new());
        for sizes in sizes {
            for precision in PRECISIONS {
                progress.next(&format!("{}, {} examples", precision.name(), sizes.batch))?;
                let one = weigh(setup, precision, sizes)?;
                outcome.rows.push(columns.measurement(&one));
                weighed.push(one);
            }
            let title = format!("Four hidden layers of {}, {} examples", sizes.width, sizes.batch);
            outcome.tables.push(columns.table(title, weighed.iter().filter(|w| w.sizes == sizes)));
        }
        let learnt = lessons(setup, steps, &mut progress, outcome)?;
        outcome.claims = judge(&weighed, &learnt);
        outcome.answer = answer(&weighed, &learnt);
        Ok(())
    }
}

/// Trains all lessons. Empty on a device that computes nothing.
fn lessons(setup: &Setup<'_>, steps: usize, progress: &mut Progress<'_>, outcome: &mut Outcome) -> Result<Vec<Learnt>> {
    let digits = data::digits().map_err(|error| Error::usage("digits", error.to_string()))?;
    let digits = Arc::new(digits);
    let mut all = Vec::new();
    for lesson in LESSONS {
        progress.next(&format!("digits, {}", lesson.name))?;
        let learnt = learn(setup, lesson, &digits, steps)?;
        outcome.rows.push(learning::measurement(&lesson, learnt.as_ref()));
        all.extend(learnt);
    }
    if all.is_empty() {
        outcome.notes.push(
            "Losses, gradients and accuracy: this device computes nothing, so they are null; run it on one that does."
                .into(),
        );
        return Ok(all);
    }
    let some = |from: usize, to: usize| all[from..to].iter().collect::<Vec<_>>();
    outcome.tables.push(learning::summary(&all));
    outcome.tables.push(learning::curves("Loss on the digits", &some(0, 5)));
    outcome.tables.push(learning::curves("Loss where gradients are small: divided by 1,048,576", &some(7, 10)));
    Ok(all)
}

/// Returns the figures of a precision with the sizes at `place`.
fn weighed_at(weighed: &[Weighed], place: usize, precision: Precision) -> Option<&Weighed> {
    weighed.iter().filter(|w| w.precision == precision).nth(place)
}

/// States the bytes held in each type, and whether training works.
fn answer(weighed: &[Weighed], learnt: &[Learnt]) -> ShortAnswer {
    let at = |precision| weighed_at(weighed, 1, precision);
    let (Some(full), Some(autocast), Some(half)) =
        (at(Precision::Fp32), at(Precision::AutocastFp16), at(Precision::Fp16))
    else {
        return ShortAnswer::default();
    };
    let halved = 2 * half.own_peak() <= full.own_peak() + full.own_peak() / 10;
    let mut answer = ShortAnswer::new(
        if halved { "Yes with 16-bit weights, not under autocast" } else { "No" },
        [format!(
            "Peak without workspaces, {} examples: fp32 {}, autocast {}, fp16 {}.",
            full.sizes.batch,
            bytes(full.own_peak()),
            bytes(autocast.own_peak()),
            bytes(half.own_peak())
        )],
    );
    answer.figures.push(match learnt.get(3) {
        Some(plain) => format!(
            "Training in fp16 with Adam's usual ε: the loss is a number for {} of {} steps; autocast needs its loss scaler.",
            plain.finite_steps(),
            plain.losses.len()
        ),
        None => "What it does to training is not known here: this device computes nothing.".into(),
    });
    answer
}

fn judge(weighed: &[Weighed], learnt: &[Learnt]) -> Vec<JudgedClaim> {
    let all = |place| {
        let at = |precision| weighed_at(weighed, place, precision);
        Some((at(Precision::Fp32)?, at(Precision::AutocastFp16)?, at(Precision::Fp16)?))
    };
    let (Some(large), Some(many)) = (all(0), all(1)) else { return Vec::new() };
    let trained = (learnt.len() == LESSONS.len()).then_some(learnt);
    vec![halves(large), nearly_halves(large, many), comparable(large, trained), underflow(trained)]
}

/// Figures in float32, under autocast to float16, and in float16.
type Three<'a> = (&'a Weighed, &'a Weighed, &'a Weighed);

fn halves((full, autocast, half): Three<'_>) -> JudgedClaim {
    let words = |category: Category| {
        format!(
            "{}, {} and {}",
            bytes(full.bytes_in(category)),
            bytes(autocast.bytes_in(category)),
            bytes(half.bytes_in(category))
        )
    };
    let halved = [Category::Parameter, Category::Gradient, Category::Activation].iter().all(|category| {
        // Each tensor is rounded up to 512 bytes.
        half.bytes_in(*category).abs_diff(full.bytes_in(*category) / 2) <= 16 * 512
    });
    JudgedClaim {
        lead: "with 16-bit weights, not autocast",
        claim: CLAIMS[0],
        verdict: if halved { Verdict::Depends } else { Verdict::Fails },
        number: in_bytes([
            ("gradients, fp32", full.bytes_in(Category::Gradient)),
            ("fp16", half.bytes_in(Category::Gradient)),
        ]),
        condition: format!(
            "in fp32, under autocast and in fp16: parameters {}; gradients {}; Adam's state {}. Types halve what is stored in them: \
             everything when the parameters are in 16 bits, and nothing of these three under autocast",
            words(Category::Parameter),
            words(Category::Gradient),
            words(Category::OptimizerState)
        ),
    }
}

fn nearly_halves(large: Three<'_>, many: Three<'_>) -> JudgedClaim {
    let share = |(full, autocast, _): Three<'_>| autocast.own_peak() as f64 / full.own_peak().max(1) as f64;
    let words = |three: Three<'_>| {
        format!(
            "{} instead of {} ({:.0} %)",
            bytes(three.1.own_peak()),
            bytes(three.0.own_peak()),
            100.0 * share(three)
        )
    };
    JudgedClaim {
        lead: "where activations dominate",
        claim: CLAIMS[1],
        verdict: if share(many) < 0.75 { Verdict::Depends } else { Verdict::Fails },
        number: in_bytes([("peak, fp32", many.0.peak_bytes), ("autocast", many.1.peak_bytes)]),
        condition: format!(
            "the peak without the libraries' workspaces, where activations are most of it ({} examples): {}; where parameters are ({} \
             examples): {}, since parameters, gradients and state stay in float32 and every weight is there a second time in 16 bits",
            many.0.sizes.batch,
            words(many),
            large.0.sizes.batch,
            words(large)
        ),
    }
}

fn comparable((full, _, half): Three<'_>, learnt: Option<&[Learnt]>) -> JudgedClaim {
    let memory = format!(
        "weights {} instead of {}, kept activations {} instead of {}",
        bytes(half.bytes_in(Category::Parameter)),
        bytes(full.bytes_in(Category::Parameter)),
        bytes(half.bytes_in(Category::Activation)),
        bytes(full.bytes_in(Category::Activation))
    );
    let seen = match learnt {
        None => "the accuracy is not known here: this device computes nothing".into(),
        Some(learnt) => {
            let right = |l: &Learnt| {
                l.accuracy.map_or("no accuracy".into(), |a| format!("{} of {} test digits right", a.right, a.of))
            };
            format!(
                "with Adam's usual ε of 1e-8 the loss is a number for {} of {} steps only: the smallest float16 is 6e-8, so that ε is 0 and \
                 the update divides by the root of squares that underflowed (PyTorch computes this update in float16 too); with ε = 1e-4 {}, \
                 in bf16 {}, in fp32 {}",
                learnt[3].finite_steps(),
                learnt[3].losses.len(),
                right(&learnt[6]),
                right(&learnt[4]),
                right(&learnt[0])
            )
        }
    };
    let verdict = if learnt.is_some() { Verdict::Depends } else { Verdict::NotTested };
    let weights = [("weights, fp32", full.bytes_in(Category::Parameter)), ("fp16", half.bytes_in(Category::Parameter))];
    JudgedClaim {
        lead: "memory yes, training needs care",
        claim: CLAIMS[2],
        verdict,
        number: in_bytes(weights),
        condition: format!("{memory}; {seen}"),
    }
}

fn underflow(learnt: Option<&[Learnt]>) -> JudgedClaim {
    let number =
        |[without, with]: [Option<u64>; 2]| in_counts([("gradients that are 0, no scaler", without), ("scaler", with)]);
    let Some(learnt) = learnt else {
        return JudgedClaim {
            lead: "",
            claim: CLAIMS[3],
            verdict: Verdict::NotTested,
            number: number([None; 2]),
            condition: "whether values below 6e-8 come to nothing is not seen here: this device computes nothing"
                .into(),
        };
    };
    let [fp32, without, with] = &learnt[7..] else { return underflow(None) };
    let first = fp32.losses.first().copied().unwrap_or_default();
    let stalls = without.zero_share() > fp32.zero_share() && (without.last_loss() - first).abs() < 0.1 * first;
    let cured = (with.last_loss() - fp32.last_loss()).abs() < 0.1 * first && fp32.last_loss() < 0.5 * first;
    JudgedClaim {
        lead: "not in this run",
        claim: CLAIMS[3],
        verdict: if stalls && cured { Verdict::Holds } else { Verdict::Depends },
        number: number([without, with].map(|learnt| Some(learnt.zeros.0))),
        condition: format!(
            "with a loss divided by {:.0}, as a mean over that many tokens, {:.1} % of the gradients are 0 under autocast to float16 \
             ({:.1} % in fp32), and the loss stays at {:.3} (from {:.3}); with the scaler {:.1} % are 0 and it comes to {:.3}, in fp32 to \
             {:.3}. With the plain loss {:.1} % are 0 without a scaler, {:.1} % in fp32",
            fp32.lesson.divisor,
            100.0 * without.zero_share(),
            100.0 * fp32.zero_share(),
            without.last_loss(),
            first,
            100.0 * with.zero_share(),
            with.last_loss(),
            fp32.last_loss(),
            100.0 * learnt[5].zero_share(),
            100.0 * learnt[0].zero_share()
        ),
    }
}
