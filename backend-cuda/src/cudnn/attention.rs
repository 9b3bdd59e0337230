//! Attention and its gradients as graphs of the library, which computes each in one or few kernels without the scores in memory.
//!
//! The graphs are the ones that the library knows as attention (its documentation: "Fused Attention"): product, scale, hidden scores,
//! softmax, product. The statistic that forward leaves is the natural logarithm of each row's denominator, as that of the own kernels, so
//! that backward may be computed by either. Of backward the library has a form that adds up the queries' gradient atomically, and one
//! that is the same in every run, which keeps the scores' gradient in its workspace. The latter is taken here, some batches at a time.

use std::ffi::c_int;

use memcore::DType;

use super::graph::{Axes, Builder, Engine, Function, Graph, Over, Tensor, types};
use super::library::{Functions, Handle, Status};
use crate::libraries::Version;

/// Forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// With the statistics that backward needs, or without them.
    Forward {
        statistics: bool,
    },
    Backward,
}

/// The tensors in memory of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Operand {
    Query,
    Key,
    Value,
    Out,
    /// Logarithms of the denominators.
    Statistics,
    /// Gradients: of the result (incoming), and those that are wanted.
    Grad,
    QueryGrad,
    KeyGrad,
    ValueGrad,
    /// Memory for a sum of each row.
    Sums,
    /// What is added to the scores.
    Mask,
}

/// Number of operands.
pub(crate) const OPERANDS: usize = 11;

/// Sizes and strides of the operands: 0 of one that there is not.
type Strides = [[i64; 3]; OPERANDS];

/// Everything on which the library's choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttentionShape {
    pub(crate) direction: Direction,
    pub(crate) dtype: DType,
    pub(crate) causal: bool,
    /// The bits of the scale, a float.
    pub(crate) scale: u32,
    /// Batches of one call of the library, and number of such calls.
    pub(crate) batches: usize,
    pub(crate) calls: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) depth: usize,
    pub(crate) value_depth: usize,
    /// Of batch, head and row, in elements. Those of the sums are made here.
    pub(crate) strides: Strides,
    /// Size and stride of each axis of the mask, for all batches: a size of 1 is repeated.
    pub(crate) mask: Option<[(usize, i64); 4]>,
}

/// The library's oldest release whose attention has no errors that are known to matter here: before it, lengths of keys that are not a
/// multiple of 128 needed help in backward.
const OLDEST: Version = (9, 16);

/// The number of a tensor in memory is its operand's and one; these are given by value.
const SCALE: i64 = 100;
const HIDDEN: i64 = 101;
const ONE: i64 = 102;

impl AttentionShape {
    /// True if the library is worth asking on a card of this capability: it may still refuse.
    pub(crate) fn may_be_taken(&self, version: Version, (major, _): (u32, u32)) -> bool {
        const PACK: usize = 8;
        let sizes = [self.batches, self.heads, self.queries, self.keys, self.depth, self.value_depth];
        let in_packs = |size: usize| size.is_multiple_of(PACK);
        let strides = self.operands().all(|operand| {
            self.strides[operand as usize].iter().all(|stride| *stride > 0 && stride % PACK as i64 == 0)
        });
        let mask = self.mask.is_none_or(|axes| axes.iter().all(|(_, stride)| *stride > 0) && axes[3].1 == 1);
        let types = matches!(self.dtype, DType::F16 | DType::BF16) && (8..=12).contains(&major);
        // The form of backward that is the same in every run is another one from 10.0 on. With heads that share keys its gradient of the keys was
        // wrong on an H200 (cuDNN 9.19): the own kernels compute it.
        let direction = match self.direction {
            Direction::Forward { .. } => true,
            Direction::Backward => major < 10 && self.queries * self.keys > 1 && self.heads == self.key_heads,
        };
        let counted = sizes.iter().all(|size| (1..1 << 31).contains(size));
        version >= OLDEST
            && types
            && direction
            && counted
            && in_packs(self.depth)
            && in_packs(self.value_depth)
            && strides
            && mask
    }

