//! How parameters come to be: where they live, what they are called, what they hold at first.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::array::Array;
use crate::autograd::Tensor;
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::{Category, ScopeId};

/// What a parameter holds at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// One value everywhere.
    Constant(f64),
    /// Uniform in `[−bound, bound)`.
    Uniform {
        /// The bound.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
}

impl Fill {
    /// PyTorch's default for the weight and bias of linear layers and convolutions: uniform within `1/√fan_in` (Kaiming's uniform rule with
    /// a = √5 comes to that).
    pub fn fan_in(fan_in: usize) -> Self {
        Fill::Uniform { bound: 1.0 / (fan_in.max(1) as f64).sqrt() }
    }
}

/// A leaf tensor with its path in the model: `blocks.0.fc1.weight`. Cloning shares it (tied weights).
#[derive(Clone)]
pub struct Parameter {
    path: Arc<str>,
    tensor: Tensor,
}

impl Parameter {
    /// A trained value that was made elsewhere: a shard, a master copy.
    pub fn new(path: impl Into<Arc<str>>, array: Array) -> Self {
        Self { path: path.into(), tensor: Tensor::leaf(array) }
    }

    /// Its path in the model.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Its value.
    pub fn array(&self) -> &Array {
        self.tensor.array()
    }

    /// Whether both are one: a clone, and not another view of the same memory.
    pub fn is_same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.path, &other.path) && Arc::ptr_eq(self.array().storage(), other.array().storage())
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Array> {
        self.tensor.grad()
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path, self.tensor)
    }
}

/// Whether a model trains or evaluates; shared by all layers that care.
#[derive(Clone, Debug)]
pub struct Training(Arc<AtomicBool>);

impl Training {
    /// Whether dropout drops and batch norm uses the batch's statistics.
    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Switches to training or evaluation.
    pub fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }
}

/// What a variable of the script around a model holds. Cloning shares it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct VariableSlot(Arc<Mutex<Option<Tensor>>>);

impl VariableSlot {
    /// Gives it another value; the one before goes.
    pub fn set(&self, value: Option<Tensor>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), value);
        drop(before);
    }
}

/// A list of the script around a model that layers append to. Cloning shares it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct ListSlot(Arc<Mutex<Vec<Tensor>>>);

impl ListSlot {
    /// Appends a tensor, with its history.
    pub fn push(&self, value: Tensor) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// Empties it, from its end, as Python's lists go.
    pub fn clear(&self) {
        let mut values = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while values.pop().is_some() {}
    }
}

/// A parameter that layers on two devices use: each has it.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Copied {
    /// Where it was made.
    pub original: Parameter,
    /// On the other device, under the same path.
    pub copy: Parameter,
}

/// Makes parameters, in order, under a path.
#[derive(Clone)]
pub struct Init {
    shared: Rc<Shared>,
    device: Device,
    path: String,
    /// Where the parameters lie, when they have no memory of their own.
    flats: Option<Rc<Flats>>,
}

/// One-dimensional arrays that parameters are views of, and how much of them is given out.
struct Flats {
    arrays: Vec<Array>,
    /// Number of the array that is being filled, and elements of it that are given out.
    next: Cell<(usize, usize)>,
}

impl Flats {
    /// A view for the next parameter: it lies in the array that is being filled, or, when that has no room for it, in the next one.
    fn part(&self, layout: &Layout) -> Result<Array> {
        let numel = layout.numel();
        let (mut index, mut start) = self.next.get();
        while self.arrays.get(index).is_some_and(|array| start + numel > array.numel()) {
            (index, start) = (index + 1, 0);
        }
        let array = self.arrays.get(index).ok_or_else(|| {
            crate::Error::shape("parameter", format!("no flat array has room for {:?}", layout.dims()))
        })?;
        self.next.set((index, start + numel));
        array.narrow(0, start, numel)?.view(layout.dims())
    }
}

