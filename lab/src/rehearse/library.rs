//! Search for the library that replaces CUDA's.

use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};

/// File name of the library.
pub(super) const NAME: &str = "libvramlab_rehearsal.so";

/// Environment variable with the library's path, for a library that lies elsewhere.
const VARIABLE: &str = "VRAMLAB_REHEARSAL_LIBRARY";

/// Folders that are searched, relative to the program's: as cargo builds it, in an archive, in a wheel or a system's package.
const BESIDE: [&str; 4] = ["", "deps", "../lib", "../lib/vramlab"];

/// Returns the path of the library.
///
/// # Errors
/// [`Error::Usage`] that says where the library was searched for, and how to get it.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return usable(&path).ok_or_else(|| Error::usage(VARIABLE, format!("{}: no such file", path.display())));
    }
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let folder = program.ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    find_beside(folder.as_deref())
}

fn find_beside(folder: Option<&Path>) -> Result<PathBuf> {
    let found = folder.and_then(|folder| BESIDE.iter().find_map(|place| usable(&folder.join(place).join(NAME))));
    found.ok_or_else(|| {
        let folder = folder.map_or("?".into(), |folder| folder.display().to_string());
        let problem = format!(
            "not found beside this program (in {folder}, nor in lib beside that). `cargo install` leaves it out: \
             build it in the sources with `cargo build --release -p rehearsal`, and set {VARIABLE} to \
             target/release/{NAME}"
        );
        Error::usage(NAME, problem)
    })
}

fn usable(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_beside_the_program_and_in_lib() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let missing = find_beside(Some(&bin)).unwrap_err().to_string();
        assert!(missing.contains("cargo install") && missing.contains(VARIABLE), "{missing}");
        let lib = root.path().join("lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(find_beside(Some(&bin)).unwrap(), lib.join(NAME).canonicalize().unwrap());
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(find_beside(Some(&bin)).unwrap(), bin.join(NAME).canonicalize().unwrap());
    }
}
