//! What a rehearsal says of memory that ran out.

use lab_base::figures::short;
use lab_base::section::Section;

use super::rehearsal::{RehearsalResult, RehearsedOom};
use super::snapshot::CARD_HAD_ROOM;

/// Says where memory ran out before the script went on and failed with something else.
pub(super) fn ran_out_before(found: &RehearsalResult) -> String {
    match found.ranks.iter().any(|rank| rank.oom.is_some()) {
        true => format!(" Memory had run out before: {}. The script went on.", why_not(found)),
        false => String::new(),
    }
}

pub(super) fn why_not(found: &RehearsalResult) -> String {
    let oom = found.ranks.iter().find_map(|rank| Some((rank, rank.oom.as_ref()?)));
    let Some((rank, oom)) = oom else {
        return "before anything is allocated, or outside of PyTorch".into();
    };
    let of_rank = if found.ranks.len() > 1 { format!(" of rank {}", rank.rank) } else { String::new() };
    format!(
        "in step {}{of_rank}, where {} asked for {} when PyTorch had allocated {} and reserved {} of {}",
        oom.steps + 1,
        oom.place,
        short(oom.requested),
        short(oom.allocated),
        short(oom.reserved),
        short(found.gpu.total_bytes)
    )
}

/// Sentence on a run that reserves much more than it allocates.
const EMPTIES: &str = " On a card between these two PyTorch may do with less: it empties its cache before it gives up.";

/// Says why memory ran out, and how much more the script needs.
pub(super) fn post_mortem(found: &RehearsalResult) -> Option<Section> {
    let oom = found.ranks.iter().find_map(|rank| rank.oom.as_ref()).filter(|_| found.fits == Some(false))?;
    let free = format!("{} left on the card, {} cached", short(oom.free_on_device), short(oom.free_in_reserved));
    let largest = oom.largest_free.map_or(String::new(), |bytes| format!(" ({} in one piece)", short(bytes)));
    let largest = if found.is_fragmented() { largest } else { String::new() };
    let why = match oom.verdict.as_str() {
        "fragmented" if found.is_fragmented() => "Memory is fragmented, enough was free but not in one piece",
        "limited" => CARD_HAD_ROOM,
        _ => "The card is full",
    };
    let needs = found.with_memory_enough.as_ref().map_or(String::new(), |needs| match (needs.fits, needs.missing) {
        (Some(true), 0) => {
            format!(
                " With more memory PyTorch reserves {}, which the card has: only the free pieces are too small.",
                short(needs.peak_reserved)
            )
        }
        (Some(true), missing) => format!(
            " With more memory PyTorch reserves {} ({} allocated), which is {} more than the card has.{}",
            short(needs.peak_reserved),
            short(needs.peak_allocated),
            short(missing),
            if needs.peak_reserved > needs.peak_allocated.saturating_mul(5) / 4 { EMPTIES } else { "" }
        ),
        _ => format!(" A card of {} was too small, too.", short(needs.total_bytes)),
    });
    let batch = smaller_batch(found).unwrap_or_default();
    Some(Section::Note(format!("{why}: {free}{largest}.{needs}{batch}").replace("piece: ", "piece; ")))
}

/// Says how much of the batch would fit; `None` if a smaller batch was rehearsed.
fn smaller_batch(found: &RehearsalResult) -> Option<String> {
    let share = found.share_that_fits().filter(|_| found.tries.is_none())?;
    Some(format!(
        " About {:.0} % of the batch might fit, if the step's tensors grow with it; `-L` finds out.",
        100.0 * share
    ))
}

impl RehearsalResult {
    /// True if it does not fit because PyTorch's memory ran out.
    pub fn ran_out(&self) -> bool {
        self.fits == Some(false) && self.ooms().next().is_some()
    }

    /// True if memory ran out where what nobody held would have been enough in one piece, and another arrangement might do.
    pub fn is_fragmented(&self) -> bool {
        self.ooms().any(|oom| oom.verdict == "fragmented") && !self.holds_more_than_there_is()
    }

    /// True if its tensors alone take more than the card has: then no setting of the allocator makes it fit.
    pub fn holds_more_than_there_is(&self) -> bool {
        let needs = self.with_memory_enough.as_ref().filter(|needs| needs.fits == Some(true));
        needs.is_some_and(|needs| needs.peak_allocated > self.gpu.room())
    }

    /// Names parameters, gradients and optimizer states that are there at the peak, with their bytes, if they alone take more than the card has: no
    /// batch is small enough.
    pub fn states_beyond_the_card(&self) -> Option<String> {
        let by = self.with_memory_enough.as_ref().filter(|needs| needs.fits == Some(true))?.by_category?;
        let all = [
            ("parameters", by.parameter),
            ("gradients", by.gradient),
            ("optimizer states", by.optimizer),
            ("buffers", by.buffer),
        ];
        let states: u64 = all.iter().map(|(_, bytes)| bytes).sum();
        let names: Vec<&str> = all.iter().filter(|(_, bytes)| *bytes > 0).map(|(name, _)| *name).collect();
        let (last, rest) = names.split_last()?;
        let names = if rest.is_empty() { (*last).to_string() } else { format!("{} and {last}", rest.join(", ")) };
        (states > self.gpu.room()).then(|| format!("{names} alone take {}", short(states)))
    }

