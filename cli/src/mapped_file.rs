//! Files whose bytes are mapped into memory. One that another program cuts off meanwhile ends this program with a sentence and a code, not by a signal.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::exit::{Failure, Result};

/// Maps a file's bytes.
///
/// # Errors
/// A path that is missing or not a regular file.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let failed = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
    // Checked before opening: opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("not a regular file".into()));
    }
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    #[cfg(unix)]
    cut_off::is_an_error();
    // SAFETY: the bytes are only ever read, and as bytes: whatever another program writes to the file meanwhile is another value, not another
    // type. We ourselves replace files by renaming, which leaves this mapping as it is. Reading beyond the end of a file that another program
    // cuts off is a signal, which ends this program (`cut_off`).
    unsafe { Mmap::map(&file) }.map_err(|error| failed(error.to_string()))
}

#[cfg(unix)]
mod cut_off {
    use std::sync::Once;

    use crate::exit::Code;

    static INSTALLED: Once = Once::new();

    /// Makes the signal for bytes that a mapped file no longer has an error of the input, from here on.
    pub(super) fn is_an_error() {
        let handler: extern "C" fn(libc::c_int) = end;
        // SAFETY: the handler calls nothing but what POSIX allows in one, and stays valid while the program runs.
        INSTALLED.call_once(|| unsafe {
            libc::signal(libc::SIGBUS, handler as libc::sighandler_t);
        });
    }

    extern "C" fn end(_signal: libc::c_int) {
        const TEXT: &[u8] = b"error: a file became shorter while it was read; nothing was written\n";
        // SAFETY: the text is constant and as long as it says. Both calls are allowed in a signal handler; the second does not return.
        unsafe {
            libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
            libc::_exit(libc::c_int::from(Code::Usage.number()))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// In a process of its own, which this test starts as itself.
    #[test]
    fn a_file_that_is_cut_off_is_an_error_with_a_code() {
        const FILE: &str = "VRAMLAB_TEST_CUT_OFF";
        if let Some(path) = std::env::var_os(FILE) {
            let bytes = map(Path::new(&path)).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            panic!("a file without bytes was read: {sum}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let name = "mapped_file::tests::a_file_that_is_cut_off_is_an_error_with_a_code";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name, "--nocapture"]).env(FILE, &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("became shorter"), "{said}");
    }
}
