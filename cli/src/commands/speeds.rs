//! How fast a card is, or one that stands in for it.

use lab::cards::Card;
use lab::run::Gpu;
use lab::sending;
use lab::speeds::{self as sheets, DataSheet};
use lab::step_time::Speed;

use crate::exit::{Failure, Result};

/// The speed of a card by its data sheet.
///
/// # Errors
/// A card whose data sheet is not known.
pub(super) fn of_gpu(gpu: Option<Gpu>) -> Result<Speed> {
    let (card, sheet) = of_card_or_other(gpu)?;
    Ok(Speed::from_data_sheet(&sheet, card.sm))
}

/// The share of a link's speed that collectives reach.
const REACHED_LINK: f64 = 0.8;

/// Bytes that this card sends to others in a second, on so many machines.
pub(super) fn sent_per_s(card: &Card, machines: usize) -> f64 {
    sending::link_of_card(card, machines) * 1e9 * REACHED_LINK
}

/// The card whose speeds count, and these: the named one, else one that stands in.
pub(super) fn of_card_or_other(gpu: Option<Gpu>) -> Result<(&'static Card, DataSheet)> {
    let card = gpu.and_then(Gpu::card).or_else(|| Card::named(sheets::STAND_IN));
    let found = card.and_then(|card| Some((card, sheets::of_card(card)?)));
    found.ok_or_else(|| {
        Failure::usage("--gpu: the speed of this card is not known; name an amount of memory with --gpu 24GiB")
    })
}
