//! Creation of parameters: their device and type, their paths, which are trained, which layers have adapters.

mod created;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::adapted::{LayerKind, LowRank};
use super::converted::Converted;
use super::flats::Flats;
use super::parameter::{Copied, Fill, Parameter, write_f32};
use super::quantized::{Quantization, QuantizedWeight};
use super::slots::{ListSlot, Training, VariableSlot};
use super::split_mix::SplitMix64;
use crate::array::Array;
use crate::autograd::Tensor;
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::{Category, ScopeId};

/// Creates parameters, in order, under a path.
#[derive(Clone)]
pub struct Init {
    shared: Rc<Shared>,
    device: Device,
    path: String,
    /// Element type of the parameters.
    dtype: DType,
    /// One-dimensional arrays that the parameters are views of; `None` if parameters have memory of their own.
    flats: Option<Rc<Flats>>,
    /// Tells by their paths which parameters are not trained; `None` if all are.
    frozen: Option<Rc<IsFrozen>>,
    /// Tells by its path and kind which adapter a layer has; `None` if none has one.
    adapters: Option<Rc<AdapterOf>>,
    /// Tells by its path which module is copied, and the copy trained; `None` if none is.
    saved: Option<Rc<IsSaved>>,
    /// Tells by its path how a linear layer's weight is kept; `None` if all are as they are.
    quantizations: Option<Rc<QuantizationOf>>,
    /// The type of the weights of adapters that are new although the rest of the model exists already; `None` if nothing is added.
    adds: Option<DType>,
    /// True inside of such an adapter.
    is_new: bool,
}

/// How the weight of the layer at a path is kept.
type QuantizationOf = dyn Fn(&str) -> Option<Quantization>;

/// True for the path of a module that is copied.
type IsSaved = dyn Fn(&str) -> bool;

/// The adapter of the layer of a kind at a path.
type AdapterOf = dyn Fn(&str, LayerKind) -> Option<LowRank>;

/// True for the path of a parameter that is not trained.
type IsFrozen = dyn Fn(&str) -> bool;

struct Shared {
    seed: u64,
    /// Number of random streams used; each parameter takes one.
    streams: Cell<u64>,
    parameters: RefCell<Vec<Parameter>>,
    buffers: RefCell<Vec<(String, Array)>>,
    constants: RefCell<Vec<Array>>,
    /// Buffers that are neither saved nor converted.
    plain: RefCell<Vec<Array>>,
    /// Weights of bitsandbytes, and the table that all of them share.
    quantized: RefCell<Vec<QuantizedWeight>>,
    table: RefCell<Option<Array>>,
    copies: RefCell<Vec<Copied>>,
    training: Training,
    variables: RefCell<Vec<VariableSlot>>,
    lists: RefCell<Vec<ListSlot>>,
    /// Contents of the same model in another type or format, last first: new tensors are converted from them.
    before: RefCell<Converted>,
    /// True if the contents of the same model are put in channels-last, not in another type.
    channels_last: bool,
}

impl Init {
    /// Creates parameters of type `dtype` on `device`. Equal seeds give equal values on every device.
    pub fn new(device: &Device, dtype: DType, seed: u64) -> Self {
        Self::converting(device, dtype, seed, Converted::default())
    }

    /// Converts the parameters and buffers of an existing model to `dtype`, one by one, each old one freed after its
    /// new one exists: PyTorch's `model.to(dtype)`. Tensors that are not floats stay. The old model must be dropped
    /// first, and the same model must be built again with this.
    #[doc(hidden)]
    pub fn converting(device: &Device, dtype: DType, seed: u64, before: Converted) -> Self {
        Self::made_from(device, dtype, seed, before, false)
    }

    /// Puts the parameters, buffers and constants of four dimensions of an existing model in channels-last, as
    /// [`Init::converting`] converts types: PyTorch's `model.to(memory_format=torch.channels_last)`.
    #[doc(hidden)]
    pub fn in_channels_last(device: &Device, dtype: DType, seed: u64, before: Converted) -> Self {
        Self::made_from(device, dtype, seed, before, true)
    }

