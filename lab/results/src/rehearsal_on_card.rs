//! Three figures of a rehearsed script on its card.

use std::collections::BTreeSet;

use lab_base::bands::Basis;
use lab_base::beside::Uses;
use lab_base::cards::Card;

use super::on_card::{Held, OnCard};
use super::rehearsal::{
    ALL_MODULES, ASKED_IN_A_RANGE, ASKED_OF_ONE_CAPABILITY, COMMUNICATORS, LATE_EVENTS, PEERS, RehearsalResult,
    RehearsedPhase, TOGETHER,
};

impl RehearsalResult {
    /// True if the order of several streams may decide what the script takes.
    pub fn asks_for_late_events(&self) -> bool {
        self.not_as_on_a_card.iter().any(|one| one.event == LATE_EVENTS)
    }

    /// Adds what the script reserved with late events. Bytes.
    pub fn add_late_events(&mut self, reserved_bytes: u64) {
        for one in self.not_as_on_a_card.iter_mut().filter(|one| one.event == LATE_EVENTS) {
            one.name = reserved_bytes.to_string();
        }
    }

    /// What was reserved with late events, if that was rehearsed.
    fn with_late_events(&self) -> Option<u64> {
        self.not_as_on_a_card.iter().filter(|one| one.event == LATE_EVENTS).find_map(|one| one.name.parse().ok())
    }

    /// Adds the figures, once it is known what the script takes with enough memory.
    pub fn add_figures(&mut self) {
        self.on_card = self.peaks().map(|peaks| self.figures_of(peaks)).unwrap_or_default();
        let total = self.gpu.total_bytes;
        let of_phase = |phase: &RehearsedPhase| {
            let figures = self.figures_of((phase.peak_allocated, phase.peak_reserved));
            let surely = figures.upper_bytes <= total;
            (surely || figures.lower_bytes > total).then_some(surely)
        };
        let fits: Vec<Option<bool>> = self.phases.iter().map(of_phase).collect();
        self.phases.iter_mut().zip(fits).for_each(|(phase, fits)| phase.fits = fits);
    }

    /// The figures of these peaks of allocated and reserved memory on this card.
    pub fn figures_of(&self, (allocated_bytes, reserved_bytes): (u64, u64)) -> OnCard {
        let basis = self.basis();
        let reserved = basis.range(reserved_bytes, self.with_late_events().unwrap_or_default());
        let held = Held { allocated_bytes, reserved, basis };
        let processes = self.together().map_or(1, |(processes, ..)| processes);
        OnCard::of_processes(held, Card::named(&self.gpu.name), self.uses(), processes)
    }

    /// Several processes that had the most on one card at once: how many these were, and what PyTorch had allocated and reserved in all of them. `None` if one process
    /// alone had more on another card.
    pub(super) fn together(&self) -> Option<(u64, u64, u64)> {
        let events = self.not_as_on_a_card.iter().filter(|one| one.event == TOGETHER);
        let parsed = events.filter_map(|one| one.name.split_once(' '));
        let numbers = parsed.filter_map(|(processes, bytes)| Some((processes.parse().ok()?, bytes.parse().ok()?)));
        let (processes, bytes): (u64, u64) = numbers.max_by_key(|(_, bytes)| *bytes)?;
        let reserved = bytes.saturating_sub(self.gpu.context_bytes.saturating_mul(processes));
        let (of_all, largest) = self.ranks.iter().fold((0_u64, 0), |(sum, most), rank| {
            (sum.saturating_add(rank.peak_allocated), rank.peak_reserved.max(most))
        });
        (reserved >= largest).then_some((processes, of_all.min(reserved), reserved))
    }

    /// True if the upper figure fits, false if the lower one does not; `None` between the two, or if it is not known whether it fits.
    pub fn fits_surely(&self) -> Option<bool> {
        let total = self.gpu.total_bytes;
        let known = self.peaks().map(|peaks| self.figures_of(peaks));
        match (self.fits?, known) {
            (true, Some(figures)) => (figures.upper_bytes <= total).then_some(true),
            (false, Some(figures)) if figures.lower_bytes <= total => None,
            (fits, _) => Some(fits),
        }
    }

