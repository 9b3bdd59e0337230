//! Growth of a rehearsed script's memory, in words.

use lab_base::figures::{counted, grouped, short};
use lab_base::section::{Section, Table};
use memcore::memory::BLOCK_BYTES;

use super::rehearsal::{RehearsalResult, RehearsedRank};
use super::rehearsal_growth::{GrowingLine, RehearsedGrowth};

/// Most lines that the answer shows.
const TOP: usize = 8;

/// Returns the rank whose memory grows most, or of which too little was seen, if there is one. A process with fewer steps than others, as a child
/// that was forked, is not waited for.
pub fn open_growth(ranks: &[RehearsedRank]) -> Option<(&RehearsedRank, &RehearsedGrowth)> {
    let most = ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
    let all = ranks.iter().filter_map(|rank| Some((rank, rank.growth.as_ref()?)));
    all.filter(|(rank, growth)| growth.grows() || growth.is_open() && rank.steps == most)
        .max_by_key(|(_, growth)| growth.bytes_per_step)
}

/// Returns the same of a rehearsal.
pub(super) fn open(found: &RehearsalResult) -> Option<(&RehearsedRank, &RehearsedGrowth)> {
    open_growth(&found.ranks)
}

/// Says in one sentence how memory went from step to step.
pub(super) fn in_words(found: &RehearsalResult) -> Option<String> {
    let growth = match open(found) {
        Some((_, growth)) => growth,
        None => {
            found.ranks.iter().filter_map(|rank| rank.growth.as_ref()).max_by_key(|growth| growth.bytes_per_step)?
        }
    };
    let steps = counted(growth.steps, "step");
    let full = growth.full_at_step.map_or(String::new(), |step| {
        format!(" The card is full at about step {} if it goes on so.", grouped(step, ' '))
    });
    let per = short(growth.bytes_per_step);
    let holder = || growth.lines.first().map_or(String::new(), |line| format!(", held by {}", line.held_in_words()));
    Some(match growth.trend.as_str() {
        "flat" => format!(
            "Memory does not grow: step {} requested and kept the same as step {}.",
            growth.steps,
            growth.steps - 1
        ),
        "bounded" => format!("Memory does not keep growing, over {steps} that differ."),
        "slow" => format!("Memory grows by {per} a step{}, {}.{}", holder(), slowly(growth), remedy(growth)),
        "leak" => format!("It leaks: memory grew {per} a step over {steps}{}.{full}{}", holder(), remedy(growth)),
        "may_fill" => format!("Perhaps: memory grew {per} a step over {steps}{}.{full}", holder()),
        "cycles" => format!(
            "Perhaps: memory grew {per} a step over {steps} in reference cycles, which only Python's garbage collector frees.{full}"
        ),
        _ => format!("Whether memory grows is not known after {steps}."),
    })
}

/// How a rehearsal names what keeps a graph alive.
const GRAPH_OF: &str = "the graph of ";

/// Says what to do about a container that keeps tensors of every step, or about a tensor whose graph does.
fn remedy(growth: &RehearsedGrowth) -> &'static str {
    let holder = growth.lines.first().and_then(|line| line.holder.as_deref()).unwrap_or_default();
    let container = ["list ", "dict ", "deque "].iter().any(|kind| holder.starts_with(kind));
    match (container, holder.starts_with(GRAPH_OF)) {
        (true, _) => " Keep numbers there (.item(), .detach().cpu()), or clear it.",
        (false, true) => " Add up .detach() or .item() there: a loss keeps its whole graph.",
        (false, false) => "",
    }
}

fn slowly(growth: &RehearsedGrowth) -> String {
    let small = match growth.lines.iter().all(|line| line.largest_bytes < BLOCK_BYTES) {
        true => format!(" (a tensor takes at least {})", short(BLOCK_BYTES)),
        false => String::new(),
    };
    match growth.full_at_step {
        Some(step) => format!("so slowly that the card is full at about step {}{small}", grouped(step, ' ')),
        None => "very slowly".into(),
    }
}