    fn made_from(device: &Device, dtype: DType, seed: u64, mut before: Converted, channels_last: bool) -> Self {
        before.parameters.reverse();
        before.buffers.reverse();
        before.constants.reverse();
        before.plain.reverse();
        before.quantized.reverse();
        let shared = Shared {
            seed,
            streams: Cell::new(0),
            parameters: RefCell::default(),
            buffers: RefCell::default(),
            constants: RefCell::default(),
            plain: RefCell::default(),
            quantized: RefCell::default(),
            table: RefCell::default(),
            copies: RefCell::default(),
            training: Training::on(),
            variables: RefCell::default(),
            lists: RefCell::default(),
            before: RefCell::new(before),
            channels_last,
        };
        Self {
            shared: Rc::new(shared),
            device: device.clone(),
            path: String::new(),
            dtype,
            flats: None,
            frozen: None,
            adapters: None,
            saved: None,
            quantizations: None,
            adds: None,
            is_new: false,
        }
    }

    /// Returns an `Init` for a path one name further down.
    #[must_use]
    pub fn at(&self, name: impl fmt::Display) -> Self {
        Self { path: self.join(&name), ..self.clone() }
    }

    /// Returns an `Init` with the same path on another device, for a model that is split over several. The values are
    /// the same as on one device.
    #[must_use]
    pub fn on(&self, device: &Device) -> Self {
        Self { device: device.clone(), ..self.clone() }
    }

    /// Returns an `Init` with the same path whose parameters are adjacent views of these one-dimensional arrays: flat
    /// parameters, as in FSDP and DeepSpeed. A parameter that does not fit into the rest of one array begins the next
    /// one.
    #[must_use]
    #[doc(hidden)]
    pub fn inside(&self, flats: Vec<Array>) -> Self {
        Self { flats: Some(Rc::new(Flats::new(flats))), ..self.clone() }
    }

    /// Returns an `Init` with the same path whose parameters have this element type.
    #[must_use]
    #[doc(hidden)]
    pub fn of_type(&self, dtype: DType) -> Self {
        Self { dtype, ..self.clone() }
    }

    /// Returns an `Init` with the same path whose parameters are not trained where this is true of their paths: `requires_grad_(False)`.
    #[must_use]
    pub fn freezing(&self, is_frozen: impl Fn(&str) -> bool + 'static) -> Self {
        Self { frozen: Some(Rc::new(is_frozen)), ..self.clone() }
    }

    /// Returns an `Init` with the same path whose layers have the low-rank adapters that this returns for their paths and kinds.
    #[must_use]
    pub fn adapting(&self, adapter: impl Fn(&str, LayerKind) -> Option<LowRank> + 'static) -> Self {
        Self { adapters: Some(Rc::new(adapter)), ..self.clone() }
    }

    /// Returns an `Init` with the same path in which a module is copied where this is true of its path: the copy is trained and computes, the original stays beside it
    /// (PEFT's `modules_to_save`).
    #[must_use]
    pub fn saving(&self, is_saved: impl Fn(&str) -> bool + 'static) -> Self {
        Self { saved: Some(Rc::new(is_saved)), ..self.clone() }
    }

    /// Returns an `Init` with the same path whose linear layers keep their weights as this returns for their paths.
    #[must_use]
    pub fn quantizing(&self, quantization: impl Fn(&str) -> Option<Quantization> + 'static) -> Self {
        Self { quantizations: Some(Rc::new(quantization)), ..self.clone() }
    }

    /// Returns an `Init` with the same path that adds adapters of this type to a model that exists already.
    #[must_use]
    #[doc(hidden)]
    pub fn adding(&self, dtype: DType) -> Self {
        Self { adds: Some(dtype), ..self.clone() }
    }

    /// Returns an `Init` with the same path for the weights of an adapter: float32 where the layer's are of 16 bits (`autocast_adapter_dtype=True`), and for a
    /// layer that is quantized, in a model that exists already, the type of what is added to it.
    pub(super) fn of_adapter(&self, quantized: bool) -> Self {
        let usual = if matches!(self.dtype, DType::F16 | DType::BF16) { DType::F32 } else { self.dtype };
        let dtype = self.adds.filter(|_| quantized).unwrap_or(usual);
        Self { is_new: self.adds.is_some(), dtype, ..self.clone() }
    }

    /// True if adapters are added to a model that exists on the device already.
    pub(super) fn adds(&self) -> bool {
        self.adds.is_some()
    }

    /// How the weight of the layer at this path is kept; `None` if it is as it is.
    pub(super) fn quantization(&self) -> Option<Quantization> {
        self.quantizations.as_ref().and_then(|quantization| quantization(&self.path))
    }

