//! NVIDIA's libraries besides the driver: search for them, and their functions.
//!
//! cudarc's loader is not used: it knows the library names of one CUDA release, and a release may run with any driver
//! of its own major number or a later one. Status codes are plain numbers here, so that a code from a later release is
//! not an enum variant unknown to Rust.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// The oldest major number of CUDA whose libraries are known; [`NEWEST`] is the newest.
pub(crate) const OLDEST: u32 = 12;
/// See [`OLDEST`].
pub(crate) const NEWEST: u32 = 13;

/// Declares a library's functions, and a constructor that looks all of them up.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident { $($function:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }) => {
        $(#[$about])*
        #[allow(non_snake_case, reason = "the library's names")]
        pub(crate) struct $name {
            $(pub(crate) $function: unsafe extern "C" fn($($argument: $type),*) -> $answer,)*
            /// Declared last: the library stays loaded as long as its functions.
            _library: ::libloading::Library,
        }

        impl $name {
            /// Looks up every function; the error names the one that is missing.
            pub(crate) fn from_library(library: ::libloading::Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the functions have these types by the library's documentation; they are kept no longer than it.
                    $($function: unsafe { *library.get(stringify!($function).as_bytes()).map_err(|_| concat!("it has no ", stringify!($function)))? },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use functions;

/// Major and minor.
pub(crate) type Version = (u32, u32);

/// The major number of cuDNN whose functions are known; it is the same for all releases of CUDA.
const CUDNN: u32 = 9;

/// Returns the first library of a kind (`nvrtc`, `cublasLt`, `cudnn`) that `open` accepts and a driver of CUDA `newest` can
/// run; `open` returns the library with its release of CUDA.
///
/// # Errors
/// The reason why the first one found was not accepted, or the names that were searched for.
pub(crate) fn find<T>(
    kind: &str,
    newest: u32,
    open: impl Fn(Library) -> Result<(T, Version), String>,
) -> Result<(T, Version), String> {
    let mut refused = None;
    for library in paths(kind, newest).iter().filter_map(|path| load(path)) {
        match open(library) {
            Ok((_, (major, minor))) if major > newest => {
                let text =
                    format!("{kind} of CUDA {major}.{minor} is newer than the NVIDIA driver, which runs CUDA {newest}");
                refused.get_or_insert(text);
            }
            Ok(found) => return Ok(found),
            Err(why) => drop(refused.get_or_insert(why)),
        }
    }
    Err(refused.unwrap_or_else(|| format!("{} were not found", names(kind, newest).join(", "))))
}

/// Candidate paths, the newest first: by name alone, which searches the system's folders and LD_LIBRARY_PATH; then in
/// known folders.
fn paths(kind: &str, newest: u32) -> Vec<PathBuf> {
    let names = names(kind, newest);
    let mut paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    for folder in folders() {
        paths.extend(names.iter().map(|name| folder.join(name)).filter(|path| path.is_file()));
    }
    paths
}

fn names(kind: &str, newest: u32) -> Vec<String> {
    let majors = if kind == "cudnn" { CUDNN..=CUDNN } else { OLDEST..=newest.min(NEWEST) };
    let majors = majors.rev();
    if cfg!(windows) {
        // The names of NVRTC contain a minor number, which stays 0.
        let minor = if kind == "nvrtc" { "0_0" } else { "" };
        return majors.map(|major| format!("{kind}64_{major}{minor}.dll")).collect();
    }
    majors.map(|major| format!("lib{kind}.so.{major}")).chain([format!("lib{kind}.so")]).collect()
}

/// Folders of libraries that no search path contains: a toolkit, and the packages that PyTorch installs.
fn folders() -> Vec<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let toolkits = [set("CUDA_HOME"), set("CUDA_PATH"), Some(PathBuf::from("/usr/local/cuda"))];
    let toolkits = toolkits.into_iter().flatten().flat_map(|home| ["lib64", "lib", "bin"].map(|part| home.join(part)));
    let environments = [set("VIRTUAL_ENV"), set("CONDA_PREFIX")].into_iter().flatten();
    toolkits.chain(environments.flat_map(|home| packages(&home.join("lib")))).collect()
}

/// The folders of libraries in a Python environment: the packages of CUDA 13 share one, those of CUDA 12 have one each.
fn packages(lib: &Path) -> Vec<PathBuf> {
    let pythons = entries(lib).into_iter().filter(|path| starts_with(path.file_name(), "python3"));
    let nvidia = pythons.flat_map(|python| entries(&python.join("site-packages/nvidia")));
    std::iter::once(lib.to_path_buf()).chain(nvidia.map(|package| package.join("lib"))).collect()
}

/// Entries of a folder, in order of name; empty if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn starts_with(name: Option<&OsStr>, start: &str) -> bool {
    name.is_some_and(|name| name.to_string_lossy().starts_with(start))
}

fn load(path: &Path) -> Option<Library> {
    // SAFETY: NVIDIA's libraries do nothing when they are loaded but set themselves up.
    let open = |path: &Path| unsafe { Library::new(path) }.ok();
    // NVRTC looks for a part of itself by name alone, and finds a library that the process has already loaded.
    if starts_with(path.file_name(), "libnvrtc.") {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let parts = folder.map(entries).unwrap_or_default();
        for part in parts.iter().filter(|part| starts_with(part.file_name(), "libnvrtc-builtins.so")) {
            // It stays loaded for the life of the process: the compiler may be loaded and unloaded.
            std::mem::forget(open(part));
        }
    }
    open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_the_driver_runs_comes_first() {
        if cfg!(unix) {
            assert_eq!(names("nvrtc", 13), ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]);
            assert_eq!(names("cublasLt", 99)[0], "libcublasLt.so.13");
            assert_eq!(names("cudnn", 13), ["libcudnn.so.9", "libcudnn.so"]);
        }
    }

    #[test]
    fn packages_of_both_releases_are_looked_into() {
        let home = std::env::temp_dir().join(format!("vramlab-packages-{}", std::process::id()));
        for package in ["cu13", "cuda_nvrtc"] {
            std::fs::create_dir_all(home.join("python3.12/site-packages/nvidia").join(package)).expect("a folder");
        }
        let found = packages(&home);
        std::fs::remove_dir_all(&home).expect("the folder is ours");
        let nvidia = home.join("python3.12/site-packages/nvidia");
        assert_eq!(found, [home.clone(), nvidia.join("cu13/lib"), nvidia.join("cuda_nvrtc/lib")]);
    }
}
