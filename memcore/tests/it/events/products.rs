//! Products of matrices, vectors and equations.

use super::inputs::{BATCHES, X, XX, rows_of};
use crate::common::labelled::{Row, against_sizes};
use memcore::ops;

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("baddbmm", BATCHES, |t| ops::baddbmm(&t[0], &t[1], &t[2], 1.0, 1.0)),
        ("baddbmm_row", &[('l', &[40]), ('l', &[8, 32, 48]), ('l', &[8, 48, 40])], |t| {
            ops::baddbmm(&t[0], &t[1], &t[2], 1.0, 1.0)
        }),
        ("baddbmm_factors", BATCHES, |t| ops::baddbmm(&t[0], &t[1], &t[2], 2.0, 0.5)),
        ("baddbmm_data", &[('d', &[8, 32, 40]), ('l', &[8, 32, 48]), ('d', &[8, 48, 40])], |t| {
            ops::baddbmm(&t[0], &t[1], &t[2], 0.0, 0.5)
        }),
        ("mv", &[('l', &[64, 256]), ('l', &[256])], |t| ops::mv(&t[0], &t[1])),
        ("dot", &[('l', &[256]), ('l', &[256])], |t| ops::dot(&t[0], &t[1])),
        ("einsum_heads", &[('l', &[2, 8, 4, 16]), ('l', &[2, 10, 4, 16])], |t| {
            ops::einsum("bthd,bshd->bhts", &[&t[0], &t[1]])
        }),
        ("einsum_rows", &[('l', &[8, 32, 48]), ('l', &[48, 40])], |t| ops::einsum("bij,jk->bik", &[&t[0], &t[1]])),
        ("einsum_outer", &[('l', &[8]), ('l', &[10])], |t| ops::einsum("i,j->ij", &[&t[0], &t[1]])),
        ("einsum_batch", XX, |t| ops::einsum("bi,bi->b", &[&t[0], &t[1]])),
        ("einsum_one", X, |t| ops::einsum("ij->j", &[&t[0]])),
        ("einsum_alone", &[('l', &[6, 64]), ('l', &[6, 4])], |t| ops::einsum("ij,ik->k", &[&t[0], &t[1]])),
        ("einsum_implicit", &[('l', &[64, 256]), ('l', &[256, 8])], |t| ops::einsum("ij,jk", &[&t[0], &t[1]])),
    ])
}

against_sizes! { "../../golden/events/sizes/products.json", of_sizes() }
