//! Recurrent networks as PyTorch runs them with cuDNN. Predicted only: a device that computes takes the composition of operators.
//!
//! The allocations are those of `_cudnn_rnn`, `_cudnn_rnn_backward_input` and `_cudnn_rnn_backward_weight` in `aten/src/ATen/native/cudnn/RNN.cpp`, and under
//! autocast of `_cudnn_rnn_cast_reflatten` in `aten/src/ATen/cudnn/AutocastRNN.cpp`, in their order. How large they are: [`cudnn_sizes`].

use std::sync::Arc;

use cudnn_sizes::Sizes;
use smallvec::{SmallVec, smallvec};

use super::algorithm::{algorithm, sizes};
use super::network::{Cell, FlatWeights, Recurrent};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, autocast_dtype, record, record_many};
use crate::context;
use crate::deviation::Deviation;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::autocast::{casts, lower};
use crate::ops::pointwise::cast::cast;

/// A network, and what it is given.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Network {
    pub(in crate::ops) op: &'static str,
    pub(in crate::ops) cell: Cell,
    pub(in crate::ops) options: Recurrent,
}

/// True if PyTorch takes cuDNN's network for this input: `cudnn_is_acceptable`, and for bfloat16 `supportsBFloat16RNNWithCuDNN`.
pub(in crate::ops) fn takes(x: &Tensor) -> bool {
    let device = x.device();
    let has_bfloat16 = device.profile().compute_capability.is_some_and(|sm| sm >= 80);
    let suits = match x.dtype() {
        DType::F64 | DType::F32 | DType::F16 => true,
        DType::BF16 => has_bfloat16,
        _ => false,
    };
    let has_cudnn = suits && x.numel() > 0 && device.has_cudnn_or(Deviation::RecurrentWithoutCudnn);
    if has_cudnn && device.computes() {
        device.recorded_deviations().record(Deviation::RecurrentWithoutCudnn);
    }
    has_cudnn && !device.computes()
}

