//! How large the pieces of a network are.

use std::cell::RefCell;
use std::sync::Arc;

use memcore::backend::Meta;
use memcore::nn::Init;
use memcore::{DType, Device};

use super::Architecture;
use crate::error::Result;

/// Number of values of each parameter, by piece; a network that is no chain of pieces is one piece. Found by building it without values.
///
/// # Errors
/// Sizes that do not fit.
pub(crate) fn values_by_piece(architecture: &dyn Architecture) -> Result<Vec<Vec<usize>>> {
    let nowhere = Device::builder(Arc::new(Meta::default())).build();
    let init = Init::new(&nowhere, DType::F32, 0);
    // How many parameters there were when each piece was begun.
    let begun: RefCell<Vec<usize>> = RefCell::default();
    let at = |piece: usize| {
        let mut begun = begun.borrow_mut();
        let so_far = init.parameters().len();
        let known = begun.len().max(piece + 1);
        begun.resize(known, so_far);
        init.clone()
    };
    let pieces = match architecture.indivisible() {
        None => architecture.pieces(&at)?.len(),
        Some(_) => {
            architecture.build(&at(0))?;
            1
        }
    };
    let values: Vec<usize> = init.parameters().iter().map(|parameter| parameter.array().numel()).collect();
    let mut begun = begun.into_inner();
    begun.resize(pieces, values.len());
    let ends = begun.iter().skip(1).copied().chain([values.len()]);
    Ok(begun.iter().zip(ends).map(|(start, end)| values[*start..end].to_vec()).collect())
}
