//! Attributes of a kernel, besides its operands: functions, scalars and geometry, as plain values in a fixed order.
//!
//! Together with [`each_operand`](super::KernelCall::each_operand) they are a whole call: a launcher that does not know
//! a kernel by name can pass it on, and a call can be written down. Functions have numbers; a number is never reused
//! for another function.

/// A value that a kernel is given besides its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attribute {
    /// The number of a function in [`CODES`](super::CODES); the function's scalars follow.
    Code(u32),
    /// True or false.
    Flag(bool),
    /// An integer: a size, an index, or the 64 bits of a generator's seed.
    Int(i64),
    /// A scalar.
    Float(f64),
}

/// Receives a kernel's attributes as name and value. A field with several values gives several attributes with its
/// name.
pub type AttributeVisitor<'a> = dyn FnMut(&'static str, Attribute) + 'a;

/// A field that is one attribute or several.
pub(super) trait VisitAttribute {
    fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>);
}

/// Implements [`VisitAttribute`] for types that are one value each.
macro_rules! plain {
    ($($of:ty: $value:ident => $attribute:expr;)*) => {
        $(impl VisitAttribute for $of {
            fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>) {
                let $value = *self;
                f(name, $attribute);
            }
        })*
    };
}

plain! {
    f64: x => Attribute::Float(x);
    bool: x => Attribute::Flag(x);
    i64: x => Attribute::Int(x);
    i32: x => Attribute::Int(x.into());
    u8: x => Attribute::Int(x.into());
    u64: x => Attribute::Int(x as i64);
    usize: x => Attribute::Int(x as i64);
}

impl<T: VisitAttribute> VisitAttribute for [T; 2] {
    fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>) {
        self.iter().for_each(|x| x.visit(name, f));
    }
}

/// Gives whether a value is present, then the value (0 if absent).
impl VisitAttribute for Option<i64> {
    fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>) {
        self.is_some().visit(name, f);
        self.unwrap_or(0).visit(name, f);
    }
}
