//! Tests of the names that the library exports: all those that PyTorch's wheels import, in readable lists.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use crate::common::library;

fn names_of(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a list of names");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().next().expect("a name").to_string()).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn lists() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("names")).expect("names/");
    let paths = files.map(|file| file.expect("an entry").path());
    paths.filter(|path| !path.ends_with("errors.txt") && !path.ends_with("real.txt")).collect()
}

struct Exports(*mut libc::c_void);

impl Exports {
    fn open() -> Self {
        let path = CString::new(library().to_str().expect("a path in UTF-8")).expect("no zeros");
        // SAFETY: the path ends with a zero; the library's start does nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Self(handle)
    }

    fn has(&self, name: &str) -> bool {
        let name = CString::new(name).expect("no zeros");
        // SAFETY: the handle is good, and the name ends with a zero.
        !unsafe { libc::dlsym(self.0, name.as_ptr()) }.is_null()
    }
}

#[test]
fn every_name_that_pytorch_imports_is_there() {
    let exports = Exports::open();
    let real: BTreeSet<String> = names_of(&root().join("names/real.txt")).into_iter().collect();
    let mut imported = names_of(&root().join("tests/imported.txt"));
    assert!(imported.len() > 700);
    imported.extend(names_of(&root().join("tests/looked_up.txt")));
    let missing: Vec<_> = imported.iter().filter(|name| !exports.has(name) && !real.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Names that the wheel's own libraries provide must not be exported.
    let covered: Vec<_> = real.iter().filter(|name| exports.has(name)).collect();
    assert!(covered.is_empty(), "{covered:?}");
}

#[test]
fn every_listed_name_is_there_once_and_in_order() {
    let exports = Exports::open();
    let mut all = BTreeSet::new();
    for list in lists() {
        let names = names_of(&list);
        assert!(names.is_sorted(), "{}", list.display());
        for name in names {
            assert!(exports.has(&name), "{name}");
            assert!(all.insert(name.clone()), "{name} is in two lists");
        }
    }
    assert!(all.len() > 3000);
}
