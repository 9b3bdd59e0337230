//! Workspaces that cuDNN named: as a table, and who knows them.
//!
//! ```text
//! a run ─► cases that no table has ─► KnowsWorkspaces::ask (rehearse::ask_cudnn) ─► WorkspaceTable ─► the run again, with them
//! ```

mod built_in;
mod row;
mod table;

use lab_base::error::Result;
use memcore::profile::ConvolutionCase;

pub use built_in::packed_workspaces;
pub use lab_base::bands::range_bytes;
pub use row::{NamedWorkspaces, case_numbers, shares_answers};
pub use table::{WorkspaceTable, built_in_workspaces};

/// The built-in tables alone: nobody is asked, so that every machine knows the same.
pub struct BuiltInWorkspaces;

impl KnowsWorkspaces for BuiltInWorkspaces {
    fn known(&self, sm: u32) -> Option<WorkspaceTable> {
        built_in_workspaces(sm)
    }

    fn asks(&self, _: bool) -> bool {
        false
    }

    fn ask(&self, _: u32, _: &[ConvolutionCase]) -> Result<Option<WorkspaceTable>> {
        Ok(None)
    }
}

/// Who knows the workspaces of convolutions.
pub trait KnowsWorkspaces: Sync {
    /// Returns what is known for the cards of a compute capability (ten times it); `None` if nothing is.
    fn known(&self, sm: u32) -> Option<WorkspaceTable>;

    /// True if somebody is to be asked. `decides`: whether the answer may decide if a run fits.
    fn asks(&self, decides: bool) -> bool;

    /// Asks for further cases, and returns all that is known then; `None` if nobody answers.
    ///
    /// # Errors
    /// [`Error::Interrupted`](lab_base::error::Error::Interrupted), and those of somebody who was to be asked in any case.
    fn ask(&self, sm: u32, cases: &[ConvolutionCase]) -> Result<Option<WorkspaceTable>>;
}
