//! `sequence-length`: what grows with the sequence?

mod kept;

use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::memory::Category;

use super::columns::Columns;
use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::{Session, StepRecord, undisturbed};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct SequenceLength;

const SOURCE: &str = "Does PyTorch GPU memory usage increase per batch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "Attention weights grow with the sequence length.", source: SOURCE },
    Claim { text: "Attention weights have to be released explicitly, or they stay.", source: SOURCE },
];

/// Sizes of the decoder. It is small, so that no tensor is above 1 MiB and every block is as large as the request.
const LAYERS: usize = 2;
const HEADS: usize = 4;
const WIDTH: usize = 128;
const VOCABULARY: usize = 512;

/// Figures of one form of attention with one length.
struct Trial {
    fused: bool,
    length: usize,
    step: StepRecord,
}

impl Experiment for SequenceLength {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "sequence-length",
                question: "What grows with the sequence?",
                claims: CLAIMS,
                sizes: &[
                    Size::many("sequence", "tokens per example, three values; 32, 64 and 96"),
                    Size::one("batch", "examples per step; 4"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let mut lengths = setup.sizes("sequence", &[32, 64, 96]);
        lengths.sort_unstable();
        lengths.dedup();
        let batch = setup.size("batch", 4);
        if lengths.len() != 3 || lengths[0] == 0 || batch == 0 {
            return Err(Error::usage("sequence, batch", "three different lengths, and at least 1 example"));
        }
        let mut progress = Progress::new(setup, 12);
        // Exact if each tensor is a multiple of 512 bytes and none is above 1 MiB.
        let whole = lengths.iter().all(|length| (batch * length * 4).is_multiple_of(512));
        let large = [lengths[2] * VOCABULARY, lengths[2] * 4 * WIDTH, HEADS * lengths[2] * lengths[2]];
        let mut exact = whole && large.iter().all(|n| 4 * batch * n <= 1 << 20) && predictable(setup)?;
        let columns = columns();
        let mut trials = Vec::new();
        for fused in [false, true] {
            for &length in &lengths {
                progress.next(&format!("{}, {length} tokens", form(fused)))?;
                let (trial, calm) = attempt(setup, fused, length, batch)?;
                exact &= calm;
                outcome.rows.push(columns.measurement(&trial));
                trials.push(trial);
            }
        }
        for of in [&trials[..3], &trials[3..]] {
            outcome.rows.push(curvature(of, batch, exact));
        }
        outcome.tables.push(columns.table("A decoder of two blocks and four heads", &trials));
        let (columns, mut kept) = (kept::columns(), Vec::new());
        for keeps in [false, true] {
            for &length in &lengths {
                progress.next(&format!("encoder and decoder, {length} tokens"))?;
                let trial = kept::attempt(setup, keeps, length, batch)?;
                outcome.rows.push(columns.measurement(&trial));
                kept.push(trial);
            }
        }
        outcome.tables.push(columns.table(kept::TITLE, &kept));
        outcome.claims = judge(&trials, &kept, batch);
        outcome.answer = answer(&trials);
        Ok(())
    }
}

fn form(fused: bool) -> &'static str {
    if fused { "sdpa" } else { "eager" }
}

fn attempt(setup: &Setup<'_>, fused: bool, length: usize, batch: usize) -> Result<(Trial, bool)> {
    let device = (setup.open)()?;
    let options = ModelOptions {
        layers: Some(LAYERS),
        heads: Some(HEADS),
        width: Some(WIDTH),
        vocabulary: Some(VOCABULARY),
        sequence: Some(length),
        fused_attention: fused,
        ..ModelOptions::default()
    };
    let sgd = OptimizerSettings::new(OptimizerKind::Sgd, 1e-3);
    let mut session = Session::in_f32(&device, &*architecture("gpt", &options)?, &sgd, setup.seed)?;
    let step = session.whole_step("s0", batch)?;
    let calm = undisturbed(&device);
    Ok((Trial { fused, length, step }, calm))
}

impl Trial {
    fn activations(&self, phase: usize) -> u64 {
        self.step.moments[phase].by_category[Category::Activation as usize]
    }

    /// Bytes that the graph keeps when the loss exists.
    fn kept(&self) -> u64 {
        self.activations(3)
    }
}

/// Coefficient of T² in the bytes that the graph keeps, from three lengths: exactly the bytes that a table of scores takes per
/// pair of tokens.
fn per_pair(trials: &[Trial]) -> f64 {
    let point = |i: usize| (trials[i].length as f64, trials[i].kept() as f64);
    let slope = |(x0, y0): (f64, f64), (x1, y1): (f64, f64)| (y1 - y0) / (x1 - x0);
    let [a, b, c] = [point(0), point(1), point(2)];
    (slope(b, c) - slope(a, b)) / (c.0 - a.0)
}

