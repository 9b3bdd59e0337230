//! Finds functions of the driver by name, for programs that do not link the driver.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::LazyLock;

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

/// Handle of this library, however it was loaded.
static SELF: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: all zeros are a good `Dl_info`, and `dladdr` fills it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(find as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return 0;
    }
    // SAFETY: the loader's name ends with a zero; nothing is loaded that is not loaded already.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    handle as usize
});

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
    let address = own(&CString::new(name).ok()?);
    (!address.is_null()).then_some(address as usize)
}

/// Returns the address of an exported function of this library, or null.
pub(crate) fn own(name: &CStr) -> *mut c_void {
    if *SELF == 0 { std::ptr::null_mut() } else { lookups::system(*SELF as *mut c_void, name) }
}
