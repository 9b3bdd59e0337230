//! Descriptions of the library's graph interface: each is made of a kind, attributes by number, and an end.

use std::ffi::{c_int, c_void};

use super::library::{Description, Functions, Handle, Status, succeeded};

/// `cudnnBackendDescriptorType_t`, as far as it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Kind {
    Pointwise = 0,
    Engine = 2,
    EngineConfiguration = 3,
    Heuristics = 4,
    ExecutionPlan = 5,
    PointwiseOperation = 13,
    OperationGraph = 15,
    VariantPack = 16,
    Tensor = 17,
    Matmul = 18,
    MatmulOperation = 19,
    Reduction = 21,
    ReductionOperation = 22,
    ReshapeOperation = 31,
}

/// `cudnnBackendAttributeType_t`, as far as it is used.
pub(super) mod kinds {
    use std::ffi::c_int;

    pub(crate) const HANDLE: c_int = 0;
    pub(crate) const DATA_TYPE: c_int = 1;
    pub(crate) const BOOLEAN: c_int = 2;
    pub(crate) const INT64: c_int = 3;
    pub(crate) const POINTER: c_int = 6;
    pub(crate) const HEURISTIC_MODE: c_int = 8;
    pub(crate) const NUMERICAL_NOTE: c_int = 11;
    pub(crate) const POINTWISE_MODE: c_int = 14;
    pub(crate) const DESCRIPTION: c_int = 15;
    pub(crate) const REDUCTION: c_int = 18;
}

/// A description, destroyed with this value.
pub(super) struct Built {
    library: &'static Functions,
    pub(super) raw: Description,
}

// SAFETY: descriptions are plain data of the library's, used behind a lock.
unsafe impl Send for Built {}

impl Built {
    /// An empty description.
    pub(super) fn new(library: &'static Functions, kind: Kind) -> Result<Self, Status> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place to write the description to.
        succeeded(unsafe { (library.cudnnBackendCreateDescriptor)(kind as c_int, &mut raw) })?;
        Ok(Self { library, raw })
    }

    /// Ends the description: attributes are checked, and change no more.
    pub(super) fn finished(self) -> Result<Self, Status> {
        // SAFETY: the description is live.
        succeeded(unsafe { (self.library.cudnnBackendFinalize)(self.raw) })?;
        Ok(self)
    }

    /// Sets an attribute of `count` values of a kind.
    ///
    /// # Safety
    /// `values` points to as many values of that kind.
    unsafe fn set(self, name: c_int, kind: c_int, count: usize, values: *const c_void) -> Result<Self, Status> {
        // SAFETY: the description is live; the library copies the values before it returns.
        succeeded(unsafe { (self.library.cudnnBackendSetAttribute)(self.raw, name, kind, count as i64, values) })?;
        Ok(self)
    }

    /// Sets integers of 64 bits.
    pub(super) fn longs(self, name: c_int, values: &[i64]) -> Result<Self, Status> {
        // SAFETY: the kind is that of the values.
        unsafe { self.set(name, kinds::INT64, values.len(), values.as_ptr().cast()) }
    }

    /// Sets a value of an enum of the library's, whose kind this is.
    pub(super) fn choice(self, name: c_int, kind: c_int, value: c_int) -> Result<Self, Status> {
        // SAFETY: the library's enums are of this size.
        unsafe { self.set(name, kind, 1, (&raw const value).cast()) }
    }

    pub(super) fn flag(self, name: c_int, value: bool) -> Result<Self, Status> {
        // SAFETY: the library's booleans are bytes.
        unsafe { self.set(name, kinds::BOOLEAN, 1, (&raw const value).cast()) }
    }

    pub(super) fn handle(self, name: c_int, handle: Handle) -> Result<Self, Status> {
        // SAFETY: a handle is a pointer.
        unsafe { self.set(name, kinds::HANDLE, 1, (&raw const handle.0).cast()) }
    }

    pub(super) fn pointers(self, name: c_int, pointers: &[*mut c_void]) -> Result<Self, Status> {
        // SAFETY: the kind is that of the values.
        unsafe { self.set(name, kinds::POINTER, pointers.len(), pointers.as_ptr().cast()) }
    }

    /// Sets other descriptions, which must live as long as this one.
    pub(super) fn parts<'a>(self, name: c_int, parts: impl IntoIterator<Item = &'a Built>) -> Result<Self, Status> {
        let raw: Vec<Description> = parts.into_iter().map(|part| part.raw).collect();
        // SAFETY: descriptions are pointers.
        unsafe { self.set(name, kinds::DESCRIPTION, raw.len(), raw.as_ptr().cast()) }
    }

    /// Reads up to `most` values of an attribute into `to`; returns their number. Without a place, their number alone.
    ///
    /// # Safety
    /// `to` is null, with `most` 0, or has room for `most` values of that kind.
    unsafe fn get(&self, name: c_int, kind: c_int, most: usize, to: *mut c_void) -> Result<usize, Status> {
        let mut count = 0;
        // SAFETY: the description is live; the caller's promise.
        let status =
            unsafe { (self.library.cudnnBackendGetAttribute)(self.raw, name, kind, most as i64, &mut count, to) };
        succeeded(status).map(|()| usize::try_from(count).unwrap_or(0))
    }

    /// Reads one integer of 64 bits.
    pub(super) fn long(&self, name: c_int) -> Result<i64, Status> {
        let mut value = 0i64;
        // SAFETY: room for one value of the kind.
        unsafe { self.get(name, kinds::INT64, 1, (&raw mut value).cast()) }?;
        Ok(value)
    }

    /// Reads the values of an enum of the library's, whose kind this is.
    pub(super) fn choices(&self, name: c_int, kind: c_int) -> Result<Vec<c_int>, Status> {
        const MOST: usize = 32;
        let mut values = vec![0; MOST];
        // SAFETY: room for so many values; the library's enums are of this size.
        let count = unsafe { self.get(name, kind, MOST, values.as_mut_ptr().cast()) }?;
        values.truncate(count);
        Ok(values)
    }

    /// Reads descriptions of a kind.
    pub(super) fn descriptions(&self, name: c_int, kind: Kind) -> Result<Vec<Built>, Status> {
        // SAFETY: it only counts.
        let count = unsafe { self.get(name, kinds::DESCRIPTION, 0, std::ptr::null_mut()) }?;
        let mut found = (0..count).map(|_| Self::new(self.library, kind)).collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Description> = found.iter().map(|one| one.raw).collect();
        // SAFETY: room for so many; the library writes what it found into the descriptions.
        let count = unsafe { self.get(name, kinds::DESCRIPTION, count, raw.as_mut_ptr().cast()) }?;
        found.truncate(count);
        Ok(found)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: the description is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.raw) };
    }
}
