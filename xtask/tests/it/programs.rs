//! Test programs: one a crate, since each links everything below it. Tests that a manifest switches off are not there.

use std::path::Path;

use xtask::files::{SourceFile, member_manifests, rust_files, workspace_root};

/// Programs beside a crate's first, with the reason.
const OWN_PROGRAMS: &[(&str, &str)] = &[
    ("lab/analysis/tests/memory", "counts the bytes of the process"),
    ("lab/traces/tests/memory", "counts the bytes of the process"),
];

/// The test programs of a member that run under the usual harness: files in `tests/`, and folders with a `main.rs`.
fn programs(root: &Path, manifest: &SourceFile) -> Vec<String> {
    let folder = manifest.path.parent().unwrap().join("tests");
    let Ok(entries) = std::fs::read_dir(root.join(&folder)) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().path()).filter_map(|path| {
        let program = path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file();
        program.then(|| path.file_stem().unwrap().to_string_lossy().into_owned())
    });
    let harnessed = |name: &String| !manifest.text.contains(&format!("name = \"{name}\"\nharness = false"));
    let mut names: Vec<String> = names.filter(harnessed).map(|name| folder.join(name).display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_crate_has_one_test_program() {
    let root = workspace_root();
    let mut count = 0;
    for manifest in member_manifests(&root).unwrap() {
        let mut found = programs(&root, &manifest);
        count += found.len();
        found.retain(|program| OWN_PROGRAMS.iter().all(|(own, _)| program != own));
        assert!(found.len() <= 1, "one program with modules instead of {}", found.join(", "));
    }
    assert!(count > 15, "only {count} programs were found");
    for (own, _) in OWN_PROGRAMS {
        assert!(root.join(own).join("main.rs").is_file(), "{own} is gone: remove it from the list");
    }
}

#[test]
fn no_test_is_switched_off_by_a_manifest() {
    let root = workspace_root();
    let mut off = 0;
    for manifest in member_manifests(&root).unwrap() {
        let library = manifest.text.split("\n[").find(|section| section.starts_with("lib]")).unwrap_or_default();
        let switched = |what: &str| library.lines().any(|line| line == format!("{what} = false"));
        let sources = rust_files(&root, &root.join(manifest.path.parent().unwrap()).join("src")).unwrap_or_default();
        for source in &sources {
            let place = source.path.display();
            assert!(!switched("test") || !source.text.contains("#[test]"), "{place}: a test that nothing runs");
            assert!(!switched("doctest") || !has_example(&source.text), "{place}: an example that nothing runs");
        }
        off += usize::from(switched("test")) + usize::from(switched("doctest"));
    }
    assert!(off > 10, "only {off} were found");
}

/// True if rustdoc would run an example of this file.
fn has_example(text: &str) -> bool {
    let comments =
        text.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("//")?.strip_prefix(['/', '!']));
    let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
    // A fence opens, the next one closes.
    fences.step_by(2).any(|kind| matches!(kind.trim(), "" | "rust" | "no_run" | "should_panic" | "compile_fail"))
}

#[test]
fn an_example_is_found_where_it_stands() {
    assert!(has_example("//! A crate.\n//!\n//! ```\n//! f();\n//! ```\n"));
    assert!(has_example(
        "    /// ```text\n    /// a -> b\n    /// ```\n    ///\n    /// ```no_run\n    /// f();\n    /// ```\n"
    ));
    assert!(!has_example("/// ```text\n/// a -> b\n/// ```\nfn f() {}\n/// ```json\n/// {}\n/// ```\n"));
}
