//! What there is for tensors, in words.

use super::bytes;
use crate::args::Gpu;

/// The card, or the size, and what of it is left.
pub(crate) fn room(gpu: Option<Gpu>, budget_bytes: u64) -> String {
    let Some(Gpu::Named(card)) = gpu else {
        return format!(
            "{} (all of it for tensors; on a card, a CUDA context takes {} more)",
            bytes::short(budget_bytes),
            lab::cards::CONTEXT.range()
        );
    };
    let known = if card.context.source.is_some() { "" } else { " on the cards of which it is known" };
    let mut text = format!(
        "{} ({}, of which {} are left for tensors: a CUDA context takes {}{known}, the most is counted",
        card.title,
        bytes::short(card.total_bytes()),
        bytes::both(budget_bytes),
        card.context.range()
    );
    if let Some(profile) = card.profile().filter(|_| card.has_older_profile()) {
        text += &format!("; as {profile}, the newest recorded release with kernels for it");
    }
    text + ")"
}
