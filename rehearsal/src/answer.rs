//! Results of functions: error codes, which runtime and driver share, their names, and the last error of a thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// Number of an error. `cudaError` and `CUresult` agree on the numbers used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

/// Result of a function, or its error.
pub(crate) type Answer<T = ()> = Result<T, Code>;

impl Code {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    /// The driver is not initialized. A forked child of a process that has used the card gets this error too.
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const INVALID_CONFIGURATION: Self = Self(9);
    pub(crate) const INVALID_DEVICE_FUNCTION: Self = Self(98);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const NO_KERNEL_IMAGE: Self = Self(209);
    pub(crate) const PEER_UNSUPPORTED: Self = Self(217);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const ILLEGAL_STATE: Self = Self(401);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const PEER_ALREADY_ENABLED: Self = Self(704);
    pub(crate) const PEER_NOT_ENABLED: Self = Self(705);
    pub(crate) const HOST_ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const HOST_NOT_REGISTERED: Self = Self(713);
    pub(crate) const NOT_PERMITTED: Self = Self(800);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(crate) const CAPTURE_INVALIDATED: Self = Self(901);
    pub(crate) const CAPTURE_MERGE: Self = Self(902);
    pub(crate) const CAPTURE_UNMATCHED: Self = Self(903);
    pub(crate) const CAPTURE_UNJOINED: Self = Self(904);
    pub(crate) const CAPTURE_ISOLATION: Self = Self(905);
    pub(crate) const CAPTURED_EVENT: Self = Self(907);
    pub(crate) const CAPTURE_WRONG_THREAD: Self = Self(908);
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// Returns the code of a runtime function, and remembers it as the thread's last error.
pub(crate) fn runtime(answer: Answer) -> c_int {
    let code = driver(answer);
    if code != 0 {
        LAST.set(code);
    }
    code
}

/// Returns the code of a driver function.
pub(crate) fn driver(answer: Answer) -> c_int {
    answer.err().map_or(0, |code| code.0)
}

/// Returns the last error of this thread, and forgets it if `take`.
pub(crate) fn last_error(take: bool) -> c_int {
    if take { LAST.replace(0) } else { LAST.get() }
}

type Row = (c_int, Option<&'static CStr>, Option<&'static CStr>, &'static CStr);

const ERRORS: &[Row] = include!(concat!(env!("OUT_DIR"), "/errors.rs"));

fn row(code: c_int) -> Option<&'static Row> {
    ERRORS.iter().find(|row| row.0 == code)
}

/// Name of a code in the runtime.
pub(crate) fn runtime_name(code: c_int) -> *const c_char {
    row(code).and_then(|row| row.1).unwrap_or(c"unrecognized error code").as_ptr()
}

/// Name of a code in the driver.
pub(crate) fn driver_name(code: c_int) -> Option<&'static CStr> {
    row(code)?.2
}

/// Description of a code.
pub(crate) fn meaning(code: c_int) -> &'static CStr {
    row(code).map_or(c"unrecognized error code", |row| row.3)
}
