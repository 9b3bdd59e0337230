//! The figures of a run whose convolutions cuDNN computes: with the workspaces that it named, else bounded.

use std::collections::BTreeSet;

use lab_base::error::{Error, Result};
use lab_results::{ConvolutionBound, WorkspaceSource};
use memcore::Profile;
use memcore::memory::Needs;
use memcore::profile::{ConvolutionCase, ConvolutionWorkspaces};

use super::paper::{Paper, Part, Room};
use super::spec::RunSpec;
use super::workspaces::{KnowsWorkspaces, WorkspaceTable};

impl Paper<'_> {
    /// The figures of a run with convolutions, where cuDNN computes them. `may_ask`: whether somebody may be asked for workspaces.
    pub(super) fn with_cudnn(
        &self,
        spec: &RunSpec,
        workspace_bytes: u64,
        (needs, room): (Needs, Option<Room>),
        may_ask: bool,
    ) -> Result<ConvolutionBound> {
        let named = self.known(spec).map(|table| self.named(spec, &table, room)).transpose()?;
        if let Some(named) = named.flatten() {
            return Ok(named);
        }
        let bound = self.bounded(spec, workspace_bytes, (needs, room))?;
        let fits = room.filter(|room| room.reserved_bytes.is_some());
        let decides = fits.is_some_and(|room| bound.upper_bytes > room.budget_bytes);
        if !may_ask || !self.may_ask(spec, decides) {
            return Ok(bound);
        }
        let table = self.answered(std::slice::from_ref(spec))?;
        let named = table.map(|table| self.named(spec, &table, room)).transpose()?;
        Ok(named.flatten().unwrap_or(bound))
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
        let card = runs.first().and_then(|run| Some((run.multiprocessors(), self.who_knows(run)?, self.known(run))));
        let Some((multiprocessors, (knows, sm), known)) = card else { return Ok(None) };
        let mut cases = BTreeSet::new();
        for run in runs {
            cases.extend(self.convolutions(run)?);
        }
        cases.retain(|case| known.as_ref().is_none_or(|table| table.named(case).is_none()));
        if cases.is_empty() {
            return Ok(known);
        }
        Ok(knows.ask(sm, &Vec::from_iter(cases))?.map(|table| table.on_card(multiprocessors)))
    }

    /// True if a run with convolutions surely fits where cuDNN computes them: with the workspaces that somebody knows, else by the bound. And the number of
    /// allocations made for it.
    pub(super) fn surely_fits(&self, spec: &RunSpec, budget_bytes: u64) -> Result<(bool, u64)> {
        let rest = ConvolutionBound::rest_of_named(budget_bytes);
        let named =
            self.known(spec).map(|table| spec.clone().with_workspaces(table.workspaces(true)).on_paper_in(rest));
        match named.map(|run| self.in_what_there_is(&run)) {
            Some(Ok((needs, work))) => Ok((needs.is_some(), work)),
            Some(Err(Error::Interrupted)) => Err(Error::Interrupted),
            // A table lacks a workspace, or nobody knows any.
            Some(Err(_)) | None => {
                let (needs, work) = self.in_what_cudnn_leaves(spec, budget_bytes)?;
                Ok((needs.is_some(), work))
            }
        }
    }

    /// Who knows the workspaces of a run, and the compute capability of its card.
    fn who_knows(&self, spec: &RunSpec) -> Option<(&dyn KnowsWorkspaces, u32)> {
        let knows = self.workspaces.filter(|_| spec.profile.cudnn_workspace.is_none())?;
        Some((knows, Profile::named(&spec.like())?.compute_capability?))
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
        let run = spec.clone().with_workspaces(workspaces.clone()).endless();
        match self.taken_by(&run, Part::UntilFlat) {
            Ok(taken) => Ok(taken.needs.map(|needs| needs.reserved_bytes)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // The plain run was made, so the error is about cuDNN.
            Err(_) => Ok(None),
        }
    }

    /// The figures with the workspaces of a table; `None` if it lacks one, or the run cannot be made with cuDNN.
    fn named(&self, spec: &RunSpec, table: &WorkspaceTable, room: Option<Room>) -> Result<Option<ConvolutionBound>> {
        let workspaces = table.workspaces(false);
        let Some(expected) = self.reserved(spec, &workspaces)? else { return Ok(None) };
        let cases = workspaces.cases();
        let source = table.source(cases.iter().map(|(case, _)| case));
        let largest = cases.iter().flat_map(|(_, bytes)| bytes).max().copied().unwrap_or(0);
        let most = if source == WorkspaceSource::AskedInARange { table.workspaces(true) } else { workspaces.clone() };
        let Some(upper) = self.reserved(spec, &most)? else { return Ok(None) };
        let bound = |reserved| ConvolutionBound::of_named(table.cudnn, source, largest, reserved);
        let whole = bound([expected, upper.max(expected)]);
        let Some(room) = room.filter(|room| room.budget_bytes < whole.upper_bytes) else {
            return Ok(Some(whole));
        };
        // As for a bound: what is reserved beyond need is freed before memory runs out.
        let within = |workspaces: &ConvolutionWorkspaces, bytes| {
            let run = spec.clone().with_workspaces(workspaces.clone()).on_paper_in(bytes);
            let (needs, _) = self.in_what_there_is(&run)?;
            Ok::<_, Error>(needs.map(|needs| needs.reserved_bytes))
        };
        let least = within(&workspaces, room.budget_bytes.saturating_sub(whole.context_bytes))?;
        let most = within(&most, ConvolutionBound::rest_of_named(room.budget_bytes))?;
        let expected = least.unwrap_or(expected);
        Ok(Some(bound([expected, most.unwrap_or(upper).max(expected)])))
    }

    /// The upper figure of a run whose workspaces nobody knows.
    fn bounded(
        &self,
        spec: &RunSpec,
        workspace_bytes: u64,
        (needs, room): (Needs, Option<Room>),
    ) -> Result<ConvolutionBound> {
        let copying = spec.clone().with_copying_convolutions();
        let most = self.taken_by(&copying.endless(), Part::UntilFlat)?.needs;
        let most = most.map_or(u64::MAX, |most| most.reserved_bytes).max(needs.reserved_bytes);
        let bound = ConvolutionBound::of_run(workspace_bytes, most);
        let Some(room) = room.filter(|room| room.budget_bytes < bound.upper_bytes) else { return Ok(bound) };
        // Less than it takes with enough memory may be enough, too: what is reserved beyond need is freed before memory runs out.
        let (within, _) = self.in_what_cudnn_leaves(spec, room.budget_bytes)?;
        Ok(within.map_or(bound, |within| ConvolutionBound::of_run(workspace_bytes, within.reserved_bytes)))
    }

    /// What a run with convolutions takes at most where cuDNN computes them and has its own part of the memory; `None` if memory runs out. And the
    /// number of allocations made for it.
    fn in_what_cudnn_leaves(&self, spec: &RunSpec, budget_bytes: u64) -> Result<(Option<Needs>, u64)> {
        self.in_what_there_is(
            &spec.clone().with_copying_convolutions().on_paper_in(ConvolutionBound::rest(budget_bytes)),
        )
    }
}
