//! Memory that fused attention allocates besides its results, for each kernel that it stands for.
//!
//! The sizes are those of the kernels of PyTorch 2.7 to 2.15. They were derived from how the kernels tile their work, and compared with recordings
//! for compute capability 6.0, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0 and heads of up to 320 elements. In cuDNN's workspace, the part that its
//! front end asks for is known; the plan's own part is a number of the profile.

use smallvec::{SmallVec, smallvec};

use super::algorithm::{Algorithm, has_little_shared_memory, is_recent};
use crate::array::Array;
use crate::backend::KernelCall;
use crate::backend::kernel::AttentionGrad;
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::profile::Profile;

/// Widest 16-bit head, in elements, that the memory-efficient kernels sum in registers.
const WIDEST_IN_REGISTERS: usize = 128;

/// Keys in a tile of the memory-efficient gradient that sums in memory.
const EFFICIENT_KEYS: usize = 64;

/// Most tiles of keys, over all heads of all examples, that have memory of their own, unless one for each head is more.
const MAX_SUMMED_TILES: usize = 200;

/// Scratch of one backward pass.
pub(in crate::ops) struct Scratch {
    /// `Σ grad·out` of each row, `[b, h, t]`.
    pub(in crate::ops) delta: Array,
    /// A copy of the incoming gradient, if the kernel needs one.
    pub(in crate::ops) grad: Option<Array>,
    /// Workspace of the kernel.
    workspace: Option<Array>,
    /// Arrays of the scratch, in the order of freeing.
    held: SmallVec<[Array; 4]>,
}

impl Scratch {
    /// Frees the scratch, in the order in which PyTorch frees it.
    pub(in crate::ops) fn release(self) {
        drop((self.delta, self.grad, self.workspace));
        self.held.into_iter().for_each(drop);
    }
}

impl Algorithm {
    /// Allocates the result, `[b, h, t, dv]`: position by position, as the projection after it needs it. Flash and cuDNN lay it out as the
    /// queries.
    pub(in crate::ops) fn output(self, q: &Array, dv: usize) -> Result<Array> {
        let [b, h, t] = [q.dims()[0], q.dims()[1], q.dims()[2]];
        self.laid_out([b, h, t, dv], q)
    }

    /// Allocates the gradient of `x`.
    pub(in crate::ops) fn gradient(self, x: &Array) -> Result<Array> {
        let _op = context::op(self.gradient_op());
        self.laid_out([x.dims()[0], x.dims()[1], x.dims()[2], x.dims()[3]], x)
    }

    /// Allocates the gradient of the bias, `[b, h, t, s]`. In PyTorch's kernels its rows begin at multiples of 16 elements.
    pub(in crate::ops) fn mask_gradient(self, q: &Array, k: &Array) -> Result<Array> {
        let _op = context::op(self.gradient_op());
        let [b, h, t, s] = [q.dims()[0], q.dims()[1], q.dims()[2], k.dims()[2]];
        let row = if self == Self::Efficient { s.next_multiple_of(16) } else { s };
        Array::empty(q.device(), &[b, h, t, row], q.dtype())?.narrow(3, 0, s)
    }

    fn laid_out(self, [b, h, t, d]: [usize; 4], like: &Array) -> Result<Array> {
        if matches!(self, Self::Flash | Self::Cudnn) && has_heads_outside(like) {
            return Array::empty(like.device(), &[b, h, t, d], like.dtype());
        }
        Array::empty(like.device(), &[b, t, h, d], like.dtype())?.transpose(1, 2)
    }

    /// Allocates the memory of the logarithms of the denominators ([`per_query`]) if they are made: for a gradient (`recorded`), and by flash attention always.
    /// The efficient kernel pads the rows of each head to a multiple of 32.
    pub(in crate::ops) fn logsumexp(self, q: &Array, recorded: bool) -> Result<Option<Array>> {
        if !recorded && self != Self::Flash {
            return Ok(None);
        }
        padded_statistic(q, if self == Self::Efficient { 32 } else { 1 }).map(Some)
    }

    /// Allocates the generator states that memory-efficient and cuDNN's attention return besides their results, if they do. They are made before the
    /// results, and returned in the order of freeing.
    pub(in crate::ops) fn seeds(self, device: &Device, dropout: bool) -> Result<SmallVec<[Array; 2]>> {
        let maker = match self {
            Self::Efficient if !dropout && device.profile().newer_efficient_attention => "zeros",
            Self::Cudnn => self.result_op(),
            _ => return Ok(SmallVec::new()),
        };
        let word = || Array::empty(device, &[], DType::I64);
        let (seed, offset) = context::within(maker, || Ok::<_, Error>((word()?, word()?)))?;
        Ok(smallvec![offset, seed])
    }

