//! The line below a verdict: type, tokens and batch, and where each came from.

use super::{WIDTH, wrapped};
use crate::commands::premises::Premise;

/// `bfloat16: config.json · 1 024 tokens: --sequence · batch 1: default; --batch N`, on as many lines as it takes, without the last line's end; nothing
/// for no premises.
pub(crate) fn line(premises: &[Premise]) -> String {
    let parts: Vec<String> = premises.iter().map(|premise| format!("{}: {}", premise.value, premise.source)).collect();
    wrapped(&parts.join(" · "), WIDTH, 0)
}
