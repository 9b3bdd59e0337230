//! Graphics cards by name: what PyTorch finds on one before the first tensor.

use memcore::Profile;

/// Bytes that a process takes on a card before its first tensor: the CUDA context with PyTorch's modules.
///
/// Out-of-memory messages of single processes on RTX 4090 and 5090, A100 and H200, posted in public issues between 2024 and 2026, give 0.40 to
/// 0.60 GiB ("this process has … in use" less what PyTorch allocated and reserved); NCCL's buffers and CUDA graphs come on top.
pub const CONTEXT_BYTES: u64 = 512 << 20;

/// A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// What the command line calls it.
    pub name: &'static str,
    /// What its maker calls it.
    pub title: &'static str,
    /// Hundredths of a GiB that the driver reports as its total: less than the label says, since the card keeps some for itself.
    pub total_centi_gib: u64,
    /// Compute capability, times ten.
    pub sm: u32,
    /// Multiprocessors, as its maker says.
    pub multiprocessors: u16,
}

/// Every card that has a name here. The totals are those of PyTorch's own messages ("has a total capacity of …"), the smallest seen of each
/// card in public issues; with another driver, or without error correction, a card may show up to 2 % more.
pub const ALL: &[Card] = &[
    card("t4", "Tesla T4", 1474, 75, 40),
    card("l4", "L4", 2203, 89, 58),
    card("a10g", "A10G", 2206, 86, 80),
    card("rtx4090", "GeForce RTX 4090", 2352, 89, 128),
    card("rtx5090", "GeForce RTX 5090", 3136, 120, 170),
    card("a100-40", "A100 40GB", 3950, 80, 108),
    card("l40s", "L40S", 4439, 89, 142),
    card("a6000", "RTX A6000", 4754, 86, 84),
    card("h100", "H100 80GB", 7914, 90, 132),
    card("a100-80", "A100 80GB", 7915, 80, 108),
    card("h200", "H200", 13972, 90, 132),
    card("b200", "B200", 17835, 100, 148),
];

const fn card(name: &'static str, title: &'static str, total_centi_gib: u64, sm: u32, multiprocessors: u16) -> Card {
    Card { name, title, total_centi_gib, sm, multiprocessors }
}

impl Card {
    /// The card of that name.
    pub fn named(name: &str) -> Option<&'static Card> {
        ALL.iter().find(|card| card.name == name)
    }

    /// What the driver reports as its total.
    pub fn total_bytes(&self) -> u64 {
        (self.total_centi_gib << 30) / 100
    }

    /// The memory profile of PyTorch 2.11 on its compute capability.
    pub fn profile(&self) -> &'static str {
        let own = format!("torch-2.11-sm{}", self.sm);
        Profile::NAMES.into_iter().find(|name| *name == own).unwrap_or("torch-2.11-sm90")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_a_profile_and_one_name() {
        for card in ALL {
            let profile = Profile::named(card.profile()).unwrap();
            assert_eq!(profile.compute_capability, Some(card.sm), "{}", card.name);
            assert_eq!(Card::named(card.name), Some(card));
            assert!(card.total_bytes() > 8 * CONTEXT_BYTES, "{}", card.name);
        }
        assert_eq!(Card::named("a100"), None);
        assert_eq!(Card::named("rtx4090").map(Card::total_bytes), Some(25_254_407_700));
    }
}