    /// Allocates the parts from which the result is computed. Flash attention divides the keys if there are too few queries for the card: each part
    /// has logarithms of the denominators and a result, in f32. With dropout it does not divide them. The memory-efficient kernel sums wide 16-bit
    /// heads in f32. cuDNN's kernel has its workspace.
    pub(in crate::ops) fn partial_results(
        self,
        q: &Array,
        k: &Array,
        v: &Array,
        dropout: bool,
    ) -> Result<SmallVec<[Array; 2]>> {
        if self == Self::Efficient && q.dtype().is_half() && q.dims()[3].max(v.dims()[3]) > WIDEST_IN_REGISTERS {
            let [b, h, t] = [q.dims()[0], q.dims()[1], q.dims()[2]];
            return Ok(smallvec![Array::empty(q.device(), &[b, t, h, v.dims()[3]], DType::F32)?]);
        }
        if self == Self::Cudnn {
            return match plan_bytes(q.device()) {
                0 => Ok(SmallVec::new()),
                bytes => Ok(smallvec![Array::empty(q.device(), &[bytes], DType::U8)?]),
            };
        }
        let (Self::Flash, Some(card), false) = (self, q.device().profile().multiprocessors, dropout) else {
            return Ok(SmallVec::new());
        };
        let [b, h, t, d] = [q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]];
        let keys_of_block = match d {
            ..=64 => 256,
            65..=128 => 128,
            _ => 64,
        };
        let parts = parts_of_keys(b * h * t.div_ceil(64), 2 * card.count, k.dims()[2].div_ceil(keys_of_block));
        if parts <= 1 {
            return Ok(SmallVec::new());
        }
        let make = |width: usize| Array::empty(q.device(), &[parts * b * h * t * width], DType::F32);
        let logarithms = make(1)?;
        let results = make(flash_width(q.device().profile(), d))?;
        // In the order of freeing.
        Ok(smallvec![logarithms, results])
    }

    /// Allocates what flash attention returns besides its results: the generator state, and an unused word.
    pub(in crate::ops) fn extras(self, device: &Device, dropout: bool) -> Result<SmallVec<[Array; 2]>> {
        if self != Self::Flash {
            return Ok(SmallVec::new());
        }
        let words = |n: usize| Array::empty(device, &[n], DType::I64);
        let (state, unused) = (words(2)?, words(1)?);
        // With dropout another state replaces the first one.
        let state = if dropout { words(2)? } else { state };
        Ok(smallvec![state, unused])
    }

    /// Prepares the incoming gradient. PyTorch's kernels need it position by position, and copy it if it is not. cuDNN's kernel has a
    /// [scratch](Self::scratch) copy.
    pub(in crate::ops) fn incoming(self, grad: &Array) -> Result<Array> {
        match self {
            Self::Native => return with_rows(grad),
            Self::Cudnn => return Ok(grad.clone()),
            Self::Efficient | Self::Flash => {}
        }
        context::within("clone", || by_position(grad))
    }

    /// Prepares the result that forward kept: flash attention needs it position by position too.
    pub(in crate::ops) fn result_again(self, out: &Array) -> Result<Array> {
        if self == Self::Flash { self.incoming(out) } else { Ok(out.clone()) }
    }

    /// Allocates gradients of values and keys for every query head, if the memory-efficient kernel has fewer heads of those.
    pub(in crate::ops) fn repeated_gradients(self, [q, k, v]: [&Array; 3]) -> Result<SmallVec<[Array; 2]>> {
        let _op = context::op(self.gradient_op());
        if self == Self::Efficient { for_every_head(q, k, v) } else { Ok(SmallVec::new()) }
    }

    /// Allocates the scratch of a backward pass, from the [repeated](Self::repeated_gradients) gradients, the result and its gradient.
    pub(in crate::ops) fn scratch(
        self,
        [q, k, v]: [&Array; 3],
        repeated: SmallVec<[Array; 2]>,
        out: &Array,
        grad: &Array,
    ) -> Result<Scratch> {
        match self {
            Self::Native => {
                Ok(Scratch { delta: row_statistic(q, 1)?, grad: None, held: SmallVec::new(), workspace: None })
            }
            Self::Efficient => efficient(q, k, v, repeated),
            Self::Flash => flash(q, k, v),
            Self::Cudnn => cudnn([q, k, v], out, grad),
        }
    }

    /// Returns the kernel's workspace: a part of PyTorch's scratch, or the bytes that the backend's own kernel needs.
    pub(in crate::ops) fn workspace(self, scratch: &Scratch, call: &AttentionGrad) -> Result<Option<Array>> {
        if self != Self::Native {
            return Ok(scratch.workspace.clone());
        }
        let device = scratch.delta.device();
        match device.native_workspace(&KernelCall::from(call.clone())) {
            0 => Ok(None),
            bytes => Ok(Some(Array::empty_as(device, &[bytes as usize], DType::U8, Category::Workspace)?)),
        }
    }
}

