//! Tests of the layer that computes small tensors. They need a PyTorch with CUDA, but no GPU: `VRAMLAB_REHEARSAL_PYTHON` names a Python
//! that has one. Without this variable they say that they were skipped. `programs.rs` tests what the layer rests on.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use crate::common::library;

#[test]
fn what_depends_on_data_is_as_on_the_cpu_and_what_is_not_known_is_told() {
    let Some(python) = std::env::var_os("VRAMLAB_REHEARSAL_PYTHON") else {
        eprintln!("skipped: VRAMLAB_REHEARSAL_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rehearsal-values-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the links");
    std::os::unix::fs::symlink(library(), folder.join("libcuda.so.1")).expect("a link");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/values.py");
    let mut command = Command::new(python);
    command.arg(script).env("LD_PRELOAD", library()).env("LD_LIBRARY_PATH", &folder);
    let output = command.output().expect("the interpreter starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    std::fs::remove_dir_all(&folder).expect("the folder is this test's");
}

#[test]
fn branches_that_raise_an_error_are_seen() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/raising.py");
    let output = Command::new("python3").arg(script).output().expect("python3 is there");
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{text}{errors}");
}