    /// Whether a search takes it as one that fits: only if the upper figure does. `None` if it is not known whether it fits.
    pub fn fits_in_a_search(&self) -> Option<bool> {
        match self.fits {
            Some(_) => Some(self.fits_surely() == Some(true)),
            None => self.fits_so_far(),
        }
    }

    /// True if it fits perhaps: one of its figures fits, another one does not.
    pub fn fits_perhaps(&self) -> bool {
        self.fits.is_some() && self.fits_surely().is_none()
    }

    /// The most that was allocated and reserved on the fullest card, with enough memory; `None` if that is not known.
    pub fn peaks(&self) -> Option<(u64, u64)> {
        match (&self.with_memory_enough, self.fits_so_far()) {
            (Some(more), _) if more.fits == Some(true) => Some((more.peak_allocated, more.peak_reserved)),
            (_, Some(true)) if let Some((_, allocated, reserved)) = self.together() => Some((allocated, reserved)),
            (_, Some(true)) => {
                let rank = self.ranks.iter().max_by_key(|rank| rank.peak_reserved)?;
                Some((rank.peak_allocated, rank.peak_reserved))
            }
            _ => None,
        }
    }

    /// What decides how far a card may be from the figures: of a run that memory ran out in, from those of the one with enough.
    pub fn basis(&self) -> Basis {
        let enough = self.with_memory_enough.as_ref().filter(|more| more.fits == Some(true));
        if let Some(basis) = enough.and_then(|more| more.basis) {
            return basis;
        }
        let says = |event: &str| self.not_as_on_a_card.iter().any(|one| one.event == event);
        // Batch norm's workspaces move the peak by little.
        let is_unnamed = self
            .not_as_on_a_card
            .iter()
            .any(|one| one.event == "unknown_size" && !one.name.contains("BatchNormalization"));
        match self.exact_to {
            // Caches of the first run are warm in the second: it compiled.
            _ if self.runs > 1 => Basis::Compiled,
            _ if self.exact && self.has_ranks() => Basis::Ranks,
            _ if self.exact => Basis::of_requests(self.gpu.ten_times_capability()),
            Some(0) | None => Basis::Unknown,
            _ if is_unnamed => Basis::Unknown,
            _ if says(ASKED_OF_ONE_CAPABILITY) => Basis::WorkspacesOfOneCapability,
            _ if says(ASKED_IN_A_RANGE) => Basis::WorkspacesAskedInARange,
            _ => Basis::Unknown,
        }
    }

    fn has_ranks(&self) -> bool {
        self.world.is_some() || self.ranks.iter().map(|rank| rank.rank).collect::<BTreeSet<_>>().len() > 1
    }

