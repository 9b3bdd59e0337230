//! Endings of a network's call: how scores are compared with labels, and what is returned.

use lab_models::Loss;
use lab_training::data::SplitMix64;
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::{Array, DType, Device, Error, Result, Tensor, ops};

use super::head::Head;
use super::head_config::{HeadConfig, Problem};
use super::inputs::Inputs;
use super::mask;

/// Ending of a network's call.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// Scores of tokens, or of images, with the loss that the task names.
    Scores(Loss),
    /// Scores of the last so many tokens: `logits_to_keep`, with their labels alone.
    Last(Loss, usize),
    /// Scores of the next token, which exist only while the loss of some of them is computed, and again in backward.
    Recomputed { classes: usize, chunks: Option<usize> },
    /// Liger's fused linear cross entropy. `whole`: of the network's own call, whose result holds the cache.
    Fused { whole: bool },
    /// Classes or values of an example.
    Example {
        labels: usize,
        problem: Problem,
        /// True if every position has scores, of which the last one's count, as in a decoder.
        last: bool,
        /// The padding token.
        padding: Option<i64>,
    },
    /// Classes of each token.
    Tokens {
        labels: usize,
        /// True if scores are converted to f32 first.
        wide: bool,
    },
    /// One of several texts, which follow one another in the batch.
    Choice { choices: usize },
    /// Beginning and end of an answer.
    Span { positions: usize },
    /// No loss: the script takes the mean of the hidden states. `pooled`: the result also holds the first token's pooled state.
    Mean { pooled: bool },
}

/// Result of a call.
pub(super) struct Ended {
    pub(super) loss: Tensor,
    /// Other tensors of the result, in its order.
    pub(super) outputs: Vec<Tensor>,
    /// True if the result holds keys and values.
    pub(super) holds_cache: bool,
    /// Local variables of the library's function, which live until it returns.
    pub(super) variables: Vec<Tensor>,
}

impl Ending {
    /// Returns the ending of a head other than a language model's or an image classifier's. `decoder`: positions see only earlier ones; `wide`: the
    /// loss of tokens converts their scores to f32; `positions`: tokens of an example.
    pub(super) fn from_head(head: &HeadConfig, decoder: bool, wide: bool, positions: usize) -> Self {
        match head.head {
            Head::SequenceClassification => {
                let HeadConfig { labels, problem, padding, .. } = *head;
                Self::Example { labels, problem, last: decoder, padding }
            }
            Head::NextSentence => {
                Self::Example { labels: 2, problem: Problem::SingleLabel, last: false, padding: None }
            }
            Head::TokenClassification => Self::Tokens { labels: head.labels, wide },
            Head::MultipleChoice => Self::Choice { choices: head.choices },
            Head::QuestionAnswering => Self::Span { positions },
            _ => Self::Mean { pooled: false },
        }
    }

    /// Returns the rows of the batch that an example has.
    pub(super) fn rows_per_example(&self) -> usize {
        if let Self::Choice { choices } = self { *choices } else { 1 }
    }

    /// Makes labels for `batch` examples of this many tokens; `None` if they come with the data.
    pub(super) fn labels(
        &self,
        device: &Device,
        dtype: DType,
        batch: usize,
        length: usize,
        seed: u64,
    ) -> Result<Option<Vec<Tensor>>> {
        let classes = |dims: &[usize], classes: usize, more: u64| drawn(device, dims, classes, seed ^ more);
        let labels = match self {
            Self::Scores(_) | Self::Last(..) | Self::Recomputed { .. } | Self::Fused { .. } => return Ok(None),
            Self::Example { labels, problem: Problem::SingleLabel, .. } => vec![classes(&[batch], *labels, 0)?],
            Self::Example { labels: 1, problem: Problem::Regression, .. } => vec![values(device, &[batch], dtype)?],
            Self::Example { labels, .. } => vec![values(device, &[batch, *labels], dtype)?],
            Self::Tokens { labels, .. } => vec![classes(&[batch, length], *labels, 0)?],
            Self::Choice { choices } => vec![classes(&[batch], *choices, 0)?],
            Self::Span { .. } => vec![classes(&[batch], length, 0)?, classes(&[batch], length, 1)?],
            Self::Mean { .. } => Vec::new(),
        };
        Ok(Some(labels))
    }