    /// The operands in 16 bits.
    fn operands(&self) -> impl Iterator<Item = Operand> {
        use Operand::{Grad, Key, KeyGrad, Out, Query, QueryGrad, Value, ValueGrad};
        let all = [Query, Key, Value, Out, Grad, QueryGrad, KeyGrad, ValueGrad];
        let count = if self.direction == Direction::Backward { all.len() } else { 4 };
        all.into_iter().take(count)
    }

    /// Bytes of a float for each row of all calls.
    pub(crate) fn rows_bytes(&self) -> u64 {
        (self.batches * self.calls * self.heads * self.queries * size_of::<f32>()) as u64
    }

    /// Bytes that the addresses of an operand's batches of one call lie behind those of the call before.
    fn step_bytes(&self, operand: Operand) -> u64 {
        let rows = (self.heads * self.queries * size_of::<f32>()) as u64;
        match operand {
            Operand::Statistics | Operand::Sums => self.batches as u64 * rows,
            Operand::Mask => match self.mask {
                Some([(batches, stride), ..]) if batches > 1 => self.batches as u64 * stride as u64 * self.dtype.size(),
                _ => 0,
            },
            _ => self.batches as u64 * self.strides[operand as usize][0] as u64 * self.dtype.size(),
        }
    }

    /// Bytes of the scores' gradients in backward's workspace, about.
    pub(crate) fn scores_bytes(&self) -> u64 {
        let tiles = |length: usize| length.next_multiple_of(64) as u64;
        self.batches as u64 * self.heads as u64 * tiles(self.queries) * tiles(self.keys) * self.dtype.size()
    }

    /// Multiplications of one product with all scores.
    pub(crate) fn products(&self) -> u64 {
        [self.batches, self.calls, self.heads, self.queries, self.keys, self.depth]
            .iter()
            .map(|size| *size as u64)
            .product()
    }

    /// The same attention, in calls of so many batches; `batches` divides their number.
    pub(crate) fn in_calls_of(self, batches: usize) -> Self {
        let all = self.batches * self.calls;
        Self { batches, calls: all / batches, ..self }
    }

    fn kind(&self) -> c_int {
        if self.dtype == DType::F16 { types::F16 } else { types::BF16 }
    }

    fn axes(&self, operand: Operand) -> Axes {
        let (heads, rows, columns) = match operand {
            Operand::Query | Operand::QueryGrad => (self.heads, self.queries, self.depth),
            Operand::Key | Operand::KeyGrad => (self.key_heads, self.keys, self.depth),
            Operand::Value | Operand::ValueGrad => (self.key_heads, self.keys, self.value_depth),
            Operand::Out | Operand::Grad => (self.heads, self.queries, self.value_depth),
            Operand::Statistics | Operand::Sums => (self.heads, self.queries, 1),
            Operand::Mask => return self.mask_axes(),
        };
        let sizes = [self.batches, heads, rows, columns].map(|size| size as i64);
        if matches!(operand, Operand::Statistics | Operand::Sums) {
            return Axes::dense(sizes);
        }
        let [batch, head, row] = self.strides[operand as usize];
        Axes { sizes, strides: [batch, head, row, 1] }
    }

    fn mask_axes(&self) -> Axes {
        let axes = self.mask.unwrap_or([(1, 1); 4]);
        let mut sizes = axes.map(|(size, _)| size as i64);
        sizes[0] = sizes[0].min(self.batches as i64);
        Axes { sizes, strides: axes.map(|(_, stride)| stride) }
    }

    fn scores(&self) -> Axes {
        Axes::dense([self.batches, self.heads, self.queries, self.keys].map(|size| size as i64))
    }
}

/// An attention's graph while it is built.
struct Drawn<'a> {
    builder: Builder,
    shape: &'a AttentionShape,
    scale: Tensor,
}

impl<'a> Drawn<'a> {
    fn new(library: &'static Functions, shape: &'a AttentionShape) -> Result<Self, Status> {
        let mut builder = Builder::new(library);
        let scale = builder.scalar(SCALE)?;
        Ok(Self { builder, shape, scale })
    }