/// Runs a network whose shapes fit together. Returns the outputs, and the last states of each kind.
///
/// # Errors
/// [`Error::Invalid`] where PyTorch fails: several types, states with gaps. Errors of the device.
pub(in crate::ops) fn run(
    network: Network,
    x: &Tensor,
    states: &[&Tensor],
    weights: &[&Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    let _op = context::op(network.op);
    let flat = network.flat(states, weights)?;
    if network.options.training && network.options.dropout > 0.0 {
        x.device().keep_dropout_state()?;
    }
    let _op = context::op("_cudnn_rnn");
    if autocast_dtype().is_none() {
        return network.call(x, states, weights, flat);
    }
    let flattened = if casts(weights[0].dtype(), HALF) { Some(network.in_half(states, weights)?) } else { None };
    // C++ evaluates the arguments from the last to the first.
    let mut lowered = states.iter().rev().map(|state| half(state)).collect::<Result<SmallVec<[Tensor; 2]>>>()?;
    lowered.reverse();
    let x = half(x)?;
    let states: SmallVec<[&Tensor; 2]> = lowered.iter().collect();
    match &flattened {
        Some((buffer, parts)) => network.call(&x, &states, &parts.iter().collect::<Vec<_>>(), Some(buffer.clone())),
        None => network.call(&x, &states, weights, flat),
    }
}

/// The type of cuDNN's networks under autocast: `_cudnn_rnn_cast_reflatten` names it, whichever type autocast has.
const HALF: DType = DType::F16;

/// Casts an operand under autocast. Only a cast to autocast's own type is cached.
fn half(x: &Tensor) -> Result<Tensor> {
    match autocast_dtype() {
        Some(HALF) => lower(x),
        _ if casts(x.dtype(), HALF) => cast(x, HALF),
        _ => Ok(x.clone()),
    }
}

impl Network {
    fn sizes(&self, x: &Tensor, states: &[&Tensor]) -> Result<Sizes> {
        let width = states[0].dims().last().copied().unwrap_or_default();
        let sizes = sizes(self.cell, (x.dims(), x.dtype()), width, self.options);
        sizes.ok_or_else(|| Error::shape(self.op, format!("{:?}: expected three dimensions", x.dims())))
    }

    /// The memory of the weights, if they lie in one buffer as cuDNN wants them (`try_get_weight_buf`): `flatten_parameters` has put them there.
    fn flat(&self, states: &[&Tensor], weights: &[&Tensor]) -> Result<Option<Array>> {
        let first = weights[0].array();
        let expected = self.places(states, &weights.iter().map(|weight| weight.dims()).collect::<Vec<_>>())?.starts;
        let lies_there = |(weight, start): (&&Tensor, usize)| {
            Arc::ptr_eq(weight.array().storage(), first.storage()) && weight.array().start_after(first) == start
        };
        Ok(weights.iter().zip(expected).all(lies_there).then(|| first.clone()))
    }

    fn places(&self, states: &[&Tensor], dims: &[&[usize]]) -> Result<FlatWeights> {
        let cells = states[0].dims().first().copied().unwrap_or_default();
        let places = FlatWeights::from_dims(dims, dims.len() == 4 * cells);
        places.ok_or_else(|| Error::shape(self.op, format!("{} weights", dims.len())))
    }

    /// Copies the weights into one buffer in float16. Each copy has a history of its own, through which its gradient comes back.
    fn in_half(&self, states: &[&Tensor], weights: &[&Tensor]) -> Result<(Array, Vec<Tensor>)> {
        let dims: Vec<&[usize]> = weights.iter().map(|weight| weight.dims()).collect();
        let places = self.places(states, &dims)?;
        let buffer = context::within("zeros", || Array::zeros(weights[0].device(), &[places.elements], HALF))?;
        let parts = parts(&buffer, &places, &dims)?;
        for (part, weight) in parts.iter().zip(weights) {
            part.copy_(weight.array())?;
        }
        let with_history = |(part, weight): (Array, &&Tensor)| {
            record(part, &[weight], |_| Ok(Box::new(CopyBackwards { dtype: weight.dtype() })))
        };
        let parts = parts.into_iter().zip(weights).map(with_history).collect::<Result<Vec<_>>>()?;
        Ok((buffer, parts))
    }

    /// `_cudnn_rnn` itself, on tensors of one type. `flat` is the buffer of the weights, if they are in one.
    fn call(
        &self,
        x: &Tensor,
        states: &[&Tensor],
        weights: &[&Tensor],
        flat: Option<Array>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        self.check(x, states, weights)?;
        let sizes = self.sizes(x, states)?;
        let Sizes { steps, batch, width, directions, .. } = sizes;
        let places = self.places(states, &weights.iter().map(|weight| weight.dims()).collect::<Vec<_>>())?;
        let device = x.device();
        let ordered = if self.options.batch_first { x.array().transpose(0, 1)? } else { x.array().clone() };
        let ordered = ordered.contiguous()?;
        let out = Array::empty(device, &[steps, batch, directions * width], x.dtype())?;
        let last = states.iter().map(|state| state.array().empty_like()).collect::<Result<Vec<_>>>()?;
        let buffer = match flat {
            Some(flat) => flat,
            None => compacted(&places, weights)?,
        };
        let training = self.options.training;
        let algorithm = algorithm(&sizes, device.profile(), true);
        let workspace = bytes(x, sizes.workspace(algorithm, training), Category::Workspace)?;
        let reserve = bytes(x, if training { sizes.reserve() } else { 0 }, Category::Temporary)?;
        drop(workspace);
        drop(ordered);
        let out = if self.options.batch_first { out.transpose(0, 1)? } else { out };
        let inputs: Vec<&Tensor> = std::iter::once(&x).chain(states).chain(weights).copied().collect();
        let outputs = std::iter::once(out.clone()).chain(last).collect();
        let mut made = record_many(outputs, &inputs, |saved| {
            save(saved, x, states, weights)?;
            saved.save("result0", &out)?;
            saved.save("result3", &reserve)?;
            saved.save("result4", &buffer)?;
            let (batch_first, training) = (self.options.batch_first, training);
            Ok(Box::new(CudnnRnnBackward { sizes, places, batch_first, training, states: states.len() }))
        })?;
        let out = made.remove(0);
        Ok((out, made))
    }

    /// Refuses what PyTorch refuses.
    fn check(&self, x: &Tensor, states: &[&Tensor], weights: &[&Tensor]) -> Result<()> {
        if let Some(other) = states.iter().chain(weights).find(|tensor| tensor.dtype() != x.dtype()) {
            let problem =
                format!("an input of {} with states or weights of {}, which PyTorch refuses", x.dtype(), other.dtype());
            return Err(Error::invalid(self.op, problem));
        }
        if states.iter().any(|state| !state.array().layout().is_contiguous()) {
            return Err(Error::invalid(self.op, "a first state is not contiguous, which PyTorch refuses with cuDNN"));
        }
        Ok(())
    }
}

/// Saves the operands in the order in which PyTorch frees them.
fn save(saved: &mut Recorder, x: &Tensor, states: &[&Tensor], weights: &[&Tensor]) -> Result<()> {
    for (state, role) in states.iter().zip(["hx", "cx"]) {
        saved.save(role, state.array())?;
    }
    saved.save("input", x.array())?;
    weights.iter().try_for_each(|weight| saved.save("weight", weight.array()))
}

/// Copies weights that are not in one buffer into a new one, as each call of PyTorch does.
fn compacted(places: &FlatWeights, weights: &[&Tensor]) -> Result<Array> {
    let buffer = Array::zeros(weights[0].device(), &[places.elements], weights[0].dtype())?;
    let dims: Vec<&[usize]> = weights.iter().map(|weight| weight.dims()).collect();
    for (part, weight) in parts(&buffer, places, &dims)?.iter().zip(weights) {
        part.copy_(weight.array())?;
    }
    Ok(buffer)
}

/// Parts of a buffer, one for each weight.
fn parts(buffer: &Array, places: &FlatWeights, dims: &[&[usize]]) -> Result<Vec<Array>> {
    let part = |(dims, start): (&&[usize], &usize)| {
        buffer.narrow(0, *start, dims.iter().product())?.view(dims).map(Array::keeping_base)
    };
    dims.iter().zip(&places.starts).map(part).collect()
}

fn bytes(like: &Tensor, count: usize, category: Category) -> Result<Array> {
    Array::empty_as(like.device(), &[count], DType::U8, category)
}

/// Gradient of a copy into the buffer in float16.
struct CopyBackwards {
    dtype: DType,
}

impl Function for CopyBackwards {
    fn name(&self) -> &'static str {
        "CopyBackwards"
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("to>_to_copy");
        Ok(smallvec![Some(grad.cast(self.dtype)?)])
    }
}

