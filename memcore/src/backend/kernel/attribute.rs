//! What a kernel says besides its operands: functions, scalars, geometry, as plain values in a fixed order.
//!
//! With [`each_operand`](super::KernelCall::each_operand) this is a whole call: a launcher that knows no kernel by name can hand it on, and a call can
//! be written down. Functions are numbered; a number is never given to another function.

/// A value that a kernel is given besides its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attribute {
    /// Which function, by its number in [`CODES`](super::CODES); its scalars follow.
    Code(u32),
    /// Yes or no.
    Flag(bool),
    /// An integer: a size, an index, the seed of a generator (as the same 64 bits).
    Int(i64),
    /// A scalar.
    Float(f64),
}

/// Receives a kernel's attributes: name, value. A field of several values gives several of its name.
pub type AttributeVisitor<'a> = dyn FnMut(&'static str, Attribute) + 'a;

/// A field that is an attribute, or several.
pub(super) trait VisitAttribute {
    fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>);
}

/// Fields that are one value each.
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

/// Whether it is there, then the value, 0 where it is not.
impl VisitAttribute for Option<i64> {
    fn visit(&self, name: &'static str, f: &mut AttributeVisitor<'_>) {
        self.is_some().visit(name, f);
        self.unwrap_or(0).visit(name, f);
    }
}
