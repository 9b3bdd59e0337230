//! The library as a program in C uses it: the header compiles as C99 without a warning, and a program that is linked with the library gets answers.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder with the library: tests lie in `deps` below it, or beside it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let name = format!("{}vramlab_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = folders.map(Path::to_path_buf).find(|folder| folder.join(&name).is_file());
    found.unwrap_or_else(|| panic!("{name} lies not beside {}", test.display()))
}

#[cfg(unix)]
#[test]
fn a_program_in_c_asks_with_four_threads() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (folder.path().join("ask"), library());
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]);
    compiler.arg("-I").arg(here.join("include")).arg(here.join("tests/ask.c")).arg("-o").arg(&program);
    compiler.arg("-L").arg(&library).arg("-lvramlab_c").arg(format!("-Wl,-rpath,{}", library.display()));
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout).unwrap();
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 8);
    let (estimates, problems) = answers.split_at(4);
    for answer in estimates {
        assert_eq!((&answer["schema"], &answer["fits"]), (&"vramlab-estimate-1".into(), &true.into()), "{answer}");
        assert_eq!(answer, &estimates[0]);
    }
    for (answer, part) in problems.iter().zip(["null", "no-such", "not an object", "UTF-8"]) {
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains(part), "{message}");
    }
}