/// Allocates one number per query, `[b, h, t]`, in memory whose heads are padded to a multiple of `multiple` queries.
fn row_statistic(q: &Array, multiple: usize) -> Result<Array> {
    per_query(&padded_statistic(q, multiple)?, q)
}

/// The memory of such numbers, with the padding.
fn padded_statistic(q: &Array, multiple: usize) -> Result<Array> {
    let [b, h, t] = [q.dims()[0], q.dims()[1], q.dims()[2]];
    Array::empty(q.device(), &[b * h * t.next_multiple_of(multiple)], q.dtype().accumulator())
}

/// The numbers `[b, h, t]` in their memory.
pub(in crate::ops) fn per_query(padded: &Array, q: &Array) -> Result<Array> {
    let [b, h, t] = [q.dims()[0], q.dims()[1], q.dims()[2]];
    padded.narrow(0, 0, b * h * t)?.view(&[b, h, t])
}

/// Returns the queries, and elements of heads, in a tile of the query gradient: the kernel with the largest tiles for that width that fit into the
/// shared memory (PyTorch's `generate_kernels.py`). Also returns whether it sums the gradients of keys and values in registers.
fn efficient_tile(q: &Array, width: usize) -> ([usize; 2], bool) {
    let profile = q.device().profile();
    let (little, recent) = (has_little_shared_memory(profile), is_recent(profile));
    // Only these two compute capabilities have this kernel.
    let has_128_by_64_of_96 = matches!(profile.compute_capability, Some(86 | 89));
    match (q.dtype().is_half(), width) {
        (_, ..=64) => ([64, 64], true),
        (half, _) if !divides_keys(profile) => ([64, 64], !half),
        (false, _) if little || !recent => ([64, 64], true),
        (false, _) => ([128, 64], true),
        (true, ..=96) if has_128_by_64_of_96 => ([128, 64], true),
        (true, ..=WIDEST_IN_REGISTERS) if little => ([64, 64], false),
        (true, ..=WIDEST_IN_REGISTERS) if recent => ([128, 128], true),
        (true, ..=WIDEST_IN_REGISTERS) => ([128, 64], true),
        (true, _) => ([128, 64], false),
    }
}

/// Bytes of workspace. Each head has, per tile of queries, 16 bytes of locks and a tile of their gradient in f32 (not if a block goes through all
/// keys and the gradient itself is f32: then it adds to the gradient). It also has gradients of keys and values in f32, if 16-bit ones are too wide
/// for registers.
fn efficient_workspace(q: &Array, k: &Array, v: &Array) -> usize {
    let [t, d, s, dv] = [q.dims()[2], q.dims()[3], k.dims()[2], v.dims()[3]];
    let divides = divides_keys(q.device().profile());
    let ([queries, elements], in_registers) = efficient_tile(q, d.max(dv));
    let own = if divides || q.dtype().is_half() {
        t.div_ceil(queries) * d.div_ceil(elements) * (16 + queries * elements * 4)
    } else {
        0
    };
    if in_registers {
        return own;
    }
    let heads = (q.dims()[0] * q.dims()[1]).max(1);
    let tiles = if divides { s.div_ceil(EFFICIENT_KEYS).min(MAX_SUMMED_TILES / heads).max(1) } else { 1 };
    own + tiles * EFFICIENT_KEYS * (d.next_multiple_of(queries) + dv.next_multiple_of(queries)) * 4
}

/// True if several blocks divide the keys among themselves in the gradient: from compute capability 7.0 on (`kEnableSplitKeys` in PyTorch's
/// `kernel_backward.h`).
fn divides_keys(profile: &Profile) -> bool {
    profile.compute_capability.is_none_or(|sm| sm >= 70)
}

