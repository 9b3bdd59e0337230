//! Access of a kernel to its operands.
//!
//! A kernel receives a [`Context`] and asks it for
//! - [`Context::input`] and [`Context::output`]: slices of contiguous operands;
//! - [`Context::ptr`]: a typed pointer to the first element, for strided ones (strides are `operand.layout.strides()`,
//!   in elements, never negative);
//! - [`Context::for_each`]: threads; and inside a task [`Context::scratch`]: a fixed buffer of that thread's own.
//!
//! **Why slices are sound.** Core validates a call before a backend sees it: a written operand shares no byte with any other, except in
//! kernels that may work in place (`in_place: true` in their declaration). So in all other kernels the slices of one call never alias a
//! mutable one. In-place kernels must not take slices of an input that [`Context::aliases`] the output; the elementwise ones go through
//! `stream.rs`, which copies such blocks first. Bounds, alignment and element type are checked here again, which costs nanoseconds.

use std::sync::MutexGuard;

use memcore::DType;
use memcore::backend::Operand;
use memcore::error::{Error, Result};

use crate::memory::Table;
use crate::parallel::{INLINE_ELEMENTS, Scratch, Threads};

/// Memory and threads that a kernel may use while it runs.
pub(crate) struct Context<'a> {
    pub(crate) table: MutexGuard<'a, Table>,
    pub(crate) threads: &'a Threads,
}

/// A type that operands can hold.
pub(crate) trait Stored: Copy + Send + Sync + 'static {
    /// True if an operand of this dtype holds such elements.
    fn holds(dtype: DType) -> bool;
}

macro_rules! stored {
    ($($T:ty: $($dtype:ident)|+),* $(,)?) => {$(
        impl Stored for $T {
            fn holds(dtype: DType) -> bool {
                matches!(dtype, $(DType::$dtype)|+)
            }
        }
    )*};
}
stored! {
    f64: F64, f32: F32, half::f16: F16, half::bf16: BF16,
    i64: I64, i32: I32, i8: I8, u8: U8 | Bool,
}

