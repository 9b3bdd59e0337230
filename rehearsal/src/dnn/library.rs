//! The wheel's own cuDNN, which plans for a card without one ("deviceless ahead-of-time compilation" in NVIDIA's
//! documentation, since 9.8): a descriptor of the card's properties takes the place of a handle.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::{SUCCESS, properties};
use crate::argument::Out;
use crate::planning::inside;
use crate::settings::settings;
use crate::wheel;

/// Beginning of the library's file name.
pub(super) const FILE: &str = "libcudnn.so.";

/// First release that plans without a handle.
const FIRST: usize = 90800;

/// Numbers of `cudnnBackendDescriptorType_t`, `…AttributeName_t` and `…AttributeType_t`.
const PROPERTIES: c_int = 38;
const PROPERTIES_JSON: c_int = 2702;
const TYPE_DESCRIPTOR: c_int = 15;
const TYPE_CHARACTERS: c_int = 24;

type Create = extern "C" fn(c_int, *mut usize) -> c_int;
type Change = extern "C" fn(usize) -> c_int;
type Set = extern "C" fn(usize, c_int, c_int, i64, *const c_void) -> c_int;
type Get = extern "C" fn(usize, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
type LastError = extern "C" fn(Out<u8>, usize);

/// Functions of the library, and the descriptor of the card's properties.
pub(super) struct Library {
    create: Create,
    destroy: Change,
    finalize: Change,
    set: Set,
    get: Get,
    last_error: LastError,
    properties: usize,
}

/// Returns the library if it can be asked, and if the settings do not forbid it.
pub(super) fn library() -> Option<&'static Library> {
    static FOUND: OnceLock<Option<Library>> = OnceLock::new();
    FOUND.get_or_init(|| if settings().asks_cudnn { Library::open() } else { None }).as_ref()
}

impl Library {
    fn open() -> Option<Self> {
        let find = |name: &CStr| wheel::function(FILE, name);
        if wheel::number(FILE, c"cudnnGetVersion")? < FIRST {
            return None;
        }
        // SAFETY: cuDNN documents functions of these names with these arguments.
        let mut library = unsafe {
            use std::mem::transmute;
            Self {
                create: transmute::<*mut c_void, Create>(find(c"cudnnBackendCreateDescriptor")?),
                destroy: transmute::<*mut c_void, Change>(find(c"cudnnBackendDestroyDescriptor")?),
                finalize: transmute::<*mut c_void, Change>(find(c"cudnnBackendFinalize")?),
                set: transmute::<*mut c_void, Set>(find(c"cudnnBackendSetAttribute")?),
                get: transmute::<*mut c_void, Get>(find(c"cudnnBackendGetAttribute")?),
                last_error: transmute::<*mut c_void, LastError>(find(c"cudnnGetLastErrorString")?),
                properties: 0,
            }
        };
        library.properties = library.describe(&properties::of_the_card())?;
        Some(library)
    }

    /// Makes a finished descriptor of properties.
    pub(super) fn describe(&self, json: &str) -> Option<usize> {
        let made = self.create(PROPERTIES).ok()?;
        let is_made = self.set_json(made, json) == SUCCESS && self.finalize(made) == SUCCESS;
        is_made.then_some(made)
    }

    /// Makes a descriptor, or returns why it cannot be made.
    pub(super) fn create(&self, kind: c_int) -> Result<usize, c_int> {
        let mut made = 0;
        match inside(|| (self.create)(kind, &raw mut made)) {
            SUCCESS => Ok(made),
            refused => Err(refused),
        }
    }

    pub(super) fn destroy(&self, descriptor: usize) -> c_int {
        inside(|| (self.destroy)(descriptor))
    }

    pub(super) fn finalize(&self, descriptor: usize) -> c_int {
        inside(|| (self.finalize)(descriptor))
    }

    /// Sets an attribute to `count` values at an address of the caller.
    pub(super) fn set(&self, descriptor: usize, attribute: c_int, kind: c_int, count: i64, values: usize) -> c_int {
        inside(|| (self.set)(descriptor, attribute, kind, count, values as *const c_void))
    }

    /// Sets an attribute to another descriptor.
    pub(super) fn set_descriptor(&self, descriptor: usize, attribute: c_int, value: usize) -> c_int {
        self.set(descriptor, attribute, TYPE_DESCRIPTOR, 1, (&raw const value) as usize)
    }

    /// Sets an attribute to the card's properties.
    pub(super) fn set_properties(&self, descriptor: usize, attribute: c_int) -> c_int {
        self.set_descriptor(descriptor, attribute, self.properties)
    }

    /// Sets the properties of a descriptor of properties.
    pub(super) fn set_json(&self, descriptor: usize, json: &str) -> c_int {
        self.set(descriptor, PROPERTIES_JSON, TYPE_CHARACTERS, json.len() as i64, json.as_ptr() as usize)
    }

    /// Writes at most `requested` values of an attribute to an address of the caller. Returns how many there are.
    pub(super) fn get(
        &self,
        descriptor: usize,
        attribute: c_int,
        kind: c_int,
        requested: i64,
        values: usize,
    ) -> Result<i64, c_int> {
        let mut count = 0;
        match inside(|| (self.get)(descriptor, attribute, kind, requested, &raw mut count, values as *mut c_void)) {
            SUCCESS => Ok(count),
            refused => Err(refused),
        }
    }

    /// Writes what the library says about its last error into `capacity` bytes.
    pub(super) fn last_error(&self, text: Out<u8>, capacity: usize) {
        inside(|| (self.last_error)(text, capacity));
    }
}
