//! An exponential moving average of the weights, beside the network.

use lab_base::named;
use memcore::backend::kernel::{Ternary, TernaryOp};
use memcore::memory::Category;
use memcore::nn::Parameter;
use memcore::{Array, Device, Result, context};

/// How much less of the average each update leaves.
const DECAY: f64 = 0.999;

/// What an average is of, and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ema {
    /// `torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn())`: a copy of the module, with its buffers.
    Model,
    /// `[p.detach().clone() for p in model.parameters()]`, each `e.lerp_(p, 0.001)` or `e.mul_(0.999).add_(p, alpha=0.001)` after a step.
    Parameters,
}

named!(Ema, "average of the weights", { Model = "model", Parameters = "parameters" });

/// Tensors of a network, of which an average is kept.
pub struct Averaged {
    /// Masks and the like, which the outermost module has.
    pub constants: Vec<Array>,
    /// Parameters in the order of `model.parameters()`.
    pub parameters: Vec<Parameter>,
    /// Buffers with their paths.
    pub buffers: Vec<(String, Array)>,
}

/// The average of a network.
pub(super) struct Average {
    device: Device,
    kind: Ema,
    /// Copies of the parameters.
    parameters: Vec<Array>,
    /// Copies of constants, then of buffers, in the order of the network's.
    buffers: Vec<Array>,
    updates: usize,
}

impl Average {
    /// Copies the network.
    pub(crate) fn new(kind: Ema, of: &Averaged, device: &Device) -> Result<Self> {
        let _scope = context::scope(device.scope("ema"));
        let mut average =
            Self { device: device.clone(), kind, parameters: Vec::new(), buffers: Vec::new(), updates: 0 };
        if kind == Ema::Parameters {
            average.parameters =
                of.parameters.iter().map(|parameter| cloned(parameter.array())).collect::<Result<_>>()?;
            return Ok(average);
        }
        // A module is copied with its parameters, its buffers, then its children.
        average.buffers = of.constants.iter().map(copied_storage).collect::<Result<_>>()?;
        let mut copies: Vec<Option<Array>> = vec![None; of.buffers.len()];
        for (i, parameter) in of.parameters.iter().enumerate() {
            average.parameters.push(cloned(parameter.array())?);
            let module = module_of(parameter.path());
            if of.parameters.get(i + 1).is_none_or(|next| module_of(next.path()) != module) {
                let own = of.buffers.iter().zip(&mut copies).filter(|((path, _), _)| module_of(path) == module);
                for ((_, buffer), copy) in own {
                    *copy = Some(copied_storage(buffer)?);
                }
            }
        }
        for ((_, buffer), copy) in of.buffers.iter().zip(copies) {
            average.buffers.push(copy.map_or_else(|| copied_storage(buffer), Ok)?);
        }
        Ok(average)
    }

    /// Takes the network's values after a step into the average.
    pub(crate) fn update(&mut self, of: &Averaged) -> Result<()> {
        let device = &self.device;
        let _scope = context::scope(device.scope("ema"));
        // `AveragedModel` begins with the values of its first update, and has its count on the host.
        let first = self.kind == Ema::Model && self.updates == 0;
        let count = match self.kind {
            Ema::Model if !first => {
                let _op = context::op("to>_to_copy");
                Some(Array::full(device, &[], memcore::DType::I64, self.updates as f64)?)
            }
            _ => None,
        };
        for (copy, parameter) in self.parameters.iter().zip(&of.parameters) {
            let value = parameter.array();
            if first {
                copy.copy_(value)?;
            } else {
                let (op, own, value) = (TernaryOp::Lerp { weight: 1.0 - DECAY }, copy.operand(), value.operand());
                device.launch(Ternary { op, a: own, b: value, c: value, out: own })?;
            }
        }
        drop(count);
        let buffers = of.constants.iter().chain(of.buffers.iter().map(|(_, buffer)| buffer));
        self.buffers.iter().zip(buffers).try_for_each(|(copy, buffer)| copy.copy_(buffer))?;
        self.updates += 1;
        Ok(())
    }
}

/// `Parameter.__deepcopy__`, or `clone()`.
fn cloned(array: &Array) -> Result<Array> {
    let _op = context::op("clone");
    copy_as_buffer(array)
}

/// `Tensor.__deepcopy__` of a tensor that is not a parameter: its storage, and a tensor of one element that is given that storage.
fn copied_storage(array: &Array) -> Result<Array> {
    let copy = copy_as_buffer(array)?;
    let _op = context::op("new_empty");
    drop(Array::empty(array.device(), &[], array.dtype())?);
    Ok(copy)
}

fn copy_as_buffer(array: &Array) -> Result<Array> {
    let copy = Array::empty_as(array.device(), array.dims(), array.dtype(), Category::Buffer)?;
    copy.copy_(array)?;
    Ok(copy)
}

fn module_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(module, _)| module)
}
