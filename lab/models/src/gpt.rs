//! Decoder-only transformers: a small one by default, GPT-2 small as `gpt2`.

use lab_base::error::{Error, Result};
use memcore::context;
use memcore::memory::ScopeId;
use memcore::nn::{
    AttentionOptions, Dropout, Embedding, Fill, Init, LayerNorm, Linear, Module, MultiHeadAttention, Parameter,
    Sequential,
};
use memcore::ops;
use memcore::{Array, DType, Tensor};

use super::recompute::Blocks;
use super::{Architecture, Defaults, Input, Loss, ModelOptions, Places, Recompute, Task};

/// Sizes of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptConfig {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Tokens per example.
    pub sequence: usize,
    /// Width of the embedding.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Probability of dropping, after attention weights and each branch.
    pub dropout: f64,
    /// The output layer shares the token table.
    pub tied: bool,
    /// The fused attention kernel.
    pub fused_attention: bool,
}

struct GptArchitecture {
    name: &'static str,
    config: GptConfig,
    recompute: Recompute,
}

const OPTIONS: &[&str] =
    &["layers", "width", "heads", "sequence", "vocabulary", "dropout", "attention", "tied", "checkpoint"];

/// A decoder of two blocks, 128 wide, over 64 tokens of 512.
pub(super) fn gpt(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    let small = GptConfig {
        vocabulary: 512,
        sequence: 64,
        width: 128,
        heads: 4,
        layers: 2,
        dropout: 0.0,
        tied: false,
        fused_attention: false,
    };
    configured("gpt", small, options)
}

/// GPT-2 small: 12 blocks, 768 wide, over 1,024 tokens of 50,257, 124 million parameters, the output tied to the token table.
pub(super) fn gpt2(options: &ModelOptions) -> Result<Box<dyn Architecture>> {
    let small = GptConfig {
        vocabulary: 50_257,
        sequence: 1024,
        width: 768,
        heads: 12,
        layers: 12,
        dropout: 0.0,
        tied: true,
        fused_attention: false,
    };
    configured("gpt2", small, options)
}

fn configured(name: &'static str, base: GptConfig, o: &ModelOptions) -> Result<Box<dyn Architecture>> {
    o.only(name, OPTIONS)?;
    let config = GptConfig {
        vocabulary: o.vocabulary.unwrap_or(base.vocabulary),
        sequence: o.sequence.unwrap_or(base.sequence),
        width: o.width.unwrap_or(base.width),
        heads: o.heads.unwrap_or(base.heads),
        layers: o.layers.unwrap_or(base.layers),
        dropout: o.dropout.unwrap_or(base.dropout),
        tied: o.tied || base.tied,
        fused_attention: o.fused_attention,
    };
    let sizes = [
        ("vocabulary", config.vocabulary),
        ("sequence", config.sequence),
        ("width", config.width),
        ("heads", config.heads),
    ];
    if let Some((option, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(Error::usage(*option, "must be at least 1"));
    }
    if !config.width.is_multiple_of(config.heads) {
        let problem = format!("{} heads do not divide a width of {}", config.heads, config.width);
        return Err(Error::usage("heads", problem));
    }
    o.recompute.check(name, config.layers)?;
    Ok(Box::new(GptArchitecture { name, config, recompute: o.recompute.clone() }))
}

impl Architecture for GptArchitecture {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> String {
        let c = &self.config;
        format!(
            "decoder of {} blocks, {} wide, {} heads, {} tokens of {}",
            c.layers, c.width, c.heads, c.sequence, c.vocabulary
        )
    }

    fn task(&self) -> Task {
        let c = &self.config;
        Task {
            input: Input::Tokens { length: c.sequence, vocabulary: c.vocabulary },
            loss: Loss::CrossEntropy { classes: c.vocabulary },
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 8, optimizer: "adamw", lr: 1e-3 }
    }

    fn has_fused_attention(&self) -> Option<bool> {
        Some(self.config.fused_attention)
    }

    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        Ok(Box::new(Gpt::new(init, self.config, &self.recompute)?))
    }

    fn indivisible(&self) -> Option<&'static str> {
        None
    }

    fn one_length(&self) -> Option<&'static str> {
        None
    }

    fn pieces(&self, at: &Places<'_>) -> memcore::Result<Vec<Box<dyn Module>>> {
        let c = &self.config;
        let front = Front::new(&at(0), c)?;
        let table = front.tokens.weight.clone();
        let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(front)];
        let blocks = Blocks::pieces(&self.recompute, 1, c.layers, |piece, block| {
            Block::new(&at(piece).at("blocks").at(block), c)
        })?;
        // One mask on each device.
        let mut mask: Option<Array> = None;
        for blocks in blocks {
            let here = at(pieces.len());
            let mask = match &mask {
                Some(mask) if mask.device().is_same(here.device()) => mask.clone(),
                _ => mask.insert(causal_mask(&here, c.sequence)?).clone(),
            };
            pieces.push(Box::new(Middle { blocks, mask }));
        }
        let back = at(pieces.len());
        let norm = LayerNorm::new(&back.at("lnf"), c.width, 1e-5)?;
        let head = head(&back.at("head"), c, &table)?;
        pieces.push(Box::new(Sequential::from_modules(vec![Box::new(norm), Box::new(head)])));
        Ok(pieces)
    }

    fn shares_ends(&self) -> bool {
        self.config.tied
    }
}

/// The output layer: with weights of its own, or those of the token table.
fn head(init: &Init, c: &GptConfig, table: &Parameter) -> memcore::Result<Linear> {
    if c.tied { Ok(Linear::tied(init, &init.shared(table)?)) } else { Linear::new(init, c.width, c.vocabulary, false) }
}