    /// Creates the weight of a quantized layer by `make`, or takes that of the existing model; with it comes the parameter `weight`, its packed values.
    pub(super) fn quantized(
        &self,
        make: impl FnOnce(&mut Option<Array>) -> Result<QuantizedWeight>,
    ) -> Result<(QuantizedWeight, Parameter)> {
        let before = self.shared.before.borrow_mut().quantized.pop();
        let weight = match before {
            Some(before) => {
                self.shared.before.borrow_mut().parameters.pop();
                before.converted(self.dtype)?
            }
            None => make(&mut self.shared.table.borrow_mut())?,
        };
        let packed = Parameter::of_tensor(self.join(&"weight"), Tensor::from_array(weight.packed().clone()));
        self.shared.parameters.borrow_mut().push(packed.clone());
        self.shared.quantized.borrow_mut().push(weight.clone());
        Ok((weight, packed))
    }

    /// The adapter of the layer of this kind at this path; `None` if it has none.
    pub(super) fn adapter(&self, kind: LayerKind) -> Option<LowRank> {
        self.adapters.as_ref().and_then(|adapter| adapter(&self.path, kind))
    }

    /// The path of what is created.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn join(&self, name: &dyn fmt::Display) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    /// The device on which everything is created.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The element type of the parameters.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// True if an existing model is converted to another type or format.
    #[doc(hidden)]
    pub fn converts(&self) -> bool {
        !self.shared.before.borrow().parameters.is_empty()
    }

    /// The id of this path, to which allocations are attributed.
    pub fn scope(&self) -> ScopeId {
        self.device.scope(&self.path)
    }

    /// Whether the model trains or evaluates.
    pub fn training(&self) -> Training {
        self.shared.training.clone()
    }

    /// Creates a variable of the script around the model, see [`Variable`](super::Variable).
    #[doc(hidden)]
    pub fn variable(&self) -> VariableSlot {
        let slot = VariableSlot::default();
        self.shared.variables.borrow_mut().push(slot.clone());
        slot
    }

    /// Creates a list of the script around the model.
    #[doc(hidden)]
    pub fn list(&self) -> ListSlot {
        let list = ListSlot::default();
        self.shared.lists.borrow_mut().push(list.clone());
        list
    }

    /// Creates a parameter `name` of these sizes: of a module that is copied two, of which the second is returned.
    pub fn parameter(&self, name: &str, dims: &[usize], fill: Fill) -> Result<Parameter> {
        if !self.saved.as_ref().is_some_and(|is_saved| is_saved(&self.path)) {
            return self.one_parameter(name, dims, fill);
        }
        let original = self.at("original_module").one_parameter(name, dims, fill)?;
        let of_copy = Self { is_new: self.adds.is_some(), ..self.at("modules_to_save").at("default") };
        let is_there = self.converts() && !of_copy.is_new;
        let copy = of_copy.one_parameter(name, dims, fill)?;
        if !is_there {
            copy.array().copy_(original.array())?;
        }
        Ok(copy)
    }

    fn one_parameter(&self, name: &str, dims: &[usize], fill: Fill) -> Result<Parameter> {
        let (_scope, op) = (context::scope(self.scope()), context::op("to>_to_copy"));
        let before = if self.is_new { None } else { self.shared.before.borrow_mut().parameters.pop() };
        if let Some(before) = before.as_ref().filter(|before| before.array().dims() != dims) {
            let detail = format!("{} has sizes {:?}, its conversion {dims:?}", before.path(), before.array().dims());
            return Err(crate::Error::shape("parameter", detail));
        }
        let array = match (&before, &self.flats) {
            (Some(before), _) if self.shared.channels_last => {
                before.array().to_channels_last()?.with_category(Category::Parameter)
            }
            (_, Some(flats)) => flats.part(&Layout::contiguous(dims)?)?,
            (Some(before), None) if before.array().dtype() == self.dtype => before.array().clone(),
            _ => Array::empty_as(self.device(), dims, self.dtype(), Category::Parameter)?,
        };
        match &before {
            Some(_) if self.shared.channels_last => {}
            Some(before) if before.array().dtype() == self.dtype && self.flats.is_none() => {}
            Some(before) => array.copy_(before.array())?,
            None => self.fill(&array, fill)?,
        }
        drop(op);
        drop(before);
        let path = self.join(&name);
        let is_frozen = self.frozen.as_ref().is_some_and(|is_frozen| is_frozen(&path));
        let tensor = if is_frozen { Tensor::from_array(array) } else { Tensor::leaf(array) };
        let parameter = Parameter::of_tensor(path, tensor);
        self.shared.parameters.borrow_mut().push(parameter.clone());
        Ok(parameter)
    }

