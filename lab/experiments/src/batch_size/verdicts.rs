//! Judges the claims by the measurements.

use lab_base::figures::both as bytes;

use super::found::Found;
use super::law::{Law, Point};
use super::runs::Run;
use crate::{Claim, JudgedClaim, ShortAnswer, Verdict, in_bytes, in_counts};

/// The judgement when no batch was run.
fn nothing_run() -> Judged {
    (Verdict::NotTested, String::new(), "0 batches were run".into())
}

/// The verdict, the figures that decide, and the condition.
type Judged = (Verdict, String, String);

/// Leads of the claims whose verdict depends: a few words on how far each holds.
const LEADS: [&str; 3] = ["mostly no", "more in sum, not at once", "in pieces"];

/// Returns one verdict per claim.
pub(super) fn judge(claims: &[Claim], found: &Found) -> Vec<JudgedClaim> {
    let judged = [reserves_more(found), more_graph_and_cache(found), linear(found)];
    let pairs = claims.iter().zip(judged);
    pairs
        .zip(LEADS)
        .map(|((claim, (verdict, number, condition)), lead)| JudgedClaim {
            claim: *claim,
            verdict,
            lead,
            number,
            condition,
        })
        .collect()
}

/// Answers yes or no for fresh devices, and states how much a larger batch before leaves reserved.
pub(super) fn answer(found: &Found) -> ShortAnswer {
    let Some((large, small)) = extremes(&found.fresh) else { return ShortAnswer::default() };
    let word = match small.reserved() > large.reserved() {
        true => "Yes",
        false => "No, on a fresh device",
    };
    let mut answer = ShortAnswer::new(word, []);
    let reserved = |run: &Run| format!("batch {} reserves {}", run.name, bytes(run.reserved()));
    answer.figures.push(format!("On a fresh device {}, {}.", reserved(large), reserved(small)));
    if let Some(order) = found.orders.first().filter(|order| order.cached() > 0) {
        answer.figures.push(format!(
            "After a larger batch ({}): {} stay reserved, {} of them cache of the larger one.",
            order.name,
            bytes(order.ends.last().map_or(0, |end| end.row.reserved)),
            bytes(order.cached())
        ));
    }
    if let Some(law) = &found.law
        && let Some((batch, larger, smaller)) = law.falls.first()
    {
        answer.figures.push(format!(
            "Exceptions: at {} of {} steps up in batch size less is reserved (most from {batch} to {}: {} to {}).",
            law.falls.len(),
            law.points.len() - 1,
            batch + 1,
            bytes(*larger),
            bytes(*smaller)
        ));
    }
    answer
}

/// Returns the runs with the largest and with the smallest batch.
fn extremes(runs: &[Run]) -> Option<(&Run, &Run)> {
    let batch = |run: &&Run| run.steps().map(|step| step.batch).max();
    Some((runs.iter().max_by_key(batch)?, runs.iter().min_by_key(batch)?))
}

fn reserves_more(found: &Found) -> Judged {
    let Some((large, small)) = extremes(&found.fresh) else { return nothing_run() };
    let more = small.reserved() > large.reserved();
    let mut condition = format!(
        "on fresh devices batch {} reserves {}, batch {} reserves {}",
        large.name,
        bytes(large.reserved()),
        small.name,
        bytes(small.reserved())
    );
    if let Some(order) = found.orders.first() {
        condition += &in_one_process(order);
    }
    let falls = found.law.as_ref().map_or(&[][..], |law| &law.falls);
    if let Some((batch, larger, smaller)) = falls.first() {
        condition += &format!(
            "; but reserved memory does not rise everywhere: it falls at {} of {} steps from one batch size to the next, \
             most from batch {batch} ({}) to {} ({})",
            falls.len(),
            found.law.as_ref().map_or(0, |law| law.points.len() - 1),
            bytes(*larger),
            batch + 1,
            bytes(*smaller)
        );
    }
    let verdict = match (more, falls.is_empty()) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::Fails,
        (false, false) => Verdict::Depends,
    };
    (verdict, in_bytes([(&large.name, large.reserved()), (&small.name, small.reserved())]), condition)
}

/// States how much an order of batches leaves reserved, and why.
fn in_one_process(order: &Run) -> String {
    let (left, allocated) =
        (order.ends.last().map_or(0, |end| end.row.reserved), order.ends.last().map_or(0, |end| end.row.allocated));
    if order.cached() == 0 {
        return format!(
            "; in one process ({}) {} are reserved at most and {} after the last step, all of them allocated: this \
             allocator keeps no cache",
            order.name,
            bytes(order.reserved()),
            bytes(allocated)
        );
    }
    format!(
        "; in one process ({}) {} stay reserved, because the cache keeps what is freed ({} of them): what nvidia-smi then \
         shows for the later batch is the earlier one's cache",
        order.name,
        bytes(left),
        bytes(order.cached())
    )
}

fn more_graph_and_cache(found: &Found) -> Judged {
    let (Some((large, small)), Some((large_fresh, small_fresh))) = (extremes(&found.epochs), extremes(&found.fresh))
    else {
        return nothing_run();
    };
    let (pieces, alive) = (small.nodes_made() > large.nodes_made(), small.nodes_alive() > large.nodes_alive());
    let cache = small_fresh.cached() > large_fresh.cached();
    let condition = format!(
        "more pieces are made ({}: {} nodes, {}: {}), but as many are alive at once ({} and {}, {} on the host and none on \
         the device): each step's graph goes before the next is made; cached after the last step: batch {} {}, batch {} {}",
        small.name,
        small.nodes_made(),
        large.name,
        large.nodes_made(),
        small.nodes_alive(),
        large.nodes_alive(),
        bytes(small.graph_bytes()),
        small_fresh.name,
        bytes(small_fresh.cached()),
        large_fresh.name,
        bytes(large_fresh.cached())
    );
    let verdict = match (pieces, alive || cache) {
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::Depends,
        (false, _) => Verdict::Fails,
    };
    let steps = |run: &Run| lab_base::figures::counted(run.steps().count() as u64, "step");
    let labels = [format!("nodes alive, {}", steps(large)), steps(small)];
    let number = in_counts([(&labels[0], Some(large.nodes_alive())), (&labels[1], Some(small.nodes_alive()))]);
    (verdict, number, condition)
}

fn linear(found: &Found) -> Judged {
    let Some((large, small)) = extremes(&found.fresh) else { return nothing_run() };
    let batch = |run: &Run| run.steps().map(|step| step.batch).max().unwrap_or(1) as f64;
    let mut condition = format!(
        "{} times the batch ({} instead of {}) takes {:.3} times the peak",
        (100.0 * batch(large) / batch(small)).round() / 100.0,
        large.name,
        small.name,
        large.peak() as f64 / small.peak().max(1) as f64
    );
    if let Some(Law { asked, points, .. }) = &found.law
        && let Some(piece) = asked.pieces.last()
    {
        condition += &format!(
            "; the tensors of the examples are exactly linear ({} bytes each at the peak from batch {} on), the peak is only \
             piecewise so: {} do not depend on the batch, and what blocks take beyond what was asked for adds up to {}",
            piece.slope,
            piece.from,
            bytes(piece.constant.unsigned_abs()),
            bytes(points.iter().map(Point::added).max().unwrap_or(0))
        );
    }
    let label = format!("peak, {}", large.name);
    (Verdict::Depends, in_bytes([(&label, large.peak()), (&small.name, small.peak())]), condition)
}