struct Shared {
    dtype: DType,
    seed: u64,
    /// Number of random streams used; each parameter takes one.
    streams: Cell<u64>,
    parameters: RefCell<Vec<Parameter>>,
    buffers: RefCell<Vec<(String, Array)>>,
    constants: RefCell<Vec<Array>>,
    copies: RefCell<Vec<Copied>>,
    training: Training,
    variables: RefCell<Vec<VariableSlot>>,
    lists: RefCell<Vec<ListSlot>>,
    /// What the same model in another type had, last one first: what is made is converted from it.
    before: RefCell<Converted>,
}

/// What a model holds that is converted to another type, each list in the order of making.
#[derive(Default)]
#[doc(hidden)]
pub struct Converted {
    /// [`Init::parameters`]
    pub parameters: Vec<Parameter>,
    /// [`Init::buffers`]
    pub buffers: Vec<(String, Array)>,
    /// [`Init::constants`]
    pub constants: Vec<Array>,
}

impl Init {
    /// Parameters of type `dtype` on `device`; equal seeds give equal values on every device.
    pub fn new(device: &Device, dtype: DType, seed: u64) -> Self {
        Self::converting(device, dtype, seed, Converted::default())
    }

    /// The parameters and buffers of a model that was built before, converted to `dtype` one by one, each old one freed when the new one is there:
    /// PyTorch's `model.to(dtype)`. What is not a float stays. The same model must be built once more with this, and the old one dropped before.
    #[doc(hidden)]
    pub fn converting(device: &Device, dtype: DType, seed: u64, mut before: Converted) -> Self {
        before.parameters.reverse();
        before.buffers.reverse();
        before.constants.reverse();
        let shared = Shared {
            dtype,
            seed,
            streams: Cell::new(0),
            parameters: RefCell::default(),
            buffers: RefCell::default(),
            constants: RefCell::default(),
            copies: RefCell::default(),
            training: Training(Arc::new(AtomicBool::new(true))),
            variables: RefCell::default(),
            lists: RefCell::default(),
            before: RefCell::new(before),
        };
        Self { shared: Rc::new(shared), device: device.clone(), path: String::new(), flats: None }
    }

    /// The same, one name further down.
    #[must_use]
    pub fn at(&self, name: impl fmt::Display) -> Self {
        Self { path: self.join(&name), ..self.clone() }
    }

    /// The same path on another device: for a model that is split over several. The values are those that one device would hold.
    #[must_use]
    pub fn on(&self, device: &Device) -> Self {
        Self { device: device.clone(), ..self.clone() }
    }

    /// The same path, with parameters that are views of these one-dimensional arrays, one after the other: flat parameters, as FSDP's and
    /// DeepSpeed's. A parameter that no longer fits in one array begins the next.
    #[must_use]
    #[doc(hidden)]
    pub fn inside(&self, flats: Vec<Array>) -> Self {
        Self { flats: Some(Rc::new(Flats { arrays: flats, next: Cell::new((0, 0)) })), ..self.clone() }
    }

    fn join(&self, name: &dyn fmt::Display) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    /// The device that everything is made on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of the parameters.
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// The id of this path, for attribution.
    pub fn scope(&self) -> ScopeId {
        self.device.scope(&self.path)
    }

    /// Whether the model trains or evaluates.
    pub fn training(&self) -> Training {
        self.shared.training.clone()
    }

    /// A new variable of the script around the model, see [`Variable`](super::Variable).
    #[doc(hidden)]
    pub fn variable(&self) -> VariableSlot {
        let slot = VariableSlot::default();
        self.shared.variables.borrow_mut().push(slot.clone());
        slot
    }

    /// The variables made so far.
    #[doc(hidden)]
    pub fn variables(&self) -> Vec<VariableSlot> {
        self.shared.variables.borrow().clone()
    }

    /// A new list of the script around the model.
    #[doc(hidden)]
    pub fn list(&self) -> ListSlot {
        let list = ListSlot::default();
        self.shared.lists.borrow_mut().push(list.clone());
        list
    }

    /// The lists made so far.
    #[doc(hidden)]
    pub fn lists(&self) -> Vec<ListSlot> {
        self.shared.lists.borrow().clone()
    }