    fn uses(&self) -> Uses {
        let of_cudnn = ["unknown_size", "asked_size", ASKED_IN_A_RANGE, ASKED_OF_ONE_CAPABILITY];
        let cudnn = self.not_as_on_a_card.iter().any(|one| of_cudnn.contains(&one.event.as_str()));
        let most = |event: &str| -> u32 {
            let counts = self.not_as_on_a_card.iter().filter(|one| one.event == event);
            counts.filter_map(|one| one.name.parse().ok()).max().unwrap_or(0)
        };
        let all_modules = self.not_as_on_a_card.iter().any(|one| one.event == ALL_MODULES);
        let communicators = most(COMMUNICATORS).max(self.has_ranks().into());
        Uses { cudnn, communicators, peers: most(PEERS), all_modules }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rehearsal::{Inexact, NotAsOnACard, RehearsedNeeds, RehearsedRank};
    use super::*;

    fn found(reserved: u64, total: u64) -> RehearsalResult {
        let rank =
            RehearsedRank { peak_reserved: reserved << 20, peak_allocated: reserved << 20, ..Default::default() };
        let mut found = RehearsalResult {
            fits: Some(true),
            exact: true,
            exact_to: Some(0),
            ranks: vec![rank],
            ..Default::default()
        };
        found.gpu.total_bytes = total << 20;
        found
    }

    #[test]
    fn what_may_reserve_more_than_there_is_fits_perhaps() {
        let mut found = found(1000, 1200);
        assert_eq!(found.verdict(), "Yes", "exact figures are hardly off");
        (found.exact, found.exact_to) = (false, Some(12 << 20));
        found.inexact.push(Inexact { what: "workspaces are not known".into(), bytes: found.exact_to });
        assert_eq!(found.verdict(), "Perhaps", "a fifth more does not fit");
        found.gpu.total_bytes = 1300 << 20;
        assert_eq!(found.verdict(), "Yes");
    }

    #[test]
    fn workspaces_in_a_range_and_of_one_capability_have_their_own_bands() {
        let mut found = found(1000, 4000);
        (found.exact, found.exact_to) = (false, Some(12 << 20));
        assert_eq!(found.basis(), Basis::Unknown, "nothing says why");
        let mut say = |event: &str, name: &str| {
            found.not_as_on_a_card.push(NotAsOnACard { event: event.into(), name: name.into() });
            found.basis()
        };
        let batch_norm = "cudnnGetBatchNormalizationBackwardExWorkspaceSize";
        assert_eq!(say("unknown_size", batch_norm), Basis::Unknown);
        assert_eq!(say(ASKED_IN_A_RANGE, "12582912"), Basis::WorkspacesAskedInARange, "batch norm moves little");
        assert_eq!(say(ASKED_OF_ONE_CAPABILITY, "12582912"), Basis::WorkspacesOfOneCapability);
        assert_eq!(say("unknown_size", "cudnnGetRNNTempSpaceSizes"), Basis::Unknown);
    }

    #[test]
    fn what_ran_out_by_less_than_a_card_may_differ_fits_perhaps() {
        let mut found = found(900, 1000);
        found.fits = Some(false);
        assert_eq!(found.verdict(), "No", "nobody knows what it takes");
        let needs = |mib: u64| RehearsedNeeds { fits: Some(true), peak_reserved: mib << 20, ..Default::default() };
        found.with_memory_enough = Some(needs(1005));
        assert_eq!((found.verdict(), found.fits_surely()), ("Perhaps", None));
        found.with_memory_enough = Some(needs(1100));
        assert_eq!((found.verdict(), found.fits_surely()), ("No", Some(false)));
    }

    #[test]
    fn the_first_two_lines_count_the_same() {
        use super::super::findings::Findings;
        use lab_base::{figures::short, section::Section};

        for (event, least) in [("collective", 0), ("asked_size", 18 << 20)] {
            let mut found = found(1000, 8000);
            found.gpu.name = "NVIDIA GeForce RTX 4090".into();
            found.gpu.context_bytes = 515 << 20;
            found.not_as_on_a_card.push(NotAsOnACard { event: event.into(), ..Default::default() });
            found.add_figures();
            let needed = short(found.on_card.expected_bytes);
            assert!(found.on_card.expected_bytes >= (1000 << 20) + least);
            assert!(found.title().contains(&format!("{needed} needed")), "{}", found.title());
            let Some(Section::Answer(second)) = found.sections().into_iter().next() else { panic!("no answer") };
            assert!(second.contains(&format!("{needed} of ")), "{second}");
            assert_eq!(second.contains("cuDNN"), event == "asked_size", "{second}");
        }
    }

    #[test]
    fn a_run_that_memory_ran_out_in_is_as_sure_as_the_one_with_enough() {
        let mut found = found(900, 1000);
        (found.fits, found.exact, found.exact_to) = (Some(false), false, None);
        let needs = RehearsedNeeds { fits: Some(true), peak_reserved: 1300 << 20, ..Default::default() };
        found.with_memory_enough = Some(needs.clone());
        assert_eq!(found.verdict(), "Perhaps", "nothing says how sure it is");
        found.with_memory_enough = Some(RehearsedNeeds { basis: Some(Basis::Requests), ..needs.clone() });
        assert_eq!(found.verdict(), "No", "whole steps of it were seen");
        found.with_memory_enough = Some(RehearsedNeeds { basis: Some(Basis::Unknown), ..needs });
        assert_eq!(found.verdict(), "Perhaps");
    }

    #[test]
    fn several_streams_reserve_up_to_what_late_events_keep() {
        let mut found = found(1000, 1500);
        found.not_as_on_a_card.push(NotAsOnACard { event: LATE_EVENTS.into(), name: String::new() });
        assert!(found.asks_for_late_events());
        found.add_figures();
        let (at_once, verdict) = (found.on_card.clone(), found.verdict());
        assert_eq!(verdict, "Yes");
        found.add_late_events(1490 << 20);
        found.add_figures();
        assert_eq!(found.on_card.expected_bytes, at_once.expected_bytes);
        assert_eq!(found.on_card.lower_bytes, at_once.lower_bytes);
        assert!(found.on_card.upper_bytes >= at_once.upper_bytes + (490 << 20), "{:?}", found.on_card);
        assert_eq!(found.verdict(), "Perhaps", "with late events it may not fit");
    }

    #[test]
    fn several_processes_on_a_card_take_what_they_had_at_once() {
        let mut found = found(408, 12032);
        (found.gpu.name, found.gpu.context_bytes) = ("NVIDIA GeForce RTX 3060 12GB".into(), 141 << 20);
        found.ranks[0].peak_allocated = 403 << 20;
        found.ranks.push(found.ranks[0].clone());
        found.add_figures();
        let one = found.on_card.clone();
        let had = |mib: u64| NotAsOnACard { event: TOGETHER.into(), name: format!("2 {}", (mib + 2 * 141) << 20) };
        found.not_as_on_a_card.push(had(816));
        found.add_figures();
        assert_eq!(found.on_card.expected_bytes, 2 * one.expected_bytes);
        let part = |name: &str| found.on_card.parts.iter().find(|part| part.name.starts_with(name)).unwrap();
        assert_eq!(part("tensors").expected_bytes, 806 << 20);
        assert_eq!(part("CUDA context").name, "CUDA context of 2 processes");
        // One after the other had less at once than the larger of them alone.
        found.not_as_on_a_card = vec![had(100)];
        found.add_figures();
        assert_eq!(found.on_card, one);
    }

    #[test]
    fn all_modules_at_once_make_the_context_larger() {
        let mut found = found(1000, 24000);
        found.gpu.name = "NVIDIA GeForce RTX 3090".into();
        found.add_figures();
        let lazily = found.on_card.clone();
        found.not_as_on_a_card.push(NotAsOnACard { event: ALL_MODULES.into(), name: "CUDA_MODULE_LOADING".into() });
        found.add_figures();
        let more = |of: fn(&OnCard) -> u64| (of(&found.on_card) - of(&lazily)) >> 20;
        let figures = [more(|one| one.lower_bytes), more(|one| one.expected_bytes), more(|one| one.upper_bytes)];
        assert_eq!(figures, [732, 1301, 1532], "as on an H200");
        assert!(found.not_as_on_a_card.iter().all(|one| !one.can_change_figures()), "PyTorch reserves as much");
    }

    #[test]
    fn several_ranks_take_what_nccl_needs() {
        let mut found = found(1000, 8000);
        found.gpu.name = "NVIDIA H200".into();
        found.add_figures();
        let alone = found.on_card.clone();
        found.ranks.push(RehearsedRank { rank: 1, ..Default::default() });
        found.add_figures();
        assert!(found.on_card.expected_bytes >= alone.expected_bytes + (500 << 20), "{:?}", found.on_card);
        assert!(found.on_card.parts.iter().any(|part| part.name == "NCCL"));
        // A mesh of two dimensions has three communicators; the library told of each.
        for (event, name) in [(COMMUNICATORS, "1"), (COMMUNICATORS, "3"), (PEERS, "2")] {
            found.not_as_on_a_card.push(NotAsOnACard { event: event.into(), name: name.into() });
        }
        let one = found.on_card.expected_bytes;
        found.add_figures();
        assert_eq!(found.on_card.expected_bytes, one + ((2 * 388 + 2 * 384) << 20), "{:?}", found.on_card);
    }
}