    /// The hidden states `[batch, time, width]` that are given scores, and the batch with their labels, if not all are.
    pub(super) fn last_tokens(&self, hidden: &Tensor, inputs: &Inputs) -> Result<Option<(Tensor, Inputs)>> {
        let Self::Last(_, count) = self else { return Ok(None) };
        let last = |x: &Tensor| {
            let time = x.dims().get(1).copied().unwrap_or(0);
            let count = time.min(*count);
            ops::narrow(x, 1, time - count, count)
        };
        let labels = inputs.labels.iter().map(last).collect::<Result<_>>()?;
        Ok(Some((last(hidden)?, Inputs { labels, ..inputs.clone() })))
    }

    /// Computes the loss of a head's scores, for these last hidden states.
    pub(super) fn finish(&self, last: &Tensor, scores: Tensor, inputs: &Inputs) -> Result<Ended> {
        match self {
            Self::Scores(loss) | Self::Last(loss, _) => {
                let loss = lab_training::loss_per(loss, &scores, inputs.label(0)?, inputs.items.as_ref())?;
                Ok(Ended { loss, outputs: vec![scores], holds_cache: true, variables: Vec::new() })
            }
            Self::Example { labels, problem, last, padding } => {
                let (chosen, mut variables) =
                    if *last { last_token(&scores, &inputs.input, *padding)? } else { (scores.clone(), Vec::new()) };
                variables.insert(0, scores);
                let loss = example_loss(&chosen, inputs.label(0)?, *labels, *problem)?;
                Ok(Ended { loss, outputs: vec![chosen], holds_cache: true, variables })
            }
            Self::Tokens { labels, wide } => {
                let rows = scores.numel() / (*labels).max(1);
                let flat = ops::view(&scores, &[rows, *labels])?;
                let classes = ops::view(inputs.label(0)?, &[rows])?;
                let flat = if *wide { ops::cast(&flat, DType::F32)? } else { flat };
                let loss = ops::cross_entropy(&flat, &classes, Reduction::Mean)?;
                drop(flat);
                Ok(Ended { loss, outputs: vec![scores], holds_cache: false, variables: Vec::new() })
            }
            Self::Choice { choices } => {
                let reshaped = ops::view(&scores, &[scores.numel() / (*choices).max(1), *choices])?;
                let loss = ops::cross_entropy(&reshaped, inputs.label(0)?, Reduction::Mean)?;
                Ok(Ended { loss, outputs: vec![reshaped], holds_cache: false, variables: vec![scores] })
            }
            Self::Span { positions } => span(scores, inputs, *positions),
            Self::Recomputed { .. } | Self::Fused { .. } => Err(Error::invalid("loss", "has no scores of all tokens")),
            Self::Mean { pooled } => {
                let outputs = if *pooled { vec![last.clone(), scores] } else { vec![scores] };
                Ok(Ended { loss: ops::mean(last)?, outputs, holds_cache: true, variables: Vec::new() })
            }
        }
    }
}

/// Computes the squared error, cross entropy or binary cross entropy of `[batch, labels]`.
fn example_loss(scores: &Tensor, given: &Tensor, labels: usize, problem: Problem) -> Result<Tensor> {
    match problem {
        Problem::SingleLabel => ops::cross_entropy(scores, given, Reduction::Mean),
        Problem::MultiLabel => ops::binary_cross_entropy_with_logits(scores, given, Reduction::Mean),
        Problem::Regression if labels == 1 => {
            // A single element becomes a scalar.
            let dims: &[usize] = if scores.numel() == 1 { &[] } else { given.dims() };
            ops::mse_loss(&ops::view(scores, dims)?, &ops::view(given, dims)?, Reduction::Mean)
        }
        Problem::Regression => ops::mse_loss(scores, given, Reduction::Mean),
    }
}

