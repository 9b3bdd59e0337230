//! `predict` and `fit`: runs on paper, on a card that need not be there.

use std::str::FromStr;

use lab::cards::{self, CONTEXT_BYTES, Card};
use serde_json::{Value, json};

use super::scan::ScanArgs;
use super::{
    AllocatorArgs, HtmlArgs, ModelArgs, OutputArgs, ParallelArgs, ProfileArgs, RecordArgs, TrainingArgs, values,
};

/// The profile of every run for which neither a card nor a profile is named.
pub(crate) const DEFAULT_PROFILE: &str = "torch-2.11-sm90";

/// A card by its name, or by what the driver says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// With its own total, and a context on it.
    Named(&'static Card),
    /// This much for tensors: no context is taken off.
    Bytes(u64),
}

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(card) = Card::named(&text.to_ascii_lowercase()) {
            return Ok(Gpu::Named(card));
        }
        values::memory_size(text).map(Gpu::Bytes).map_err(|problem| {
            let names: Vec<&str> = cards::ALL.iter().map(|card| card.name).collect();
            format!("{problem}, or one of {}", names.join(", "))
        })
    }
}

impl Gpu {
    /// As typed, so that it can be typed again.
    pub(crate) fn setting(self) -> Value {
        match self {
            Gpu::Named(card) => card.name.into(),
            Gpu::Bytes(bytes) => bytes.into(),
        }
    }

    /// The card for other programs; null for one without a name.
    pub(crate) fn card(self) -> Value {
        match self {
            Gpu::Named(card) => json!({
                "name": card.name,
                "title": card.title,
                "total_bytes": card.total_bytes(),
                "context_bytes": CONTEXT_BYTES,
            }),
            Gpu::Bytes(_) => Value::Null,
        }
    }
}

/// A run on paper.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PaperArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub training: TrainingArgs,
    /// The card: a name (rtx4090, a100-40, h200 …; the CUDA context is taken off its memory), or how much memory there is for tensors (24GiB,
    /// bytes) [default: more than any has].
    #[arg(long, value_name = "NAME|SIZE", help_heading = "Device")]
    pub gpu: Option<Gpu>,
    #[command(flatten)]
    pub allocator: AllocatorArgs,
    #[command(flatten)]
    pub profile: ProfileArgs,
}

impl PaperArgs {
    /// The profile, unless said: the card's.
    pub(crate) fn default_like(&self) -> &'static str {
        match self.gpu {
            Some(Gpu::Named(card)) => card.profile(),
            _ => DEFAULT_PROFILE,
        }
    }

    /// How many the card has, where that is known.
    pub(crate) fn multiprocessors(&self) -> Option<u16> {
        let of_card = match self.gpu {
            Some(Gpu::Named(card)) => Some(card.multiprocessors),
            _ => None,
        };
        self.profile.multiprocessors.or(of_card)
    }

    /// The same run with memory enough, in the card's profile all the same.
    pub(crate) fn endless(&self) -> Self {
        let mut paper = self.clone();
        paper.profile.like = Some(self.profile.like(self.default_like()));
        paper.profile.multiprocessors = self.multiprocessors();
        (paper.gpu, paper.allocator.memory_limit, paper.allocator.memory_fraction) = (None, None, None);
        paper
    }
}

/// `vramlab predict`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub paper: PaperArgs,
    #[command(flatten)]
    pub parallel: ParallelArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub scan: ScanArgs,
}

/// What is made as large as fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Quantity {
    /// Examples per step.
    #[default]
    Batch,
    /// Tokens per example.
    Sequence,
}

impl Quantity {
    /// As typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quantity::Batch => "batch",
            Quantity::Sequence => "sequence",
        }
    }

    /// The premise that it takes the place of.
    pub(crate) fn premise(self) -> &'static str {
        match self {
            Quantity::Batch => "batch",
            Quantity::Sequence => "tokens",
        }
    }
}

/// `vramlab fit`
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FitArgs {
    /// What to make as large as fits.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub of: Quantity,
    /// Where to stop looking [default: 1048576 examples, or as many tokens as the network takes, 131072 at most].
    #[arg(long, value_name = "N", value_parser = values::at_least_2())]
    pub maximum: Option<usize>,
    #[command(flatten)]
    pub paper: PaperArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: HtmlArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_a_name_or_a_size() {
        assert_eq!("24GiB".parse(), Ok(Gpu::Bytes(24 << 30)));
        assert!(matches!("RTX4090".parse(), Ok(Gpu::Named(card)) if card.name == "rtx4090"));
        let error = "rtx4091".parse::<Gpu>().unwrap_err();
        assert!(error.contains("rtx4090") && error.contains("a100-40"), "{error}");
    }
}
