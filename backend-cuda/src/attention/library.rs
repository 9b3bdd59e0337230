//! Attention as cuDNN is asked for it: of 16 bits, without a gradient of the mask.

use memcore::backend::Operand;
use memcore::backend::kernel::{Attention, AttentionGrad};
use memcore::{DType, Result};

use crate::by_cudnn;
use crate::cudnn::{AttentionShape, Call, Direction, OPERANDS, Operand as Place, Task};
use crate::kernel::Family;
use crate::launch::{Context, Scratch};

/// The most memory that backward's workspace may take, of which the scores' gradients are all but a little: with more, batches are
/// computed one after another.
const MOST_WORKSPACE: u64 = (256 << 20) + (1 << 20);

/// Attentions of fewer multiplications are not worth the seconds in which the library compiles a kernel for their shape.
const FEW_PRODUCTS: u64 = 1 << 22;

/// Every address is a multiple of this.
const ALIGNMENT: u64 = 16;

/// So is the library's workspace of this.
const WORKSPACE_ALIGNMENT: u64 = 256;

/// Operands by the library's names.
type Placed<'a> = [(Place, &'a Operand)];

/// A call, and where its rows' statistics lie.
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) statistics: u64,
}

/// What both directions are told.
fn shape(
    direction: Direction,
    (scale, causal): (f64, bool),
    [q, k, v]: [&Operand; 3],
    mask: Option<&Operand>,
    placed: &Placed<'_>,
) -> AttentionShape {
    let (qd, kd) = (q.dims(), k.dims());
    let mut strides = [[0; 3]; OPERANDS];
    for (place, operand) in placed {
        strides[*place as usize] = [0, 1, 2].map(|axis| stride(operand, axis));
    }
    AttentionShape {
        direction,
        dtype: q.dtype,
        causal,
        scale: (scale as f32).to_bits(),
        batches: qd[0],
        calls: 1,
        heads: qd[1],
        key_heads: kd[1],
        queries: qd[2],
        keys: kd[2],
        depth: qd[3],
        value_depth: v.dims()[3],
        strides,
        mask: mask.map(mask_axes),
    }
}

/// Sizes and strides of a mask: what is repeated has a stride of 0, which the library does not know.
fn mask_axes(mask: &Operand) -> [(usize, i64); 4] {
    std::array::from_fn(|axis| match mask.layout.strides()[axis] as i64 {
        0 => (1, 1),
        stride => (mask.dims()[axis], stride),
    })
}

/// The stride of an axis; of a single matrix or row one that fits all.
fn stride(operand: &Operand, axis: usize) -> i64 {
    if operand.dims()[axis] == 1 { operand.dims()[3] as i64 } else { operand.layout.strides()[axis] as i64 }
}

/// The addresses of operands, if they are aligned as the library wants them.
fn places(ctx: &Context<'_>, placed: &Placed<'_>) -> Result<Option<[u64; OPERANDS]>> {
    let mut places = [0; OPERANDS];
    for (place, operand) in placed {
        places[*place as usize] = ctx.at(operand)?;
    }
    Ok(places.iter().all(|place| place.is_multiple_of(ALIGNMENT)).then_some(places))
}

/// Memory for a float of each row, at the end of the workspace; and the workspace before it. `None` if there is too little.
fn rows_behind(workspace: Scratch, bytes: u64) -> Option<(u64, Scratch)> {
    let before = workspace.bytes.checked_sub(bytes)? & !(WORKSPACE_ALIGNMENT - 1);
    Some((workspace.address + before, Scratch { bytes: before, ..workspace }))
}

/// The call for forward, unless the library is not asked.
///
/// # Errors
/// An operand in no segment.
pub(super) fn forward(ctx: &Context<'_>, k: &Attention) -> Result<Option<Asked>> {
    let mut placed = vec![(Place::Query, &k.q), (Place::Key, &k.k), (Place::Value, &k.v), (Place::Out, &k.out)];
    // Which rows a mask hides is seen by their statistics.
    let direction = Direction::Forward { statistics: k.logsumexp.is_some() || k.mask.is_some() };
    let shape = shape(direction, (k.scale, k.causal), [&k.q, &k.k, &k.v], k.mask.as_ref(), &placed);
    placed.extend(k.mask.as_ref().map(|mask| (Place::Mask, mask)));
    let behind = if k.logsumexp.is_none() && k.mask.is_some() { shape.rows_bytes() } else { 0 };
    let Some((behind, workspace)) = rows_behind(ctx.scratch, behind) else { return Ok(None) };
    let Some(shape) = fitting(ctx, shape, workspace.bytes) else { return Ok(None) };
    let Some(mut places) = places(ctx, &placed)? else { return Ok(None) };
    let statistics = k.logsumexp.as_ref().map_or(Ok(behind), |logsumexp| ctx.at(logsumexp))?;
    places[Place::Statistics as usize] = statistics;
    let call = Call { task: Task::Attention(shape), places, workspace };
    Ok(statistics.is_multiple_of(ALIGNMENT).then_some(Asked { call, statistics }))
}