/// Allocates gradients of values and keys, returned in this order and made in the other, with a head for every query head, if there are fewer
/// heads of keys.
fn for_every_head(q: &Array, k: &Array, v: &Array) -> Result<SmallVec<[Array; 2]>> {
    let [b, h] = [q.dims()[0], q.dims()[1]];
    let mut gradients = SmallVec::new();
    if k.dims()[1] != h {
        for x in [k, v] {
            gradients.insert(0, Array::empty(q.device(), &[b, x.dims()[2], h, x.dims()[3]], q.dtype())?);
        }
    }
    Ok(gradients)
}

/// True if the memory-efficient kernel computes `delta` itself: kernels for 16 bits do, except for wide heads on compute capability 7.0.
fn computes_delta(q: &Array, width: usize) -> bool {
    let old = q.device().profile().compute_capability.is_some_and(|sm| (70..75).contains(&sm));
    q.dtype().is_half() && !(old && width > WIDEST_IN_REGISTERS)
}

/// If the kernel [does not](computes_delta) compute `delta`, makes it by a product, a sum and a copy; 16-bit gradients and results are converted to
/// f32 first. Then allocates the [workspace](efficient_workspace).
fn efficient(q: &Array, k: &Array, v: &Array, repeated: SmallVec<[Array; 2]>) -> Result<Scratch> {
    let [b, h, t] = [q.dims()[0], q.dims()[1], q.dims()[2]];
    let dv = v.dims()[3];
    let computed = computes_delta(q, q.dims()[3].max(dv));
    let wide = |op| context::within(op, || Array::empty(q.device(), &[b, t, h, dv], q.dtype().accumulator()));
    let sum = || context::within("sum", || Array::empty(q.device(), &[b, t, h], q.dtype().accumulator()));
    // In the order of freeing.
    let mut product: SmallVec<[Array; 4]> = SmallVec::new();
    if !computed {
        for op in if q.dtype().is_half() { &["to>_to_copy", "to>_to_copy", "mul"][..] } else { &["mul"] } {
            product.insert(0, wide(op)?);
        }
        product.insert(0, sum()?);
    }
    // With one head, or one position, the transposed sums are laid out as needed already.
    let delta = match product.len() {
        0 => context::within(Algorithm::Efficient.gradient_op(), || row_statistic(q, 1))?,
        _ if h == 1 || t == 1 => product.remove(0).view(&[b, h, t])?,
        _ => context::within("clone", || row_statistic(q, 1))?,
    };
    context::within(Algorithm::Efficient.gradient_op(), || drop(product));
    let bytes = b * h * efficient_workspace(q, k, v);
    let make = || Array::empty(q.device(), &[bytes], DType::U8);
    let workspace = (bytes > 0).then(|| context::within(Algorithm::Efficient.gradient_op(), make)).transpose()?;
    let mut held: SmallVec<[Array; 4]> = smallvec![delta.clone()];
    held.extend(workspace.clone());
    held.extend(repeated);
    Ok(Scratch { delta, grad: None, held, workspace })
}

/// Allocates `delta` for queries in multiples of 128, the query gradient in f32 with [rounded](flash_width) head sizes, and for grouped
/// queries the gradients of keys and values of every query head.
fn flash(q: &Array, k: &Array, v: &Array) -> Result<Scratch> {
    let _op = context::op(Algorithm::Flash.gradient_op());
    let [b, h, t, d] = [q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]];
    let delta = row_statistic(q, 128)?;
    let sum =
        Array::empty(q.device(), &[b, t.next_multiple_of(128), h, flash_width(q.device().profile(), d)], DType::F32)?;
    let mut held: SmallVec<[Array; 4]> = for_every_head(q, k, v)?.into_iter().collect();
    held.extend([sum.clone(), delta.clone()]);
    Ok(Scratch { delta, grad: None, held, workspace: Some(sum) })
}

/// Bytes of workspace that a plan of cuDNN takes for itself, from the profile.
fn plan_bytes(device: &Device) -> usize {
    device.profile().cudnn_workspace_bytes().unwrap_or(0) as usize
}

/// Bytes of the gradients of keys and values of every query head, which cuDNN's plan keeps in its workspace if there are fewer heads of keys. Measured
/// with cuDNN 9.19 of PyTorch 2.11's wheel.
fn repeated_bytes([q, k, v]: [&Array; 3]) -> usize {
    let [b, h] = [q.dims()[0], q.dims()[1]];
    let of_every_head = |x: &Array| b * h * x.dims()[2] * x.dims()[3] * q.dtype().size() as usize;
    let repeats = k.dims()[1] != h && q.device().profile().cudnn_attention_repeats_gradients;
    if repeats { of_every_head(k) + of_every_head(v) } else { 0 }
}

