//! Sizes of the pieces of a network.

use std::cell::RefCell;
use std::sync::Arc;

use lab_base::error::Result;
use memcore::backend::Meta;
use memcore::nn::{Init, Parameter};
use memcore::{DType, Device};

use super::Architecture;

/// The parameters of a network that is built as a chain of pieces, or as one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Number of pieces.
    pub pieces: usize,
    /// The parameters, in the order of their creation.
    pub parameters: Vec<MeasuredParameter>,
    /// Parameters that a piece computes with but another one owns, if each piece were on a device of its own.
    pub copies: Vec<MeasuredParameter>,
}

/// A parameter without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredParameter {
    /// The piece that it belongs to.
    pub piece: usize,
    /// Number of its values.
    pub values: usize,
    /// Type of its values.
    pub dtype: DType,
    /// True if it has a gradient.
    pub is_trained: bool,
}

impl Measured {
    /// Whether all parameters of a piece are made before those of the next one.
    pub fn in_order(&self) -> bool {
        self.parameters.is_sorted_by_key(|parameter| parameter.piece)
    }
}

/// Measures a network in this type by building it without values, each piece on a device of its own. `tuned` says which adapters it has and what is not trained.
///
/// # Errors
/// Sizes that do not fit together.
pub fn measured(architecture: &dyn Architecture, dtype: DType, tuned: impl Fn(Init) -> Init) -> Result<Measured> {
    let device = || Device::builder(Arc::new(Meta::default())).build();
    let init = tuned(Init::new(&device(), dtype, 0));
    let devices: RefCell<Vec<Device>> = RefCell::default();
    let at = |piece: usize| {
        let mut devices = devices.borrow_mut();
        while devices.len() <= piece {
            devices.push(device());
        }
        init.on(&devices[piece])
    };
    let pieces = match architecture.indivisible() {
        None => architecture.pieces(&at)?.len(),
        Some(_) => {
            architecture.build(&at(0))?;
            1
        }
    };
    let devices = devices.borrow();
    let sized = |parameter: &Parameter| {
        let array = parameter.array();
        let piece = devices.iter().position(|device| array.device().is_same(device));
        let (values, dtype) = (array.numel(), array.dtype());
        MeasuredParameter { piece: piece.unwrap_or(0), values, dtype, is_trained: parameter.is_trained() }
    };
    let parameters = init.parameters().iter().map(sized).collect();
    let copies = init.copies().iter().map(|copied| sized(&copied.copy)).collect();
    Ok(Measured { pieces, parameters, copies })
}
