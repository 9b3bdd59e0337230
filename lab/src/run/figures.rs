//! Figures of a dry run.

use lab_base::bands::{Basis, Range};
use lab_results::{ConvolutionBound, Held, NeedsResult};
use memcore::{Deviation, Deviations};

/// Memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory, with enough memory.
    pub reserved_bytes: u64,
    /// The run within the memory limit; `None` without a limit.
    pub room: Option<Room>,
    /// Deviations from the program that the run stands for.
    pub deviations: Deviations,
    /// Upper figure of a run with convolutions, which cuDNN computes on a card.
    pub with_cudnn: Option<ConvolutionBound>,
    /// What PyTorch reserves on a card, with how far one may be from it.
    pub reserved: Range,
    /// What decides that.
    pub basis: Basis,
}

/// A run within a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Memory that a process may use.
    pub budget_bytes: u64,
    /// Peak of memory reserved there, if the run completes. It is at most the limit, since PyTorch frees its cache before it runs out.
    pub reserved_bytes: Option<u64>,
    /// True if the upper figure fits.
    pub surely: bool,
    /// True if the lower figure fits, which has the smallest context that the card may have.
    pub perhaps: bool,
}

impl Figures {
    /// True if the upper figure fits, false if the lower one does not; `None` without a limit, or if that is in doubt.
    pub fn fits_surely(&self) -> Option<bool> {
        let room = self.room?;
        match (room.surely, room.perhaps) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    }

    /// True if the lower figure fits, and the upper one does not.
    pub fn is_in_doubt(&self) -> bool {
        self.room.is_some() && self.fits_surely().is_none()
    }

    /// Takes in peaks of the same run, of which more steps were made: until memory is flat a run may take more.
    pub fn with_at_least(&mut self, allocated_bytes: u64, reserved_bytes: u64) {
        self.allocated_bytes = self.allocated_bytes.max(allocated_bytes);
        self.reserved_bytes = self.reserved_bytes.max(reserved_bytes);
        if let Some(bound) = &mut self.with_cudnn {
            bound.upper_bytes = bound.upper_bytes.max(reserved_bytes.saturating_add(bound.context_bytes));
        }
        if let Some(room) = &mut self.room
            && let Some(here) = &mut room.reserved_bytes
        {
            *here = (*here).max(reserved_bytes.min(room.budget_bytes));
        }
        if self.with_cudnn.is_none() && self.fits_surely() != Some(true) {
            let whole = self.basis.range(self.reserved_bytes, self.reserved_bytes);
            // Where memory is short PyTorch keeps less of what was freed.
            let here = self.room.and_then(|room| room.reserved_bytes).unwrap_or(self.reserved_bytes);
            self.reserved = Range { lower: whole.lower.min(self.basis.band().lower(here)), ..whole };
        }
    }

    /// How the run differs from PyTorch, without what its figures account for: the workspaces that cuDNN named.
    pub fn unaccounted(&self, deviations: Deviations) -> Deviations {
        match self.with_cudnn.and_then(|bound| bound.expected_bytes) {
            Some(_) => deviations.without(Deviation::WithoutCudnn),
            None => deviations,
        }
    }

    /// Bytes that the run lacks, if it is not expected to complete.
    pub fn missing_bytes(&self) -> Option<u64> {
        let room = self.room.filter(|room| room.reserved_bytes.is_none() || !room.perhaps)?;
        Some(self.reserved_bytes.max(self.reserved.expected).saturating_sub(room.budget_bytes))
    }

    /// True if its tensors alone would fit, so that only fragmentation prevents it.
    pub fn is_fragmented(&self) -> bool {
        self.room.is_some_and(|room| room.reserved_bytes.is_none() && self.allocated_bytes <= room.budget_bytes)
    }
}

impl From<&Figures> for Held {
    fn from(figures: &Figures) -> Self {
        Self { allocated_bytes: figures.allocated_bytes, reserved: figures.reserved, basis: figures.basis }
    }
}

impl From<&Figures> for NeedsResult {
    fn from(figures: &Figures) -> Self {
        Self {
            allocated_bytes: figures.allocated_bytes,
            reserved_bytes: figures.reserved_bytes,
            reserved_here_bytes: figures.room.and_then(|room| room.reserved_bytes),
            missing_bytes: figures.missing_bytes(),
            fits_with_least_context: figures.room.map(|room| room.perhaps),
        }
    }
}
