//! Defines exported functions of the driver and the runtime, several from one body.

/// Defines functions that have an `Answer`. Before each name stands the function of `answer.rs` that makes the
/// interface's code of it: `driver` or `runtime`. `build.rs` finds the names by these words at the start of a line.
macro_rules! exports {
    ($($(#[$about:meta])* $($interface:ident $name:ident),+ ($($argument:tt)*) $body:block)*) => {$(
        $(#[$about])*
        const _: () = {
            $crate::exports::answered! { ($($argument)*) $body $($interface $name)+ }
        };
    )*};
}

/// Defines the body of some functions, and each of them.
macro_rules! answered {
    ($arguments:tt $body:block $($interface:ident $name:ident)+) => {
        fn answer $arguments -> $crate::answer::Answer $body
        $($crate::exports::export!($interface $name $arguments);)+
    };
}

/// Defines one function that returns the code of `answer`.
macro_rules! export {
    ($interface:ident $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            $crate::answer::$interface(answer($($argument),*))
        }
    };
}

pub(crate) use {answered, export, exports};
