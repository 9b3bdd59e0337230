//! The case tables: every kernel × type × shape and view that it supports.
//!
//! There is one file per family, with a function that returns its cases. To add a case, add a line to the family's
//! table; to add a kernel, add a function beside the others. The first f32 case of a kernel (the first of any type, if
//! it has none in f32) is its representative in the validation suite: it has every optional operand, and none that is
//! empty.

mod attention;
mod common;
mod conv;
mod elementwise;
mod form;
mod index;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pool;
mod quant;
mod random;
mod reduce;
mod softmax;

pub(crate) use common::MANY;

use std::sync::{Arc, LazyLock};

use memcore::DType;

use crate::case::Case;

/// Every case.
pub fn all() -> &'static [Arc<Case>] {
    static ALL: LazyLock<Vec<Arc<Case>>> = LazyLock::new(|| {
        let families: [fn() -> Vec<Case>; 13] = [
            elementwise::cases,
            random::cases,
            reduce::cases,
            matmul::cases,
            conv::cases,
            pool::cases,
            softmax::cases,
            norm::cases,
            loss::cases,
            index::cases,
            optim::cases,
            attention::cases,
            quant::cases,
        ];
        families.iter().flat_map(|cases| cases()).map(Arc::new).collect()
    });
    &ALL
}

/// The representative case of a kernel: its first in f32, or its first.
pub fn representative(kernel: &str) -> Option<&'static Arc<Case>> {
    let mut of_kernel = all().iter().filter(|case| case.kernel == kernel);
    let first = of_kernel.clone().next();
    of_kernel.find(|case| case.dtype == DType::F32).or(first)
}
