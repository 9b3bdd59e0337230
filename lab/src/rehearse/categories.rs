//! What lived when most was asked for: by line of the script, and by what it was.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::answers::Held;
use crate::results::{AtPeak, PeakShares};
use crate::snapshot::{Action, FrameText, Snapshot, StackId};

/// The clocks of PyTorch's traces and of Python differ by less. Microseconds.
const SLACK_US: i64 = 200;

const KINDS: [&str; 3] = ["parameter", "gradient", "optimizer"];
const OTHER: &str = "other";

/// When each address was let go of first, from an entry of the trace on.
type Frees = HashMap<u64, Vec<(usize, i64)>>;

/// The script's line, and the innermost outside of PyTorch.
type Lines = (Option<String>, Option<String>);

/// Addresses at the end of a step, by what they are.
struct Step {
    time_us: i64,
    kinds: [HashSet<u64>; 3],
}

/// By line and kind, most first; and the sums, where a step or an end without memory told what optimizers hold. `folder`: paths in it are told without it.
pub(super) fn at_peak(
    snapshot: &Snapshot,
    device: usize,
    held: &[Held],
    folder: &str,
) -> (Vec<AtPeak>, Option<PeakShares>) {
    let peak = snapshot.peak(device);
    let trace = snapshot.trace(device);
    let mut frees = Frees::new();
    for (at, event) in trace.iter().enumerate() {
        if matches!(event.action, Action::FreeRequested | Action::FreeCompleted) {
            frees.entry(event.address).or_default().push((at, event.time_us));
        }
    }
    let set = |addresses: &[u64]| addresses.iter().copied().collect::<HashSet<u64>>();
    let steps = held.iter().map(|held| Step {
        time_us: held.time_us,
        kinds: [set(&held.parameter), set(&held.gradient), set(&held.optimizer)],
    });
    let steps: Vec<Step> = steps.collect();
    let mut lines: HashMap<StackId, Lines> = HashMap::new();
    let mut sums: BTreeMap<(Lines, &str), (u64, u64)> = BTreeMap::new();
    let mut by = PeakShares::default();
    for (address, made, stack, bytes) in snapshot.live_after(device, peak.event) {
        let kind = made.map_or(OTHER, |made| {
            let end = frees.get(&address).and_then(|frees| frees.iter().find(|(at, _)| *at > made));
            kind(&steps, address, trace[made].time_us, end.map_or(i64::MAX, |(_, time)| *time))
        });
        let line = lines.entry(stack).or_insert_with(|| lines_of(snapshot, stack, folder)).clone();
        let sum = sums.entry((line, kind)).or_default();
        *sum = (sum.0.saturating_add(bytes), sum.1 + 1);
        let total = match kind {
            "parameter" => &mut by.parameter,
            "gradient" => &mut by.gradient,
            "optimizer" => &mut by.optimizer,
            _ => &mut by.other,
        };
        *total = total.saturating_add(bytes);
    }
    let row = |(((place, inside), kind), (requested_bytes, count)): ((Lines, &str), (u64, u64))| AtPeak {
        requested_bytes,
        count,
        place,
        inside,
        // Without a step nobody said what is what.
        category: (!held.is_empty()).then(|| kind.into()),
    };
    let mut rows: Vec<AtPeak> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.requested_bytes));
    (rows, (!held.is_empty()).then_some(by))
}

/// What an allocation was: it lived when a step ended in which its address was of that kind. No step tells of memory
/// that was let go of before its end, or that no optimizer knows.
fn kind(steps: &[Step], address: u64, made_us: i64, freed_us: i64) -> &'static str {
    let lived = |step: &&Step| made_us <= step.time_us + SLACK_US && step.time_us <= freed_us.saturating_add(SLACK_US);
    let kinds = steps.iter().filter(lived).flat_map(|step| step.kinds.iter().zip(KINDS));
    let found = kinds.filter(|(addresses, _)| addresses.contains(&address)).map(|(_, kind)| kind);
    found.min_by_key(|kind| KINDS.iter().position(|known| known == kind)).unwrap_or(OTHER)
}

/// The innermost line of the script's own files, and the innermost outside of PyTorch.
fn lines_of(snapshot: &Snapshot, stack: StackId, folder: &str) -> Lines {
    let python = || snapshot.stack(stack).filter(|frame| frame.line > 0 && !frame.filename.starts_with(['<', '?']));
    let line = |frame: FrameText<'_>| {
        let file = frame.filename.strip_prefix(folder).map_or(frame.filename, |rest| rest.trim_start_matches('/'));
        format!("{file}:{}", frame.line)
    };
    let own = python().find(|frame| !is_library(frame)).map(line);
    let inside = python().find(|frame| !is_torch(frame)).or_else(|| python().next()).map(line);
    (own.or_else(|| inside.clone()), inside)
}

fn is_torch(frame: &FrameText<'_>) -> bool {
    let file = frame.filename;
    // What is compiled lies in a cache, as Python that nobody wrote.
    file.contains("-packages/torch/")
        || file.contains("/torchinductor_")
        || file.contains("/lib/python") && !file.contains("-packages/")
}

fn is_library(frame: &FrameText<'_>) -> bool {
    let file = frame.filename;
    file.contains("site-packages") || file.contains("dist-packages") || is_torch(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_a_kind_only_while_that_lives_there() {
        let gradients = [HashSet::new(), HashSet::from([64]), HashSet::new()];
        let steps = [Step { time_us: 10_000, kinds: gradients }];
        assert_eq!(kind(&steps, 64, 5_000, 10_050), "gradient");
        assert_eq!(kind(&steps, 64, 1_000, 2_000), "other", "its address was used before");
        assert_eq!(kind(&steps, 64, 11_000, i64::MAX), "other", "and later");
        assert_eq!(kind(&steps, 65, 5_000, i64::MAX), "other");
    }
}
