//! Inputs of rows whose events are recorded by their sizes alone.

use crate::common::labelled::{Row, data, leaf, row};
use memcore::{DType, Device, Result, Tensor};

pub(super) type Run = fn(&[Tensor]) -> Result<Tensor>;

/// Inputs: `l` for leaves, `d` for data, `i` for indices, each with its sizes.
pub(super) type Inputs = &'static [(char, &'static [usize])];

pub(super) const X: Inputs = &[('l', &[64, 256])];
pub(super) const XX: Inputs = &[('l', &[64, 256]), ('l', &[64, 256])];
pub(super) const X_AND_DATA: Inputs = &[('l', &[64, 256]), ('d', &[64, 256])];
pub(super) const DATA_AND_X: Inputs = &[('d', &[64, 256]), ('l', &[64, 256])];
pub(super) const LONG: Inputs = &[('l', &[4, 1 << 18])];
pub(super) const ELEMENTS: Inputs = &[('l', &[64, 256]), ('i', &[64, 10]), ('l', &[64, 10])];
pub(super) const ELEMENTS_OF_DATA: Inputs = &[('d', &[64, 256]), ('i', &[64, 10]), ('l', &[64, 10])];
pub(super) const SLICES: Inputs = &[('l', &[64, 256]), ('i', &[10]), ('l', &[10, 256])];
pub(super) const SLICES_OF_DATA: Inputs = &[('d', &[64, 256]), ('i', &[10]), ('l', &[10, 256])];
pub(super) const BATCHES: Inputs = &[('l', &[8, 32, 40]), ('l', &[8, 32, 48]), ('l', &[8, 48, 40])];

fn made(inputs: Inputs) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |device, dtype| {
        let tensor = |(kind, dims): &(char, &'static [usize])| match kind {
            'l' => leaf(device, dims, dtype),
            'd' => data(device, dims, dtype),
            _ => data(device, dims, DType::I64),
        };
        inputs.iter().map(tensor).collect()
    }
}

pub(super) fn rows_of(table: &[(&'static str, Inputs, Run)]) -> Vec<Row> {
    table.iter().map(|&(name, inputs, run)| row(name, DType::F32, made(inputs), run)).collect()
}
