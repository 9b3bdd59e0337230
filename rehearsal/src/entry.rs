//! Finds functions of the driver by name, for programs that do not link the driver.

use std::ffi::{CString, c_int};

use crate::lookups;

/// Names whose later versions take other arguments, with the suffix from each release on.
const VERSIONS: &[(&str, &[(c_int, &str)])] = &[
    ("cuStreamGetCaptureInfo", &[(12030, "_v3"), (11030, "_v2"), (0, "")]),
    ("cuStreamUpdateCaptureDependencies", &[(12030, "_v2"), (0, "")]),
    ("cuGraphAddNode", &[(12030, "_v2"), (0, "")]),
    ("cuGraphAddDependencies", &[(12030, "_v2"), (0, "")]),
    ("cuGraphRemoveDependencies", &[(12030, "_v2"), (0, "")]),
    ("cuGraphGetEdges", &[(12030, "_v2"), (0, "")]),
    ("cuGraphNodeGetDependencies", &[(12030, "_v2"), (0, "")]),
    ("cuGraphNodeGetDependentNodes", &[(12030, "_v2"), (0, "")]),
    ("cuMemAdvise", &[(12020, "_v2"), (0, "")]),
    ("cuMemPrefetchAsync", &[(12020, "_v2"), (0, "")]),
    ("cuGetProcAddress", &[(12000, "_v2"), (0, "")]),
    ("cuCtxCreate", &[(12050, "_v4"), (11040, "_v3"), (3020, "_v2"), (0, "")]),
    ("cuGraphInstantiate", &[(12000, "WithFlags"), (11000, "_v2"), (0, "")]),
];

/// Returns the address of a function of the driver, in the version that programs of this release expect.
pub(crate) fn find(name: &str, version: c_int) -> Option<usize> {
    let by_release = VERSIONS.iter().find(|(known, _)| *known == name);
    if let Some((_, suffixes)) = by_release {
        let (_, suffix) = suffixes.iter().find(|(from, _)| version >= *from)?;
        return symbol(&format!("{name}{suffix}"));
    }
    ["_v4", "_v3", "_v2", ""].iter().find_map(|suffix| symbol(&format!("{name}{suffix}")))
}

fn symbol(name: &str) -> Option<usize> {
    if !name.starts_with("cu") || name.starts_with("cuda") {
        return None;
    }
    let address = lookups::own(&CString::new(name).ok()?);
    (!address.is_null()).then_some(address as usize)
}
