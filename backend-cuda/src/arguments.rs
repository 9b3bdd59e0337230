//! Arguments of kernels, each struct written once: as a Rust struct, and as the text of the same struct in C, which the
//! kernel files include as `arguments.cuh`.

use std::ffi::c_void;

/// A type that a field may have: it is declared in C, and has a host type with the same bytes.
pub(crate) trait Field {
    /// The host's type: an address for a pointer.
    type Host: Copy;

    /// Declares `name` in C, without the semicolon.
    fn declare(name: &str) -> String;
}

macro_rules! scalars {
    ($($scalar:ty: $host:ty = $text:literal;)*) => {$(
        impl Field for $scalar {
            type Host = $host;
            fn declare(name: &str) -> String {
                format!("{} {name}", $text)
            }
        }
    )*};
}

scalars! {
    u8: u8 = "u8";
    i8: i8 = "i8";
    u32: u32 = "u32";
    i32: i32 = "i32";
    u64: u64 = "u64";
    i64: i64 = "i64";
    f32: Bits<f32> = "float";
    f64: Bits<f64> = "double";
    // Only as the target of a pointer.
    c_void: () = "void";
}

impl<T: Field> Field for *mut T {
    type Host = u64;
    fn declare(name: &str) -> String {
        T::declare(&format!("*{name}"))
    }
}

impl<T: Field> Field for *const T {
    type Host = u64;
    fn declare(name: &str) -> String {
        format!("const {}", T::declare(&format!("*{name}")))
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    type Host = [T::Host; N];
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

/// A float of an argument. Equality compares bits, so that 0.0 and −0.0 differ.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits<F>(pub(crate) F);

impl PartialEq for Bits<f32> {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl PartialEq for Bits<f64> {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

/// The definition of a struct in C.
pub(crate) type Definition = fn() -> String;

/// Declares structs by the types that their fields have in C, and a table of their C definitions. In the Rust struct a
/// field has the type [`Field::Host`]: `*mut f32` is an address, `f32` is [`Bits<f32>`].
macro_rules! arguments {
    ($table:ident: $($(#[$attribute:meta])* $vis:vis struct $name:ident { $($fields:tt)* })*) => {
        /// The definitions of these structs in C.
        pub(crate) const $table: &[$crate::arguments::Definition] = &[$($name::definition),*];

        $($crate::arguments::argument! { [] [stringify!($name)] $(#[$attribute])* $vis struct $name { $($fields)* } })*
    };
}

/// Declares one struct of [`arguments`], which may be generic; its parameters and its name in C are in brackets. The
/// caller that declares a generic one lists the definitions that kernels need.
macro_rules! argument {
    (
        [$($parameters:tt)*] [$in_c:expr]
        $(#[$attribute:meta])* $vis:vis struct $name:ident$(<$($parameter:ident),*>)? {
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, PartialEq)]
        $vis struct $name<$($parameters)*> {
            $($(#[$doc])* $field_vis $field: <$type as $crate::arguments::Field>::Host,)*
        }

        impl<$($parameters)*> $crate::arguments::Field for $name$(<$($parameter),*>)? {
            type Host = Self;
            fn declare(name: &str) -> String {
                format!("{} {name}", $in_c)
            }
        }

        impl<$($parameters)*> $name$(<$($parameter),*>)? {
            /// The definition of the struct in C.
            pub(crate) fn definition() -> String {
                let fields = [$(<$type as $crate::arguments::Field>::declare(stringify!($field))),*];
                format!("struct {} {{\n    {};\n}};\n", $in_c, fields.join(";\n    "))
            }
        }
    };
}

pub(crate) use {argument, arguments};

#[cfg(test)]
mod tests {
    use super::*;

    arguments! { DEFINITIONS:
        struct Inner {
            sizes: [u32; 2],
        }

        struct Outer {
            out: *mut c_void,
            x: *const f32,
            strides: [[i64; 6]; 2],
            inner: [Inner; 3],
            eps: f32,
            unused: u32,
        }
    }

    #[test]
    fn a_struct_has_the_same_fields_in_c() {
        let text: String = DEFINITIONS.iter().map(|definition| definition()).collect();
        let outer = "    void *out;\n    const float *x;\n    i64 strides[2][6];\n    Inner inner[3];\n    float eps;\n    u32 unused;\n";
        assert_eq!(text, format!("struct Inner {{\n    u32 sizes[2];\n}};\nstruct Outer {{\n{outer}}};\n"));
        assert_eq!(size_of::<Outer>(), 8 + 8 + 2 * 6 * 8 + 3 * 8 + 4 + 4);
    }
}
