//! A file that appears whole, under its own name, or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file that is being written and does not have its name yet.
///
/// Where the system has files without a name (Linux), nothing of it is left however the process ends, except between the two calls that replace an
/// earlier file. Elsewhere it has a temporary name, which stays when the process is killed.
pub(crate) struct WholeFile {
    file: Place,
    directory: PathBuf,
}

enum Place {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Named(tempfile::NamedTempFile),
}

impl WholeFile {
    /// Makes an empty file in the directory of `target`.
    ///
    /// # Errors
    /// The system's, for the directory.
    pub(crate) fn beside(target: &Path) -> io::Result<Self> {
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Ok(Self { file: Place::open(directory)?, directory: directory.to_path_buf() })
    }

    /// Returns the file to write to.
    pub(crate) fn file(&mut self) -> &mut File {
        match &mut self.file {
            #[cfg(target_os = "linux")]
            Place::Unnamed(file) => file,
            Place::Named(file) => file.as_file_mut(),
        }
    }

    /// Gives the file its name, replacing an earlier file of that name.
    ///
    /// # Errors
    /// The system's; the earlier file then still exists.
    pub(crate) fn appear(self, target: &Path) -> io::Result<()> {
        let named = match self.file {
            Place::Named(file) => file,
            #[cfg(target_os = "linux")]
            Place::Unnamed(file) => match unnamed::link(&file, target) {
                // A name in use can be taken over only by renaming.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let named = names().make_in(&self.directory, |path| unnamed::link(&file, path))?;
                    return named.persist(target).map(drop).map_err(|error| error.error);
                }
                done => return done,
            },
        };
        named.persist(target).map(drop).map_err(|error| error.error)
    }
}

/// Returns the builder of temporary files.
fn names() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vramlab-").suffix(".tmp");
    // Permissions follow the user's mask, as for any program's files; temporary files would be readable by the owner only.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

impl Place {
    fn open(directory: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed::open(directory) {
            return Ok(Self::Unnamed(file));
        }
        names().tempfile_in(directory).map(Self::Named)
    }
}

#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{AtFlags, CWD, OFlags, linkat};

    use super::*;

    /// Directory in which a process finds its open files by name.
    const OPEN_FILES: &str = "/proc/self/fd";

    /// Opens a file without a name; `None` if the file system does not support it, or no name can be given to such files.
    pub(super) fn open(directory: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).mode(0o666).custom_flags(flags).open(directory).ok()?;
        fs::exists(OPEN_FILES).ok()?.then_some(file)
    }

    pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
        let open = format!("{OPEN_FILES}/{}", file.as_raw_fd());
        Ok(linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn nothing_is_there_before_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("result");
        for (contents, before) in [("first", 0), ("second", 1)] {
            let mut file = WholeFile::beside(&target).unwrap();
            file.file().write_all(contents.as_bytes()).unwrap();
            if cfg!(target_os = "linux") {
                assert_eq!(entries(directory.path()), before, "a killed process would leave what is here");
            }
            file.appear(&target).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), contents);
            assert_eq!(entries(directory.path()), 1);
        }
    }

    #[cfg(unix)]
    #[test]
    fn its_permissions_are_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        let (usual, target) = (directory.path().join("usual"), directory.path().join("result"));
        fs::write(&usual, "").unwrap();
        WholeFile::beside(&target).unwrap().appear(&target).unwrap();
        assert_eq!(mode(&target), mode(&usual));
        WholeFile {
            file: Place::Named(names().tempfile_in(directory.path()).unwrap()),
            directory: directory.path().into(),
        }
        .appear(&target)
        .unwrap();
        assert_eq!(mode(&target), mode(&usual));
    }
}
