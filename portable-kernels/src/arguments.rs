//! Arguments that every kernel takes by value.

use memcore::DType;
use memcore::backend::kernel::Attribute;
use memcore::backend::{KernelCall, Operand};

/// Maximum number of operands of a kernel.
pub(crate) const OPERANDS: usize = 14;

const SCALARS: usize = 8;
const INTEGERS: usize = 10;
const SHAPE: usize = 128;

/// The arguments of a launch besides its buffers, as `Arguments` in `kernels/common.c`: 832 bytes, passed as they are.
///
/// Together with a pointer for each operand they are less than the 1024 bytes that every OpenCL device accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Arguments {
    pub(crate) items: u64,
    /// Offset of each operand in its buffer, in bytes.
    offset: [u64; OPERANDS],
    /// Scalars, in the order of the attributes, in the form for the program's type.
    scalar: [u64; SCALARS],
    /// All other attributes.
    integer: [i64; INTEGERS],
    /// Sizes, then strides, of one operand after another.
    shape: [u32; SHAPE],
    /// Index in `shape` at which each operand begins.
    at: [u8; 16],
    rank: [u8; 16],
    /// Element types, in the order of [`DType::ALL`].
    types: [u8; 16],
    /// Bit `k` is set if operand `k` is present.
    present: u32,
    /// 1 if all operands are contiguous.
    flat: u32,
}

impl Arguments {
    /// Makes the arguments of a call with these operands, for a program that computes in `dtype`. `None` if sizes or
    /// strides exceed 32 bits, or are too many.
    pub(crate) fn from_call(call: &KernelCall, operands: &[Option<Operand>; OPERANDS], dtype: DType) -> Option<Self> {
        let mut all: Self = bytemuck::Zeroable::zeroed();
        let (mut words, mut scalars, mut integers) = (0, 0, 0);
        all.flat = 1;
        for (slot, operand) in operands.iter().enumerate() {
            let Some(operand) = operand else { continue };
            let layout = &operand.layout;
            (all.at[slot], all.rank[slot]) = (words as u8, layout.rank() as u8);
            for &number in layout.dims().iter().chain(layout.strides()) {
                *all.shape.get_mut(words)? = u32::try_from(number).ok()?;
                words += 1;
            }
            all.types[slot] = code(operand.dtype);
            all.offset[slot] = operand.region.offset;
            all.present |= 1 << slot;
            all.flat &= u32::from(layout.is_contiguous());
        }
        let mut fits = true;
        call.each_attribute(&mut |_, attribute| match attribute {
            Attribute::Float(x) => {
                all.scalar.get_mut(scalars).map_or_else(|| fits = false, |place| *place = scalar(x, dtype));
                scalars += 1;
            }
            Attribute::Code(code) => push(&mut all.integer, &mut integers, code.into(), &mut fits),
            Attribute::Flag(flag) => push(&mut all.integer, &mut integers, flag.into(), &mut fits),
            Attribute::Int(number) => push(&mut all.integer, &mut integers, number, &mut fits),
        });
        fits.then_some(all)
    }

    /// The bytes of the arguments.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

fn push(integers: &mut [i64], count: &mut usize, value: i64, fits: &mut bool) {
    integers.get_mut(*count).map_or_else(|| *fits = false, |place| *place = value);
    *count += 1;
}

/// The number of a type in the kernels' text.
pub(crate) fn code(dtype: DType) -> u8 {
    DType::ALL.iter().position(|&other| other == dtype).unwrap_or(0) as u8
}

/// Encodes a scalar for a program that computes in `dtype`: a double as its bits; a float in the lower half, with the
/// remainder to the double in the upper half; an integer as such.
fn scalar(x: f64, dtype: DType) -> u64 {
    match dtype {
        DType::F64 | DType::C64 => x.to_bits(),
        DType::F32 | DType::F16 | DType::BF16 => {
            let near = x as f32;
            let rest = if near.is_finite() { (x - f64::from(near)) as f32 } else { 0.0 };
            u64::from(rest.to_bits()) << 32 | u64::from(near.to_bits())
        }
        DType::Bool => u64::from(x != 0.0),
        DType::I64 | DType::I32 | DType::I8 | DType::U8 => x as i64 as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_have_the_form_of_the_type() {
        assert_eq!(scalar(0.1, DType::F64), 0.1f64.to_bits());
        let both = scalar(0.999, DType::F32);
        let [near, rest] = [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)].map(f64::from);
        assert!(near == f64::from(0.999f32) && (near + rest - 0.999).abs() < 1e-14);
        assert_eq!(scalar(f64::INFINITY, DType::BF16), u64::from(f32::INFINITY.to_bits()));
        assert_eq!((scalar(-3.0, DType::I32) as i64, scalar(0.5, DType::Bool)), (-3, 1));
    }
}
