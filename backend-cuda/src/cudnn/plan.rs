//! The library's descriptions of a convolution, and its choice of an algorithm.

use std::ffi::c_int;

use memcore::DType;
use memcore::backend::kernel::Conv2dGeometry;

use super::library::{Choice, Description, Functions, Handle, Status, succeeded};
use super::shape::{Shape, Which};

/// Values of the library's enums.
const NCHW: c_int = 0;
const CROSS_CORRELATION: c_int = 1;
const F32: c_int = 0;
/// Ordinary multiplications where the library would else take tensor cores, which round float32 to TF32.
const FMA_MATH: c_int = 3;
/// Tensor cores where the library likes, of float32 in TF32.
const DEFAULT_MATH: c_int = 0;
/// Tensor cores for 16-bit types.
const TENSOR_OP_MATH: c_int = 1;

/// Algorithms that add up the products of a convolution as they are: implicit and explicit matrix products. Others
/// transform the operands first (Fourier, Winograd), with other errors, or add atomically.
fn allowed(which: Which) -> &'static [c_int] {
    match which {
        Which::Forward => &[0, 1, 2],
        Which::InputGrad | Which::WeightGrad => &[1],
    }
}

/// The library's descriptions of a convolution, and its chosen algorithm.
pub(super) struct Plan {
    pub(super) x: Described,
    pub(super) weight: Described,
    pub(super) y: Described,
    /// Steps, borders, groups, arithmetic.
    pub(super) rules: Described,
    pub(super) algorithm: c_int,
}

/// A description, with what destroys it.
pub(super) struct Described(pub(super) Description, unsafe extern "C" fn(Description) -> Status);

// SAFETY: descriptions are plain data of the library's, used behind a lock.
unsafe impl Send for Described {}

impl Described {
    fn new(
        create: unsafe extern "C" fn(*mut Description) -> Status,
        destroy: unsafe extern "C" fn(Description) -> Status,
    ) -> Result<Self, Status> {
        let mut description = std::ptr::null_mut();
        // SAFETY: a place to write the description to.
        succeeded(unsafe { create(&mut description) }).map(|()| Self(description, destroy))
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: the description is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { (self.1)(self.0) };
    }
}

/// The library's number of an element type.
fn data_type(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(F32),
        DType::F16 => Some(2),
        DType::BF16 => Some(9),
        _ => None,
    }
}

/// Sizes as the library's integers.
fn ints<const N: usize>(sizes: [usize; N]) -> Option<[c_int; N]> {
    let mut ints = [0; N];
    for (to, size) in ints.iter_mut().zip(sizes) {
        *to = size.try_into().ok()?;
    }
    Some(ints)
}

impl Plan {
    /// Describes a convolution and chooses an algorithm; `None` if the library has none that is allowed.
    pub(super) fn new(library: &'static Functions, handle: Handle, shape: &Shape) -> Option<Self> {
        let kind = data_type(shape.dtype)?;
        let tensor = |sizes: [usize; 4]| {
            let [n, c, h, w] = ints(sizes)?;
            let made =
                Described::new(library.cudnnCreateTensorDescriptor, library.cudnnDestroyTensorDescriptor).ok()?;
            // SAFETY: the description is live.
            succeeded(unsafe { (library.cudnnSetTensor4dDescriptor)(made.0, NCHW, kind, n, c, h, w) }).ok()?;
            Some(made)
        };
        let (x, y) = (tensor(shape.x)?, tensor(shape.y)?);
        let weight = Described::new(library.cudnnCreateFilterDescriptor, library.cudnnDestroyFilterDescriptor).ok()?;
        let [k, c, h, w] = ints(shape.weight)?;
        // SAFETY: the description is live.
        succeeded(unsafe { (library.cudnnSetFilter4dDescriptor)(weight.0, kind, NCHW, k, c, h, w) }).ok()?;
        let rules = rules(library, &shape.geometry)?;
        let mut plan = Self { x, weight, y, rules, algorithm: 0 };
        plan.choose(library, handle, shape)?;
        Some(plan)
    }

    /// Takes the first of the library's choices that is allowed, and sets its arithmetic.
    fn choose(&mut self, library: &Functions, handle: Handle, shape: &Shape) -> Option<()> {
        let exact = shape.dtype == DType::F32 && !shape.tf32;
        let wanted = match shape.dtype {
            DType::F32 if exact => FMA_MATH,
            DType::F32 => DEFAULT_MATH,
            _ => TENSOR_OP_MATH,
        };
        self.set_math(library, wanted)?;
        const MOST: usize = 16;
        let (mut choices, mut found) = ([Choice::default(); MOST], 0);
        let (x, weight, y, rules) = (self.x.0, self.weight.0, self.y.0, self.rules.0);
        let (count, to) = (MOST as c_int, choices.as_mut_ptr());
        // SAFETY: all descriptions are live; there is room for as many answers as are asked for.
        let status = unsafe {
            match shape.which {
                Which::Forward => (library.cudnnGetConvolutionForwardAlgorithm_v7)(
                    handle.0, x, weight, rules, y, count, &mut found, to,
                ),
                Which::InputGrad => (library.cudnnGetConvolutionBackwardDataAlgorithm_v7)(
                    handle.0, weight, y, rules, x, count, &mut found, to,
                ),
                Which::WeightGrad => (library.cudnnGetConvolutionBackwardFilterAlgorithm_v7)(
                    handle.0, x, y, rules, weight, count, &mut found, to,
                ),
            }
        };
        succeeded(status).ok()?;
        let choice = choices.iter().take(usize::try_from(found).unwrap_or(0)).find(|choice| {
            let fits = choice.workspace_bytes as u64 <= shape.workspace_bytes;
            choice.status == 0 && choice.deterministic == 1 && fits && allowed(shape.which).contains(&choice.algorithm)
        })?;
        self.algorithm = choice.algorithm;
        // The library names an arithmetic with each algorithm; but TF32 only where it was allowed.
        self.set_math(library, if exact { FMA_MATH } else { choice.math })
    }

    fn set_math(&self, library: &Functions, math: c_int) -> Option<()> {
        // SAFETY: the description is live.
        succeeded(unsafe { (library.cudnnSetConvolutionMathType)(self.rules.0, math) }).ok()
    }
}

/// Describes steps, borders and groups. Sums are f32 for all types.
fn rules(library: &Functions, geometry: &Conv2dGeometry) -> Option<Described> {
    let Conv2dGeometry { stride, padding, dilation, groups } = *geometry;
    let ([pad_h, pad_w], [groups]) = (ints(padding)?, ints([groups])?);
    let ([stride_h, stride_w], [dilation_h, dilation_w]) = (ints(stride)?, ints(dilation)?);
    let (create, destroy) = (library.cudnnCreateConvolutionDescriptor, library.cudnnDestroyConvolutionDescriptor);
    let rules = Described::new(create, destroy).ok()?;
    let mode = CROSS_CORRELATION;
    // SAFETY: the description is live.
    let set = unsafe {
        let set = library.cudnnSetConvolution2dDescriptor;
        let steps = set(rules.0, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode, F32);
        succeeded(steps).and_then(|()| succeeded((library.cudnnSetConvolutionGroupCount)(rules.0, groups)))
    };
    set.ok().map(|()| rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_has_the_librarys_layout() {
        assert_eq!(size_of::<Choice>(), 48);
        assert_eq!(std::mem::offset_of!(Choice, workspace_bytes), 16);
        assert_eq!(std::mem::offset_of!(Choice, deterministic), 24);
    }
}