impl Context<'_> {
    /// Returns the address of the operand's first element, after checking the element type. The address is not null, is aligned, and is
    /// valid for `layout.span()` elements.
    pub(crate) fn ptr<T: Stored>(&self, operand: &Operand) -> Result<*mut T> {
        if !T::holds(operand.dtype) {
            return Err(Error::DType {
                op: "cpu kernel",
                operand: "operand",
                found: operand.dtype,
                expected: std::any::type_name::<T>(),
            });
        }
        Ok(self.bytes(operand)?.cast())
    }

    /// Returns the address of the operand's first element, whatever its type.
    pub(crate) fn bytes(&self, operand: &Operand) -> Result<*mut u8> {
        let needed = operand.layout.span() as u64 * operand.dtype.size();
        if operand.region.len < needed || !operand.region.offset.is_multiple_of(operand.dtype.size()) {
            return Err(Error::invalid(
                "operand",
                format!("{:?} of {} in {:?}", operand.layout, operand.dtype, operand.region),
            ));
        }
        if needed == 0 {
            // The segment of an empty operand need not exist.
            return Ok(std::ptr::without_provenance_mut(64));
        }
        self.table.address(operand.region)
    }

    /// Returns the elements of a contiguous operand.
    ///
    /// # Safety
    /// The operand does not alias one that the call writes (see the module's text), or the slice is dropped before
    /// that is written.
    pub(crate) unsafe fn input<T: Stored>(&self, operand: &Operand) -> Result<&[T]> {
        debug_assert!(operand.layout.is_contiguous(), "{:?}", operand.layout);
        let (ptr, len) = (self.ptr::<T>(operand)?, operand.numel());
        // SAFETY: in bounds and aligned (`bytes` checked), alive while the table is locked, any bits are a value of T,
        // and nobody writes them meanwhile, as the caller asserts.
        Ok(unsafe { std::slice::from_raw_parts(ptr, len) })
    }

    /// As [`Context::input`], for an operand that may be absent.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn input_option<T: Stored>(&self, operand: &Option<Operand>) -> Result<Option<&[T]>> {
        // SAFETY: passed on to the caller.
        operand.as_ref().map(|operand| unsafe { self.input(operand) }).transpose()
    }

    /// Returns the elements of a contiguous operand that the call writes.
    ///
    /// # Safety
    /// Asked for once per operand, and no other slice of the call overlaps it (see the module's text).
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn output<T: Stored>(&self, operand: &Operand) -> Result<&mut [T]> {
        debug_assert!(operand.layout.is_contiguous(), "{:?}", operand.layout);
        let (ptr, len) = (self.ptr::<T>(operand)?, operand.numel());
        // SAFETY: as in `input`; exclusive, as the caller asserts.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr, len) })
    }

    /// As [`Context::output`], for an operand that may be absent.
    ///
    /// # Safety
    /// As there.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn output_option<T: Stored>(&self, operand: &Option<Operand>) -> Result<Option<&mut [T]>> {
        // SAFETY: passed on to the caller.
        operand.as_ref().map(|operand| unsafe { self.output(operand) }).transpose()
    }

    /// True if two operands share memory. In a validated call they do so only as the very same view.
    pub(crate) fn aliases(a: &Operand, b: &Operand) -> bool {
        a.region.overlaps(b.region)
    }

    /// Runs `f(0)`, …, `f(tasks - 1)`, each once, on any threads in any order. The result of a task must depend only on its index, and the
    /// number of tasks only on sizes, so that results repeat to the bit.
    pub(crate) fn for_each(&self, tasks: usize, f: impl Fn(usize) + Sync + Send) {
        self.threads.for_each(tasks, f);
    }

    /// Cuts `0..len` into pieces of `piece` and runs `f(start, end)` for each. Runs on this thread if there are fewer than
    /// [`INLINE_ELEMENTS`] elements in all, with `elements_each` elements per unit of `len`.
    pub(crate) fn for_pieces(
        &self,
        len: usize,
        piece: usize,
        elements_each: usize,
        f: impl Fn(usize, usize) + Sync + Send,
    ) {
        let piece = piece.max(1);
        let tasks = len.div_ceil(piece);
        let run = |i: usize| f(i * piece, ((i + 1) * piece).min(len));
        if len.saturating_mul(elements_each) < INLINE_ELEMENTS {
            (0..tasks).for_each(run);
        } else {
            self.for_each(tasks, run);
        }
    }

    /// Returns a scratch buffer of this thread's own; see [`Threads::scratch`].
    pub(crate) fn scratch(&self) -> Scratch<'_> {
        self.threads.scratch()
    }
}

/// A pointer that may be sent to other threads: tasks of one kernel write disjoint parts through it.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<T>(*mut T);

// SAFETY: only an address; each use is unsafe and says why its part is exclusive.
unsafe impl<T: Send> Send for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// Takes the address of a slice whose parts go to several threads.
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    /// Wraps an address from [`Context::ptr`].
    #[allow(dead_code)]
    pub(crate) fn from_ptr(ptr: *mut T) -> Self {
        Self(ptr)
    }

    /// Returns the address itself. (A method, so that closures capture the whole wrapper.)
    pub(crate) fn get(self) -> *mut T {
        self.0
    }

    /// Returns elements `start..start + len`.
    ///
    /// # Safety
    /// In bounds, and no other live slice overlaps them.
    pub(crate) unsafe fn part<'a>(self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller asserts it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }

    /// Returns elements `start..start + len` for reading.
    ///
    /// # Safety
    /// In bounds, and nobody writes them meanwhile.
    pub(crate) unsafe fn view<'a>(self, start: usize, len: usize) -> &'a [T] {
        // SAFETY: the caller asserts it.
        unsafe { std::slice::from_raw_parts(self.0.add(start), len) }
    }
}
