//! How a device converts 16-bit floats: by its own instructions where they are right, else by integer arithmetic.
//!
//! WGSL leaves rounding, overflow and subnormal numbers of its conversions to the driver. So a device's first kernel on
//! f16 is preceded by a trial: every f16 is read, and rounded to from the numbers around it, in each of the ways, and
//! compared with integer arithmetic. Whatever differs in one bit is not used.

use crate::element::{Elem, Slot, declare, fill_in};

const EXACT: &str = include_str!("f16.wgsl");

/// Ways to convert, the fastest first; the last one is right on every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    /// True if `unpack2x16float` reads every f16.
    pub(crate) reads: bool,
    pub(crate) writes: Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// `pack2x16float` rounds.
    Pack,
    /// `f16(x)` rounds (`SHADER_F16`), and `pack2x16float` only packs.
    Convert,
    /// Integer arithmetic.
    Integers,
}

const UNPACK: &str = "fn f16_value(h: u32) -> f32 { return unpack2x16float(h & 0xffffu).x; }\n";
const PACK: &str = "fn f16_bits(x: f32) -> u32 { return pack2x16float(vec2<f32>(x, 0.0)) & 0xffffu; }\n";
const CONVERT: &str = "fn f16_bits(x: f32) -> u32 { return pack2x16float(vec2<f32>(f32(f16(x)), 0.0)) & 0xffffu; }\n";

impl Halves {
    /// WGSL for `f16_value(bits)` and `f16_bits(value)`.
    pub(crate) fn functions(self) -> String {
        let (read, write) = exact();
        let write = match self.writes {
            Writes::Pack => PACK,
            Writes::Convert => CONVERT,
            Writes::Integers => write,
        };
        format!("{}{write}", if self.reads { UNPACK } else { read })
    }

    /// The fastest of the ways that [`trial`] found right; a word that is not 0 stands for one that is wrong.
    pub(crate) fn from_masks([reads, packs, rounds]: [u32; 3], converts: bool) -> Self {
        let writes = match (packs, rounds) {
            (0, _) => Writes::Pack,
            (_, 0) if converts => Writes::Convert,
            _ => Writes::Integers,
        };
        Self { reads: reads == 0, writes }
    }
}

/// The two functions in integer arithmetic.
fn exact() -> (&'static str, &'static str) {
    EXACT.split_at(EXACT.find("// Rounds").unwrap_or(0))
}

/// Workgroups of the trial.
pub(crate) const TRIAL_GROUPS: u64 = 1 << 10;

/// The kernel of the trial: a thread for each f16 marks every way that is wrong, in three words.
pub(crate) fn trial(converts: bool) -> String {
    let way = |text: &str, name: &str| text.replace("f16_value", name).replace("f16_bits", name);
    let (read, write) = exact();
    let convert = if converts { CONVERT } else { write };
    let ways =
        [(read, "exact_value"), (write, "exact_bits"), (UNPACK, "unpacked"), (PACK, "packed"), (convert, "converted")];
    let ways: String = ways.iter().map(|(text, name)| way(text, name)).collect();
    declare(&[Slot::write("wrong", Elem::B4)], "pad: u32")
        + &fill_in(include_str!("halves/trial.wgsl"), &[("$WAYS", &ways)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_of_the_chosen_way() {
        let integers = Halves::from_masks([1, 1, 0], false);
        assert_eq!(integers, Halves { reads: false, writes: Writes::Integers });
        let integers = integers.functions();
        assert!(integers.contains("fn f16_value") && integers.contains("fn f16_bits"));
        assert!(!integers.contains("pack2x16float"));
        assert_eq!(Halves::from_masks([0, 0, 0], true).functions(), format!("{UNPACK}{PACK}"));
        assert_eq!(Halves::from_masks([0, 1, 0], true).functions(), format!("{UNPACK}{CONVERT}"));
    }
}
