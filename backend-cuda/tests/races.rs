//! Checks that the emulator finds the faults in kernels that are wrong on purpose: only then is it believed about the
//! others.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "emulator/flags.rs"]
mod flags;

const KINDS: [(&str, &str); 7] = [
    ("across_warps", "a write and a read"),
    ("within_a_warp", "a write and a read"),
    ("twice", "a read and a write"),
    ("across_blocks", "two writes"),
    ("written_before", "a read of shared memory that nobody has written"),
    ("one_flag", "two writes"),
    ("in_packs", "a pack is not aligned"),
];

/// Builds one program of the faults and the emulator.
fn build() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (kernels, emulator) = (crate_folder.join("kernels"), crate_folder.join("tests/emulator"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}", std::process::id()));
    std::fs::create_dir_all(&out).expect("a folder for the program");
    let object = out.join("faults.o");
    let run = |command: &mut Command| {
        command.args(flags::HOST).arg("-I").arg(&kernels).arg("-I").arg(&emulator);
        assert!(command.status().expect("g++").success(), "{command:?}");
    };
    let faults = emulator.join("faults/faults.cu");
    run(Command::new("g++").args(flags::RACES).args(["-x", "c++", "-c"]).arg(faults).arg("-o").arg(&object));
    let sources = ["emulator.cpp", "races.cpp"].map(|name| emulator.join(name));
    let program = out.join("faults");
    run(Command::new("g++").arg(&object).args(sources).arg("-o").arg(&program));
    program
}

#[test]
fn every_kind_of_fault_is_found_and_nothing_else() {
    let program = build();
    for (kind, finding) in KINDS {
        let run = |form: &str| Command::new(&program).arg(format!("{kind}_{form}")).output().expect("the program");
        let right = run("right");
        let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(right.status.success(), "{kind}: {}", text(&right));
        let wrong = run("wrong");
        assert!(!wrong.status.success(), "{kind} is not found");
        assert!(text(&wrong).contains(finding), "{kind}: {}", text(&wrong));
    }
    std::fs::remove_dir_all(program.parent().expect("its folder")).expect("the folder is ours");
}
