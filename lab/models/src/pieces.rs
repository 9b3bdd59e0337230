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
    /// Piece and number of values of each parameter, in the order of their creation.
    pub parameters: Vec<(usize, usize)>,
    /// Piece and number of values of each parameter that a piece computes with but another one owns, if each piece were on a device of its own.
    pub copies: Vec<(usize, usize)>,
}

impl Measured {
    /// Whether all parameters of a piece are made before those of the next one.
    pub fn in_order(&self) -> bool {
        self.parameters.is_sorted_by_key(|(piece, _)| *piece)
    }
}

/// Measures a network by building it without values, each piece on a device of its own.
///
/// # Errors
/// Sizes that do not fit together.
pub fn measured(architecture: &dyn Architecture) -> Result<Measured> {
    let device = || Device::builder(Arc::new(Meta::default())).build();
    let init = Init::new(&device(), DType::F32, 0);
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
        (piece.unwrap_or(0), array.numel())
    };
    let parameters = init.parameters().iter().map(sized).collect();
    let copies = init.copies().iter().map(|copied| sized(&copied.copy)).collect();
    Ok(Measured { pieces, parameters, copies })
}
