//! Trains a table of embeddings and a linear layer, with data and table in different places.

use lab_base::error::{Error, Result};
use lab_training::data::SplitMix64;
use memcore::backend::kernel::Reduction;
use memcore::memory::Category;
use memcore::nn::{Embedding, Init, Linear, Module, Parameter};
use memcore::optim::{Optimizer, Sgd, SgdOptions};
use memcore::{Array, DType, Device, Tensor, ops};

/// Tokens per example, values per row of the table, and classes.
const LENGTH: usize = 16;
const WIDTH: usize = 64;
const CLASSES: usize = 32;
const LR: f32 = 0.1;

/// Places of data and table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// The whole data set is copied once. A step takes a view of it.
    DataOnDevice,
    /// A step copies its batch from memory that is made for it.
    DataOnHost,
    /// A step copies its batch from one buffer that is kept.
    KeptBuffer,
    /// The rows of the batch's tokens are gathered on the host and copied. Their gradients are copied back.
    TableOnHost,
}

impl Arrangement {
    pub(super) const ALL: [Arrangement; 4] =
        [Self::DataOnDevice, Self::DataOnHost, Self::KeptBuffer, Self::TableOnHost];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DataOnDevice => "data on the device",
            Self::DataOnHost => "data copied per step",
            Self::KeptBuffer => "the same, one host buffer",
            Self::TableOnHost => "table on the host too",
        }
    }

    /// Bytes that are copied before the first step.
    pub(super) fn before(self, sizes: Sizes) -> Traffic {
        let up = if self == Self::DataOnDevice { 2 * sizes.batches as u64 * sizes.indices_bytes() } else { 0 };
        Traffic { up, down: 0 }
    }

    /// Bytes that a step copies.
    pub(super) fn per_step(self, sizes: Sizes) -> Traffic {
        match self {
            Self::DataOnDevice => Traffic { up: 0, down: 0 },
            Self::DataOnHost | Self::KeptBuffer => Traffic { up: 2 * sizes.indices_bytes(), down: 0 },
            Self::TableOnHost => Traffic { up: sizes.rows_bytes() + sizes.indices_bytes(), down: sizes.rows_bytes() },
        }
    }
}

/// Sizes of the batch, the table and the data set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Examples per step.
    pub(super) batch: usize,
    /// Rows of the table.
    pub(super) vocabulary: usize,
    /// Batches of the data set.
    pub(super) batches: usize,
}

impl Sizes {
    /// Number of tokens in a batch.
    pub(super) fn tokens(self) -> usize {
        self.batch * LENGTH
    }

    /// Bytes of a batch's tokens, or of its targets.
    pub(super) fn indices_bytes(self) -> u64 {
        8 * self.tokens() as u64
    }

    /// Bytes of the table rows for a batch: one row per token.
    pub(super) fn rows_bytes(self) -> u64 {
        4 * (self.tokens() * WIDTH) as u64
    }

    pub(super) fn table_bytes(self) -> u64 {
        4 * (self.vocabulary * WIDTH) as u64
    }

    /// Bytes of weight and bias of the linear layer.
    pub(super) fn head_bytes(self) -> [u64; 2] {
        [4 * (CLASSES * WIDTH) as u64, 4 * CLASSES as u64]
    }

    /// Bytes of the largest tensor.
    pub(super) fn largest_bytes(self) -> u64 {
        self.table_bytes().max(self.rows_bytes()).max(self.batches as u64 * self.indices_bytes())
    }
}

/// Bytes copied to and from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) up: u64,
    pub(super) down: u64,
}

impl Traffic {
    /// Bytes copied by a device until now.
    pub(super) fn from_device(device: &Device) -> Self {
        let counters = device.counters();
        Self { up: counters.uploaded_bytes, down: counters.downloaded_bytes }
    }

    /// Bytes copied after `start`.
    pub(super) fn since(self, start: Self) -> Self {
        Self { up: self.up - start.up, down: self.down - start.down }
    }
}

/// The program with its variables.
pub(super) struct Program {
    device: Device,
    arrangement: Arrangement,
    sizes: Sizes,
    /// Tokens of the data set on the host. Below them, their classes.
    tokens: Vec<i64>,
    targets: Vec<i64>,
    /// The kept buffer: tokens and targets of a batch.
    buffer: (Vec<i64>, Vec<i64>),
    /// The data set on the device: tokens and targets.
    resident: Option<(Tensor, Tensor)>,
    table: Table,
    head: Linear,
    optimizer: Sgd,
    /// Batch that a script's variables hold until the next step.
    held: Option<(Tensor, Tensor)>,
    loss: Option<Tensor>,
}

enum Table {
    Device(Embedding),
    Host(Vec<f32>),
}