/// Rounds to whole bytes, at least 0: a rounding error can make the value negative.
fn whole(bytes: f64) -> u64 {
    bytes.round().max(0.0) as u64
}

/// The eager form keeps the result of each block's softmax: B·heads·T² values. The fused kernel keeps one value per row
/// instead.
fn foreseen_per_pair(fused: bool, batch: usize) -> u64 {
    if fused { 0 } else { (4 * batch * HEADS * LAYERS) as u64 }
}

fn curvature(trials: &[Trial], batch: usize, exact: bool) -> Measurement {
    let fused = trials[0].fused;
    let mut m = Measurement::with_setting([("attention", form(fused).into()), ("sequence", "T²".into())]);
    m.measure("bytes_per_pair_of_tokens", whole(per_pair(trials)));
    if exact {
        m.predict("bytes_per_pair_of_tokens", foreseen_per_pair(fused, batch));
    }
    m
}

fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .words("attention", "attention", |t: &Trial| form(t.fused))
        .number("sequence", "tokens", |t| t.length)
        .bytes("activation_bytes", "kept by the graph", Trial::kept)
        .bytes("activation_bytes_after_backward", "after backward", |t| t.activations(4))
        .predicted("activation_bytes_after_backward", |_| Some(0))
        .bytes("peak_bytes", "peak of the step", |t| t.step.peak.allocated_bytes)
}

/// States the bytes that the graph keeps, for both forms of attention.
fn answer(trials: &[Trial]) -> ShortAnswer {
    let (eager, fused) = trials.split_at(3);
    let grown = |of: &[Trial]| {
        format!(
            "{}: the graph keeps {} at {} tokens, {} at {}; {:.0} B for each pair of tokens.",
            form(of[0].fused),
            bytes(of[0].kept()),
            of[0].length,
            bytes(of[2].kept()),
            of[2].length,
            per_pair(of).max(0.0)
        )
    };
    let word = match (whole(per_pair(eager)), whole(per_pair(fused))) {
        (0, 0) => "All in proportion",
        (_, 0) => "Scores of eager attention as its square, the rest in proportion",
        _ => "Attention as its square",
    };
    ShortAnswer::new(word, [grown(eager), grown(fused)])
}

fn judge(trials: &[Trial], kept: &[kept::Trial], batch: usize) -> Vec<JudgedClaim> {
    let (eager, fused) = trials.split_at(3);
    let (first, last) = (&eager[0], &eager[2]);
    let stays = trials.iter().map(|t| t.activations(4)).max().unwrap_or(0);
    let scores = (4 * batch * HEADS * LAYERS * last.length * last.length) as u64;
    vec![
        JudgedClaim {
            lead: if whole(per_pair(fused)) == 0 { "in eager attention alone" } else { "more in eager attention" },
            claim: CLAIMS[0],
            verdict: if per_pair(eager) > 0.0 { Verdict::Depends } else { Verdict::Fails },
            number: in_bytes([("per pair, eager", whole(per_pair(eager))), ("sdpa", whole(per_pair(fused)))]),
            condition: format!(
                "with eager attention, what the graph keeps grows by {:.0} bytes for each pair of tokens (B·heads·blocks·4): {} of {} at {} \
                 tokens, and everything else in proportion ({} at {} tokens); with the fused kernel by {:.0}, since it never keeps them",
                per_pair(eager),
                bytes(scores),
                bytes(last.kept()),
                last.length,
                bytes(first.kept()),
                first.length,
                per_pair(fused).max(0.0)
            ),
        },
        JudgedClaim {
            lead: "if a list holds them",
            claim: CLAIMS[1],
            verdict: match (stays, kept::most(kept, false), kept::most(kept, true)) {
                (0, 0, 0) => Verdict::Fails,
                (0, 0, _) => Verdict::Depends,
                _ => Verdict::Holds,
            },
            number: in_bytes([("per step, freed", kept::most(kept, false)), ("kept", kept::most(kept, true))]),
            condition: format!(
                "after backward the graph keeps {stays} bytes in every case: what it saved goes node by node, and an encoder and decoder \
                 with attention grows by {} bytes per step; only a list that holds the weights keeps them: with one it grows by {} in \
                 each step at {} tokens",
                kept::most(kept, false),
                bytes(kept::most(kept, true)),
                last.length
            ),
        },
    ]
}
