//! Workspaces that cuDNN named for convolutions, by what it chooses by.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::KernelCall;
use crate::backend::kernel::Conv2dGeometry;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// A convolution as cuDNN chooses by: types, layout and sizes. Lists have one number for each spatial dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConvolutionCase {
    /// The type of input, weight and result.
    pub dtype: DType,
    /// True if they are channels-last.
    pub channels_last: bool,
    /// Sizes of the input: examples, channels, height, width.
    pub input: [usize; 4],
    /// Sizes of the weight: channels of the result, channels of a group, height, width.
    pub weight: [usize; 4],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Zeros added at each border.
    pub padding: [usize; 2],
    /// Steps between elements of a window.
    pub dilation: [usize; 2],
    /// Groups of channels.
    pub groups: usize,
}

/// A direction of a convolution. Each has a plan of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionPass {
    /// The result.
    Forward,
    /// The gradient of the input.
    InputGradient,
    /// The gradient of the weight.
    WeightGradient,
}

impl ConvolutionCase {
    /// Reads the case and its direction from a call; `None` if the call is not a convolution of two dimensions. A call does not know its layout.
    pub(crate) fn of_call(call: &KernelCall, channels_last: bool) -> Option<(Self, ConvolutionPass)> {
        let (geometry, input, weight, pass) = match call {
            KernelCall::Conv2d(call) => (call.geometry, call.x, call.weight, ConvolutionPass::Forward),
            KernelCall::Conv2dInputGrad(call) => (call.geometry, call.out, call.weight, ConvolutionPass::InputGradient),
            KernelCall::Conv2dWeightGrad(call) => (call.geometry, call.x, call.out, ConvolutionPass::WeightGradient),
            _ => return None,
        };
        let Conv2dGeometry { stride, padding, dilation, groups } = geometry;
        let (dtype, [input, weight]) = (input.dtype, [input, weight].map(|operand| operand.dims().try_into().ok()));
        let case = Self { dtype, channels_last, input: input?, weight: weight?, stride, padding, dilation, groups };
        Some((case, pass))
    }
}

/// Workspaces in bytes, in the order forward, gradient of the input, gradient of the weight.
pub type PassBytes = [u64; 3];

/// Tells the workspaces of a case, if they are known.
type Lookup = dyn Fn(&ConvolutionCase) -> Option<PassBytes> + Send + Sync;

/// A workspace that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceTaken {
    /// Number of the allocation, among all of the device.
    pub allocation: u64,
    /// The convolution.
    pub case: ConvolutionCase,
    /// What of it was computed.
    pub pass: ConvolutionPass,
}

/// Workspaces by case, which notes the cases that it is asked for, and those that were taken. Clones share both.
#[derive(Clone)]
pub struct ConvolutionWorkspaces(Arc<Cases>);

struct Cases {
    identity: u64,
    lookup: Box<Lookup>,
    seen: Mutex<BTreeMap<ConvolutionCase, PassBytes>>,
    taken: Mutex<Vec<WorkspaceTaken>>,
}

impl fmt::Debug for ConvolutionWorkspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConvolutionWorkspaces").field(&self.0.identity).finish()
    }
}

impl PartialEq for ConvolutionWorkspaces {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ConvolutionWorkspaces {}

impl Hash for ConvolutionWorkspaces {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl ConvolutionWorkspaces {
    /// Makes workspaces of what a function tells. A case for which it tells `None` is an error, so that a run ends there.
    pub fn new(lookup: impl Fn(&ConvolutionCase) -> Option<PassBytes> + Send + Sync + 'static) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Cases { identity, lookup: Box::new(lookup), seen: Mutex::default(), taken: Mutex::default() }))
    }

    /// Makes workspaces of nothing, for a run that notes its cases.
    pub fn noting() -> Self {
        Self::new(|_| Some([0; 3]))
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<ConvolutionCase, PassBytes>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workspace of a case in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a case that is not known.
    pub fn bytes(&self, case: ConvolutionCase, pass: ConvolutionPass) -> Result<u64> {
        let mut seen = self.seen();
        if let Some(bytes) = seen.get(&case) {
            return Ok(bytes[pass as usize]);
        }
        let known = (self.0.lookup)(&case).ok_or_else(|| Error::invalid("conv2d", "its workspace is not known"))?;
        seen.insert(case, known);
        Ok(known[pass as usize])
    }

    /// Notes that a workspace becomes the device's allocation of this number. A device that begins anew replaces what was noted of another.
    pub(crate) fn note(&self, allocation: u64, case: ConvolutionCase, pass: ConvolutionPass) {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.last().is_some_and(|last| last.allocation >= allocation) {
            taken.clear();
        }
        taken.push(WorkspaceTaken { allocation, case, pass });
    }

    /// Returns the workspaces that the last run took, in order.
    pub fn taken(&self) -> Vec<WorkspaceTaken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the cases that were asked for and are known, in order.
    pub fn cases(&self) -> Vec<(ConvolutionCase, PassBytes)> {
        self.seen().iter().map(|(case, known)| (case.clone(), *known)).collect()
    }

    /// A number that no others have but clones.
    fn identity(&self) -> u64 {
        self.0.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_noted_and_what_is_not_known_is_an_error() {
        let case = |n| ConvolutionCase {
            dtype: DType::F32,
            channels_last: false,
            input: [n, 3, 32, 32],
            weight: [8, 3, 3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        let workspaces = ConvolutionWorkspaces::new(|case| (case.input[0] == 2).then_some([1, 2, 3]));
        assert_eq!(workspaces.clone().bytes(case(2), ConvolutionPass::WeightGradient).unwrap(), 3);
        assert!(workspaces.bytes(case(4), ConvolutionPass::Forward).is_err());
        assert_eq!(workspaces.cases(), [(case(2), [1, 2, 3])]);
        let noting = ConvolutionWorkspaces::noting();
        assert_eq!(noting.bytes(case(4), ConvolutionPass::Forward).unwrap(), 0);
        assert_eq!(noting.cases(), [(case(4), [0; 3])]);
        assert_eq!(workspaces, workspaces.clone());
        assert_ne!(workspaces, noting);
    }
}
