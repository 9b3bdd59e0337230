//! Elements that are moved between channels and positions.

use super::inputs::rows_of;
use crate::common::labelled::{Row, against_sizes};
use memcore::ops;

fn of_sizes() -> Vec<Row> {
    rows_of(&[("pixel_unshuffle", &[('l', &[8, 16, 20, 20])], |t| ops::pixel_unshuffle(&t[0], 2))])
}

against_sizes! { "../../golden/events/sizes/shape.json", of_sizes() }