    fn ooms(&self) -> impl Iterator<Item = &RehearsedOom> {
        self.ranks.iter().filter_map(|rank| rank.oom.as_ref())
    }

    /// Estimates the share of the batch that would fit, if activations and inputs grow with it; if none is left beside temporaries, they grow as well.
    /// `None` if it fits surely, if the script was not run with enough memory, or if little of its memory grows.
    pub fn share_that_fits(&self) -> Option<f64> {
        let enough = self.with_memory_enough.as_ref().filter(|needs| needs.missing > 0 && needs.fits == Some(true));
        let (by, allocated, reserved) = match enough {
            Some(needs) => (needs.by_category?, needs.peak_allocated, needs.peak_reserved),
            None if self.fits == Some(true) && self.fits_perhaps() => {
                let rank = self.ranks.iter().max_by_key(|rank| rank.peak_reserved)?;
                (rank.by_category?, rank.peak_allocated, rank.peak_reserved)
            }
            None => return None,
        };
        let (saved, peak) = (by.activation + by.input, allocated as f64);
        // Assumes that the ratio of reserved to allocated memory stays, and the width of the range.
        let room = self.gpu.room() as f64 * peak / (reserved.max(1) as f64) * self.part_of_the_range();
        [saved, saved + by.temporary].into_iter().find_map(|grows| {
            let grows = grows as f64;
            let share = (room - (peak - grows)) / grows;
            (grows > 0.1 * peak && (0.02..1.0).contains(&share)).then_some(share)
        })
    }

    /// The expected part of a range's upper figure; 1 for a run that does not fit with its lower one.
    fn part_of_the_range(&self) -> f64 {
        let figures = self.peaks().filter(|_| self.fits_perhaps()).map(|peaks| self.figures_of(peaks));
        figures.map_or(1.0, |figures| figures.expected_bytes as f64 / figures.upper_bytes.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rehearsal::{PeakShares, RehearsedGpu, RehearsedNeeds, RehearsedRank};

    use super::*;

    #[test]
    fn what_holds_more_than_there_is_is_not_fragmented() {
        let oom = RehearsedOom { verdict: "fragmented".into(), ..RehearsedOom::default() };
        let needs =
            |peak| RehearsedNeeds { fits: Some(true), peak_allocated: peak, missing: 1, ..RehearsedNeeds::default() };
        let mut found = RehearsalResult { fits: Some(false), ..RehearsalResult::default() };
        found.ranks.push(RehearsedRank { oom: Some(oom), ..RehearsedRank::default() });
        found.gpu.total_bytes = 600;
        let said = |found: &RehearsalResult| match post_mortem(found) {
            Some(Section::Note(note)) => note,
            _ => String::new(),
        };
        found.with_memory_enough = Some(needs(500));
        assert!(found.is_fragmented() && said(&found).starts_with("Memory is fragmented"));
        found.with_memory_enough = Some(needs(700));
        assert_eq!(found.states_beyond_the_card(), None, "nobody knows what it holds");
        let by = PeakShares { parameter: 200, gradient: 200, optimizer: 201, activation: 99, ..PeakShares::default() };
        found.with_memory_enough = Some(RehearsedNeeds { by_category: Some(by), ..needs(700) });
        let states = "parameters, gradients and optimizer states alone take 601 B";
        assert_eq!(found.states_beyond_the_card().as_deref(), Some(states));
        assert!(!found.is_fragmented() && said(&found).starts_with("The card is full"));
        let by = PeakShares { gradient: 0, parameter: 401, optimizer: 200, ..by };
        found.with_memory_enough = Some(RehearsedNeeds { by_category: Some(by), ..needs(700) });
        assert_eq!(found.states_beyond_the_card().as_deref(), Some("parameters and optimizer states alone take 601 B"));
    }

    #[test]
    fn the_share_of_a_batch_is_that_of_a_straight_line() {
        let by = PeakShares { parameter: 200, activation: 700, input: 100, ..PeakShares::default() };
        let needs = RehearsedNeeds {
            fits: Some(true),
            peak_allocated: 1000,
            peak_reserved: 1000,
            missing: 400,
            by_category: Some(by),
            ..RehearsedNeeds::default()
        };
        let gpu = RehearsedGpu { total_bytes: 600, ..RehearsedGpu::default() };
        let mut found = RehearsalResult { gpu, with_memory_enough: Some(needs), ..RehearsalResult::default() };
        assert!(smaller_batch(&found).unwrap().contains("About 50 % of the batch"), "200 + 0.5 x 800 is 600");
        found.gpu.total_bytes = 150;
        assert_eq!(smaller_batch(&found), None, "not even what does not grow");
        // Temporaries of a convolutional network grow as well.
        let by = PeakShares { parameter: 100, temporary: 600, activation: 300, ..PeakShares::default() };
        found.with_memory_enough =
            found.with_memory_enough.map(|needs| RehearsedNeeds { by_category: Some(by), ..needs });
        found.gpu.total_bytes = 550;
        assert!(smaller_batch(&found).unwrap().contains("About 50 % of the batch"), "100 + 0.5 x 900 is 550");
    }
}
