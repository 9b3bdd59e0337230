//! Tests of cuDNN's plans with libraries in C that are compiled here: what the wheel's own library is asked, and what is
//! answered without one.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::library;

/// Folder for one test's files.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cudnn-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the programs");
    folder
}

/// Compiles a file of `tests/c`.
fn compile(source: &str, to: &Path, flags: &[&str], libraries: &[PathBuf]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut command = Command::new("cc");
    command.args(["-O0", "-w", "-D_GNU_SOURCE"]).args(flags).arg("-o").arg(to).arg(source).args(libraries).arg("-ldl");
    let output = command.output().expect("cc is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `cudnn.c` on a card of capability 8.6 with a library compiled with these flags, and returns what it printed and the
/// events of its log.
fn asked(name: &str, flags: Option<&[&str]>, variables: &[(&str, &str)]) -> (Vec<String>, String) {
    let folder = folder(name);
    let (program, other, log) = (folder.join("program"), folder.join("libcudnn.so.9"), folder.join("log"));
    compile("cudnn.c", &program, &[], &[library()]);
    let mut command = Command::new(&program);
    if let Some(flags) = flags {
        compile("cudnn_library.c", &other, &[&["-shared", "-fPIC"], flags].concat(), &[]);
        command.arg(&other);
    }
    command.env("VRAMLAB_REHEARSAL_CAPABILITY", "8.6").env("VRAMLAB_REHEARSAL_LOG", &log);
    let output = command.envs(variables.iter().copied()).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let events = std::fs::read_to_string(log).unwrap_or_default();
    std::fs::remove_dir_all(folder).expect("the folder is there");
    (text.lines().map(str::to_string).collect(), events)
}

#[test]
fn the_wheels_library_plans_for_the_cards_properties() {
    let (lines, log) = asked("asks", Some(&[]), &[]);
    // The last list ends with a plan that is made up.
    assert_eq!(lines, ["2 12345 from 1", "3 12345 from 1", "as the library says"]);
    assert!(log.contains("asked_size") && !log.contains("unknown_size"), "{log}");
}

#[test]
fn a_library_that_is_old_absent_or_switched_off_is_not_asked() {
    let workspace = ("VRAMLAB_REHEARSAL_CUDNN_WORKSPACE", "5000000");
    let off = ("VRAMLAB_REHEARSAL_CUDNN", "none");
    let old: &[&str] = &["-DVERSION=90700"];
    for (name, flags, variables) in [
        ("old", Some(old), vec![workspace]),
        ("absent", None, vec![workspace]),
        ("off", Some(&[][..]), vec![workspace, off]),
    ] {
        let (lines, log) = asked(name, flags, &variables);
        assert_eq!(lines, ["1 5000000 from 0", "1 5000000 from 0", ""], "{name}");
        assert!(log.contains("unknown_size") && !log.contains("asked"), "{name}: {log}");
    }
}

#[test]
fn there_is_a_plan_where_the_library_refuses_all() {
    // PyTorch asks for the last list when the first one is refused.
    let (lines, log) = asked("refuses", Some(&["-DREFUSES"]), &[]);
    assert_eq!(lines, ["refused 3000", "1 0 from 0", "as the library says"]);
    assert!(log.contains("unknown_size"), "{log}");
    let (lines, _) = asked("fails", Some(&["-DFAILS"]), &[]);
    assert_eq!(lines, ["2", "3 0 from 0", "as the library says"]);
}

#[test]
fn a_kernel_is_compiled_only_for_those_who_ask_for_more_than_the_workspace() {
    let (lines, log) = asked("compiles", Some(&["-DCOMPILES"]), &[]);
    assert_eq!(lines[0], "2 12345 from 1 compiled");
    assert!(log.contains("asked_size"), "{log}");
    let (lines, _) = asked("silent", Some(&["-DCOMPILES", "-DSILENT"]), &[]);
    assert_eq!(lines[0], "2 compiled 12345 from 1", "a release whose configurations do not tell it");
}

#[test]
fn an_engine_of_one_capability_alone_is_answered_in_a_range() {
    let card = [("VRAMLAB_REHEARSAL_CAPABILITY", "9.0"), ("VRAMLAB_REHEARSAL_MULTIPROCESSORS", "132")];
    let (lines, log) = asked("elsewhere", Some(&[]), &card);
    assert_eq!(lines[0], "2 12345 from 1");
    assert!(!log.contains("range") && !log.contains("one_capability"), "{log}");
    let (lines, log) = asked("alone", Some(&["-DALONE"]), &card);
    assert_eq!(lines[0], "2 12345 from 3");
    // 128 KiB for each multiprocessor, and alignment.
    assert!(log.contains("\"asked_of_one_capability\",\"name\":\"17302016\""), "{log}");
}

#[test]
fn an_answer_that_is_not_known_ends_the_process() {
    let folder = folder("wrong");
    let program = folder.join("program");
    compile("cudnn.c", &program, &[], &[library()]);
    let output = Command::new(&program).env("VRAMLAB_REHEARSAL_CUDNN", "some").output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(folder).expect("the folder is there");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn cublas_lt_is_this_library_for_those_that_look_it_up_and_nothing_else_is() {
    let folder = folder("lookups");
    let (program, other) = (folder.join("program"), folder.join("libcublasLt.so.13"));
    compile("lookups.c", &program, &[], &[]);
    compile("cublas_lt_library.c", &other, &["-shared", "-fPIC"], &[]);
    let alone = Command::new(&program).arg(&other).output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "1 130100 1\n");
    let replaced =
        Command::new(&program).arg(&other).env("LD_PRELOAD", library()).output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&replaced.stdout), "0 130100 1\n");
    assert!(replaced.status.success());
    std::fs::remove_dir_all(folder).expect("the folder is there");
}
