//! Borders, and images that are enlarged.

use super::inputs::rows_of;
use crate::common::labelled::{Row, against_recordings, against_sizes, leaf_of, row};
use crate::common::operators::operator;
use memcore::ops::Edge;
use memcore::{DType, Profile, Tensor, ops};

const F32: DType = DType::F32;

/// Constant borders.
fn padded(rows: &mut Vec<Row>) {
    let border = |borders: &'static [[usize; 2]]| move |t: &[Tensor]| ops::pad(&t[0], borders, 1.0);
    rows.extend([
        operator("upsample_nearest").row(F32),
        row("pad", F32, leaf_of(&[64, 256]), border(&[[0, 0], [1, 2]])),
        row("pad_two", F32, leaf_of(&[64, 256]), border(&[[3, 4], [1, 2]])),
        row("pad_4d", F32, leaf_of(&[8, 16, 20, 20]), border(&[[0, 0], [0, 0], [1, 1], [1, 1]])),
    ]);
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    padded(&mut rows);
    rows
}

against_recordings! {
    "../../golden/events/resample.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("pad_reflected", &[('l', &[8, 16, 20, 20])], |t| ops::pad_edges(&t[0], &[[3, 1], [1, 2]], Edge::Reflected)),
        ("pad_reflected_line", &[('l', &[8, 16, 20])], |t| ops::pad_edges(&t[0], &[[1, 2]], Edge::Reflected)),
        ("pad_repeated", &[('l', &[8, 16, 20, 20])], |t| ops::pad_edges(&t[0], &[[3, 1], [1, 2]], Edge::Repeated)),
        ("pad_repeated_line", &[('l', &[8, 16, 20])], |t| ops::pad_edges(&t[0], &[[1, 2]], Edge::Repeated)),
    ])
}

against_sizes! { "../../golden/events/sizes/resample.json", of_sizes() }