    /// A new parameter `name` of these sizes.
    pub fn parameter(&self, name: &str, dims: &[usize], fill: Fill) -> Result<Parameter> {
        let (_scope, op) = (context::scope(self.scope()), context::op("to>_to_copy"));
        let array = match &self.flats {
            Some(flats) => flats.part(&Layout::contiguous(dims)?)?,
            None => Array::empty_as(self.device(), dims, self.dtype(), Category::Parameter)?,
        };
        let before = self.shared.before.borrow_mut().parameters.pop();
        match &before {
            Some(before) if before.array().dims() == dims => array.copy_(before.array())?,
            Some(before) => {
                let detail =
                    format!("{} has sizes {:?}, its conversion {dims:?}", before.path(), before.array().dims());
                return Err(crate::Error::shape("parameter", detail));
            }
            None => self.fill(&array, fill)?,
        }
        drop(op);
        drop(before);
        let parameter = Parameter { path: self.join(&name).into(), tensor: Tensor::leaf(array) };
        self.shared.parameters.borrow_mut().push(parameter.clone());
        Ok(parameter)
    }

    /// A parameter that another layer has, for one that is made here: itself where both lie on one device, and on another one a copy, which is no
    /// further parameter of the model but one of [`copies`](Self::copies). Who trains the model adds up the gradients of both.
    ///
    /// # Errors
    /// Those of the devices.
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

    /// Parameters that lie on two devices, so far.
    #[doc(hidden)]
    pub fn copies(&self) -> Vec<Copied> {
        self.shared.copies.borrow().clone()
    }

    /// A new tensor `name` that is part of the model but not trained. Filled with one value.
    pub fn buffer(&self, name: &str, dims: &[usize], dtype: DType, value: f64) -> Result<Array> {
        let _scope = context::scope(self.scope());
        let before = self.shared.before.borrow_mut().buffers.pop();
        let array = match before {
            Some((path, before)) if before.dims() != dims => {
                let detail = format!("{path} has sizes {:?}, its conversion {dims:?}", before.dims());
                return Err(crate::Error::shape("buffer", detail));
            }
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

    /// A new tensor that is part of the model, neither trained nor saved, and of a type that no conversion changes; `fill` writes it.
    ///
    /// # Errors
    /// Those of the device and of `fill`.
    pub fn constant(&self, dims: &[usize], dtype: DType, fill: impl FnOnce(&Array) -> Result<()>) -> Result<Array> {
        let before = self.shared.before.borrow_mut().constants.pop();
        let array = match before {
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

    /// All parameters made so far, in the order of their creation.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.shared.parameters.borrow().clone()
    }

    /// All buffers made so far, in the order of their creation, with their paths.
    pub fn buffers(&self) -> Vec<(String, Array)> {
        self.shared.buffers.borrow().clone()
    }

    /// All constants made so far, in the order of their creation.
    pub fn constants(&self) -> Vec<Array> {
        self.shared.constants.borrow().clone()
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

/// Overwrites `array` with host values, rounded to its type on the host.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the number of values does not fit; the backend's.
pub fn write_f32(array: &Array, values: &[f32]) -> Result<()> {
    match array.dtype() {
        DType::F64 => array.write(&values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>()),
        DType::F16 => array.write(&values.iter().map(|&v| half::f16::from_f32(v)).collect::<Vec<_>>()),
        DType::BF16 => array.write(&values.iter().map(|&v| half::bf16::from_f32(v)).collect::<Vec<_>>()),
        _ => array.write(values),
    }
}

impl Parameter {
    /// Replaces the value by host values in row-major order, rounded to the parameter's type.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when their number does not fit; the backend's.
    pub fn set(&self, values: &[f32]) -> Result<()> {
        write_f32(self.array(), values)
    }
}

/// Vigna's SplitMix64: host values that are the same on every machine.
struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    fn new(seed: u64, stream: u64) -> Self {
        let mut generator = Self { state: seed };
        generator.state = generator.next().wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
        generator
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[−1, 1)`.
    fn signed(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }

    /// Standard normal, by Box and Muller's rule.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
