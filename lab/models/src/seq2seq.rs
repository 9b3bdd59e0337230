//! A recurrent encoder and decoder with attention between them, trained to say a sequence of tokens backwards.

use lab_base::error::{Error, Result};
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{Embedding, Fill, Init, Linear, ListSlot, Module, Parameter};
use memcore::{Array, DType, Tensor, ops};

use super::{Architecture, Defaults, Input, Loss, ModelOptions, Task};

const NAME: &str = "seq2seq-attention";

#[derive(Clone, Copy)]
struct Sizes {
    vocabulary: usize,
    length: usize,
    width: usize,
}

struct Seq2SeqArchitecture {
    sizes: Sizes,
    keeps: bool,
}

/// One recurrent layer on each side, 64 wide, over 12 tokens of 16.
pub(super) fn seq2seq_attention(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    options.only(NAME, &["width", "sequence", "vocabulary", "keep-intermediate"])?;
    let sizes = Sizes {
        vocabulary: options.vocabulary.unwrap_or(16),
        length: options.sequence.unwrap_or(12),
        width: options.width.unwrap_or(64),
    };
    for (option, size) in [("vocabulary", sizes.vocabulary), ("sequence", sizes.length), ("width", sizes.width)] {
        if size == 0 {
            return Err(Error::usage(option, "must be at least 1"));
        }
    }
    Ok(Box::new(Seq2SeqArchitecture { sizes, keeps: options.keep_intermediate }))
}

impl Architecture for Seq2SeqArchitecture {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> String {
        let Sizes { vocabulary, length, width } = self.sizes;
        let keeps = if self.keeps { ", attention weights kept in a list" } else { "" };
        format!("recurrent encoder and decoder with attention, {width} wide, {length} tokens of {vocabulary}{keeps}")
    }

    fn task(&self) -> Task {
        let Sizes { vocabulary, length, .. } = self.sizes;
        Task { input: Input::Tokens { length, vocabulary }, loss: Loss::Reversal { classes: vocabulary } }
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, optimizer: "adam", lr: 3e-3 }
    }

    fn not_evaluated(&self) -> Option<String> {
        Some("what this network takes without a graph was not recorded".into())
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Seq2Seq::new(init, self.sizes, self.keeps)?))
    }
}

struct Seq2Seq {
    scope: ScopeId,
    width: usize,
    tokens: Embedding,
    positions: Embedding,
    /// `[1, W]`: the decoder's input at the first position.
    start: Parameter,
    encoder: Cell,
    decoder: Cell,
    head: Linear,
    /// List of attention weights that is never cleared: the anecdote of the second article.
    kept: Option<ListSlot>,
}

impl Seq2Seq {
    fn new(init: &Init, sizes: Sizes, keeps: bool) -> memcore::Result<Self> {
        let Sizes { vocabulary, length, width } = sizes;
        Ok(Self {
            scope: init.scope(),
            width,
            tokens: Embedding::new(&init.at("tokens"), vocabulary, width)?,
            positions: Embedding::new(&init.at("positions"), length, width)?,
            start: init.parameter("start", &[1, width], Fill::Normal { std: 1.0 })?,
            encoder: Cell::new(&init.at("encoder"), width)?,
            decoder: Cell::new(&init.at("decoder"), width)?,
            head: Linear::new(&init.at("head"), 2 * width, vocabulary, true)?,
            kept: keeps.then(|| init.list()),
        })
    }

    /// `[T, W]`
    fn places(&self, like: &Tensor, length: usize) -> memcore::Result<Tensor> {
        let range = {
            let _op = context::op("arange>resize_");
            Array::empty(like.device(), &[length], DType::I64)?
        };
        if like.device().computes() {
            range.write(&(0..length as i64).collect::<Vec<_>>())?;
        }
        self.positions.forward(&Tensor::from_array(range))
    }