struct CudnnRnnBackward {
    sizes: Sizes,
    places: FlatWeights,
    batch_first: bool,
    training: bool,
    /// Number of states.
    states: usize,
}

impl Function for CudnnRnnBackward {
    fn name(&self) -> &'static str {
        "CudnnRnnBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        if !self.training {
            return Err(Error::invalid(
                "_cudnn_rnn_backward",
                "cudnn RNN backward can only be called in training mode",
            ));
        }
        let states = (0..self.states).map(|i| saved.get(i)).collect::<Result<SmallVec<[Array; 2]>>>()?;
        let count = self.places.starts.len();
        let (x, out) = (saved.get(self.states)?, saved.get(self.states + 1 + count)?);
        let weights = (0..count).map(|i| saved.get(self.states + 1 + i)).collect::<Result<Vec<_>>>()?;
        let _op = context::op("_cudnn_rnn_backward");
        let of_out = match &grads[0] {
            Some(grad) => grad.clone(),
            None => context::within("zeros_like", || Array::zeros(out.device(), out.dims(), out.dtype()))?,
        };
        let mut of_last = SmallVec::<[Array; 2]>::new();
        for (state, grad) in states.iter().zip(&grads[1..]) {
            of_last.push(match grad {
                Some(grad) => grad.clone(),
                None => context::within("zeros_like", || state.zeros_like())?,
            });
        }
        let mut made: Grads = self.of_inputs(&x, &states, &of_out, &of_last)?.into_iter().map(Some).collect();
        let first = 1 + self.states;
        if (0..count).any(|i| needs.input(first + i)) {
            made.extend(self.of_weights(&x, &weights)?.into_iter().map(Some));
        }
        while of_last.pop().is_some() {}
        drop(of_out);
        for (i, gradient) in made.iter_mut().enumerate() {
            *gradient = gradient.take().filter(|_| needs.input(i));
        }
        saved.done();
        Ok(made)
    }
}

impl CudnnRnnBackward {
    fn in_order(&self, x: &Array) -> Result<Array> {
        if self.batch_first { x.transpose(0, 1) } else { Ok(x.clone()) }
    }

    fn workspace(&self, x: &Array) -> Result<Array> {
        let algorithm = algorithm(&self.sizes, x.device().profile(), false);
        Array::empty_as(x.device(), &[self.sizes.workspace(algorithm, true)], DType::U8, Category::Workspace)
    }

    /// Gradients of the input and of the first states, whether they are wanted or not: cuDNN changes the reserve while it computes them.
    fn of_inputs(&self, x: &Array, states: &[Array], of_out: &Array, of_last: &[Array]) -> Result<Vec<Array>> {
        let ordered = self.in_order(x)?;
        let given = ordered.contiguous()?;
        let grad = self.in_order(of_out)?.contiguous()?;
        let of_x = Array::empty(x.device(), ordered.dims(), x.dtype())?;
        let of_last = of_last.iter().map(Array::contiguous).collect::<Result<SmallVec<[Array; 2]>>>()?;
        let of_first = states.iter().map(Array::empty_like).collect::<Result<Vec<_>>>()?;
        drop(self.workspace(x)?);
        drop(of_last);
        drop(grad);
        drop(given);
        Ok(std::iter::once(self.in_order(&of_x)?).chain(of_first).collect())
    }

    /// Gradients of the weights: parts of one buffer, or, without biases, copies of them.
    fn of_weights(&self, x: &Array, weights: &[Array]) -> Result<Vec<Array>> {
        let given = self.in_order(x)?.contiguous()?;
        let buffer = context::within("zeros", || Array::zeros(x.device(), &[self.places.elements], x.dtype()))?;
        let workspace = self.workspace(x)?;
        let dims: Vec<&[usize]> = weights.iter().map(Array::dims).collect();
        let made = if weights.len() == 4 * self.sizes.cells() {
            parts(&buffer, &self.places, &dims)?
        } else {
            weights.iter().map(Array::empty_like).collect::<Result<_>>()?
        };
        drop(workspace);
        drop(buffer);
        drop(given);
        Ok(made)
    }
}