    fn memory(&mut self, operand: Operand) -> Result<Tensor, Status> {
        self.placed(operand, self.shape.axes(operand))
    }

    /// With the last two axes exchanged: the library takes the right factor of a product like this.
    fn transposed(&mut self, operand: Operand) -> Result<Tensor, Status> {
        self.placed(operand, self.shape.axes(operand).transposed())
    }

    fn placed(&mut self, operand: Operand, axes: Axes) -> Result<Tensor, Status> {
        let is_statistic = matches!(operand, Operand::Statistics | Operand::Sums);
        let kind = if is_statistic { types::F32 } else { self.shape.kind() };
        self.builder.memory(operand as i64 + 1, kind, axes)
    }

    /// `scale·q @ kᵀ + mask`.
    fn scores(&mut self, query: Tensor, keys: Tensor) -> Result<Tensor, Status> {
        let product = self.builder.product(query, keys, types::F32, self.shape.scores())?;
        let scores = self.builder.apply(Function::Multiply, product, Some(self.scale))?;
        if self.shape.mask.is_none() {
            return Ok(scores);
        }
        let mask = self.memory(Operand::Mask)?;
        self.builder.apply(Function::Add, scores, Some(mask))
    }

    /// Hides the scores of later keys from a query, if that is wanted.
    fn seen(&mut self, scores: Tensor) -> Result<Tensor, Status> {
        if !self.shape.causal {
            return Ok(scores);
        }
        let hidden = self.builder.scalar(HIDDEN)?;
        self.builder.causal(scores, hidden)
    }
}

/// `out = softmax(scale·q @ kᵀ + mask) @ v`, and the logarithms of the denominators.
fn forward(
    library: &'static Functions,
    handle: Handle,
    shape: &AttentionShape,
    statistics: bool,
) -> Result<Graph, Status> {
    let mut drawn = Drawn::new(library, shape)?;
    let (query, keys) = (drawn.memory(Operand::Query)?, drawn.transposed(Operand::Key)?);
    let (value, out) = (drawn.memory(Operand::Value)?, drawn.memory(Operand::Out)?);
    let scores = drawn.scores(query, keys)?;
    let scores = drawn.seen(scores)?;
    let statistics = if statistics { Some(drawn.memory(Operand::Statistics)?) } else { None };
    let mut b = drawn.builder;
    let largest = b.reduce_rows(Over::Maximum, scores)?;
    let below = b.apply(Function::Subtract, scores, Some(largest))?;
    let powers = b.apply(Function::Exponential, below, None)?;
    let sums = b.reduce_rows(Over::Sum, powers)?;
    if let Some(statistics) = statistics {
        let logarithms = b.apply(Function::Logarithm, sums, None)?;
        b.apply_into(Function::Add, largest, Some(logarithms), statistics)?;
    }
    let weights = b.apply_as(shape.kind(), Function::Divide, powers, Some(sums))?;
    b.product_into(weights, value, out)?;
    b.finish(handle)
}