/// Names the lines that run only every so many steps, of the process with the most of them.
pub(super) fn seldom(found: &RehearsalResult) -> Option<String> {
    let all = found.ranks.iter().filter_map(|rank| rank.growth.as_ref());
    all.max_by_key(|growth| growth.seldom.len())?.seldom_in_words()
}

/// Lists what grows.
pub(super) fn lines(found: &RehearsalResult) -> Option<Section> {
    let (_, growth) = open(found)?;
    if growth.lines.is_empty() {
        return None;
    }
    let rows = growth.lines.iter().take(TOP).map(GrowingLine::row).collect();
    Some(Section::Table(Table::new("Grows from step to step", &["per step", "each", "allocated at", "held by"], rows)))
}

impl RehearsalResult {
    /// True if memory did not run out so far, whether it grows or not; `None` if that is not known.
    pub fn fits_so_far(&self) -> Option<bool> {
        let open = self.fits.is_none() && !["interrupted", "end"].contains(&&*self.stopped) && open(self).is_some();
        if open && self.exception.is_none() && self.script_exit.is_none_or(|code| code == 0) {
            Some(true)
        } else {
            self.fits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rehearsal(growth: RehearsedGrowth) -> RehearsalResult {
        let rank = RehearsedRank { growth: Some(growth), ..RehearsedRank::default() };
        RehearsalResult { ranks: vec![rank], stopped: "steps".into(), ..RehearsalResult::default() }
    }

    #[test]
    fn a_slow_leak_is_told_with_who_holds_it() {
        let line = GrowingLine {
            bytes_per_step: 4,
            largest_bytes: 4,
            holder: Some("list losses".into()),
            held_at: Some("train.py:14".into()),
            ..GrowingLine::default()
        };
        let growth = RehearsedGrowth {
            trend: "slow".into(),
            steps: 20,
            bytes_per_step: 4,
            full_at_step: Some(47_411_771),
            lines: vec![line],
            ..RehearsedGrowth::default()
        };
        let expected = "Memory grows by 4 B a step, held by list losses, train.py:14, so slowly that the card is full at about step \
                        47 411 771 (a tensor takes at least 512 B). Keep numbers there (.item(), .detach().cpu()), or clear it.";
        assert_eq!(in_words(&rehearsal(growth.clone())).as_deref(), Some(expected));
        let large =
            RehearsedGrowth { lines: vec![GrowingLine { largest_bytes: 1 << 20, ..GrowingLine::default() }], ..growth };
        assert!(!in_words(&rehearsal(large)).unwrap().contains("512 B"));
    }

    #[test]
    fn a_leak_is_told_with_who_holds_it_and_when_the_card_is_full() {
        let line = GrowingLine {
            holder: Some("list preds".into()),
            held_at: Some("train.py:12".into()),
            kind: "leak".into(),
            ..GrowingLine::default()
        };
        let growth = RehearsedGrowth {
            trend: "leak".into(),
            steps: 20,
            bytes_per_step: 5 << 20,
            full_at_step: Some(4912),
            lines: vec![line],
            ..RehearsedGrowth::default()
        };
        let found = rehearsal(growth);
        let expected = "It leaks: memory grew 5 MiB a step over 20 steps, held by list preds, train.py:12. The card is full at \
                        about step 4 912 if it goes on so. Keep numbers there (.item(), .detach().cpu()), or clear it.";
        assert_eq!(in_words(&found).as_deref(), Some(expected));
        assert_eq!((found.fits, found.fits_so_far()), (None, Some(true)));
        assert!(lines(&found).is_some());
    }

    #[test]
    fn what_is_flat_or_slow_is_not_open() {
        for trend in ["flat", "bounded", "slow"] {
            let found = rehearsal(RehearsedGrowth { trend: trend.into(), steps: 3, ..RehearsedGrowth::default() });
            assert!(open(&found).is_none() && lines(&found).is_none() && found.fits_so_far().is_none(), "{trend}");
        }
        let found = rehearsal(RehearsedGrowth { trend: "unseen".into(), steps: 1, ..RehearsedGrowth::default() });
        assert_eq!(in_words(&found).as_deref(), Some("Whether memory grows is not known after 1 step."));
    }
}
