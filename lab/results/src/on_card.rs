//! Three figures of what a process takes on a card, and the parts they consist of.

use lab_base::bands::{Basis, Range};
use lab_base::beside::{NCCL, Uses};
use lab_base::cards::Card;
use lab_base::figures::short;
use serde::{Deserialize, Serialize};

/// What a process takes on a card: tensors, what PyTorch reserves for them, what it takes besides. An answer is Yes if the upper figure fits, No if the lower
/// one does not, else Perhaps. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnCard {
    /// The least that a card may show.
    pub lower_bytes: u64,
    /// What is expected.
    pub expected_bytes: u64,
    /// The most that a card may show.
    pub upper_bytes: u64,
    /// `process`: with the CUDA context. `without_context`: no card was named.
    pub figures_of: String,
    /// What decides how far a card may be from what is expected.
    pub basis: Basis,
    /// The parts, which add up to the figures.
    pub parts: Vec<PartOnCard>,
}

/// A part of what a process takes. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartOnCard {
    /// `tensors`, `reserved beyond tensors`, `CUDA context`, or a library.
    pub name: String,
    /// The least.
    pub lower_bytes: u64,
    /// What is expected.
    pub expected_bytes: u64,
    /// The most.
    pub upper_bytes: u64,
    /// Where it is from.
    pub source: String,
}

impl PartOnCard {
    fn new(name: &str, range: Range, source: &str) -> Self {
        let Range { lower, expected, upper } = range;
        Self {
            name: name.into(),
            lower_bytes: lower,
            expected_bytes: expected,
            upper_bytes: upper,
            source: source.into(),
        }
    }

    fn multiply(&mut self, times: u64) {
        self.name = format!("{} of {times} processes", self.name);
        for bytes in [&mut self.lower_bytes, &mut self.expected_bytes, &mut self.upper_bytes] {
            *bytes = bytes.saturating_mul(times);
        }
    }

    fn range(&self) -> Range {
        Range { lower: self.lower_bytes, expected: self.expected_bytes, upper: self.upper_bytes }
    }

    /// `462 to 515 MiB CUDA context`; one figure where they are the same in words.
    fn in_words(&self) -> String {
        format!("{} {}", between(self.lower_bytes, self.upper_bytes), self.name)
    }
}

/// `462 to 515 MiB`: a unit of both is said once; one figure where they are the same in words.
fn between(lower: u64, upper: u64) -> String {
    let [lower, upper] = [lower, upper].map(short);
    match (lower.rsplit_once(' '), upper.rsplit_once(' ')) {
        _ if lower == upper => upper,
        (Some((bare, one)), Some((_, other))) if one == other => format!("{bare} to {upper}"),
        _ => format!("{lower} to {upper}"),
    }
}

/// What PyTorch holds and reserves. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Reserved memory, with what a card may deviate.
    pub reserved: Range,
    /// What decides how far it may deviate.
    pub basis: Basis,
}

/// Number of parts that PyTorch reserves: they come first.
const RESERVED: usize = 2;

impl OnCard {
    /// The figures of a process that uses these libraries; without a card no context counts.
    pub fn new(held: Held, card: Option<&Card>, uses: Uses) -> Self {
        Self::of_processes(held, card, uses, 1)
    }

    /// The same of several processes that hold this together, each with a context and libraries of its own.
    pub(super) fn of_processes(held: Held, card: Option<&Card>, uses: Uses, processes: u64) -> Self {
        let Held { allocated_bytes, reserved, basis } = held;
        let tensors = Range {
            lower: allocated_bytes.min(reserved.lower),
            expected: allocated_bytes.min(reserved.expected),
            upper: allocated_bytes.min(reserved.upper),
        };
        let beyond = Range {
            lower: reserved.lower - tensors.lower,
            expected: reserved.expected - tensors.expected,
            upper: reserved.upper - tensors.upper,
        };
        let mut parts = vec![
            PartOnCard::new("tensors", tensors, "the run"),
            PartOnCard::new("reserved beyond tensors", beyond, basis.band().source),
        ];
        if let Some(card) = card {
            let context = card.context;
            let range =
                Range { lower: context.least_bytes(), expected: context.usual_bytes(), upper: context.most_bytes() };
            let source =
                context.source.unwrap_or("not known of this card: by its multiprocessors, as where it was seen");
            parts.push(PartOnCard::new("CUDA context", range, source));
        }
        let beside = uses.beside(card).into_iter();
        parts.extend(beside.map(|part| PartOnCard::new(&part.name(), part.range(), part.once.source)));
        if processes > 1 {
            // NCCL refuses several ranks on one card: others have but a context there.
            let of_each = parts.iter_mut().skip(RESERVED).filter(|part| !part.name.starts_with(NCCL.name));
            of_each.for_each(|part| part.multiply(processes));
        }
        let figures_of = if card.is_some() { "process" } else { "without_context" };
        Self { figures_of: figures_of.into(), basis, ..Self::default() }.with_parts(parts)
    }