/// With `p = e^(scores − statistics)` and `sums = Σ grad·out` per row: `dv = pᵀ @ grad`, `ds = scale·p·(grad @ vᵀ − sums)`, `dk = dsᵀ @ q`, `dq = ds @ k`.
fn backward(library: &'static Functions, handle: Handle, shape: &AttentionShape) -> Result<Graph, Status> {
    let mut drawn = Drawn::new(library, shape)?;
    let kind = shape.kind();
    let (query, keys) = (drawn.memory(Operand::Query)?, drawn.transposed(Operand::Key)?);
    let (values, out) = (drawn.transposed(Operand::Value)?, drawn.memory(Operand::Out)?);
    let (grad, statistics) = (drawn.memory(Operand::Grad)?, drawn.memory(Operand::Statistics)?);
    let (sums, one) = (drawn.memory(Operand::Sums)?, drawn.builder.scalar(ONE)?);
    let products = drawn.builder.apply(Function::Multiply, grad, Some(out))?;
    let added = drawn.builder.reduce_rows(Over::Sum, products)?;
    drawn.builder.apply_into(Function::Multiply, added, Some(one), sums)?;

    let scores = drawn.scores(query, keys)?;
    let below = drawn.builder.apply(Function::Subtract, scores, Some(statistics))?;
    let below = drawn.seen(below)?;
    let weights = drawn.builder.apply(Function::Exponential, below, None)?;
    let transposed = drawn.builder.transpose(weights, kind)?;
    let value_grad = drawn.memory(Operand::ValueGrad)?;
    drawn.builder.product_into(transposed, grad, value_grad)?;

    let weighed = drawn.builder.product(grad, values, types::F32, shape.scores())?;
    let centred = drawn.builder.apply(Function::Subtract, weighed, Some(sums))?;
    let changes = drawn.builder.apply(Function::Multiply, centred, Some(weights))?;
    let changes = drawn.builder.apply(Function::Multiply, changes, Some(drawn.scale))?;
    let transposed = drawn.builder.transpose(changes, kind)?;
    let key_grad = drawn.memory(Operand::KeyGrad)?;
    drawn.builder.product_into(transposed, query, key_grad)?;

    let keys = drawn.builder.transpose(keys, kind)?;
    let query_grad = drawn.memory(Operand::QueryGrad)?;
    drawn.builder.product_into(changes, keys, query_grad)?;
    drawn.builder.finish(handle)
}

/// An attention's graph with its engine.
pub(super) struct Plan(Engine);

impl Plan {
    /// Draws the graph, and lets the library choose an engine. `None` if it has none that is allowed.
    pub(super) fn new(library: &'static Functions, handle: Handle, shape: &AttentionShape) -> Option<Self> {
        let graph = match shape.direction {
            Direction::Forward { statistics } => forward(library, handle, shape, statistics),
            Direction::Backward => backward(library, handle, shape),
        };
        graph.ok()?.engine(library, handle).map(Self)
    }

    pub(super) fn workspace_bytes(&self) -> u64 {
        self.0.workspace_bytes
    }

    /// Queues all calls.
    ///
    /// # Safety
    /// The places are the addresses of operands of this shape, and the workspace is as large as the plan says.
    pub(super) unsafe fn run(
        &self,
        library: &'static Functions,
        handle: Handle,
        shape: &AttentionShape,
        places: &[u64; OPERANDS],
        workspace: u64,
    ) -> Result<(), Status> {
        use Operand::{Grad, Key, KeyGrad, Out, Query, QueryGrad, Statistics, Sums, Value, ValueGrad};
        let (scale, hidden, one) = (f32::from_bits(shape.scale), f32::NEG_INFINITY, 1.0f32);
        let by_value = |number: i64, value: &f32| (number, std::ptr::from_ref(value) as u64);
        for call in 0..shape.calls as u64 {
            let addresses = |operands: &[Operand]| -> Vec<(i64, u64)> {
                let place = |operand: Operand| places[operand as usize] + call * shape.step_bytes(operand);
                operands.iter().map(|&operand| (operand as i64 + 1, place(operand))).collect()
            };
            let mut tensors = addresses(&[Query, Key, Value, Out]);
            match shape.direction {
                Direction::Forward { statistics } => {
                    tensors.extend(statistics.then(|| addresses(&[Statistics])).into_iter().flatten())
                }
                Direction::Backward => {
                    tensors.extend(addresses(&[Statistics, Grad, QueryGrad, KeyGrad, ValueGrad, Sums]));
                    tensors.push(by_value(ONE, &one));
                }
            }
            tensors.extend(shape.mask.map(|_| addresses(&[Operand::Mask])).into_iter().flatten());
            tensors.push(by_value(SCALE, &scale));
            tensors.extend(shape.causal.then(|| by_value(HIDDEN, &hidden)));
            // SAFETY: the caller's promise; values on the host live during the call, which reads them.
            unsafe { self.0.run(library, handle, &tensors, workspace) }?;
        }
        Ok(())
    }
}