impl Program {
    /// Makes data and parameters. Equal seeds give equal values in every arrangement.
    pub(crate) fn new(device: &Device, arrangement: Arrangement, sizes: Sizes, seed: u64) -> Result<Self> {
        let mut generator = SplitMix64::new(seed);
        let n = sizes.batches * sizes.tokens();
        let tokens: Vec<i64> = (0..n).map(|_| generator.below(sizes.vocabulary as u64) as i64).collect();
        let targets = tokens.iter().map(|token| token % CLASSES as i64).collect();
        let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| generator.next_f32() - 0.5).collect() };
        let rows = values(sizes.vocabulary * WIDTH);
        let init = Init::new(device, DType::F32, seed);
        let table = if arrangement == Arrangement::TableOnHost {
            Table::Host(rows)
        } else {
            let table = Embedding::new(&init.at("table"), sizes.vocabulary, WIDTH)?;
            set(&table.weight, &rows)?;
            Table::Device(table)
        };
        let head = Linear::new(&init.at("head"), WIDTH, CLASSES, true)?;
        set(&head.weight, &values(CLASSES * WIDTH))?;
        if let Some(bias) = &head.bias {
            set(bias, &[0.0; CLASSES])?;
        }
        let lr = f64::from(LR);
        let optimizer = Sgd::new(init.parameters(), SgdOptions { lr, ..SgdOptions::default() })?;
        Ok(Self {
            device: device.clone(),
            arrangement,
            sizes,
            tokens,
            targets,
            buffer: (Vec::new(), Vec::new()),
            resident: None,
            table,
            head,
            optimizer,
            held: None,
            loss: None,
        })
    }

    /// Copies the data set to the device once, before the steps, if the arrangement says so.
    pub(super) fn prepare(&mut self) -> Result<()> {
        if self.arrangement == Arrangement::DataOnDevice {
            let dims = [self.sizes.batches * self.sizes.tokens()];
            self.resident = Some((self.upload(&dims, &self.tokens)?, self.upload(&dims, &self.targets)?));
        }
        Ok(())
    }

    fn upload(&self, dims: &[usize], values: &[i64]) -> Result<Tensor> {
        let array = Array::empty_as(&self.device, dims, DType::I64, Category::Input)?;
        array.write(values)?;
        Ok(Tensor::from_array(array))
    }

    /// Returns the range of the data set for step `number`.
    fn range(&self, number: usize) -> std::ops::Range<usize> {
        let start = number % self.sizes.batches * self.sizes.tokens();
        start..start + self.sizes.tokens()
    }

    /// Takes a training step.
    pub(super) fn step(&mut self, number: usize) -> Result<()> {
        self.held = Some(self.batch(number)?);
        let Some((inputs, targets)) = &self.held else { return Ok(()) };
        self.optimizer.zero_grad(true)?;
        let rows = match &self.table {
            Table::Device(table) => table.forward(inputs)?,
            Table::Host(_) => inputs.clone(),
        };
        let logits = self.head.forward(&rows)?;
        drop(rows);
        let loss = ops::cross_entropy(&logits, targets, Reduction::Mean)?;
        drop(logits);
        loss.backward(false)?;
        self.loss = Some(loss);
        self.optimizer.step()?;
        let gradient = inputs.grad();
        if let (Table::Host(table), Some(gradient), true) = (&mut self.table, gradient, self.device.computes()) {
            let start = number % self.sizes.batches * self.sizes.tokens();
            let tokens = &self.tokens[start..start + self.sizes.tokens()];
            descend(table, tokens, &gradient.to_vec::<f32>()?);
        }
        Ok(())
    }

    /// Returns the tokens (or their table rows, as a leaf) and targets on the device.
    fn batch(&mut self, number: usize) -> Result<(Tensor, Tensor)> {
        let (range, n) = (self.range(number), self.sizes.tokens());
        if let Some((tokens, targets)) = &self.resident {
            return Ok((ops::narrow(tokens, 0, range.start, n)?, ops::narrow(targets, 0, range.start, n)?));
        }
        if let Table::Host(table) = &self.table {
            let tokens = &self.tokens[range.clone()];
            let rows: Vec<f32> = tokens.iter().flat_map(|&t| row(table, t).iter().copied()).collect();
            let array = Array::empty_as(&self.device, &[n, WIDTH], DType::F32, Category::Input)?;
            array.write(&rows)?;
            return Ok((Tensor::leaf(array), self.upload(&[n], &self.targets[range])?));
        }
        if self.arrangement == Arrangement::KeptBuffer {
            let (tokens, targets) = &mut self.buffer;
            tokens.clear();
            targets.clear();
            tokens.extend_from_slice(&self.tokens[range.clone()]);
            targets.extend_from_slice(&self.targets[range]);
            return Ok((self.upload(&[n], &self.buffer.0)?, self.upload(&[n], &self.buffer.1)?));
        }
        let (tokens, targets) = (self.tokens[range.clone()].to_vec(), self.targets[range].to_vec());
        Ok((self.upload(&[n], &tokens)?, self.upload(&[n], &targets)?))
    }

    /// Waits until the device has finished all work.
    pub(super) fn synchronize(&self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    pub(super) fn loss(&self) -> Result<f64> {
        let loss = self.loss.as_ref().ok_or_else(|| Error::usage("placement", "no step was taken"))?;
        Ok(loss.item()?)
    }
}

fn set(parameter: &Parameter, values: &[f32]) -> Result<()> {
    if parameter.array().device().computes() { Ok(parameter.set(values)?) } else { Ok(()) }
}

fn row(table: &[f32], token: i64) -> &[f32] {
    let start = token as usize * WIDTH;
    &table[start..start + WIDTH]
}

/// Updates the rows of a table on the host. A row that occurs several times takes each of its gradients.
fn descend(table: &mut [f32], tokens: &[i64], gradients: &[f32]) {
    for (&token, gradient) in tokens.iter().zip(gradients.chunks_exact(WIDTH)) {
        let start = token as usize * WIDTH;
        for (value, slope) in table[start..start + WIDTH].iter_mut().zip(gradient) {
            *value -= LR * slope;
        }
    }
}
