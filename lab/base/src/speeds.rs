//! How fast cards are, by their makers' data sheets: for estimates of time.

use super::cards::Card;

/// Speeds of a card, of dense arithmetic with sums in float32, from its maker's data sheet. A card without tensor cores has the speed of its ordinary
/// ones for 16 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataSheet {
    /// Memory bandwidth, in GB/s.
    pub gb_per_s: f64,
    /// Arithmetic in float32 without TF32, which is PyTorch's default, in 10^12 operations per second.
    pub f32_tflops: f64,
    /// Products of float16; of bfloat16 too from compute capability 8.0 on.
    pub f16_tflops: f64,
}

/// A card's name, and its speeds.
type Row = (&'static str, f64, f64, f64);

/// GB/s, TFLOP/s in float32, in 16 bits.
const SPEEDS: &[Row] = &[
    ("t4", 320.0, 8.1, 65.0),
    ("p100-12", 549.0, 9.3, 18.7),
    ("p100-16", 732.0, 9.3, 18.7),
    ("v100-16", 900.0, 15.7, 125.0),
    ("v100-32", 900.0, 15.7, 125.0),
    ("rtx8000", 672.0, 16.3, 130.5),
    ("rtx3060", 360.0, 12.7, 25.5),
    ("rtx3060ti", 448.0, 16.2, 32.4),
    ("rtx3070", 448.0, 20.3, 40.6),
    ("rtx3070ti", 608.0, 21.7, 43.5),
    ("rtx3080-10", 760.0, 29.8, 59.5),
    ("rtx3080-12", 912.0, 30.6, 61.3),
    ("rtx3080ti", 912.0, 34.1, 68.2),
    ("rtx3090", 936.0, 35.6, 71.2),
    ("rtx3090ti", 1008.0, 40.0, 80.0),
    ("rtx4060", 272.0, 15.1, 30.2),
    ("rtx4060ti-8", 288.0, 22.1, 44.1),
    ("rtx4060ti-16", 288.0, 22.1, 44.1),
    ("rtx4070", 504.0, 29.1, 58.3),
    ("rtx4070super", 504.0, 35.5, 71.0),
    ("rtx4070ti", 504.0, 40.1, 80.2),
    ("rtx4070tisuper", 672.0, 44.1, 88.2),
    ("rtx4080", 717.0, 48.7, 97.5),
    ("rtx4080super", 736.0, 52.2, 104.4),
    ("rtx4090", 1008.0, 82.6, 165.2),
    ("rtx5060", 448.0, 19.2, 38.4),
    ("rtx5060ti-8", 448.0, 23.7, 47.4),
    ("rtx5060ti-16", 448.0, 23.7, 47.4),
    ("rtx5070", 672.0, 30.9, 61.7),
    ("rtx5070ti", 896.0, 43.9, 87.9),
    ("rtx5080", 960.0, 56.3, 112.6),
    ("rtx5090", 1792.0, 104.8, 209.5),
    ("a4000", 448.0, 19.2, 76.7),
    ("a5000", 768.0, 27.8, 111.1),
    ("a6000", 768.0, 38.7, 154.8),
    ("a10", 600.0, 31.2, 125.0),
    ("a10g", 600.0, 31.5, 70.0),
    ("a40", 696.0, 37.4, 149.7),
    ("l4", 300.0, 30.3, 121.0),
    ("l40", 864.0, 90.5, 181.0),
    ("l40s", 864.0, 91.6, 362.0),
    ("rtx6000ada", 960.0, 91.1, 364.2),
    ("a100-40", 1555.0, 19.5, 312.0),
    ("a100-80", 2039.0, 19.5, 312.0),
    ("h100", 3350.0, 66.9, 989.4),
    ("h200", 4800.0, 66.9, 989.4),
    ("b200", 7700.0, 75.0, 2250.0),
];

/// The card whose speeds stand in where only an amount of memory is named.
pub const STAND_IN: &str = "a100-80";

/// The speeds of a card; `None` if its data sheet is not known here.
pub fn of_card(card: &Card) -> Option<DataSheet> {
    let row = SPEEDS.iter().find(|row| row.0 == card.name);
    row.map(|&(_, gb_per_s, f32_tflops, f16_tflops)| DataSheet { gb_per_s, f32_tflops, f16_tflops })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::ALL;

    #[test]
    fn each_card_has_its_speeds_once() {
        for card in ALL {
            let sheet = of_card(card).unwrap_or_else(|| panic!("{}", card.name));
            assert!(sheet.f16_tflops > sheet.f32_tflops && sheet.gb_per_s > sheet.f32_tflops, "{}", card.name);
        }
        let names: std::collections::BTreeSet<&str> = SPEEDS.iter().map(|row| row.0).collect();
        assert_eq!((names.len(), SPEEDS.len()), (ALL.len(), ALL.len()));
        assert!(Card::named(STAND_IN).is_some());
    }
}
