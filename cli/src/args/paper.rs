//! `predict` and `fit`: runs on paper, on a card that need not be there.

use std::str::FromStr;

use lab::cards::{self, Card};
use serde_json::Value;

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
        if let Some(card) = Card::named(text) {
            return card.profile().map(|_| Gpu::Named(card)).ok_or_else(|| without_profile(card));
        }
        match values::memory_size(text) {
            Ok(bytes) if values::is_small_and_bare(text) => Err(not_bytes(text.trim(), bytes)),
            Ok(bytes) => Ok(Gpu::Bytes(bytes)),
            Err(_) => Err(unknown(text.trim())),
        }
    }
}

/// What neither a card nor a size may have meant.
fn unknown(text: &str) -> String {
    let size = format!("{text}iB");
    let like = match values::memory_size(&size) {
        Ok(_) => format!("'{size}'"),
        Err(_) => one_of(&Card::like(text)),
    };
    let names: Vec<&str> = cards::ALL.iter().map(|card| card.name).collect();
    format!("neither a card nor a size such as 24GiB; did you mean {like}? The cards are {}", names.join(", "))
}

/// What a number without a unit may have meant.
fn not_bytes(text: &str, bytes: u64) -> String {
    let cards: Vec<&str> = cards::ALL.iter().map(|card| card.name).filter(|name| name.contains(text)).collect();
    // Two digits are in many names, and are a size.
    let card = if text.len() > 2 && !cards.is_empty() { format!("{}, or ", one_of(&cards)) } else { String::new() };
    let size = if bytes <= 1024 { format!("{text}GiB") } else { "24GiB".into() };
    format!("that would be {bytes} bytes; did you mean {card}a size such as {size}?")
}

fn without_profile(card: &Card) -> String {
    let left = card.total_bytes() - card.context.most_bytes();
    format!(
        "no recorded release of PyTorch has kernels for compute capability {}.{} of the {}; as much memory with the temporaries of an \
         H100 is --gpu {}MiB",
        card.sm / 10,
        card.sm % 10,
        card.title,
        left >> 20
    )
}

/// `'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`.
fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
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
}

/// A run on paper.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PaperArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub training: TrainingArgs,
    /// The card: a name (rtx4090, a100-40, h200 …; the CUDA context is taken off its memory; `vramlab cards` lists all), or how much memory there
    /// is for tensors (24GiB) [default: more than any has].
    #[arg(long, value_name = "NAME|SIZE", help_heading = "Device")]
    pub gpu: Option<Gpu>,
    #[command(flatten)]
    pub allocator: AllocatorArgs,
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Whether the smallest context that the card may have is counted, not the largest.
    #[arg(skip)]
    pub least_context: bool,
}

impl PaperArgs {
    /// The profile, unless said: the card's.
    pub(crate) fn default_like(&self) -> &'static str {
        match self.gpu {
            Some(Gpu::Named(card)) => card.profile().unwrap_or(DEFAULT_PROFILE),
            _ => DEFAULT_PROFILE,
        }
    }

    /// The profile in force.
    pub(crate) fn like(&self) -> String {
        self.profile.like(self.default_like())
    }

    /// Whether the run stands for one of PyTorch.
    pub(crate) fn is_torch(&self) -> bool {
        self.like().starts_with("torch-")
    }

    /// How many the card has, where that is known.
    pub(crate) fn multiprocessors(&self) -> Option<u16> {
        let of_card = match self.gpu {
            Some(Gpu::Named(card)) => Some(card.multiprocessors),
            _ => None,
        };
        self.profile.multiprocessors.or(of_card)
    }

    /// The same run with the smallest context that the card may have; the largest decides unless said.
    pub(crate) fn with_least_context(&self) -> Self {
        Self { least_context: true, ..self.clone() }
    }

    /// The same run with memory enough, in the card's profile all the same.
    pub(crate) fn endless(&self) -> Self {
        let mut paper = self.clone();
        paper.profile.like = Some(self.like());
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

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let error = |text: &str| text.parse::<Gpu>().unwrap_err();
        assert!(error("4090").contains("did you mean 'rtx4090', or a size such as 24GiB?"), "{}", error("4090"));
        assert!(error("24").contains("24 bytes; did you mean a size such as 24GiB?"), "{}", error("24"));
        assert!(error("24564").contains("did you mean a size"), "{}", error("24564"));
        assert!(error("a100").contains("did you mean 'a100-40' or 'a100-80'?"), "{}", error("a100"));
        assert!(error("RTX 3090 Ti").contains("did you mean 'rtx3090ti'?"), "{}", error("RTX 3090 Ti"));
        assert!(error("24G").contains("did you mean '24GiB'?"), "{}", error("24G"));
        assert_eq!("25769803776".parse(), Ok(Gpu::Bytes(24 << 30)));
        assert_eq!("24B".parse(), Ok(Gpu::Bytes(24)));
        for card in cards::ALL.iter().filter(|card| card.profile().is_none()) {
            assert!(error(card.name).contains("no recorded release of PyTorch has kernels"), "{}", error(card.name));
        }
    }
}
