//! The description that every kernel gives of itself, and the checks of its operands.

use std::fmt;

use super::attribute::AttributeVisitor;
use crate::backend::{Access, Operand};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Receives a kernel's operands: name, access, operand. The operands may be kept for as long as the call is there.
pub type OperandVisitor<'call, 'f> = dyn FnMut(&'static str, Access, &'call Operand) + 'f;

/// The description that every kernel struct gives of itself.
pub(crate) trait Kernel {
    /// The name in messages, traces and tests.
    const NAME: &'static str;
    /// Whether an input may be the same view as the output.
    const IN_PLACE: bool;
    /// Names of all possible operands, in the order in which they are visited.
    const OPERANDS: &'static [&'static str];
    /// Calls `f` with each operand that is present.
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>);
    /// Calls `f` with each attribute.
    fn each_attribute(&self, f: &mut AttributeVisitor<'_>);
    /// Checks shapes, types and layouts.
    fn check(&self) -> Result<()>;
    /// Floating-point operations, for the roofline; elementwise kernels count one per output element.
    fn flops(&self) -> u64;
    /// The operand that is read through indices, and the number of its elements that are indexed.
    fn gathered(&self) -> Option<(&'static str, usize)> {
        None
    }
}

/// An operand field: present, optional, or a list of tuples.
pub(super) trait Visit {
    fn visit<'call>(&'call self, name: &'static str, access: Access, f: &mut OperandVisitor<'call, '_>);
}

impl Visit for Operand {
    fn visit<'call>(&'call self, name: &'static str, access: Access, f: &mut OperandVisitor<'call, '_>) {
        f(name, access, self);
    }
}

impl Visit for Option<Operand> {
    fn visit<'call>(&'call self, name: &'static str, access: Access, f: &mut OperandVisitor<'call, '_>) {
        if let Some(operand) = self {
            f(name, access, operand);
        }
    }
}

/// Gives a kernel its name, and lists its attributes and its operands with their access. The compiler checks that the
/// lists are complete.
macro_rules! kernel {
    ($kernel:ident, $name:literal, in_place: $in_place:literal, [ $($attribute:ident),* ], { $($field:ident: $access:ident),* $(,)? }, flops: $flops:expr $(, gathers: $gathered:ident, $elements:expr)?) => {
        impl $crate::backend::kernel::definition::Kernel for $kernel {
            const NAME: &'static str = $name;
            const IN_PLACE: bool = $in_place;
            const OPERANDS: &'static [&'static str] = &[$(stringify!($field)),*];
            fn each_attribute(&self, _f: &mut $crate::backend::kernel::attribute::AttributeVisitor<'_>) {
                let Self { $($attribute,)* $($field: _,)* } = self;
                $($crate::backend::kernel::attribute::VisitAttribute::visit($attribute, stringify!($attribute), _f);)*
            }
            fn each_operand<'call>(&'call self, f: &mut $crate::backend::kernel::definition::OperandVisitor<'call, '_>) {
                $($crate::backend::kernel::definition::Visit::visit(&self.$field, stringify!($field), $crate::backend::Access::$access, f);)*
            }
            fn check(&self) -> $crate::error::Result<()> {
                self.check_shapes(&$crate::backend::kernel::definition::Check { kernel: $name })
            }
            fn flops(&self) -> u64 {
                let count: fn(&$kernel) -> u64 = $flops;
                count(self)
            }
            $(fn gathered(&self) -> Option<(&'static str, usize)> {
                let count: fn(&$kernel) -> usize = $elements;
                Some((stringify!($gathered), count(self)))
            })?
        }
    };
}
pub(super) use kernel;

/// The element types for which a function is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// float64, float32, float16, bfloat16.
    Floats,
    /// Floats, and complex numbers.
    FloatsAndComplex,
    /// Floats, and integers of 64 and 32 bits, whose arithmetic wraps around.
    Numbers,
    /// These numbers, and complex ones.
    NumbersAndComplex,
    /// Every type.
    Any,
}

