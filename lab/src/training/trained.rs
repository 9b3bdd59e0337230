//! What a run needs of what it trains.

use super::checkpoint::Parts;
use super::evaluate::Accuracy;
use crate::error::Result;
use crate::record::Row;

/// What is trained, whatever network is inside.
pub(crate) trait Training {
    /// One optimizer step. Returns the loss, where there are values.
    fn step(&mut self, step: usize) -> Result<Option<f64>>;

    /// Takes a row now.
    fn row(&mut self, label: &str);

    /// What its future depends on.
    fn parts(&mut self) -> Parts<'_>;

    /// Number of trained values.
    fn parameter_count(&self) -> u64;

    /// How much of the test data it gets right, where there are some.
    fn accuracy(&self) -> Result<Option<Accuracy>> {
        Ok(None)
    }

    /// How many rows were taken so far, those that are not kept among them.
    fn rows_taken(&self) -> usize;

    /// Lets everything go. Returns the rows, with a last one of that name.
    fn finish(self, label: Option<&str>) -> Vec<Row>;
}