/// Copies the gradient to the layout of the result if its rows are not contiguous. Then allocates the workspace, in which cuDNN's front end keeps the
/// query gradient and `delta`, in f32.
fn cudnn([q, k, v]: [&Array; 3], out: &Array, grad: &Array) -> Result<Scratch> {
    let [b, h, t, d] = [q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]];
    let copy = if has_rows(grad) { None } else { Some(context::within("clone", || laid_out_as(grad, out))?) };
    let sums = b * h * t * d * DType::F32.size() as usize;
    let statistics = b * h * t * DType::F32.size() as usize;
    let of_plan = repeated_bytes([q, k, v]) + plan_bytes(q.device());
    let make = || Array::empty(q.device(), &[sums + statistics + of_plan], DType::U8);
    let workspace = context::within(Algorithm::Cudnn.gradient_op(), make)?;
    let delta = workspace.narrow(0, sums, statistics)?.of_type(DType::F32)?.view(&[b, h, t])?;
    let held = std::iter::once(workspace.clone()).chain(copy.clone()).collect();
    Ok(Scratch { delta, grad: copy, held, workspace: Some(workspace.narrow(0, 0, sums)?) })
}

/// True if the positions of a head are contiguous, head after head.
fn has_heads_outside(x: &Array) -> bool {
    x.layout().strides()[1] >= x.layout().strides()[2]
}

/// Copies `x` to memory of its own, laid out as `like`.
fn laid_out_as(x: &Array, like: &Array) -> Result<Array> {
    if has_heads_outside(like) { x.contiguous() } else { by_position(x) }
}

/// Returns `x` position by position: copied unless the heads of each position are contiguous already.
fn by_position(x: &Array) -> Result<Array> {
    x.transpose(1, 2)?.contiguous()?.transpose(1, 2)
}

/// True if the last dimension is contiguous.
fn has_rows(x: &Array) -> bool {
    x.layout().strides()[3] == 1 || x.dims()[3] <= 1
}

/// Returns the same array if its last dimension is contiguous, else a copy.
pub(in crate::ops) fn with_rows(x: &Array) -> Result<Array> {
    if has_rows(x) { Ok(x.clone()) } else { x.copied() }
}

/// Elements of a head of width `d` in flash attention's own memory: a multiple of 32, or above 128 of the profile's number.
fn flash_width(profile: &Profile, d: usize) -> usize {
    d.next_multiple_of(if d <= 128 { 32 } else { profile.wide_flash_multiple })
}

/// Number of parts into which flash attention divides `blocks` blocks of keys, with `tiles` tiles of queries for `slots` places on the card. One
/// part if the tiles nearly fill the places. Otherwise the fewest parts that leave hardly more places empty, in the last round, than the best
/// division.
fn parts_of_keys(tiles: usize, slots: usize, blocks: usize) -> usize {
    if tiles as f32 >= 0.8 * slots as f32 {
        return 1;
    }
    // A division is the same as that into one part fewer if both have equally many blocks per part.
    let divides = |parts: &usize| *parts == 1 || blocks.div_ceil(*parts) != blocks.div_ceil(parts - 1);
    let filled = |parts: usize| {
        let rounds = (tiles * parts) as f32 / slots as f32;
        rounds / rounds.ceil()
    };
    let divisions = || (1..=blocks.min(slots).min(128)).filter(divides);
    let best = divisions().map(filled).fold(0.0, f32::max);
    divisions().find(|&parts| filled(parts) >= 0.85 * best).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::Meta;

    /// Workspaces of all heads, in float16, recorded with torch 2.11: examples, heads, queries, keys, elements.
    #[test]
    fn wide_heads_sum_in_as_many_tiles_as_were_recorded() {
        for (sm, [b, h, t, s, d], recorded) in [
            (80, [1, 4, 200, 200, 160], 2_883_968),
            (80, [8, 8, 64, 1024, 160], 31_460_352),
            (80, [4, 64, 64, 130, 160], 58_732_544),
            (80, [4, 63, 64, 100, 160], 57_814_848),
            (80, [2, 20, 64, 512, 256], 31_459_840),
            (80, [8, 8, 64, 1024, 128], 4_195_328),
            (86, [8, 8, 64, 1024, 128], 14_682_112),
        ] {
            let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(sm)).build();
            let array = |n: usize| Array::empty(&device, &[b, h, n, d], DType::F16).unwrap();
            let keys = array(s);
            let found = b * h * efficient_workspace(&array(t), &keys, &keys);
            assert_eq!(found, recorded, "{:?} on {sm}", [b, h, t, s, d]);
        }
    }
}
