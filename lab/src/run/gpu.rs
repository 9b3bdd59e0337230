//! The card that a dry run is for.

use std::str::FromStr;

use lab_base::beside::not_known;
use lab_base::bytes;
use lab_base::cards::{self, Card};
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A card by its name, or a size of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// A card, with its own total and a context on it.
    Card {
        /// The card.
        card: &'static Card,
        /// True if the smallest context that it may have counts, false for the largest.
        least_context: bool,
        /// True if the process is one of several ranks, which communicate.
        ranks: bool,
    },
    /// This much memory for tensors: no context is subtracted.
    Bytes(u64),
}

impl Gpu {
    /// A card, with its largest context.
    pub fn of_card(card: &'static Card) -> Self {
        Gpu::Card { card, least_context: false, ranks: false }
    }

    /// The card, if one was named.
    pub fn card(self) -> Option<&'static Card> {
        match self {
            Gpu::Card { card, .. } => Some(card),
            Gpu::Bytes(_) => None,
        }
    }
}

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(card) = Card::named(text) {
            let known = card.profile().map(|_| Gpu::of_card(card));
            return known.ok_or_else(|| without_profile(card));
        }
        match bytes::parse_memory(text) {
            Ok(bytes) if bytes::is_small_and_bare(text) => Err(not_bytes(text.trim(), bytes)),
            Ok(bytes) => Ok(Gpu::Bytes(bytes)),
            Err(_) => Err(unknown(text.trim())),
        }
    }
}

impl Serialize for Gpu {
    /// Writes it in a form that can be read again: a name, or a number of bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Gpu::Card { card, .. } => serializer.serialize_str(card.name),
            Gpu::Bytes(bytes) => serializer.serialize_u64(*bytes),
        }
    }
}

impl<'de> Deserialize<'de> for Gpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// Error text for a name that is neither a card nor a size, with similar names.
fn unknown(text: &str) -> String {
    if let Some(words) = not_known(text) {
        return words;
    }
    // `4090ti`: a card of the same number.
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let same: Vec<&str> = cards::ALL.iter().map(|card| card.name).filter(|name| name.contains(&number)).collect();
    let like = Card::like(text);
    let is_same = number.len() > 3 && !same.is_empty() && like.iter().all(|name| !name.contains(&number));
    let like = one_of(if is_same { &same } else { &like });
    format!(
        "vramlab knows no card of this name; did you mean {like}? `vramlab info cards` lists all. For another card give its memory, such as 24GiB"
    )
}

/// Error text for a number without a unit, with likely meanings.
fn not_bytes(text: &str, bytes: u64) -> String {
    let cards: Vec<&str> = cards::ALL.iter().map(|card| card.name).filter(|name| name.contains(text)).collect();
    // Two digits occur in many names, and may be a size.
    let card = if text.len() > 2 && !cards.is_empty() { format!("{}, or ", one_of(&cards)) } else { String::new() };
    let size = if bytes <= 1024 { format!("{text}GiB") } else { "24GiB".into() };
    format!("that would be {bytes} bytes; did you mean {card}a size such as {size}?")
}

fn without_profile(card: &Card) -> String {
    let left = card.total_bytes() - card.context.most_bytes();
    format!(
        "no recorded release of PyTorch has kernels for compute capability {}.{} of the {}; as much memory with the temporaries of an \
         H100 is {}MiB",
        card.sm / 10,
        card.sm % 10,
        card.title,
        left >> 20
    )
}

/// Formats `'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`.
fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_a_name_or_a_size() {
        assert_eq!("24GiB".parse(), Ok(Gpu::Bytes(24 << 30)));
        assert!(matches!("RTX4090".parse(), Ok(Gpu::Card { card, .. }) if card.name == "rtx4090"));
        let error = "rtx4091".parse::<Gpu>().unwrap_err();
        assert!(error.contains("did you mean 'rtx4090'?") && error.contains("24GiB"), "{error}");
        assert!(matches!("NVIDIA GeForce RTX 4090".parse(), Ok(Gpu::Card { card, .. }) if card.name == "rtx4090"));
        assert!(matches!("H100 MIG 3g.40gb".parse(), Ok(Gpu::Card { card, .. }) if card.name == "h100-3g.40gb"));
        assert!("mi300x".parse::<Gpu>().unwrap_err().contains("an AMD GPU: what a process takes there"));
        assert_eq!("24G".parse(), Ok(Gpu::Bytes(24 << 30)));
        assert_eq!("24GB".parse(), Ok(Gpu::Bytes(24_000_000_000)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let error = |text: &str| text.parse::<Gpu>().unwrap_err();
        assert_eq!("4090".parse::<Gpu>(), "rtx4090".parse());
        assert!(error("3080").contains("did you mean 'rtx3080-10', 'rtx3080-12'"), "{}", error("3080"));
        assert!(error("24").contains("24 bytes; did you mean a size such as 24GiB?"), "{}", error("24"));
        assert!(error("24564").contains("did you mean a size"), "{}", error("24564"));
        assert!(error("4091").contains("did you mean a size"), "{}", error("4091"));
        assert!(error("4090ti").contains("did you mean 'rtx4090'?"), "{}", error("4090ti"));
        assert!(error("a100").contains("did you mean 'a100-40' or 'a100-80'?"), "{}", error("a100"));
        assert_eq!("25769803776".parse(), Ok(Gpu::Bytes(24 << 30)));
        assert_eq!("24B".parse(), Ok(Gpu::Bytes(24)));
        for card in cards::ALL.iter().filter(|card| card.profile().is_none()) {
            assert!(error(card.name).contains("no recorded release of PyTorch has kernels"), "{}", error(card.name));
        }
    }
}
