//! The graph interface (`cudnnBackend…`): every operation has one engine with one plan.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::{SUCCESS, status};
use crate::argument::Out;
use crate::settings::settings;
use crate::work::work;
use crate::{handles, log, values};

/// Kind of each descriptor.
static DESCRIPTORS: LazyLock<Mutex<HashMap<usize, c_int>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, descriptor: Out<usize>) -> c_int {
    let made = handles::new();
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).insert(made, kind);
    status(descriptor.set(made))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: usize) -> c_int {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).remove(&descriptor);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(_descriptor: usize) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendSetAttribute(
    _descriptor: usize,
    _attribute: c_int,
    _kind: c_int,
    _count: i64,
    _values: usize,
) -> c_int {
    SUCCESS
}

/// Attributes that frontends ask for, as `cudnnBackendAttributeName_t` numbers them.
mod attribute {
    use std::ffi::c_int;

    pub(super) const HEURISTIC_RESULTS: c_int = 202;
    pub(super) const CONFIGURATION_ENGINE: c_int = 300;
    pub(super) const CONFIGURATION_WORKSPACE: c_int = 303;
    pub(super) const CONFIGURATION_SHARED: c_int = 304;
    pub(super) const PLAN_CONFIGURATION: c_int = 401;
    pub(super) const PLAN_WORKSPACE: c_int = 402;
    pub(super) const GRAPH_ENGINES: c_int = 802;
    pub(super) const ENGINE_INDEX: c_int = 1301;
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendGetAttribute(
    _descriptor: usize,
    attribute: c_int,
    _kind: c_int,
    requested: i64,
    count: Out<i64>,
    values: usize,
) -> c_int {
    let has_room = values != 0 && requested > 0;
    let written = match attribute {
        attribute::HEURISTIC_RESULTS | attribute::CONFIGURATION_ENGINE | attribute::PLAN_CONFIGURATION => Ok(1),
        attribute::CONFIGURATION_WORKSPACE | attribute::PLAN_WORKSPACE => {
            log::once("unknown_size", "cudnn execution plan");
            if has_room { Out::<i64>::at(values).set(settings().cudnn_workspace).map(|()| 1) } else { Ok(1) }
        }
        attribute::CONFIGURATION_SHARED if has_room => Out::<i32>::at(values).set(0).map(|()| 1),
        attribute::GRAPH_ENGINES if has_room => Out::<i64>::at(values).set(1).map(|()| 1),
        attribute::ENGINE_INDEX if has_room => Out::<i64>::at(values).set(0).map(|()| 1),
        attribute::CONFIGURATION_SHARED | attribute::GRAPH_ENGINES | attribute::ENGINE_INDEX => Ok(1),
        _ => Ok(0),
    };
    status(written.map(|written| count.offer(written)))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(_handle: usize, _plan: usize, _variant: usize) -> c_int {
    values::launched();
    work().capture_library_call();
    SUCCESS
}