impl Types {
    /// Whether `dtype` is one of these types.
    pub(crate) const fn contain(self, dtype: DType) -> bool {
        match self {
            Types::Floats => dtype.is_float(),
            Types::FloatsAndComplex => dtype.is_differentiable(),
            Types::Numbers => dtype.is_float() || matches!(dtype, DType::I64 | DType::I32),
            Types::NumbersAndComplex => dtype.is_differentiable() || matches!(dtype, DType::I64 | DType::I32),
            Types::Any => true,
        }
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Types::Floats => "floats",
            Types::FloatsAndComplex => "floats and complex64",
            Types::Numbers => "floats, int64 and int32",
            Types::NumbersAndComplex => "floats, complex64, int64 and int32",
            Types::Any => "every type",
        })
    }
}

/// Shape and type checks whose errors name kernel and operand.
pub(crate) struct Check {
    pub(super) kernel: &'static str,
}

impl Check {
    pub(super) fn fail<T>(&self, operand: &'static str, problem: impl Into<String>) -> Result<T> {
        Err(Error::InvalidCall { kernel: self.kernel, operand, problem: problem.into() })
    }

    /// Checks that `x` has exactly these sizes.
    pub(super) fn dims(&self, operand: &'static str, x: &Operand, want: &[usize]) -> Result<()> {
        if x.dims() == want { Ok(()) } else { self.fail(operand, format!("shape {:?}, expected {want:?}", x.dims())) }
    }

    /// Checks that `x` has this many dimensions.
    pub(super) fn rank(&self, operand: &'static str, x: &Operand, want: usize) -> Result<()> {
        if x.layout.rank() == want {
            Ok(())
        } else {
            self.fail(operand, format!("{} dimensions ({:?}), expected {want}", x.layout.rank(), x.dims()))
        }
    }

    /// Checks that `x` is contiguous (row-major, without gaps).
    pub(super) fn contiguous(&self, operand: &'static str, x: &Operand) -> Result<()> {
        if x.layout.is_contiguous() { Ok(()) } else { self.fail(operand, format!("{:?} is not contiguous", x.layout)) }
    }

    /// Checks that `x` is contiguous and has these sizes.
    pub(super) fn dense(&self, operand: &'static str, x: &Operand, want: &[usize]) -> Result<()> {
        self.dims(operand, x, want)?;
        self.contiguous(operand, x)
    }

    /// Checks that `x` has this element type.
    pub(super) fn dtype(&self, operand: &'static str, x: &Operand, want: DType) -> Result<()> {
        if x.dtype == want { Ok(()) } else { self.fail(operand, format!("{}, expected {want}", x.dtype)) }
    }

    /// Checks that `x` holds floats.
    pub(super) fn float(&self, operand: &'static str, x: &Operand) -> Result<()> {
        if x.dtype.is_float() { Ok(()) } else { self.fail(operand, format!("{}, expected a float", x.dtype)) }
    }

    /// Checks that `op` is defined for `x`'s type, and that its scalars have values in it.
    pub(super) fn defined(
        &self,
        operand: &'static str,
        x: &Operand,
        op: impl fmt::Debug,
        types: Types,
        scalars: [f64; 2],
    ) -> Result<()> {
        if !types.contain(x.dtype) {
            return self.fail(operand, format!("{}: {op:?} is defined for {types}", x.dtype));
        }
        if !x.dtype.is_differentiable() && scalars.iter().any(|scalar| scalar.trunc() != *scalar) {
            return self.fail(operand, format!("{}: {op:?} of an integer takes whole numbers", x.dtype));
        }
        Ok(())
    }

    /// Checks that `x` is a mask: one byte per element.
    pub(super) fn mask(&self, operand: &'static str, x: &Operand) -> Result<()> {
        if matches!(x.dtype, DType::Bool | DType::U8) {
            Ok(())
        } else {
            self.fail(operand, format!("{}, expected bool", x.dtype))
        }
    }

    /// Checks a condition on `operand`.
    pub(super) fn that(&self, condition: bool, operand: &'static str, problem: impl FnOnce() -> String) -> Result<()> {
        if condition { Ok(()) } else { self.fail(operand, problem()) }
    }
}
