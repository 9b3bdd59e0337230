//! Plain files and folders in a run's folder: a script may leave anything there in their place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file for reading. Never waits, as for a pipe, and follows no link at the end of the path.
///
/// # Errors
/// Those of the system; an entry of another kind.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a plain file")) }
}

/// True if a folder is reached from another one, above it, without a link.
pub(super) fn is_plain_folder(above: &Path, path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(above) else { return false };
    let mut at = above.to_path_buf();
    rest.iter().all(|part| {
        at.push(part);
        fs::symlink_metadata(&at).is_ok_and(|found| found.is_dir())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_plain_files_are_opened_and_nothing_waits() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("plain"), "contents").unwrap();
        std::os::unix::fs::symlink("plain", at("link")).unwrap();
        std::os::unix::fs::symlink(root.path(), at("folder")).unwrap();
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut text = String::new();
        open_plain(&at("plain")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "contents");
        for name in ["link", "pipe", "", "missing"] {
            assert!(open_plain(&at(name)).is_err(), "{name}");
        }
        fs::create_dir_all(at("a/b")).unwrap();
        assert!(is_plain_folder(root.path(), &at("a/b")) && !is_plain_folder(root.path(), &at("folder/a")));
    }
}
