//! Pointers that callers pass. This is the one place that reads and writes through them.

use std::ffi::{CStr, c_char};

use crate::answer::{Answer, Code};

/// Pointer to a result: null, or room for as many values as the interface says.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Makes a pointer to room at an address that another argument gave.
    pub(crate) fn at(address: usize) -> Self {
        Self(address as *mut T)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes a result; null is an error.
    pub(crate) fn set(self, value: T) -> Answer {
        self.set_at(0, value)
    }

    /// Writes the result with this index; null is an error.
    pub(crate) fn set_at(self, index: usize, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of an exported function vouches for its pointers; this one is not null, and the index is one
        // that the interface gives it room for. Some callers do not align.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// Writes a result unless the pointer is null.
    pub(crate) fn offer(self, value: T) {
        let _unwanted = self.set(value);
    }

    /// Reads the value there: some arguments are both input and result.
    pub(crate) fn get(self) -> Answer<T> {
        In(self.0.cast_const()).get()
    }
}

/// Pointer to input: null, or as many values as the interface says.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Makes a pointer to values at an address that another argument gave.
    pub(crate) fn at(address: usize) -> Self {
        Self(address as *const T)
    }

    pub(crate) fn get(self) -> Answer<T> {
        self.get_at(0)
    }

    pub(crate) fn get_at(self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of an exported function vouches for its pointers; this one is not null, and the index is one
        // that the interface says there is. Every T used here is valid for all bits.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl In<u8> {
    pub(crate) fn get_all(self, count: usize) -> Answer<Vec<u8>> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as in `get_at`, for each of these bytes; they are copied before the call ends.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

/// Pointer to a name from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of an exported function vouches for its pointers: a text ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Writes a text with its final zero into `capacity` bytes, cut to fit.
pub(crate) fn write_text(room: Out<u8>, capacity: usize, text: &str) -> Answer {
    if capacity == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let length = text.len().min(capacity - 1);
    for (index, byte) in text.bytes().take(length).chain([0]).enumerate() {
        room.set_at(index, byte)?;
    }
    Ok(())
}
