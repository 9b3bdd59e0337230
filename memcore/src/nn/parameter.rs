//! Parameters: their paths, their values, what they begin with.

use std::fmt;
use std::sync::Arc;

use crate::array::Array;
use crate::autograd::Tensor;
use crate::dtype::DType;
use crate::error::Result;

/// Initial values of a parameter.
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
    /// PyTorch's default for the weight and bias of linear layers and convolutions: uniform within `1/√fan_in` (which
    /// equals Kaiming's uniform rule with a = √5).
    pub fn fan_in(fan_in: usize) -> Self {
        Fill::Uniform { bound: 1.0 / (fan_in.max(1) as f64).sqrt() }
    }
}

/// A leaf tensor with its path in the model: `blocks.0.fc1.weight`. Clones share it (tied weights).
#[derive(Clone)]
pub struct Parameter {
    path: Arc<str>,
    tensor: Tensor,
}

impl Parameter {
    /// Makes a parameter of a trained value from elsewhere: a shard, a master copy.
    pub fn new(path: impl Into<Arc<str>>, array: Array) -> Self {
        Self { path: path.into(), tensor: Tensor::leaf(array) }
    }

    /// Makes a parameter of a tensor: a leaf if it is trained.
    pub(super) fn of_tensor(path: String, tensor: Tensor) -> Self {
        Self { path: path.into(), tensor }
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

    /// True if both are the same parameter: a clone, but not another view of the same memory.
    pub fn is_same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.path, &other.path) && Arc::ptr_eq(self.array().storage(), other.array().storage())
    }

    /// True if it is trained: `requires_grad`.
    pub fn is_trained(&self) -> bool {
        self.tensor.requires_grad()
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Array> {
        self.tensor.grad()
    }

    /// Replaces the value by host values in row-major order, rounded to the parameter's type.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if their number does not fit; errors of the backend.
    pub fn set(&self, values: &[f32]) -> Result<()> {
        write_f32(self.array(), values)
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path, self.tensor)
    }
}

/// Number of values of the parameters that are trained.
pub fn trained_values(parameters: &[Parameter]) -> u64 {
    parameters.iter().filter(|parameter| parameter.is_trained()).map(|parameter| parameter.array().numel() as u64).sum()
}

/// A parameter that layers on two devices use: each device has one.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Copied {
    /// The parameter on the device where it was made.
    pub original: Parameter,
    /// The parameter on the other device, under the same path.
    pub copy: Parameter,
}

/// Overwrites `array` with host values, rounded to its type on the host.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the number of values does not fit; errors of the backend.
pub fn write_f32(array: &Array, values: &[f32]) -> Result<()> {
    match array.dtype() {
        DType::F64 => array.write(&values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>()),
        DType::F16 => array.write(&values.iter().map(|&v| half::f16::from_f32(v)).collect::<Vec<_>>()),
        DType::BF16 => array.write(&values.iter().map(|&v| half::bf16::from_f32(v)).collect::<Vec<_>>()),
        _ => array.write(values),
    }
}
