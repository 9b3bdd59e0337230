//! What an operator is to those that list some.

use memcore::Result;

use super::super::call::Call;
use super::super::value::Made;

pub(crate) type Operator = fn(&Call<'_>) -> Result<Made>;

/// Names, as PyTorch has them after `aten.`, and what runs them.
pub(super) type Table = &'static [(&'static str, Operator)];
