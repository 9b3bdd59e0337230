//! The figures of a run whose convolutions cuDNN computes: with the workspaces that it named, else bounded.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use lab_base::bands::{Basis, Range};
use lab_base::beside::Uses;
use lab_base::error::{Error, Result};
use lab_results::{ConvolutionBound, WorkspaceSource};
use memcore::memory::Needs;
use memcore::profile::{ConvolutionCase, ConvolutionWorkspaces, WorkspaceTaken};
use memcore::{Deviations, Profile};

use super::dry_runner::DryRunner;
use super::figures::{Figures, Room};
use super::gpu::Gpu;
use super::request_cache::Part;
use super::spec::{Convolutions, RunSpec};
use super::workspaces::{KnowsWorkspaces, WorkspaceTable, shares_answers};

impl DryRunner<'_> {
    /// The figures of a run with convolutions, where cuDNN computes them; `figures` are those without it. `may_ask`: whether somebody may be asked for
    /// workspaces.
    pub(super) fn with_cudnn(
        &self,
        spec: &RunSpec,
        workspace_bytes: u64,
        figures: Figures,
        may_ask: bool,
    ) -> Result<Figures> {
        if let Convolutions::Named(_) = spec.profile.convolutions {
            let named = self.known(&asked_as(spec)).map(|table| self.named(spec, &table, figures)).transpose()?;
            return Ok(named.flatten().unwrap_or(figures));
        }
        let named = self.known(spec).map(|table| self.named(spec, &table, figures)).transpose()?;
        if let Some(named) = named.flatten() {
            return Ok(named);
        }
        let bounded = self.bounded(spec, workspace_bytes, figures)?;
        let fits = figures.room.is_some_and(|room| room.reserved_bytes.is_some());
        if !may_ask || !self.may_ask(spec, fits && bounded.is_in_doubt()) {
            return Ok(bounded);
        }
        let table = self.answered(std::slice::from_ref(spec))?;
        let named = table.map(|table| self.named(spec, &table, figures)).transpose()?;
        Ok(named.flatten().unwrap_or(bounded))
    }

    /// The convolutions of a run that PyTorch gives to cuDNN, in order; none if it cannot be made with cuDNN.
    ///
    /// # Errors
    /// Those of the run.
    pub fn convolutions(&self, spec: &RunSpec) -> Result<Vec<ConvolutionCase>> {
        let noting = ConvolutionWorkspaces::noting();
        let is_made = self.reserved(spec, &noting)?.is_some();
        Ok(noting.cases().into_iter().filter(|_| is_made).map(|(case, _)| case).collect())
    }

    /// Returns the run with the workspaces that cuDNN names for its convolutions, once somebody was asked for those that nobody knew; `None` if PyTorch
    /// gives cuDNN no convolution of it, or if one of them is not named.
    ///
    /// # Errors
    /// Those of the run, and of who was asked.
    pub fn with_named_workspaces(&self, spec: &RunSpec) -> Result<Option<RunSpec>> {
        let noting = ConvolutionWorkspaces::noting();
        self.taken_by(&spec.clone().with_workspaces(noting.clone()).endless(), Part::First(1))?;
        let cases: BTreeSet<_> = noting.cases().into_iter().map(|(case, _)| case).collect();
        let asked = asked_as(spec);
        if cases.is_empty() || !self.missing(&asked, &cases).is_empty() && !self.may_ask(&asked, true) {
            return Ok(None);
        }
        let table =
            self.table_with(&asked, &cases)?.filter(|table| cases.iter().all(|case| table.named(case).is_some()));
        Ok(table.map(|table| spec.clone().with_workspaces(table.workspaces(false))))
    }

    /// Asks whoever knows workspaces of cuDNN at once for all that these runs need, and returns whether somebody may be asked.
    ///
    /// # Errors
    /// Those of the runs, and of who was asked.
    pub(super) fn ask_for(&self, runs: &[RunSpec]) -> Result<bool> {
        let may_ask = runs.first().is_some_and(|run| self.may_ask(run, true));
        Ok(may_ask && self.answered(runs)?.is_some())
    }

    /// The table for these runs of one card, once somebody was asked for what it lacked; `None` if nobody answered.
    fn answered(&self, runs: &[RunSpec]) -> Result<Option<WorkspaceTable>> {
        let Some(run) = runs.first() else { return Ok(None) };
        let mut cases = BTreeSet::new();
        for run in runs {
            cases.extend(self.convolutions(run)?);
        }
        self.table_with(run, &cases)
    }

    /// The table for a run's card, once somebody was asked for those of these cases that it lacks; `None` if nobody answered.
    fn table_with(&self, run: &RunSpec, cases: &BTreeSet<ConvolutionCase>) -> Result<Option<WorkspaceTable>> {
        let Some((knows, sm)) = self.who_knows(run) else { return Ok(None) };
        let missing = self.missing(run, cases);
        if missing.is_empty() {
            return Ok(self.known(run));
        }
        Ok(knows.ask(sm, &missing)?.map(|table| table.on_card(run.multiprocessors())))
    }

    /// Those of these cases that nobody knows.
    fn missing(&self, run: &RunSpec, cases: &BTreeSet<ConvolutionCase>) -> Vec<ConvolutionCase> {
        let known = self.known(run);
        let is_missing = |case: &&ConvolutionCase| known.as_ref().is_none_or(|table| table.named(case).is_none());
        cases.iter().filter(is_missing).cloned().collect()
    }

    /// True if a run with convolutions surely fits where cuDNN computes them: with the workspaces that somebody knows, else by the bound. And the number of
    /// allocations made for it.
    pub(super) fn surely_fits(&self, spec: &RunSpec, budget_bytes: u64) -> Result<(bool, u64)> {
        match self.known(spec).map(|table| self.surely_fits_by(spec, &table, budget_bytes)) {
            Some(Ok(found)) => Ok(found),
            Some(Err(Error::Interrupted)) => Err(Error::Interrupted),
            // A table lacks a workspace, or nobody knows any.
            Some(Err(_)) | None => {
                let (needs, work) = self.in_what_cudnn_leaves(spec, budget_bytes)?;
                Ok((needs.is_some(), work))
            }
        }
    }

    /// The same with the workspaces of a table.
    fn surely_fits_by(&self, spec: &RunSpec, table: &WorkspaceTable, budget_bytes: u64) -> Result<(bool, u64)> {
        let workspaces = table.workspaces(true);
        let within = |source| {
            let rest = rest(spec, basis(spec, table, source), budget_bytes);
            self.within_limit(&spec.clone().with_workspaces(workspaces.clone()).on_paper_in(rest))
        };
        // Which convolutions there are is known once the run was made.
        let (needs, work) = within(WorkspaceSource::Measured)?;
        let source = table.source(workspaces.cases().iter().map(|(case, _)| case));
        if needs.is_none() || source == WorkspaceSource::Measured {
            return Ok((needs.is_some(), work));
        }
        let (needs, more) = within(source)?;
        Ok((needs.is_some(), work + more))
    }

    /// Who knows the workspaces of a run, and the compute capability of its card.
    fn who_knows(&self, spec: &RunSpec) -> Option<(&dyn KnowsWorkspaces, u32)> {
        let knows = self.workspaces.filter(|_| spec.profile.cudnn_workspace.is_none())?;
        let sm = Profile::named(&spec.like())?.compute_capability?;
        shares_answers(sm, spec.multiprocessors()).then_some((knows, sm))
    }

    /// What is known of a run's card.
    pub(super) fn known(&self, spec: &RunSpec) -> Option<WorkspaceTable> {
        let (knows, sm) = self.who_knows(spec)?;
        Some(knows.known(sm)?.on_card(spec.multiprocessors()))
    }

    /// True if somebody may be asked. `decides`: whether the answer may decide if a run fits.
    fn may_ask(&self, spec: &RunSpec, decides: bool) -> bool {
        self.who_knows(spec).is_some_and(|(knows, _)| knows.asks(decides))
    }

    /// What a run with these workspaces reserves; `None` if it cannot be made with cuDNN, or with these.
    fn reserved(&self, spec: &RunSpec, workspaces: &ConvolutionWorkspaces) -> Result<Option<u64>> {
        Ok(self.part_with(spec, workspaces, Part::UntilFlat)?.map(|needs| needs.reserved_bytes))
    }

    /// What a part of a run with these workspaces takes; `None` if it cannot be made with cuDNN, or with these.
    fn part_with(&self, spec: &RunSpec, workspaces: &ConvolutionWorkspaces, part: Part) -> Result<Option<Needs>> {
        let run = spec.clone().with_workspaces(workspaces.clone()).endless();
        match self.taken_by(&run, part) {
            Ok(taken) => Ok(taken.needs),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // The plain run was made, so the error is about cuDNN.
            Err(_) => Ok(None),
        }
    }

    /// Makes the run with the workspaces that a table names known from the run with `most` of them: the same convolutions take others.
    fn resize(
        &self,
        spec: &RunSpec,
        table: &WorkspaceTable,
        (most, named): (&ConvolutionWorkspaces, &ConvolutionWorkspaces),
    ) -> Result<()> {
        let with = |workspaces: &ConvolutionWorkspaces| spec.clone().with_workspaces(workspaces.clone()).endless();
        let sizes = most.taken().into_iter().filter_map(|WorkspaceTaken { allocation, case, pass }| {
            let bytes = |workspaces: &ConvolutionWorkspaces| workspaces.bytes(case.clone(), pass).ok();
            Some((allocation, [bytes(most)?, table.named(&case)?.bytes[pass as usize]]))
        });
        self.request_cache.resize((&with(most), &with(named)), sizes)
    }

    /// Makes the run with all that cuDNN may take, if somebody knows that and PyTorch gives cuDNN a convolution of it: its figures ask for it.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn with_convolutions(&self, spec: &RunSpec, deviations: Deviations) -> Result<()> {
        let is_named = matches!(spec.profile.convolutions, Convolutions::Named(_));
        let Some(table) = self.known(spec).filter(|_| deviations.convolution_bytes() > 0 && !is_named) else {
            return Ok(());
        };
        self.reserved(spec, &self.made_with(spec, &table)[0]).map(drop)
    }

    /// The most that cuDNN may take by a table, and what it named, for this run: the same for each who asks.
    fn made_with(&self, spec: &RunSpec, table: &WorkspaceTable) -> [ConvolutionWorkspaces; 2] {
        let mut made = self.made_with.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., known)) = made.iter().find(|(run, by, _)| run == spec && by == table) {
            return known.clone();
        }
        let both = [true, false].map(|most| table.workspaces(most));
        made.push((spec.clone(), table.clone(), both.clone()));
        both
    }

    /// The figures with the workspaces of a table; `None` if it lacks one, or the run cannot be made with cuDNN.
    fn named(&self, spec: &RunSpec, table: &WorkspaceTable, figures: Figures) -> Result<Option<Figures>> {
        let [most, named] = self.made_with(spec, table);
        let workspaces = match &spec.profile.convolutions {
            Convolutions::Named(workspaces) => workspaces.clone(),
            _ => named,
        };
        // Whoever made the run with the most may still look for what an allocator makes of it.
        if self.part_with(spec, &most, Part::First(0))?.is_none() {
            return Ok(None);
        }
        self.resize(spec, table, (&most, &workspaces))?;
        let Some(expected) = self.reserved(spec, &workspaces)? else { return Ok(None) };
        let Some(upper) = self.reserved(spec, &most)? else { return Ok(None) };
        let cases = most.cases();
        let source = table.source(cases.iter().map(|(case, _)| case));
        let named = cases.iter().filter_map(|(case, _)| table.named(case));
        let largest = named.flat_map(|named| named.bytes).max().unwrap_or(0);
        let (context, basis) = (of_cudnn(spec), basis(spec, table, source));
        let bound = |reserved| ConvolutionBound::of_named((table.cudnn, source, basis), largest, context, reserved);
        let whole = bound([expected, upper.max(expected)]);
        let Some(room) = figures.room.filter(|room| room.budget_bytes < whole.upper_bytes) else {
            let room = figures.room.map(|room| Room { surely: true, perhaps: true, ..room });
            return Ok(Some(with_bound(figures, whole, room)));
        };
        // As for a bound: what is reserved beyond need is freed before memory runs out.
        let within = |workspaces: &ConvolutionWorkspaces, bytes| {
            let run = spec.clone().with_workspaces(workspaces.clone()).on_paper_in(bytes);
            let (needs, _) = self.within_limit(&run)?;
            Ok::<_, Error>(needs.map(|needs| needs.reserved_bytes))
        };
        let least = within(&workspaces, room.budget_bytes.saturating_sub(whole.context_bytes))?;
        let most = within(&most, rest(spec, basis, room.budget_bytes))?;
        let may = match least.or(most) {
            Some(reserved) => Some(reserved),
            None => {
                let bytes = self.most_room(spec)?.unwrap_or(room.budget_bytes).saturating_sub(context.lower);
                within(&workspaces, basis.band().perhaps(bytes))?
            }
        };
        // What it surely does with is what it is said to take.
        let expected = least.or(may).unwrap_or(expected).min(most.unwrap_or(u64::MAX));
        let bound = bound([expected, most.unwrap_or(upper)]);
        let room = Room { surely: most.is_some(), perhaps: may.is_some(), ..room };
        Ok(Some(with_bound(figures, bound, Some(room))))
    }

    /// The figures of a run whose workspaces nobody knows.
    fn bounded(&self, spec: &RunSpec, workspace_bytes: u64, figures: Figures) -> Result<Figures> {
        let copying = spec.clone().with_copying_convolutions();
        let most = self.taken_by(&copying.endless(), Part::UntilFlat)?.needs;
        let most = most.map_or(u64::MAX, |most| most.reserved_bytes).max(figures.reserved_bytes);
        let context = of_cudnn(spec).upper;
        let bound =
            |most: u64| ConvolutionBound::of_run(workspace_bytes, context, [figures.reserved.expected.min(most), most]);
        let whole = bound(most);
        let Some(room) = figures.room.filter(|room| room.budget_bytes < whole.upper_bytes) else {
            let room = figures.room.map(|room| Room { surely: true, ..room });
            return Ok(with_bound(figures, whole, room));
        };
        // Less than it takes with enough memory may be enough, too: what is reserved beyond need is freed before memory runs out.
        let (within, _) = self.in_what_cudnn_leaves(spec, room.budget_bytes)?;
        let room = Room { surely: within.is_some(), ..room };
        Ok(with_bound(figures, within.map_or(whole, |within| bound(within.reserved_bytes)), Some(room)))
    }

    /// What a run with convolutions takes at most where cuDNN computes them and has its own part of the memory; `None` if memory runs out. And the
    /// number of allocations made for it.
    fn in_what_cudnn_leaves(&self, spec: &RunSpec, budget_bytes: u64) -> Result<(Option<Needs>, u64)> {
        let rest = rest(spec, Basis::WorkspacesBounded, budget_bytes);
        self.within_limit(&spec.clone().with_copying_convolutions().on_paper_in(rest))
    }
}

