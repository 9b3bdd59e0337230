//! The types of the tables that list operators.

use memcore::Result;

use super::super::call::Call;
use super::super::value::Made;

pub(super) type Run = fn(&Call<'_>) -> Result<Made>;

/// PyTorch's names after `aten.`, each with the function that runs the operator.
pub(super) type Table = &'static [(&'static str, Run)];