    fn with_parts(self, parts: Vec<PartOnCard>) -> Self {
        let Range { lower, expected, upper } =
            parts.iter().map(PartOnCard::range).fold(Range::default(), |sum, part| sum + part);
        Self { lower_bytes: lower, expected_bytes: expected, upper_bytes: upper, parts, ..self }
    }

    /// `20.52 GiB needed (20.4 to 20.7 GiB)`.
    pub(super) fn needed(&self) -> String {
        let expected = short(self.expected_bytes);
        match between(self.lower_bytes, self.upper_bytes) {
            range if range == expected => format!("{expected} needed"),
            range => format!("{expected} needed ({range})"),
        }
    }

    /// What counts besides reserved memory where something must fit surely.
    pub(super) fn beside(&self) -> u64 {
        self.parts.iter().skip(RESERVED).map(|part| part.upper_bytes).sum()
    }

    /// What is expected besides reserved memory: `, and 480 MiB beside it (CUDA context, NCCL)`; nothing if nothing counts.
    pub(super) fn beside_in_words(&self) -> String {
        let parts: Vec<&PartOnCard> = self.parts.iter().skip(RESERVED).filter(|part| part.expected_bytes > 0).collect();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        match parts.iter().map(|part| part.expected_bytes).sum() {
            0 => String::new(),
            bytes => format!(", and {} beside it ({})", short(bytes), names.join(", ")),
        }
    }

    /// Says what would tell whether a run fits whose figures lie on both sides.
    pub(super) fn what_settles_it(&self, knows_context: bool) -> String {
        let mut ways = Vec::new();
        if self.basis == Basis::WorkspacesBounded {
            ways.push("add `--cudnn ask`".to_string());
        }
        ways.push("train three steps on the card".into());
        if self.figures_of == "process" {
            let unknown = if knows_context { "" } else { " (nobody measured it on this card)" };
            ways.push(format!(
                "read the CUDA context{unknown} from `nvidia-smi` while a Python holds one tensor on the card"
            ));
        }
        format!("To find out, {}.", ways.join(", or "))
    }

    /// The parts in a sentence: `The card holds 16.59 GiB tensors, …`.
    pub(super) fn in_words(&self) -> String {
        let parts: Vec<String> =
            self.parts.iter().filter(|part| part.upper_bytes > 0).map(PartOnCard::in_words).collect();
        let parts = match parts.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
            _ => parts.concat(),
        };
        format!("The card holds {parts}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_figures() {
        let gib = |n: u64| n << 30;
        let held = Held {
            allocated_bytes: gib(10),
            reserved: Basis::Requests.range(gib(12), gib(12)),
            basis: Basis::Requests,
        };
        let uses = Uses { cudnn: true, communicators: 2, peers: 1, all_modules: true };
        for card in [None, Card::named("rtx4090"), Card::named("h200")] {
            let found = OnCard::new(held, card, uses);
            assert!(found.lower_bytes <= found.expected_bytes && found.expected_bytes <= found.upper_bytes);
            let sum: u64 = found.parts.iter().map(|part| part.expected_bytes).sum();
            assert_eq!(sum, found.expected_bytes);
            assert!(found.parts.iter().all(|part| !part.source.is_empty()));
            assert_eq!(found.figures_of == "process", card.is_some());
        }
        let alone = OnCard::new(held, None, Uses::default());
        assert_eq!(alone.expected_bytes, gib(12));
        let [lower, upper] = [alone.lower_bytes, alone.upper_bytes].map(short);
        assert_eq!(alone.needed(), format!("12 GiB needed ({} to {upper})", lower.trim_end_matches(" GiB")));
    }

    #[test]
    fn less_than_the_tensors_may_be_reserved_by_a_card_that_was_below() {
        let held = Held { allocated_bytes: 1000, reserved: Basis::Requests.range(1000, 1000), basis: Basis::Requests };
        let found = OnCard::new(held, None, Uses::default());
        let band = Basis::Requests.band();
        assert_eq!(
            (found.lower_bytes, found.expected_bytes, found.upper_bytes),
            (band.lower(1000), 1000, band.upper(1000))
        );
        assert!(found.lower_bytes < 1000);
    }
}
