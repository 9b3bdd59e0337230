//! The first training step of a small GPT, with the operators of its PyTorch source, makes the same allocations and frees as in PyTorch,
//! in the same order: forward, loss and backward, libraries' workspaces included.
//!
//! The expectation is `golden/gpt_events.json`, recorded from the unmodified torch 2.11.0+cu130 wheel on a stand-in driver.

use std::sync::Arc;

use crate::common::{Events, Watch};
use memcore::backend::Meta;
use memcore::backend::kernel::Reduction;
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};

const VOCABULARY: usize = 512;
const TIME: usize = 64;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const BATCH: usize = 8;
const BLOCKS: usize = 2;

/// A weight and its bias.
struct Layer(Tensor, Tensor);

struct Block {
    norm1: Layer,
    qkv: Layer,
    proj: Layer,
    norm2: Layer,
    fc1: Layer,
    fc2: Layer,
}

struct Gpt {
    tokens: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Layer,
    head: Tensor,
    mask: Tensor,
    dropout: f64,
}

fn leaf(device: &Device, dims: &[usize]) -> Result<Tensor> {
    Ok(Tensor::leaf(Array::empty(device, dims, DType::F32)?))
}

fn linear(d: &Device, inputs: usize, outputs: usize) -> Result<Layer> {
    Ok(Layer(leaf(d, &[outputs, inputs])?, leaf(d, &[outputs])?))
}

fn norm(d: &Device) -> Result<Layer> {
    Ok(Layer(leaf(d, &[WIDTH])?, leaf(d, &[WIDTH])?))
}

impl Layer {
    fn linear(&self, x: &Tensor) -> Result<Tensor> {
        ops::linear(x, &self.0, Some(&self.1))
    }

    fn norm(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(x, &[WIDTH], Some(&self.0), Some(&self.1), 1e-5)
    }
}

impl Block {
    fn new(d: &Device) -> Result<Self> {
        Ok(Self {
            norm1: norm(d)?,
            qkv: linear(d, WIDTH, 3 * WIDTH)?,
            proj: linear(d, WIDTH, WIDTH)?,
            norm2: norm(d)?,
            fc1: linear(d, WIDTH, 4 * WIDTH)?,
            fc2: linear(d, 4 * WIDTH, WIDTH)?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor, p: f64) -> Result<Tensor> {
        let qkv = self.qkv.linear(&self.norm1.norm(x)?)?;
        let head = |part: &Tensor| ops::transpose(&ops::view(part, &[BATCH, TIME, HEADS, WIDTH / HEADS])?, 1, 2);
        let parts = ops::split(&qkv, WIDTH, 2)?;
        let (q, k, v) = (head(&parts[0])?, head(&parts[1])?, head(&parts[2])?);
        let y = ops::attention_eager(&q, &k, &v, Some(mask), p, true)?;
        let merged = ops::contiguous(&ops::transpose(&y, 1, 2)?)?;
        drop(y);
        let y = ops::view(&merged, &[BATCH, TIME, WIDTH])?;
        let x = self.residual(x, p, || self.proj.linear(&y))?;
        self.residual(&x, p, || self.fc2.linear(&ops::gelu(&self.fc1.linear(&self.norm2.norm(&x)?)?)?))
    }

    fn residual(&self, x: &Tensor, p: f64, branch: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let y = branch()?;
        let dropped = ops::dropout(&y, p, true)?;
        drop(y);
        ops::add(x, &dropped)
    }
}

impl Gpt {
    fn new(d: &Device, dropout: f64) -> Result<Self> {
        Ok(Self {
            tokens: leaf(d, &[VOCABULARY, WIDTH])?,
            positions: leaf(d, &[TIME, WIDTH])?,
            blocks: (0..BLOCKS).map(|_| Block::new(d)).collect::<Result<_>>()?,
            norm: norm(d)?,
            head: leaf(d, &[VOCABULARY, WIDTH])?,
            mask: Tensor::from_array(ops::causal_mask(d, TIME)?),
            dropout,
        })
    }

    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let tokens = ops::embedding(indices, &self.tokens, None)?;
        let range = Tensor::from_array(Array::empty(indices.device(), &[TIME], DType::I64)?);
        let positions = ops::embedding(&range, &self.positions, None)?;
        let mut x = ops::add(&tokens, &positions)?;
        drop(tokens);
        drop((positions, range));
        for block in &self.blocks {
            x = block.forward(&x, &self.mask, self.dropout)?;
        }
        ops::linear(&self.norm.norm(&x)?, &self.head, None)
    }
}

/// The first step, like the recording's.
fn observe(dropout: f64) -> Result<[Events; 4]> {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
    let gpt = Gpt::new(&device, dropout)?;
    device.set_history(true);
    let mut watch = Watch::new(&device);
    let indices = || Ok(Tensor::from_array(Array::empty(&device, &[BATCH, TIME], DType::I64)?));
    let (input, target): (Tensor, Tensor) = (indices()?, indices()?);
    let inputs = watch.since();
    let logits = gpt.forward(&input)?;
    let forward = watch.since();
    let rows = ops::view(&logits, &[BATCH * TIME, VOCABULARY])?;
    let loss = ops::cross_entropy(&rows, &ops::view(&target, &[BATCH * TIME])?, Reduction::Mean)?;
    let losses = watch.since();
    loss.backward(false)?;
    Ok([inputs, forward, losses, watch.since()])
}

fn recorded(script: &str) -> [Events; 4] {
    let file: serde_json::Value = serde_json::from_str(include_str!("../golden/gpt_events.json")).unwrap();
    let row = file["rows"].as_array().unwrap().iter().find(|row| row[0] == script).unwrap();
    let events = |v: &serde_json::Value| v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    [events(&row[1]), events(&row[2]), events(&row[3]), events(&row[4])]
}

fn check(script: &str, dropout: f64) {
    let (want, found) = (recorded(script), observe(dropout).unwrap());
    for (phase, (want, found)) in ["input", "forward", "loss", "backward"].iter().zip(want.iter().zip(&found)) {
        let differs = (0..want.len().max(found.len())).find(|&i| want.get(i) != found.get(i));
        if let Some(i) = differs {
            let near = |e: &Events| e[i.saturating_sub(4).min(e.len())..(i + 8).min(e.len())].to_vec();
            panic!("{phase}, from event {i} on\n  recorded {:?}\n  here     {:?}", near(want), near(found));
        }
    }
}

#[test]
fn a_gpt_takes_the_same_memory_in_the_same_order() {
    check("f_gpt_untied", 0.0);
}

#[test]
fn with_dropout_too() {
    check("f_gpt_dropout", 0.1);
}
