//! The line below a verdict: type, tokens and batch, and where each came from.

use lab::results::{Premise, premise_line};

use super::{WIDTH, wrapped};

/// `bfloat16: config.json · 1 024 tokens: --sequence · batch 1: default; --batch N`, on as many lines as it takes, without the last line's end; nothing
/// for no premises.
pub(crate) fn line(premises: &[Premise]) -> String {
    wrapped(&premise_line(premises), WIDTH, 0)
}