    /// The decoder's inputs, taken from the targets as in training: a start, then the tokens from the last one back. `[B, T, W]`.
    fn said(&self, words: &Tensor, batch: usize, length: usize) -> memcore::Result<Tensor> {
        let mut parts = vec![ops::expand(self.start.tensor(), &[batch, self.width])?];
        for t in 1..length {
            parts.push(ops::select(words, 1, length - t)?);
        }
        ops::stack(&parts.iter().collect::<Vec<_>>(), 1)
    }

    /// Weights the encoder's states `[B, T, W]` by how well each fits one state `[B, W]`. Returns the state and the sum side by side, `[B, 2·W]`.
    fn attend(&self, state: &Tensor, states: &Tensor, keys: &Tensor) -> memcore::Result<Tensor> {
        let query = ops::unsqueeze(state, 1)?;
        let scores = ops::bmm(&query, keys)?;
        drop(query);
        let scaled = ops::mul_scalar(&scores, 1.0 / (self.width as f64).sqrt())?;
        drop(scores);
        let weights = ops::softmax(&scaled, 2)?;
        drop(scaled);
        if let Some(list) = &self.kept {
            list.push(weights.clone());
        }
        let sum = ops::bmm(&weights, states)?;
        drop(weights);
        let sum = ops::squeeze(&sum, 1)?;
        ops::cat(&[state, &sum], 1)
    }
}

impl Module for Seq2Seq {
    fn forward(&self, indices: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let [batch, length] = *indices.dims() else {
            return Err(memcore::Error::shape(NAME, format!("{:?} is not [batch, time]", indices.dims())));
        };
        let words = self.tokens.forward(indices)?;
        let places = self.places(indices, length)?;
        let heard = ops::add(&words, &places)?;
        let (states, last) = self.encoder.run(&heard, None)?;
        drop(heard);
        let said = self.said(&words, batch, length)?;
        drop(words);
        let placed = ops::add(&said, &places)?;
        drop((said, places));
        let (answers, _) = self.decoder.run(&placed, Some(last))?;
        drop(placed);
        let states = stacked(states)?;
        let keys = ops::transpose(&states, 1, 2)?;
        let mut attended = Vec::with_capacity(length);
        for state in answers {
            attended.push(self.attend(&state, &states, &keys)?);
        }
        drop((states, keys));
        self.head.forward(&stacked(attended)?)
    }
}

/// Stacks T parts to `[B, T, W]`, and frees them: the last one first, as Python frees the items of a list.
fn stacked(mut parts: Vec<Tensor>) -> memcore::Result<Tensor> {
    let stacked = ops::stack(&parts.iter().collect::<Vec<_>>(), 1)?;
    while parts.pop().is_some() {}
    Ok(stacked)
}

/// `h' = tanh(W·x + b + U·h + c)`: Elman's cell, PyTorch's `nn.RNNCell`.
struct Cell {
    scope: ScopeId,
    input: Linear,
    hidden: Linear,
}

impl Cell {
    fn new(init: &Init, width: usize) -> memcore::Result<Self> {
        let fill = Fill::fan_in(width);
        Ok(Self {
            scope: init.scope(),
            input: Linear::with_fill(&init.at("input"), width, width, true, fill)?,
            hidden: Linear::with_fill(&init.at("hidden"), width, width, true, fill)?,
        })
    }

    /// Returns the state after each position of `x` `[B, T, W]`, and the last one. Without `state` it starts from zero, for which nothing is
    /// computed.
    fn run(&self, x: &Tensor, mut state: Option<Tensor>) -> memcore::Result<(Vec<Tensor>, Tensor)> {
        let _scope = context::scope(self.scope);
        let x = self.input.forward(x)?;
        let mut states = Vec::with_capacity(x.dims()[1]);
        for t in 0..x.dims()[1] {
            let mut sum = ops::select(&x, 1, t)?;
            if let Some(state) = state.take() {
                let before = self.hidden.forward(&state)?;
                sum = ops::add(&sum, &before)?;
            }
            states.push(state.insert(ops::tanh(&sum)?).clone());
        }
        let last = state.ok_or_else(|| memcore::Error::shape(NAME, "a sequence without tokens"))?;
        Ok((states, last))
    }
}
