//! A rehearsal of a network as the result of a prediction.

use std::collections::BTreeMap;

use lab_base::error::{Error, Result};
use lab_results::{
    CardResult, ChosenNetwork, NeedsResult, PeakResult, PeakShares, Prediction, Premise, RehearsalResult,
    RehearsedRank, Settings, TrainResult,
};
use serde_json::Value;

use crate::rehearse::Rehearsed;
use crate::run::{Gpu, RunSpec};

/// Makes the answer to `predict` of a rehearsed network.
///
/// # Errors
/// [`Error::Host`] if the network could not be trained, with the exception; or if no figure is known.
pub fn answer(chosen: ChosenNetwork, rehearsed: &Rehearsed, spec: &RunSpec) -> Result<TrainResult> {
    let found = &rehearsed.result;
    let failed = |problem: String| Error::host(format!("{} of {}", chosen.class, chosen.library), problem);
    let Some(rank) = found.ranks.iter().max_by_key(|rank| rank.peak_reserved).filter(|_| found.fits_so_far().is_some())
    else {
        let exception = found.exception.as_deref().map(in_a_line);
        let problem = exception.or_else(|| found.problems.first().cloned());
        return Err(failed(problem.unwrap_or_else(|| "the rehearsal gave no figure".into())));
    };
    let more = found.with_memory_enough.as_ref().filter(|more| more.fits == Some(true));
    if found.fits == Some(false) && more.is_none() {
        return Err(failed("even a card of 8 TiB is too small to show what it needs".into()));
    }
    let (allocated, reserved) =
        more.map_or((rank.peak_allocated, rank.peak_reserved), |more| (more.peak_allocated, more.peak_reserved));
    let shares = more.map_or(rank.by_category, |more| more.by_category);
    let peak = peak(rank, allocated, reserved, shares);
    let settings = settings(spec, &chosen, rank.steps);
    Ok(TrainResult {
        premises: premises(spec, &chosen),
        description: Some(format!("{} of {}", chosen.class, chosen.library)),
        parameters: Some(chosen.parameters),
        peak: Some(peak),
        reason: Some("a rehearsal computes no losses and no times".into()),
        interrupted: rehearsed.interrupted,
        warnings: spec.left_out.clone(),
        prediction: Some(prediction(found, spec, (allocated, reserved), rank)),
        chosen: Some(chosen),
        rehearsal: Some(Box::new(found.clone())),
        ..TrainResult::from_settings(settings)
    })
}

/// The lines of a message that say something, as one.
fn in_a_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join(" ")
}

fn prediction(found: &RehearsalResult, spec: &RunSpec, needs: (u64, u64), rank: &RehearsedRank) -> Prediction {
    let (allocated_bytes, reserved_bytes) = needs;
    let card = spec.card.gpu.and_then(Gpu::card);
    let limited = spec.card.gpu.is_some();
    let fits = found.fits.filter(|_| limited);
    let missing_bytes = found.with_memory_enough.as_ref().filter(|_| fits == Some(false)).map(|more| more.missing);
    Prediction {
        card: card.map(CardResult::from),
        budget_bytes: limited.then(|| found.gpu.room()),
        fits: if limited { found.fits_surely() } else { None },
        on_card: found.figures_of((allocated_bytes, reserved_bytes)),
        with_cudnn: None,
        needs: NeedsResult {
            allocated_bytes,
            reserved_bytes,
            reserved_here_bytes: (fits == Some(true)).then_some(rank.peak_reserved),
            missing_bytes,
            fits_with_least_context: missing_bytes.map(|_| found.fits_surely().is_none()),
        },
        needs_peak: None,
        with_expandable_segments: None,
        notes: Vec::new(),
        checkpoints: None,
        local_peaks: None,
        techniques: Vec::new(),
    }
}

/// The peak, with the purposes that PyTorch's own objects gave.
fn peak(rank: &RehearsedRank, bytes: u64, reserved_bytes: u64, shares: Option<PeakShares>) -> PeakResult {
    let names = |name: &str| match name {
        "parameters" => "parameter",
        "gradients" => "gradient",
        "optimizer" => "optimizer_state",
        "saved for backward" => "activation",
        "inputs" => "input",
        "temporaries" => "temporary",
        "workspaces" => "workspace",
        "buffers" => "buffer",
        _ => "other",
    };
    let by_category: BTreeMap<String, u64> = shares
        .map(|shares| shares.named().into_iter().map(|(name, bytes)| (names(name).to_string(), bytes)).collect())
        .unwrap_or_default();
    let requested_bytes = by_category.values().sum();
    let op = rank.at_peak.first().and_then(|line| line.operator.clone()).unwrap_or_default();
    PeakResult { bytes, reserved_bytes, requested_bytes, by_category, op, ..PeakResult::default() }
}

fn premises(spec: &RunSpec, chosen: &ChosenNetwork) -> Vec<Premise> {
    let premise = |name: &str, value: String, source: &str| Premise { name: name.into(), value, source: source.into() };
    let precision = spec.training.precision.map(|precision| precision.to_string());
    let autocast = precision.filter(|name| name.starts_with("autocast"));
    let kind = autocast.map_or_else(|| chosen.dtype.clone(), |name| format!("{}, {name}", chosen.dtype));
    let mut premises = vec![premise("precision", kind, &chosen.dtype_from)];
    if let Some(tokens) = chosen.tokens {
        let grouped = lab_base::figures::grouped(tokens, ' ');
        premises.push(premise("tokens", format!("{grouped} tokens"), &chosen.tokens_from));
    }
    let (batch, source) = match spec.training.batch {
        Some(batch) => (batch, "--batch"),
        None => (1, "default; --batch N"),
    };
    premises.push(premise("batch", format!("batch {batch}"), source));
    premises
}

/// The settings in force: those that were said, and the driver's own.
fn settings(spec: &RunSpec, chosen: &ChosenNetwork, steps: u64) -> Settings {
    let mut fields = spec.fields();
    fields.insert("model-file".into(), chosen.name.clone().into());
    let mut default = |name: &str, value: Value| {
        if fields.get(name).is_none_or(Value::is_null) {
            fields.insert(name.into(), value);
        }
    };
    default("batch", 1.into());
    default("steps", steps.into());
    default("optimizer", "adamw".into());
    default("optimizer-impl", "foreach".into());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_has_the_names_of_a_prediction() {
        let shares = PeakShares { parameter: 3, optimizer: 6, activation: 5, other: 1, ..PeakShares::default() };
        let peak = peak(&RehearsedRank::default(), 16, 32, Some(shares));
        assert_eq!((peak.bytes, peak.reserved_bytes, peak.requested_bytes), (16, 32, 15));
        assert_eq!((peak.by_category["optimizer_state"], peak.by_category["activation"]), (6, 5));
    }
}
