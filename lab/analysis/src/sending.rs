//! What ranks of a divided training send each other in a step, by the rules of ring collectives, and how fast cards send.

use lab_base::cards::Card;

/// Bytes of a run that its ranks send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of all parameters and buffers.
    pub parameters: u64,
    /// Bytes of the gradients.
    pub gradients: u64,
}

impl Sent {
    /// Bytes that each rank sends in a step of so many micro-batches, none of it at the same time as another part.
    ///
    /// Every reduction and every gathering is a ring: each rank sends (n − 1) / n of the bytes. Replicas and ZeRO-1 reduce the gradients and gather what is updated once a
    /// step, ZeRO-2 reduces after each micro-batch, and ZeRO-3 gathers the parameters for each forward and each backward pass, and reduces after it.
    pub fn bytes_of_step(self, stage: u8, ranks: usize, micro_batches: usize) -> f64 {
        let (parameters, gradients, times) = (self.parameters as f64, self.gradients as f64, micro_batches as f64);
        let share = (ranks.max(1) - 1) as f64 / ranks.max(1) as f64;
        share
            * match stage {
                0 | 1 => 2.0 * gradients,
                2 => (times + 1.0) * gradients,
                _ => times * (2.0 * parameters + gradients),
            }
    }
}

/// GB/s that a card sends to others of its machine in one direction, by its maker's data sheet: NVLink of the cards that come with it, else PCI Express.
const LINKS: &[(&str, f64)] = &[
    ("v100-16", 150.0),
    ("v100-32", 150.0),
    ("a100-40", 300.0),
    ("a100-80", 300.0),
    ("h100", 450.0),
    ("h200", 450.0),
    ("b200", 900.0),
    // PCI Express 3.0 with 16 lanes, and 4.0 with 8.
    ("t4", 16.0),
    ("p100-12", 16.0),
    ("p100-16", 16.0),
    ("rtx8000", 16.0),
    ("rtx4060", 16.0),
    ("rtx4060ti-8", 16.0),
    ("rtx4060ti-16", 16.0),
    // PCI Express 5.0 with 16 lanes.
    ("rtx5070", 64.0),
    ("rtx5070ti", 64.0),
    ("rtx5080", 64.0),
    ("rtx5090", 64.0),
];

/// PCI Express 4.0 with 16 lanes, and 5.0 with 8.
const PCI_EXPRESS: f64 = 32.0;

/// GB/s that each card of a machine of DGX kind sends to other machines, by the number and speed of its adapters, and of any other machine with 100 Gbit/s.
const BETWEEN_MACHINES: &[(&str, f64)] =
    &[("a100-40", 25.0), ("a100-80", 25.0), ("h100", 50.0), ("h200", 50.0), ("b200", 50.0)];

/// The same of other machines, whose 8 cards share 100 Gbit/s.
const SHARED_ETHERNET: f64 = 12.5 / 8.0;

/// GB/s that a card sends to others in one direction, of its own machine or of several.
pub fn link_of_card(card: &Card, machines: usize) -> f64 {
    let of = |rows: &[(&str, f64)]| rows.iter().find(|row| row.0 == card.name).map(|row| row.1);
    let within = of(LINKS).unwrap_or(PCI_EXPRESS);
    match machines {
        0 | 1 => within,
        // A ring is as fast as its slowest part.
        _ => within.min(of(BETWEEN_MACHINES).unwrap_or(SHARED_ETHERNET)),
    }
}

#[cfg(test)]
mod tests {
    use lab_base::cards::ALL;

    use super::*;

    #[test]
    fn later_stages_send_more() {
        let sent = Sent { parameters: 100, gradients: 40 };
        let of = |stage, micro_batches| sent.bytes_of_step(stage, 4, micro_batches);
        assert_eq!([of(0, 3), of(1, 3), of(2, 1), of(2, 3)], [60.0, 60.0, 60.0, 120.0]);
        assert_eq!([of(3, 1), of(3, 2)], [180.0, 360.0]);
        assert_eq!(sent.bytes_of_step(3, 1, 8), 0.0);
    }

    #[test]
    fn links_are_of_cards_and_slower_between_machines() {
        for (name, _) in LINKS.iter().chain(BETWEEN_MACHINES) {
            assert!(ALL.iter().any(|card| card.name == *name), "{name}");
        }
        assert!(ALL.iter().all(|card| link_of_card(card, 2) < link_of_card(card, 1)));
    }
}
