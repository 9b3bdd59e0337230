//! Cases of `memcore::ops`, folder `products`.

use memcore::ops;
use memcore::{Result, Tensor};

use super::arguments::{Argument, CUBE, OperatorCase, case, tensor};

const BATCHES: &[Argument] = &[tensor(&[2, 3, 5]), tensor(&[2, 3, 4]), tensor(&[2, 4, 5])];
const ROW_AND_BATCHES: &[Argument] = &[tensor(&[5]), tensor(&[2, 3, 4]), tensor(&[2, 4, 5])];

/// Rows of three groups, one of which has none, and their matrices.
const GROUPS: &[Argument] = &[tensor(&[5, 8]), tensor(&[3, 8, 8])];

/// The ends of the groups.
fn ends(x: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(x.device(), &[3], &[2i32, 2, 5])
}

pub(super) const CASES: &[OperatorCase] = &[
    case("mm", &[tensor(&[3, 5]), tensor(&[5, 4])], |x| ops::mm(&x[0], &x[1])),
    case("mm.transposed", &[tensor(&[5, 3]), tensor(&[4, 5])], |x| ops::mm(&ops::t(&x[0])?, &ops::t(&x[1])?)),
    case("bmm", &[tensor(&[2, 3, 5]), tensor(&[2, 5, 4])], |x| ops::bmm(&x[0], &x[1])),
    case("addmm", &[tensor(&[4]), tensor(&[3, 5]), tensor(&[5, 4])], |x| ops::addmm(&x[0], &x[1], &x[2])),
    case("linear", &[tensor(&[3, 5]), tensor(&[4, 5]), tensor(&[4])], |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("linear.sequence", &[tensor(&[2, 3, 5]), tensor(&[4, 5]), tensor(&[4])], |x| {
        ops::linear(&x[0], &x[1], Some(&x[2]))
    }),
    case("linear.no_bias", &[tensor(&[2, 3, 5]), tensor(&[4, 5])], |x| ops::linear(&x[0], &x[1], None)),
    case("matmul.broadcast", &[tensor(&[2, 1, 3, 5]), tensor(&[4, 5, 2])], |x| ops::matmul(&x[0], &x[1])),
    case("matmul.folded", &[tensor(&[2, 3, 5]), tensor(&[5, 4])], |x| ops::matmul(&x[0], &x[1])),
    case("grouped_mm", GROUPS, |x| ops::grouped_mm(&x[0], &x[1], &ends(&x[0])?)),
    case("grouped_mm.transposed", GROUPS, |x| ops::grouped_mm(&x[0], &ops::transpose(&x[1], 1, 2)?, &ends(&x[0])?)),
    case("grouped_mm_in_turn", GROUPS, |x| ops::grouped_mm_in_turn(&x[0], &x[1], &ends(&x[0])?)),
    case("baddbmm", BATCHES, |x| ops::baddbmm(&x[0], &x[1], &x[2], 1.0, 1.0)),
    case("baddbmm.factors", ROW_AND_BATCHES, |x| ops::baddbmm(&x[0], &x[1], &x[2], 2.0, 0.5)),
    case("mv", &[tensor(&[3, 5]), tensor(&[5])], |x| ops::mv(&x[0], &x[1])),
    case("dot", &[tensor(&[5]), tensor(&[5])], |x| ops::dot(&x[0], &x[1])),
    case("einsum", &[tensor(&[2, 3, 4]), tensor(&[2, 5, 4])], |x| ops::einsum("bij,bkj->bik", &[&x[0], &x[1]])),
    case("einsum.heads", &[tensor(&[2, 3, 2, 4]), tensor(&[2, 5, 2, 4])], |x| {
        ops::einsum("bthd,bshd->bhts", &[&x[0], &x[1]])
    }),
    case("einsum.one", CUBE, |x| ops::einsum("ijk->ki", &[&x[0]])),
    case("einsum.outer", &[tensor(&[3]), tensor(&[4])], |x| ops::einsum("i,j->ij", &[&x[0], &x[1]])),
    case("einsum.alone", &[tensor(&[3, 2]), tensor(&[3, 4])], |x| ops::einsum("ij,ik->k", &[&x[0], &x[1]])),
    case("einsum.implicit", &[tensor(&[3, 2]), tensor(&[2, 4])], |x| ops::einsum("ij,jk", &[&x[0], &x[1]])),
    case("einsum.three", &[tensor(&[2, 3]), tensor(&[3, 4]), tensor(&[4, 2])], |x| {
        ops::einsum("ij,jk,kl->il", &[&x[0], &x[1], &x[2]])
    }),
    case("einsum.forms", &[tensor(&[2, 3]), tensor(&[3, 4]), tensor(&[2, 4])], |x| {
        ops::einsum("bi,ij,bj->b", &[&x[0], &x[1], &x[2]])
    }),
    case("einsum_along", &[tensor(&[2, 3]), tensor(&[3, 4]), tensor(&[4, 2])], |x| {
        ops::einsum_along("ij,jk,kl->il", &[&x[0], &x[1], &x[2]], &[1, 2, 0, 1])
    }),
    case("einsum.ellipsis", &[tensor(&[2, 3, 4]), tensor(&[4, 2])], |x| {
        ops::einsum("...ij,jk->...ik", &[&x[0], &x[1]])
    }),
    case("einsum.ellipses", &[tensor(&[2, 1, 3, 4]), tensor(&[5, 3, 4])], |x| {
        ops::einsum("...j,...j->...", &[&x[0], &x[1]])
    }),
    case("einsum.diagonal", &[tensor(&[2, 3, 3])], |x| ops::einsum("bii->bi", &[&x[0]])),
    case("einsum.trace", &[tensor(&[2, 3, 3]), tensor(&[2, 4])], |x| ops::einsum("bii,bj->j", &[&x[0], &x[1]])),
    case("cdist", &[tensor(&[2, 3, 4]), tensor(&[2, 5, 4])], |x| ops::cdist(&x[0], &x[1], 2.0)),
    case("cdist.third", &[tensor(&[3, 4]), tensor(&[5, 4])], |x| ops::cdist(&x[0], &x[1], 3.0)),
    case("cdist.multiplied", &[tensor(&[27, 2]), tensor(&[3, 2])], |x| ops::cdist(&x[0], &x[1], 2.0)),
];

#[cfg(test)]
mod tests {
    use memcore::Device;

    use super::*;
    use crate::reference::Reference;

    #[test]
    fn equations_that_are_not_represented_are_refused() {
        let device = Device::new(Reference::default());
        let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32; 4]).unwrap();
        for equation in ["....i->i", "ij->ii", "ij->k", "ijk->i", "ij,jk->ik", "i.j->i"] {
            assert!(ops::einsum(equation, &[&x]).is_err(), "{equation}");
        }
    }
}