    /// Returns a parameter of another layer for use in this one. On the same device it is the parameter itself. On
    /// another device it is a copy, which is not a further parameter of the model but one of [`copies`](Self::copies).
    /// The caller that trains the model adds up the gradients of both.
    pub fn shared(&self, original: &Parameter) -> Result<Parameter> {
        if original.array().device().is_same(self.device()) {
            return Ok(original.clone());
        }
        let (_scope, _op) = (context::scope(self.scope()), context::op("to>_to_copy"));
        let array = original.array().to_device(self.device())?.with_category(Category::Parameter);
        let copy = Parameter::new(original.path(), array);
        self.shared.copies.borrow_mut().push(Copied { original: original.clone(), copy: copy.clone() });
        Ok(copy)
    }

    /// Creates a tensor `name` that is part of the model but not trained, filled with one value.
    pub fn buffer(&self, name: &str, dims: &[usize], dtype: DType, value: f64) -> Result<Array> {
        let _scope = context::scope(self.scope());
        let before = self.shared.before.borrow_mut().buffers.pop();
        let array = match before {
            Some((path, before)) if before.dims() != dims => {
                let detail = format!("{path} has sizes {:?}, its conversion {dims:?}", before.dims());
                return Err(crate::Error::shape("buffer", detail));
            }
            Some((_, before)) if self.shared.channels_last => self.last(before)?,
            Some((_, before)) if before.dtype() == dtype => before,
            before => {
                let op = context::op("to>_to_copy");
                let array = Array::empty_as(self.device(), dims, dtype, Category::Buffer)?;
                match &before {
                    Some((_, before)) => array.copy_(before)?,
                    None => array.fill_(value)?,
                }
                drop(op);
                drop(before);
                array
            }
        };
        self.shared.buffers.borrow_mut().push((self.join(&name), array.clone()));
        Ok(array)
    }

    /// Creates a tensor that is part of the model but neither trained nor saved, and whose type no conversion changes.
    /// `fill` writes it.
    ///
    /// # Errors
    /// Errors of the device and of `fill`.
    pub fn constant(&self, dims: &[usize], dtype: DType, fill: impl FnOnce(&Array) -> Result<()>) -> Result<Array> {
        let before = self.shared.before.borrow_mut().constants.pop();
        let array = match before {
            Some(before) if self.shared.channels_last => self.last(before)?,
            Some(before) => before,
            None => {
                let _op = context::op("to>_to_copy");
                let array = Array::empty_as(self.device(), dims, dtype, Category::Buffer)?;
                fill(&array)?;
                array
            }
        };
        self.shared.constants.borrow_mut().push(array.clone());
        Ok(array)
    }

    /// Creates a buffer that is neither saved nor converted, such as the frequencies of positions. It is not written.
    ///
    /// # Errors
    /// Those of the device.
    #[doc(hidden)]
    pub fn plain_buffer(&self, dims: &[usize], dtype: DType) -> Result<Array> {
        let before = self.shared.before.borrow_mut().plain.pop();
        let new = || Array::empty_as(self.device(), dims, dtype, Category::Buffer);
        let array = before.map_or_else(new, Ok)?;
        self.shared.plain.borrow_mut().push(array.clone());
        Ok(array)
    }

    /// Puts a tensor that is not trained in channels-last.
    fn last(&self, before: Array) -> Result<Array> {
        let _op = context::op("to>_to_copy");
        let category = before.storage().category();
        Ok(before.to_channels_last()?.with_category(category))
    }

    fn fill(&self, array: &Array, fill: Fill) -> Result<()> {
        let stream = self.shared.streams.replace(self.shared.streams.get() + 1);
        if !array.device().computes() {
            return Ok(());
        }
        let mut generator = SplitMix64::new(self.shared.seed, stream);
        let values: Vec<f32> = match fill {
            Fill::Constant(value) => return array.fill_(value),
            Fill::Uniform { bound } => (0..array.numel()).map(|_| (generator.signed() * bound) as f32).collect(),
            Fill::Normal { std } => (0..array.numel()).map(|_| (generator.normal() * std) as f32).collect(),
        };
        write_f32(array, &values)
    }
}