/// The operands of backward, and its shape in one call.
fn of_backward(k: &AttentionGrad) -> (Vec<(Place, &Operand)>, AttentionShape) {
    let mut placed = vec![(Place::Query, &k.q), (Place::Key, &k.k), (Place::Value, &k.v), (Place::Out, &k.out)];
    placed.extend([
        (Place::Grad, &k.grad),
        (Place::QueryGrad, &k.dq),
        (Place::KeyGrad, &k.dk),
        (Place::ValueGrad, &k.dv),
    ]);
    let shape = shape(Direction::Backward, (k.scale, k.causal), [&k.q, &k.k, &k.v], k.mask.as_ref(), &placed);
    placed.extend([(Place::Statistics, &k.logsumexp), (Place::Sums, &k.delta)]);
    placed.extend(k.mask.as_ref().map(|mask| (Place::Mask, mask)));
    (placed, shape)
}

/// Bytes for the statistics that backward with a mask changes for the library.
fn changed_bytes(k: &AttentionGrad, shape: &AttentionShape) -> u64 {
    if k.mask.is_some() { shape.rows_bytes() } else { 0 }
}

/// The call for backward, unless the library is not asked.
///
/// # Errors
/// An operand in no segment.
pub(super) fn backward(ctx: &Context<'_>, k: &AttentionGrad) -> Result<Option<Asked>> {
    if k.dmask.is_some() {
        return Ok(None);
    }
    let (placed, shape) = of_backward(k);
    let workspace = match &k.workspace {
        Some(given) if given.region.len > ctx.scratch.bytes => {
            Scratch { address: ctx.at(given)?, bytes: given.region.len }
        }
        _ => ctx.scratch,
    };
    let Some((behind, workspace)) = rows_behind(workspace, changed_bytes(k, &shape)) else { return Ok(None) };
    let Some(shape) = fitting(ctx, shape, workspace.bytes) else { return Ok(None) };
    let Some(mut places) = places(ctx, &placed)? else { return Ok(None) };
    if k.mask.is_some() {
        places[Place::Statistics as usize] = behind;
    }
    let call = Call { task: Task::Attention(shape), places, workspace };
    Ok(Some(Asked { call, statistics: places[Place::Statistics as usize] }))
}

/// Bytes of workspace that the library wants for backward, if the backend's scratch is too small. The context is current.
pub(crate) fn workspace_bytes(ctx: &Context<'_>, k: &AttentionGrad) -> u64 {
    let (placed, shape) = of_backward(k);
    if k.dmask.is_some() || places(ctx, &placed).ok().flatten().is_none() {
        return 0;
    }
    let Some(dnn) = ctx.libraries.dnn else { return 0 };
    let changed = changed_bytes(k, &shape);
    let Some(shape) = fitting(ctx, shape, MOST_WORKSPACE) else { return 0 };
    let names = by_cudnn::names(ctx, Family::AttentionTensor);
    let wanted = dnn.plan(ctx.queue, names, &Task::Attention(shape)).map_or(0, |planned| planned.workspace_bytes);
    // As much as was guessed, so that the same number of batches fits again; and what is cut off for the alignment.
    let changed = if changed > 0 { changed + WORKSPACE_ALIGNMENT } else { 0 };
    let wanted = wanted.max(shape.scores_bytes()).next_multiple_of(WORKSPACE_ALIGNMENT) + changed;
    if wanted <= ctx.scratch.bytes { 0 } else { wanted }
}

/// The shape in as few calls as there is room for. `None` if the library refuses it, or was slower.
fn fitting(ctx: &Context<'_>, shape: AttentionShape, room: u64) -> Option<AttentionShape> {
    let dnn = ctx.libraries.dnn?;
    if !matches!(shape.dtype, DType::F16 | DType::BF16) || !shape.may_be_taken(dnn.version(), ctx.properties.capability)
    {
        return None;
    }
    if dnn.is_timed() && shape.products() < FEW_PRODUCTS {
        return None;
    }
    let names = by_cudnn::names(ctx, Family::AttentionTensor);
    let all = shape.batches;
    let most = match shape.direction {
        Direction::Forward { .. } => all,
        Direction::Backward => (room / shape.in_calls_of(1).scores_bytes().max(1)).min(all as u64) as usize,
    };
    for batches in (1..=most).rev().filter(|batches| all.is_multiple_of(*batches)) {
        let divided = shape.in_calls_of(batches);
        // What is refused in one size is refused in all.
        let planned = dnn.plan(ctx.queue, names, &Task::Attention(divided))?;
        if planned.workspace_bytes <= room {
            return Some(divided);
        }
    }
    None
}