/// Embeddings of tokens and positions.
struct Front {
    /// Scope of what belongs to neither table: the position indices and the sum of both embeddings.
    scope: ScopeId,
    tokens: Embedding,
    positions: Embedding,
}

impl Front {
    fn new(init: &Init, c: &GptConfig) -> memcore::Result<Self> {
        // Small values: with PyTorch's N(0, 1) tables the first losses of a tied model are far above ln(vocabulary).
        let small = Fill::Normal { std: 0.02 };
        let tokens = Embedding::with_fill(&init.at("tok"), c.vocabulary, c.width, small)?;
        let positions = Embedding::with_fill(&init.at("pos"), c.sequence, c.width, small)?;
        Ok(Self { scope: init.at("embedding").scope(), tokens, positions })
    }
}

impl Module for Front {
    fn forward(&self, indices: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let length = indices.dims().last().copied().unwrap_or(0);
        let tokens = self.tokens.forward(indices)?;
        let range = {
            let _op = context::op("arange>resize_");
            Array::empty(indices.device(), &[length], DType::I64)?
        };
        if indices.device().computes() {
            range.write(&(0..length as i64).collect::<Vec<_>>())?;
        }
        let positions = self.positions.forward(&Tensor::from_array(range))?;
        let x = ops::add(&tokens, &positions)?;
        drop((tokens, positions));
        Ok(x)
    }
}

/// Blocks on one device, and its mask.
struct Middle {
    blocks: Blocks<Block>,
    mask: Array,
}

impl Module for Middle {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let mask = Tensor::from_array(mask_for(&self.mask, x.dims()[1])?);
        self.blocks.forward(x.clone(), &[mask], |block, x, given| block.forward(x, &given[0]))
    }
}

/// Cuts the mask to the number of tokens.
fn mask_for(mask: &Array, length: usize) -> memcore::Result<Array> {
    if mask.dims()[0] == length { Ok(mask.clone()) } else { mask.narrow(0, 0, length)?.narrow(1, 0, length) }
}

struct Gpt {
    scope: ScopeId,
    front: Front,
    blocks: Blocks<Block>,
    norm: LayerNorm,
    head: Linear,
    /// `[T, T]`, true above the diagonal: what a position must not see. A buffer, as in the written-out PyTorch model.
    mask: Array,
}

impl Gpt {
    fn new(init: &Init, c: GptConfig, recompute: &Recompute) -> memcore::Result<Self> {
        let front = Front::new(init, &c)?;
        let blocks: memcore::Result<Vec<Block>> =
            (0..c.layers).map(|i| Block::new(&init.at("blocks").at(i), &c)).collect();
        let blocks = Blocks::new(blocks?, recompute);
        let norm = LayerNorm::new(&init.at("lnf"), c.width, 1e-5)?;
        let head = head(&init.at("head"), &c, &front.tokens.weight)?;
        let mask = causal_mask(init, c.sequence)?;
        Ok(Self { scope: init.scope(), front, blocks, norm, head, mask })
    }
}

/// The mask of a decoder, as its scripts keep it: `[length, length]`, true above the diagonal.
pub fn causal_mask(init: &Init, length: usize) -> memcore::Result<Array> {
    init.constant(&[length, length], DType::Bool, |mask| {
        if !mask.device().computes() {
            return Ok(());
        }
        let values: Vec<u8> = (0..length * length).map(|i| u8::from(i % length > i / length)).collect();
        mask.write(&values)
    })
}

impl Module for Gpt {
    fn forward(&self, indices: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let x = self.front.forward(indices)?;
        let mask = Tensor::from_array(mask_for(&self.mask, x.dims()[1])?);
        let x = self.blocks.forward(x, &[mask], |block, x, given| block.forward(x, &given[0]))?;
        let x = self.norm.forward(&x)?;
        self.head.forward(&x)
    }
}

struct Block {
    scope: ScopeId,
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    widen: Linear,
    narrow: Linear,
    dropout: Option<Dropout>,
}

impl Block {
    fn new(init: &Init, c: &GptConfig) -> memcore::Result<Self> {
        let options = AttentionOptions { causal: true, fused: c.fused_attention, dropout: c.dropout };
        Ok(Self {
            scope: init.scope(),
            norm1: LayerNorm::new(&init.at("ln1"), c.width, 1e-5)?,
            attention: MultiHeadAttention::new(init, c.width, c.heads, options)?,
            norm2: LayerNorm::new(&init.at("ln2"), c.width, 1e-5)?,
            widen: Linear::new(&init.at("fc1"), c.width, 4 * c.width, true)?,
            narrow: Linear::new(&init.at("fc2"), 4 * c.width, c.width, true)?,
            dropout: if c.dropout > 0.0 { Some(Dropout::new(&init.at("drop"), c.dropout)?) } else { None },
        })
    }

    fn dropped(&self, x: Tensor) -> memcore::Result<Tensor> {
        match &self.dropout {
            Some(dropout) => dropout.forward(&x),
            None => Ok(x),
        }
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> memcore::Result<Tensor> {
        let _scope = context::scope(self.scope);
        let (attended, _variables) = self.attention.attend_inline(self.norm1.forward(x)?, Some(mask))?;
        let branch = self.dropped(attended)?;
        let x = ops::add(x, &branch)?;
        drop(branch);
        let branch = self.dropped(self.feed_forward(&x)?)?;
        let y = ops::add(&x, &branch)?;
        drop(branch);
        Ok(y)
    }

    /// Each intermediate value is freed as soon as the next one exists.
    fn feed_forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        let normed = self.norm2.forward(x)?;
        let wide = self.widen.forward(&normed)?;
        drop(normed);
        let activated = ops::gelu(&wide)?;
        drop(wide);
        self.narrow.forward(&activated)
    }
}
