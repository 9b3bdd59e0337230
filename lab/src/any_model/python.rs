//! The user's Python.

use std::env;
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};

/// Variables that name the folder of an environment that is in use.
const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Programs of an environment, and names that are searched for on `PATH`.
const IN_ENVIRONMENT: [&str; 3] = ["bin/python", "Scripts/python.exe", "python.exe"];
const ON_PATH: [&str; 4] = ["python3", "python", "python3.exe", "python.exe"];

/// Returns the named Python, else that of the environment in use, else `python3`.
///
/// # Errors
/// [`Error::Usage`] if the named one is not a file, or if there is none.
pub fn python(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return match path.is_file() {
            true => Ok(path.to_path_buf()),
            false => Err(Error::usage("--python", format!("{}: no such file", path.display()))),
        };
    }
    let of_environment = |name: &&str| env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folders = ENVIRONMENTS.iter().filter_map(of_environment);
    let in_use = folders.flat_map(|folder| IN_ENVIRONMENT.map(|name| folder.join(name)));
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> =
        ON_PATH.iter().flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name))).collect();
    in_use.chain(on_path).find(|path| path.is_file()).ok_or_else(|| {
        Error::usage("--python", "no Python was found: neither VIRTUAL_ENV, CONDA_PREFIX nor python3 on PATH names one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_python_must_be_a_file() {
        let error = python(Some(Path::new("/nowhere/python"))).unwrap_err().to_string();
        assert!(error.contains("--python") && error.contains("/nowhere/python"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(python(Some(file.path())).unwrap(), file.path());
    }
}
