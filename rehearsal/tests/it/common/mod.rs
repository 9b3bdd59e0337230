//! The library under test.

use std::path::PathBuf;

/// Returns the library that cargo has built for these tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test's file");
    let folder = test.parent().expect("its folder");
    let library = folder.join("libvramlab_rehearsal.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}
