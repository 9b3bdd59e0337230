//! Rows by index, and elements and slices that are written by index.

use super::inputs::{ELEMENTS, ELEMENTS_OF_DATA, SLICES, SLICES_OF_DATA, rows_of};
use crate::common::labelled::{Row, against_recordings, against_sizes, data, leaf, row, turned_back};
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;

type One = fn(&Tensor) -> Result<Tensor>;

/// Along each axis, of a matrix and of three dimensions, in other orders.
fn selected(rows: &mut Vec<Row>) {
    let mut select = |name: &str, dims: &'static [usize], axis: usize, turn: One| {
        let inputs = move |d: &Device, t| vec![leaf(d, dims, t), data(d, &[40], DType::I64)];
        rows.push(row(name, F32, inputs, move |t| ops::index_select(&turn(&t[0])?, axis, &t[1])));
    };
    let plain: One = |x| Ok(x.clone());
    select("index_select_turned", &[256, 64], 0, ops::t);
    select("index_select_turned_1", &[256, 64], 1, ops::t);
    select("index_select_1", &[64, 256], 1, plain);
    select("index_select_3d_1", &[4, 64, 32], 1, plain);
    select("index_select_3d_turned_1", &[4, 32, 64], 1, |x| ops::transpose(x, 1, 2));
    select("index_select_3d_turned_2", &[4, 32, 64], 2, |x| ops::transpose(x, 1, 2));
    let inputs = |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, &[40], DType::I64)];
    rows.push(row("index_select_turned_grad", F32, inputs, |t| turned_back(&ops::index_select(&t[0], 0, &t[1])?)));
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    selected(&mut rows);
    rows
}

against_recordings! {
    "../../golden/events/index.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

/// What is written to, made on the way.
fn zeros(like: &[Tensor]) -> Result<Tensor> {
    Ok(Tensor::from_array(Array::zeros(like[0].device(), &[64, 256], DType::F32)?))
}

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("scatter", ELEMENTS, |t| ops::scatter(&t[0], 1, &t[1], &t[2])),
        ("scatter_data", ELEMENTS_OF_DATA, |t| ops::scatter(&t[0], 1, &t[1], &t[2])),
        ("scatter_value", &ELEMENTS[..2], |t| ops::scatter_value(&t[0], 1, &t[1], 2.0)),
        ("scatter_add", ELEMENTS, |t| ops::scatter_add(&t[0], 1, &t[1], &t[2])),
        ("scatter_add_data", ELEMENTS_OF_DATA, |t| ops::scatter_add(&t[0], 1, &t[1], &t[2])),
        ("scatter_add_in_place", &ELEMENTS[1..], |t| ops::scatter_add_(&zeros(t)?, 1, &t[0], &t[1])),
        ("index_add", SLICES, |t| ops::index_add(&t[0], 0, &t[1], &t[2], 1.0)),
        ("index_add_alpha", SLICES_OF_DATA, |t| ops::index_add(&t[0], 0, &t[1], &t[2], 0.5)),
        ("index_add_in_place", &SLICES[1..], |t| ops::index_add_(&zeros(t)?, 0, &t[0], &t[1], 1.0)),
        ("index_add_temporary", SLICES, |t| {
            let twice = ops::mul_scalar(&t[2], 2.0)?;
            ops::index_add(&t[0], 0, &t[1], &twice, 1.0)
        }),
        ("index_copy", SLICES, |t| ops::index_copy(&t[0], 0, &t[1], &t[2])),
        ("index_put", SLICES, |t| ops::index_put(&t[0], &t[1], &t[2])),
        ("index_put_temporary", SLICES, |t| {
            let twice = ops::mul_scalar(&t[2], 2.0)?;
            ops::index_put(&t[0], &t[1], &twice)
        }),
        ("index_put_in_place", &SLICES[1..], |t| ops::index_put_(&zeros(t)?, &t[0], &t[1])),
    ])
}

against_sizes! { "../../golden/events/sizes/index.json", of_sizes() }