/// `logits[torch.arange(batch), last_non_pad_token]` of `[batch, time, labels]`, and the variables that remain.
fn last_token(logits: &Tensor, ids: &Tensor, padding: Option<i64>) -> Result<(Tensor, Vec<Tensor>)> {
    let (device, [batch, time]) = (ids.device(), [ids.dims()[0], ids.dims()[1]]);
    let Some(padding) = padding else {
        let last = ops::select(logits, 1, time.saturating_sub(1))?;
        let rows = Tensor::from_array(mask::range(device, batch)?);
        return Ok((ops::index_each(&last, &[&rows])?, Vec::new()));
    };
    let array = |dims: &[usize], dtype| Array::empty(device, dims, dtype);
    let tokens = {
        let _unequal = array(&[batch, time], DType::Bool)?;
        array(&[batch, time], DType::I32)?
    };
    let positions = array(&[time], DType::I32)?;
    let last = {
        let _products = array(&[batch, time], DType::I32)?;
        array(&[batch], DType::I64)?
    };
    if device.computes() {
        let ids = ids.array().to_vec::<i64>()?;
        let place = |row: &[i64]| row.iter().rposition(|&id| id != padding).unwrap_or(0) as i64;
        last.write(&ids.chunks(time.max(1)).map(place).collect::<Vec<_>>())?;
    }
    let rows = Tensor::from_array(mask::range(device, batch)?);
    let chosen = ops::index_each(logits, &[&rows, &Tensor::from_array(last)])?;
    Ok((chosen, vec![Tensor::from_array(tokens), Tensor::from_array(positions)]))
}

/// Computes the mean of two cross entropies over positions, of scores `[batch, time, 2]`.
fn span(scores: Tensor, inputs: &Inputs, positions: usize) -> Result<Ended> {
    let mut parts = ops::split(&scores, 1, 2)?.into_iter();
    let mut part = || {
        let part = parts.next().ok_or_else(|| Error::shape("split", "a missing half"))?;
        ops::contiguous(&ops::squeeze(&part, 2)?)
    };
    let (start, end) = (part()?, part()?);
    let (starts, ends) = (clamped(inputs.label(0)?, positions)?, clamped(inputs.label(1)?, positions)?);
    let start_loss = ops::cross_entropy(&start, &starts, Reduction::Mean)?;
    let end_loss = ops::cross_entropy(&end, &ends, Reduction::Mean)?;
    let loss = {
        let sum = ops::add(&start_loss, &end_loss)?;
        ops::div_scalar(&sum, 2.0)?
    };
    let variables = vec![scores, starts, ends, start_loss, end_loss];
    Ok(Ended { loss, outputs: vec![start, end], holds_cache: false, variables })
}

/// `labels.clamp(0, positions)`: places after the text count for nothing; here there are none.
fn clamped(labels: &Tensor, positions: usize) -> Result<Tensor> {
    let clamped = Array::empty(labels.device(), labels.dims(), DType::I64)?;
    if labels.device().computes() {
        let places = labels.array().to_vec::<i64>()?;
        clamped.write(&places.into_iter().map(|place| place.clamp(0, positions as i64)).collect::<Vec<_>>())?;
    }
    Ok(Tensor::from_array(clamped))
}

fn drawn(device: &Device, dims: &[usize], classes: usize, seed: u64) -> Result<Tensor> {
    let array = Array::empty_as(device, dims, DType::I64, Category::Input)?;
    if device.computes() {
        let mut generator = SplitMix64::new(seed);
        let one = |_| generator.below(classes.max(1) as u64) as i64;
        array.write(&(0..array.numel()).map(one).collect::<Vec<_>>())?;
    }
    Ok(Tensor::from_array(array))
}

/// Values between 0 and 1, in the network's type.
fn values(device: &Device, dims: &[usize], dtype: DType) -> Result<Tensor> {
    let array = Array::empty_as(device, dims, dtype, Category::Input)?;
    if device.computes() {
        let mut generator = SplitMix64::new(1);
        let one = |_| generator.next_f32();
        memcore::nn::write_f32(&array, &(0..array.numel()).map(one).collect::<Vec<_>>())?;
    }
    Ok(Tensor::from_array(array))
}
