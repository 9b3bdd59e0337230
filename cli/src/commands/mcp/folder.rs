//! A folder beyond which nothing is read.

use std::path::{Component, Path, PathBuf};

use crate::exit::{Failure, Result};

/// A folder, without symbolic links in its own path.
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// # Errors
    /// There is no such folder.
    pub(super) fn open(flag: &str, path: &Path) -> Result<Folder> {
        let wrong = |what: String| Failure::usage(format!("--{flag}: {}: {what}", path.display()));
        let root = path.canonicalize().map_err(|error| wrong(error.to_string()))?;
        if root.is_dir() { Ok(Folder { root }) } else { Err(wrong("not a folder".into())) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The file of this name, relative to the folder or in full. Changes that another process makes in the folder between this check and the
    /// reading are not guarded against.
    ///
    /// # Errors
    /// A name that leads out of the folder by `..` or as a full path; any symbolic link; anything but a file.
    pub(super) fn file(&self, name: &str) -> Result<PathBuf, String> {
        let refused = |what: &str| format!("{name}: {what}");
        let given = Path::new(name);
        let inside = given.strip_prefix(&self.root).unwrap_or(given);
        let mut path = self.root.clone();
        for component in inside.components() {
            match component {
                Component::Normal(part) => path.push(part),
                Component::CurDir => continue,
                _ => return Err(refused("outside of the folder that may be read")),
            }
            let found = path.symlink_metadata().map_err(|error| refused(&error.to_string()))?;
            if found.is_symlink() {
                return Err(refused("a symbolic link, which is not followed"));
            }
        }
        if path.is_file() { Ok(path) } else { Err(refused("not a file")) }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("in");
        fs::create_dir_all(root.join("deep")).unwrap();
        for file in ["secret", "in/own", "in/deep/own"] {
            fs::write(outside.path().join(file), "x").unwrap();
        }
        symlink(outside.path(), root.join("up")).unwrap();
        symlink(outside.path().join("secret"), root.join("link")).unwrap();
        symlink(root.join("own"), root.join("within")).unwrap();
        let folder = Folder::open("dir", &root).unwrap();
        let own = folder.root().join("own");
        for name in ["own", "./own", own.to_str().unwrap()] {
            assert_eq!(folder.file(name).unwrap(), own);
        }
        assert!(folder.file("deep/own").is_ok());
        let secret = outside.path().join("secret");
        for name in ["../secret", "deep/../own", "deep/../../secret", secret.to_str().unwrap(), "/etc/passwd"] {
            assert!(folder.file(name).unwrap_err().contains("outside"), "{name}");
        }
        for name in ["link", "up/secret", "within"] {
            assert!(folder.file(name).unwrap_err().contains("symbolic link"), "{name}");
        }
        for name in ["", "deep", "missing", "own/more"] {
            assert!(folder.file(name).is_err(), "{name}");
        }
        assert!(Folder::open("dir", &root.join("own")).is_err());
    }
}
