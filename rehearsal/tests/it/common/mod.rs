//! The library under test.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Returns the library that cargo has built for these tests, under a path that can stand in `LD_PRELOAD`.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test's file");
    let folder = test.parent().expect("its folder");
    let library = folder.join("libvramlab_rehearsal.so");
    assert!(library.is_file(), "{} is not there", library.display());
    if !library.to_string_lossy().contains([' ', ':']) {
        return library;
    }
    // That variable is a list, divided at spaces and colons: a link leads to the library.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let links = std::env::temp_dir().join(format!("vramlab-rehearsal-{:016x}", hasher.finish()));
    std::fs::create_dir_all(&links).expect("a folder for the link");
    let link = links.join("libvramlab_rehearsal.so");
    // Another test may have made it.
    let _ = symlink(&library, &link);
    assert!(link.is_file(), "{} leads nowhere", link.display());
    link
}
