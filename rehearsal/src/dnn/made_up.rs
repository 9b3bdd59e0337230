//! Answers that stand for a library that is not asked, or that refuses: every operation has one engine with one plan.

use std::ffi::c_int;

use super::status;
use crate::argument::Out;
use crate::settings::settings;

/// Attributes that frontends ask for, as `cudnnBackendAttributeName_t` numbers them.
pub(super) mod attribute {
    use std::ffi::c_int;

    pub(in crate::dnn) const HEURISTIC_RESULTS: c_int = 202;
    pub(in crate::dnn) const CONFIGURATION_ENGINE: c_int = 300;
    pub(in crate::dnn) const CONFIGURATION_WORKSPACE: c_int = 303;
    const CONFIGURATION_SHARED: c_int = 304;
    const PLAN_CONFIGURATION: c_int = 401;
    pub(in crate::dnn) const PLAN_WORKSPACE: c_int = 402;
    const GRAPH_ENGINES: c_int = 802;
    const ENGINE_INDEX: c_int = 1301;

    /// Number of values of an attribute, and the one value if it is a number.
    pub(super) fn described(attribute: c_int) -> Option<Value> {
        Some(match attribute {
            HEURISTIC_RESULTS | CONFIGURATION_ENGINE | PLAN_CONFIGURATION => Value::Descriptor,
            CONFIGURATION_WORKSPACE | PLAN_WORKSPACE => Value::Workspace,
            CONFIGURATION_SHARED => Value::I32(0),
            GRAPH_ENGINES => Value::I64(1),
            ENGINE_INDEX => Value::I64(0),
            _ => return None,
        })
    }

    /// Value of an attribute.
    pub(super) enum Value {
        /// The caller's own descriptor stays as it is.
        Descriptor,
        Workspace,
        I32(i32),
        I64(i64),
    }
}

use attribute::Value;

/// Writes an attribute of a descriptor that no library stands behind.
pub(super) fn get(attribute: c_int, requested: i64, count: Out<i64>, values: usize) -> c_int {
    let has_room = values != 0 && requested > 0;
    let Some(value) = attribute::described(attribute) else {
        count.offer(0);
        return super::SUCCESS;
    };
    let written = match value {
        Value::Workspace if has_room => Out::<i64>::at(values).set(settings().cudnn_workspace),
        Value::I32(value) if has_room => Out::<i32>::at(values).set(value),
        Value::I64(value) if has_room => Out::<i64>::at(values).set(value),
        _ => Ok(()),
    };
    status(written.map(|()| count.offer(1)))
}
