//! Matrix products of everything that the kernels can read as matrices: choice of the form and of the number of parts.

use memcore::backend::Tf32;
use memcore::{DType, Result};

use crate::arguments::arguments;
use crate::kernel::{Kernel, Tag};
use crate::launch::{Argument, Context, Grid, THREADS};

arguments! { ARGUMENTS:
    pub(crate) struct Sizes {
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) k: u32,
        pub(crate) batches: u32,
        /// Number of parts into which the inner dimension is cut, and elements of a part; each part has its own sums.
        splits: u32,
        split_k: u32,
        /// [splits, batches, m, n]; null with one part.
        partial: *mut f32,
    }
}

impl Sizes {
    /// Creates sizes, each of which fits 31 bits; see [`fits`].
    pub(crate) fn new([m, n, k, batches]: [usize; 4]) -> Self {
        let [m, n, k, batches] = [m, n, k, batches].map(|size| size as u32);
        Self { m, n, k, batches, splits: 1, split_k: k, partial: 0 }
    }

    /// Number of results in all batches.
    fn results(&self) -> u64 {
        u64::from(self.m) * u64::from(self.n) * u64::from(self.batches)
    }
}

/// True if the kernels can count the sizes: sides and the number of tiles have 31 bits.
pub(crate) fn fits([m, n, k, batches]: [usize; 4]) -> bool {
    const MAX_SIZE: usize = 1 << 31;
    let tiles = m.div_ceil(64).checked_mul(n.div_ceil(64)).and_then(|tiles| tiles.checked_mul(batches));
    [m, n, k, batches].iter().all(|&size| size < MAX_SIZE) && tiles.is_some_and(|tiles| tiles < 1 << 24)
}

/// The kernels of a product.
#[derive(Clone, Copy)]
pub(crate) struct Kernels<A: 'static> {
    /// The kernel with the forms on ordinary cores.
    pub(crate) ordinary: Kernel<A>,
    /// The kernel on tensor cores, if it can be used.
    pub(crate) tensor: Option<Kernel<A>>,
    /// The setting that must be allowed before the tensor-core kernel takes float32.
    pub(crate) tf32: Tf32,
}

impl<A> Kernels<A> {
    /// The kernel on tensor cores, if it takes the type here.
    fn tensor(&self, ctx: &Context<'_>, dtype: DType) -> Option<Kernel<A>> {
        let wanted = dtype.is_half() || ctx.tf32.is_some_and(|allowed| allowed >= self.tf32);
        let takes = |kernel: &Kernel<A>| {
            kernel.is_for(Tag::tag_of(dtype)) && has_tensor_cores(ctx.properties.capability, dtype)
        };
        self.tensor.filter(takes).filter(|_| wanted)
    }
}

/// The forms of a product, in the order of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Thread,
    Warp,
    Small,
    Large,
    Finish,
    /// On tensor cores, by a kernel of its own.
    Tensor,
    /// Like [`Tensor`](Self::Tensor), with large tiles.
    TensorLarge,
}

/// Rows and columns of a block's tile.
fn tile(form: Form) -> (u32, u32) {
    match form {
        Form::Small => (64, 64),
        Form::Large | Form::TensorLarge => (128, 128),
        Form::Tensor => (64, 128),
        Form::Thread | Form::Warp | Form::Finish => (1, 1),
    }
}

/// True if tensor cores multiply the type with the instructions used: f16 from Turing on, bf16 and float32 as TF32 from
/// Ampere on.
pub(crate) fn has_tensor_cores(capability: (u32, u32), dtype: DType) -> bool {
    capability >= if dtype == DType::F16 { (7, 5) } else { (8, 0) }
}

/// Chooses the form. `tensors` tells whether the kernel on tensor cores may be used.
fn form(ctx: &Context<'_>, tensors: bool, s: &Sizes) -> Form {
    /// A result with a side below this does not fill a tile.
    const NARROW: u32 = 8;
    /// Number of products that one launch of threads computes at once without tiles.
    const FEW_PRODUCTS: u64 = 1 << 12;
    let side = s.m.min(s.n);
    if side < NARROW || u64::from(s.m) * u64::from(s.n) * u64::from(s.k) <= FEW_PRODUCTS {
        return if s.k <= 256 { Form::Thread } else { Form::Warp };
    }
    // Large tiles are used if they alone keep the device busy.
    let tiles = u64::from(s.m.div_ceil(128)) * u64::from(s.n.div_ceil(128)) * u64::from(s.batches);
    let are_busy = |parts: u32| tiles * u64::from(parts.max(1)) >= u64::from(ctx.properties.processors);
    if tensors && side >= 16 {
        // Parts of large tiles count too, unless half of the rows of a tile would be empty.
        return if s.m > 64 && are_busy(s.k / MIN_PART) { Form::TensorLarge } else { Form::Tensor };
    }
    if are_busy(1) { Form::Large } else { Form::Small }
}

/// Minimum length of a part of the inner dimension: adding up shorter ones costs more than they save.
const MIN_PART: u32 = 512;

/// Number of parts of the inner dimension, so that a product with few results and a long sum keeps the device busy.
fn splits(ctx: &Context<'_>, form: Form, s: &Sizes, blocks: u64) -> u32 {
    let busy = match form {
        Form::Thread => 1,
        Form::Warp => u64::from(ctx.properties.processors) * 64,
        _ => u64::from(ctx.properties.processors) * 2,
    };
    let room = ctx.scratch.bytes / 4 / s.results().max(1);
    let wanted = busy.div_ceil(blocks.max(1)).min(u64::from(s.k / MIN_PART)).min(room);
    u32::try_from(wanted).unwrap_or(1).max(1)
}

/// Runs a product. `args` makes its argument, which begins with the sizes.
pub(crate) fn run<A: Argument>(
    ctx: &Context<'_>,
    kernels: Kernels<A>,
    dtype: DType,
    mut sizes: Sizes,
    args: impl Fn(Sizes) -> A,
) -> Result<()> {
    if sizes.results() == 0 {
        return Ok(());
    }
    let tag = Tag::tag_of(dtype);
    let tensor = kernels.tensor(ctx, dtype);
    let form = form(ctx, tensor.is_some(), &sizes);
    let (rows, columns) = tile(form);
    let blocks = u64::from(sizes.m.div_ceil(rows)) * u64::from(sizes.n.div_ceil(columns)) * u64::from(sizes.batches);
    let splits = splits(ctx, form, &sizes, blocks);
    if splits > 1 {
        // Operands of tensor cores are read in packs, so a part begins at a multiple of a pack.
        sizes.split_k = sizes.k.div_ceil(splits).next_multiple_of(8);
        sizes.splits = sizes.k.div_ceil(sizes.split_k);
        sizes.partial = ctx.scratch.address;
    }
    let all = blocks * u64::from(sizes.splits);
    let grid = match form {
        Form::Thread => ctx.grid(all),
        Form::Warp => ctx.grid(all * 32),
        _ => Grid { threads: THREADS, ..Grid::over_blocks(all) },
    };
    let (kernel, number) = match (form, tensor) {
        (Form::Tensor, Some(tensor)) => (tensor, 0),
        (Form::TensorLarge, Some(tensor)) => (tensor, 1),
        _ => (kernels.ordinary, form as usize),
    };
    ctx.launch(kernel, tag, number, grid, &args(sizes))?;
    if sizes.partial != 0 {
        ctx.launch(kernels.ordinary, tag, Form::Finish as usize, ctx.grid(sizes.results()), &args(sizes))?;
    }
    Ok(())
}