/// The run as somebody is asked about it: bytes for each call are then those of its attention alone.
fn asked_as(spec: &RunSpec) -> RunSpec {
    let mut asked = spec.clone();
    asked.profile.cudnn_workspace = None;
    asked
}

/// The figures with what is said of convolutions.
fn with_bound(figures: Figures, bound: ConvolutionBound, room: Option<Room>) -> Figures {
    Figures { with_cudnn: Some(bound), reserved: bound.reserved, basis: bound.basis, room, ..figures }
}

/// What decides how far a card may be from the figures of a run with these workspaces of a table.
fn basis(spec: &RunSpec, table: &WorkspaceTable, source: WorkspaceSource) -> Basis {
    let like = spec.like();
    let capability = Profile::named(&like).and_then(|profile| profile.compute_capability);
    match source {
        WorkspaceSource::Bounded => Basis::WorkspacesBounded,
        _ if !table.is_of_release(&like) => Basis::WorkspacesOfAnotherRelease,
        WorkspaceSource::Measured => Basis::WorkspacesMeasured,
        WorkspaceSource::Asked => Basis::WorkspacesAsked,
        WorkspaceSource::AskedInARange if capability >= Some(HAS_OWN_ENGINES) => Basis::WorkspacesOfOneCapability,
        WorkspaceSource::AskedInARange => Basis::WorkspacesAskedInARange,
    }
}

/// First compute capability, times ten, that has engines of cuDNN of its own.
const HAS_OWN_ENGINES: u32 = 90;

/// What cuDNN takes in the context of a run's card besides what is counted for the card.
fn of_cudnn(spec: &RunSpec) -> Range {
    let card = spec.card.gpu.and_then(Gpu::card);
    let parts = Uses { cudnn: true, ..Uses::default() }.beside(card);
    parts.iter().map(|part| part.range()).fold(Range::default(), |sum, part| sum + part)
}

/// Bytes that a run with convolutions may reserve for the card to reserve no more than there are, with cuDNN's part of the context.
pub(super) fn rest(spec: &RunSpec, basis: Basis, budget_bytes: u64) -> u64 {
    basis.band().surely(budget_bytes.saturating_sub(of_cudnn(spec).upper))
}
