//! What a device's memory is spent on, as JSON.

use memcore::memory::{Category, CategoryBytes, Rings};
use serde_json::{Value, json};

/// Bytes by the category's name.
pub(crate) fn by_category(bytes: &CategoryBytes) -> Value {
    let entries = Category::ALL.into_iter().map(|c| (c.name().to_string(), Value::from(bytes[c as usize])));
    Value::Object(entries.collect())
}

/// The rings, each larger than the one before, in bytes.
pub(crate) fn rings(rings: &Rings) -> Value {
    json!({
        "requested": rings.requested_bytes,
        "allocated": rings.allocated_bytes,
        "active": rings.active_bytes,
        "reserved": rings.reserved_bytes,
        "driver": rings.driver_bytes,
    })
}
