//! Attributes of functions and geometries, and the numbers of functions.

use super::attribute::{Attribute, AttributeVisitor, VisitAttribute};
use super::{
    BinaryOp, Conv2dGeometry, Pool2dGeometry, PoolOp, RandomKind, ReduceOp, Reduction, TernaryOp, UnaryGradOp, UnaryOp,
};

impl VisitAttribute for Conv2dGeometry {
    fn visit(&self, _: &'static str, f: &mut AttributeVisitor<'_>) {
        let Self { stride, padding, dilation, groups } = self;
        stride.visit("stride", f);
        padding.visit("padding", f);
        dilation.visit("dilation", f);
        groups.visit("groups", f);
    }
}

impl VisitAttribute for Pool2dGeometry {
    fn visit(&self, _: &'static str, f: &mut AttributeVisitor<'_>) {
        let Self { window, stride, padding } = self;
        window.visit("window", f);
        stride.visit("stride", f);
        padding.visit("padding", f);
    }
}

/// Numbers the functions of kernels.
macro_rules! codes {
    ($($op:ident { $($variant:ident $({ $($scalar:ident),* })? = $code:literal),* $(,)? })*) => {
        /// Every enum of functions, with the numbers that stand for its variants in [`Attribute::Code`].
        pub const CODES: &[(&str, &[(&str, u32)])] = &[$((stringify!($op), $op::CODES)),*];

        $(impl $op {
            /// The variants' numbers.
            pub const CODES: &'static [(&'static str, u32)] = &[$((stringify!($variant), $code)),*];

            /// The number of this function.
            pub const fn code(&self) -> u32 {
                match self { $($op::$variant { .. } => $code),* }
            }
        }

        impl VisitAttribute for $op {
            fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>) {
                f(name, Attribute::Code(self.code()));
                match self { $($op::$variant $({ $($scalar),* })? => { $($($scalar.visit(stringify!($scalar), f);)*)? }),* }
            }
        })*
    };
}

codes! {
    UnaryOp {
        Neg = 0, Abs = 1, Sign = 2, Exp = 3, Log = 4, Sqrt = 5, Rsqrt = 6, Reciprocal = 7, Square = 8, Sin = 9, Cos = 10, Tanh = 11,
        Sigmoid = 12, Relu = 13, LeakyRelu { slope } = 14, Gelu = 15, GeluTanh = 16, Silu = 17, Elu { alpha } = 18, Softplus = 19,
        LogSigmoid = 20, Mish = 21, Hardsigmoid = 22, Hardswish = 23, Huber { delta } = 24, Affine { mul, add } = 25,
        Pow { exponent } = 26, Clamp { min, max } = 27, IsZero = 28,
    }
    UnaryGradOp {
        Relu = 0, LeakyRelu { slope } = 1, Gelu = 2, GeluTanh = 3, Silu = 4, Elu { alpha } = 5, Softplus = 6, LogSigmoid = 7, Mish = 8,
        Hardsigmoid = 9, Hardswish = 10, Hardtanh { min, max } = 11, Tanh = 12, Sigmoid = 13,
    }
    BinaryOp {
        Add { alpha } = 0, Sub = 1, Mul = 2, Div = 3, Maximum = 4, Minimum = 5, Pow = 6, SquaredDifference = 7, Eq = 8, Ne = 9, Lt = 10,
        Le = 11, Gt = 12, Ge = 13,
    }
    TernaryOp { Lerp { weight } = 0, Addcmul { value } = 1, Addcdiv { value } = 2, MseGrad { scale } = 3 }
    ReduceOp { Sum = 0, Mean = 1, SumSquares = 2, Max = 3, Min = 4 }
    PoolOp { Max = 0, Average = 1 }
    Reduction { None = 0, Mean = 1, Sum = 2 }
    RandomKind { Words = 0, Uniform { low, high } = 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn told(op: &impl VisitAttribute) -> Vec<(&'static str, Attribute)> {
        let mut all = Vec::new();
        op.visit("op", &mut |name, value| all.push((name, value)));
        all
    }

    #[test]
    fn a_function_is_its_number_and_its_scalars() {
        let clamp = UnaryOp::Clamp { min: -1.0, max: 6.0 };
        let expected = [("op", Attribute::Code(27)), ("min", Attribute::Float(-1.0)), ("max", Attribute::Float(6.0))];
        assert_eq!(told(&clamp), expected);
        assert_eq!(told(&Some(-100i64)), [("op", Attribute::Flag(true)), ("op", Attribute::Int(-100))]);
        assert_eq!(told(&u64::MAX), [("op", Attribute::Int(-1))]);
    }

    #[test]
    fn no_number_stands_for_two_functions() {
        for (name, codes) in CODES {
            let numbers: BTreeSet<u32> = codes.iter().map(|(_, code)| *code).collect();
            assert_eq!(numbers.len(), codes.len(), "{name}");
        }
    }
}
