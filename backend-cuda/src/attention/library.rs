//! Attention as cuDNN is asked for it: of 16 bits, without a mask.

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

/// Operands by the library's names.
type Placed<'a> = [(Place, &'a Operand)];

/// What both directions are told.
fn shape(
    direction: Direction,
    (scale, causal): (f64, bool),
    [q, k, v]: [&Operand; 3],
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
    }
}

/// The stride of an axis; of a single matrix or row one that fits all.
fn stride(operand: &Operand, axis: usize) -> i64 {
    if operand.dims()[axis] == 1 { operand.dims()[3] as i64 } else { operand.layout.strides()[axis] as i64 }
}

/// The addresses of operands, if they are aligned as the library wants them.
fn places(ctx: &Context<'_>, placed: &Placed<'_>) -> Result<Option<[u64; OPERANDS]>> {
    const ALIGNMENT: u64 = 16;
    let mut places = [0; OPERANDS];
    for (place, operand) in placed {
        places[*place as usize] = ctx.at(operand)?;
    }
    Ok(places.iter().all(|place| place.is_multiple_of(ALIGNMENT)).then_some(places))
}

/// The call for forward, unless the library is not asked.
///
/// # Errors
/// An operand in no segment.
pub(super) fn forward(ctx: &Context<'_>, k: &Attention) -> Result<Option<Call>> {
    let mut placed = vec![(Place::Query, &k.q), (Place::Key, &k.k), (Place::Value, &k.v), (Place::Out, &k.out)];
    let direction = Direction::Forward { statistics: k.logsumexp.is_some() };
    let shape = shape(direction, (k.scale, k.causal), [&k.q, &k.k, &k.v], &placed);
    placed.extend(k.logsumexp.as_ref().map(|logsumexp| (Place::Statistics, logsumexp)));
    if k.mask.is_some() {
        return Ok(None);
    }
    let Some(shape) = fitting(ctx, shape, ctx.scratch.bytes) else { return Ok(None) };
    let Some(places) = places(ctx, &placed)? else { return Ok(None) };
    Ok(Some(Call { task: Task::Attention(shape), places, workspace: ctx.scratch }))
}

/// The operands of backward whose layouts matter, and its shape in one call.
fn of_backward(k: &AttentionGrad) -> (Vec<(Place, &Operand)>, AttentionShape) {
    let mut placed = vec![(Place::Query, &k.q), (Place::Key, &k.k), (Place::Value, &k.v), (Place::Out, &k.out)];
    placed.extend([
        (Place::Grad, &k.grad),
        (Place::QueryGrad, &k.dq),
        (Place::KeyGrad, &k.dk),
        (Place::ValueGrad, &k.dv),
    ]);
    let shape = shape(Direction::Backward, (k.scale, k.causal), [&k.q, &k.k, &k.v], &placed);
    placed.extend([(Place::Statistics, &k.logsumexp), (Place::Sums, &k.delta)]);
    (placed, shape)
}

/// The call for backward, unless the library is not asked.
///
/// # Errors
/// An operand in no segment.
pub(super) fn backward(ctx: &Context<'_>, k: &AttentionGrad) -> Result<Option<Call>> {
    if k.mask.is_some() || k.dmask.is_some() {
        return Ok(None);
    }
    let (placed, shape) = of_backward(k);
    let workspace = match &k.workspace {
        Some(given) if given.region.len > ctx.scratch.bytes => {
            Scratch { address: ctx.at(given)?, bytes: given.region.len }
        }
        _ => ctx.scratch,
    };
    let Some(shape) = fitting(ctx, shape, workspace.bytes) else { return Ok(None) };
    let Some(places) = places(ctx, &placed)? else { return Ok(None) };
    Ok(Some(Call { task: Task::Attention(shape), places, workspace }))
}

/// Bytes of workspace that the library wants for backward, besides the backend's scratch. The context is current.
pub(crate) fn workspace_bytes(ctx: &Context<'_>, k: &AttentionGrad) -> u64 {
    if k.mask.is_some() || k.dmask.is_some() {
        return 0;
    }
    let (placed, shape) = of_backward(k);
    if places(ctx, &placed).ok().flatten().is_none() {
        return 0;
    }
    let Some(dnn) = ctx.libraries.dnn else { return 0 };
    let Some(shape) = fitting(ctx, shape, MOST_WORKSPACE) else { return 0 };
    let names = by_cudnn::names(ctx, Family::AttentionTensor);
    let wanted = dnn.plan(ctx.queue, names, &Task::Attention(shape)).map_or(0, |planned| planned.workspace_bytes);
    // As much as was guessed, so that the same number of batches fits again.
    let wanted = wanted.max(shape.scores_bytes());
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
