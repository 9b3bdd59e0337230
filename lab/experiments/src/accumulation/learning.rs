//! Effect of the batch size on the gradient and on training. Needs a device that computes.

use lab_base::error::Result;
use lab_models::Architecture;
use lab_training::{OptimizerKind, OptimizerSettings, Source, TrainStep, loss};
use memcore::{NoGrad, Tensor, ops};

use crate::session::Session;
use crate::{Claim, JudgedClaim, Measurement, Setup, Verdict, in_counts};

/// Number of gradients whose spread is taken.
const DRAWS: usize = 8;

/// Learning rate, large enough that a single update shows.
const LR: f64 = 0.1;

/// Results of training with the whole batch and with its parts.
pub(super) struct Learnt {
    /// Root mean square distance of gradients of other examples from their mean: for the whole batch, and for one
    /// part.
    spread: [f64; 2],
    /// Loss of the whole batch: before an update, after one update with the whole batch, after an update with each
    /// part.
    losses: [f64; 3],
}

/// Trains with the whole batch and with its parts. `None` on a device that computes nothing.
pub(super) fn learn(
    setup: &Setup<'_>,
    network: &dyn Architecture,
    batch: usize,
    pieces: usize,
) -> Result<Option<Learnt>> {
    if !(setup.open)()?.computes() {
        return Ok(None);
    }
    let spread = [spread(setup, network, batch)?, spread(setup, network, batch / pieces)?];
    let (before, whole) = updated(setup, network, batch, 1)?;
    let (_, parts) = updated(setup, network, batch, pieces)?;
    Ok(Some(Learnt { spread, losses: [before, whole, parts] }))
}

fn session(setup: &Setup<'_>, network: &dyn Architecture) -> Result<Session> {
    let sgd = OptimizerSettings::new(OptimizerKind::Sgd, LR);
    Session::in_f32(&(setup.open)()?, network, &sgd, setup.seed)
}

/// Returns the root mean square of the distances of gradients from their mean.
fn spread(setup: &Setup<'_>, network: &dyn Architecture, batch: usize) -> Result<f64> {
    let mut session = session(setup, network)?;
    let mut draws: Vec<Vec<f64>> = Vec::new();
    for draw in 0..DRAWS {
        session.network.source = Source::Synthetic { seed: setup.seed.wrapping_add(1 + draw as u64) };
        session.load_batch(batch, 0)?;
        session.zero_grad()?;
        session.forward()?;
        session.loss()?;
        session.backward()?;
        let mut gradient = Vec::new();
        for grad in session.network.model.parameters.iter().filter_map(memcore::nn::Parameter::grad) {
            gradient.extend(grad.to_f64()?);
        }
        draws.push(gradient);
    }
    let n = draws.first().map_or(0, Vec::len);
    let mean: Vec<f64> = (0..n).map(|i| draws.iter().map(|draw| draw[i]).sum::<f64>() / DRAWS as f64).collect();
    let apart = |draw: &Vec<f64>| draw.iter().zip(&mean).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    Ok((draws.iter().map(apart).sum::<f64>() / DRAWS as f64).sqrt())
}

/// Returns the loss of a batch before and after an update with each of its parts.
fn updated(setup: &Setup<'_>, network: &dyn Architecture, batch: usize, pieces: usize) -> Result<(f64, f64)> {
    let mut session = session(setup, network)?;
    session.load_batch(batch, 0)?;
    let (Some(input), Some(target)) = (session.batch.input.clone(), session.batch.target.clone()) else {
        return Ok((0.0, 0.0));
    };
    let of = |session: &Session, input: &Tensor, target: &Tensor| -> Result<Tensor> {
        Ok(loss(&session.network.model.task.loss, &session.network.model.module.forward(input)?, target)?)
    };
    let whole = |session: &Session| -> Result<f64> {
        let _quiet = NoGrad::new();
        Ok(of(session, &input, &target)?.item()?)
    };
    let before = whole(&session)?;
    let part = batch / pieces;
    for i in 0..pieces {
        let piece = |t: &Tensor| ops::narrow(t, 0, i * part, part);
        session.zero_grad()?;
        of(&session, &piece(&input)?, &piece(&target)?)?.backward(false)?;
        session.step()?;
    }
    Ok((before, whole(&session)?))
}

/// Returns a row for the whole batch and one for a part. The values are unknown on a device that computes nothing.
pub(super) fn rows(batch: usize, pieces: usize, learnt: Option<&Learnt>) -> [Measurement; 2] {
    let row = |place: usize, batch: usize| {
        let mut m = Measurement::with_setting([("learning_with", batch.into())]);
        let known = learnt.map(|learnt| (learnt.spread[place], learnt.losses[1 + place]));
        for (quantity, value) in [
            ("gradient_spread_millionths", known.map(|(spread, _)| millionths(spread))),
            ("loss_after_the_same_examples_millionths", known.map(|(_, loss)| millionths(loss))),
        ] {
            match value {
                Some(value) => m.measure(quantity, value),
                None => m.unknown(quantity),
            }
        }
        m
    };
    [row(0, batch), row(1, batch / pieces)]
}

fn millionths(value: f64) -> u64 {
    (value * 1e6).round().max(0.0) as u64
}

/// Judges both claims, for a batch in `pieces` parts.
pub(super) fn judge(claims: [Claim; 2], batch: usize, pieces: usize, learnt: Option<&Learnt>) -> [JudgedClaim; 2] {
    let part = batch / pieces;
    let number = |what: &str, [small, large]: [Option<f64>; 2]| {
        let labels = [format!("{what} in 10⁻⁶, batch {part}"), batch.to_string()];
        in_counts([(&labels[0], small.map(millionths)), (&labels[1], large.map(millionths))])
    };
    let Some(Learnt { spread, losses }) = learnt else {
        let condition = "0 gradients were computed: this device computes nothing; run it on one that does".to_string();
        return [(claims[0], "spread"), (claims[1], "loss")].map(|(claim, what)| JudgedClaim {
            lead: "",
            claim,
            verdict: Verdict::NotTested,
            number: number(what, [None; 2]),
            condition: condition.clone(),
        });
    };
    let [before, whole, parts] = losses;
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Fails };
    let spreads = format!(
        "{DRAWS} gradients of other examples lie {:.5} from their mean with a batch of {part}, {:.5} with {batch} (root of the mean square): \
         {:.2} times less, where independent examples give √{pieces} = {:.2}",
        spread[1],
        spread[0],
        spread[1] / spread[0].max(f64::MIN_POSITIVE),
        (pieces as f64).sqrt()
    );
    let dynamics = format!(
        "after the same {batch} examples at the same learning rate of {LR} the loss of {before:.4} is {parts:.4} with {pieces} updates of {part}, \
         {whole:.4} with one of {batch}"
    );
    let [stable, changes] = claims;
    [
        JudgedClaim {
            lead: "",
            claim: stable,
            verdict: verdict(spread[0] < spread[1]),
            number: number("spread", [Some(spread[1]), Some(spread[0])]),
            condition: spreads,
        },
        JudgedClaim {
            lead: "",
            claim: changes,
            // A difference beyond rounding in float32.
            verdict: verdict((whole - parts).abs() > 1e-5 * before),
            number: number("loss", [Some(*parts), Some(*whole)]),
            condition: dynamics,
        },
    ]
}
