//! No arrow runs upwards: neither between crates nor between the modules inside them.

use std::path::Path;

use xtask::files::{SourceFile, member_manifests, rust_files, workspace_root};
use xtask::layers::{CrateLayers, LAYERS};
use xtask::{listing, manifests};

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), text: text.into() }
}

fn layers_of(name: &str) -> &'static CrateLayers {
    LAYERS.iter().find(|layers| layers.name == name).unwrap()
}

/// Checks one planted file of memcore beside a root that re-exports a few names; returns line and message.
fn planted(path: &str, text: &str) -> Vec<String> {
    let root = file("src/lib.rs", "pub use error::{Error, Result};\npub use ops::matmul as mm;\npub mod ops;");
    let violations = layers_of("memcore").check(Path::new("src"), &[root, file(path, text)]);
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn crates_depend_downwards() {
    let files = member_manifests(&workspace_root()).unwrap();
    let members: Vec<_> = files.iter().map(manifests::parse).collect();
    for expected in ["memcore", "backend-cpu", "models", "lab", "cli", "xtask"] {
        assert!(members.iter().any(|member| member.package == expected), "{expected} was not found");
    }
    let violations = manifests::check(&members);
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn modules_use_downwards() {
    let root = workspace_root();
    let mut violations = Vec::new();
    for layers in LAYERS {
        let source_dir = Path::new(layers.name).join("src");
        let files = rust_files(&root, &root.join(&source_dir)).unwrap();
        assert!(files.iter().any(|file| file.path == source_dir.join("lib.rs")), "{} was not found", layers.name);
        violations.extend(layers.check(&source_dir, &files));
    }
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn an_arrow_up_is_found_with_its_line() {
    let found = planted("src/memory/caching.rs", "//! Blocks.\nuse crate::dtype::DType;\nuse crate::array::Array;\n");
    let expected =
        "src/memory/caching.rs:3: `memory` is below `array` in memcore and may not use it (crate::array::Array)";
    assert_eq!(found, [expected]);
}

#[test]
fn every_spelling_of_a_path_is_followed() {
    for text in [
        "use crate::ops::add;",
        "use crate::{dtype::DType, ops::{self, add}};",
        "use crate::{\n    dtype::*,\n    ops,\n};",
        "fn f() { crate::ops::add(); }",
        "fn f() { let v = Vec::<crate::ops::Add>::new(); }",
        "impl crate::ops::Op for X {}",
        "use super::super::ops;",
        "mod inner { use super::super::super::ops::add; }",
        "macro_rules! m { () => { $crate::ops::add() } }",
        "pub(crate) use crate::ops::add as plus;",
        "use crate::mm;",
        "#[cfg(feature = \"x\")]\nuse crate::ops::add;",
        "#[cfg(not(test))]\nuse crate::ops::add;",
    ] {
        let found = planted("src/backend/kernel.rs", text);
        assert!(!found.is_empty(), "{text}");
        assert!(found.iter().all(|line| line.contains("`backend` is below `ops`")), "{text}: {found:?}");
    }
}

#[test]
fn what_is_no_arrow_up_is_left_alone() {
    for text in [
        "use crate::dtype::DType; use crate::{error::Error, layout};",
        "use crate::{Error, Result};",
        "use super::Region; use super::{a, b}; use super::super::dtype;",
        "/// See [`crate::ops::add`].\n// crate::ops\n/* crate::ops /* crate::ops */ crate::ops */ fn f() {}",
        "const S: &str = \"crate::ops::add\"; const R: &str = r#\"\"crate::ops\"#; const C: char = '\"';",
        "pub(crate) fn ops() {} fn g<'a>(x: &'a str) { let ops = x; }",
        "use crate::backend::ops;",
        "#[cfg(test)]\nmod tests { use crate::ops::add; fn f() { crate::nn::x() } }",
        "#[cfg(test)]\nuse crate::ops::add;",
        "#[cfg(all(test, unix))]\n#[allow(dead_code)]\nfn f(x: crate::ops::Add) { crate::ops::add() }",
        "fn f() { crate::bail!(\"no\"); }",
    ] {
        assert_eq!(planted("src/backend/kernel.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn code_after_a_test_module_is_still_read() {
    let text = "#[cfg(test)]\nmod tests { use crate::ops::add; }\nuse crate::nn::Linear;";
    assert_eq!(planted("src/backend/kernel.rs", text).len(), 1);
    let text = "#[cfg(test)]\nuse crate::ops::add;\nfn f() {}\nuse crate::nn::Linear;";
    assert_eq!(planted("src/backend/kernel.rs", text).len(), 1);
}

#[test]
fn test_modules_in_their_own_files_may_use_everything() {
    let files = [
        file("src/memory/mod.rs", "#[cfg(test)]\nmod checks;\nmod blocks;"),
        file("src/memory/checks.rs", "use crate::nn::Linear;"),
        file("src/memory/ledger_tests.rs", "use crate::nn::Linear;"),
        file("src/memory/blocks.rs", "use crate::nn::Linear;"),
    ];
    let violations = layers_of("memcore").check(Path::new("src"), &files);
    assert_eq!(violations.len(), 1, "{}", listing(&violations));
    assert_eq!(violations[0].file, Path::new("src/memory/blocks.rs"));
}

#[test]
fn every_item_of_a_list_is_told_with_its_line() {
    let found = planted("src/error.rs", "use crate::backend::{Cost,\n Region};\nuse crate::memory::*;");
    let lines: Vec<&str> = found.iter().filter_map(|told| told.split(':').nth(1)).collect();
    assert_eq!(lines, ["1", "2", "3"], "{found:?}");
}

#[test]
fn there_is_no_way_round_the_layers() {
    let found = planted("src/shortcut.rs", "use crate::nn::Linear;");
    assert!(found[0].starts_with("src/shortcut.rs:1: module `shortcut` has no place"), "{found:?}");
    for text in
        ["use crate::shortcut::x;", "use crate::*;", "use super::*;", "use crate as all;", "use crate::{self as all};"]
    {
        assert_eq!(planted("src/memory.rs", text).len(), 1, "{text}");
    }
}

fn manifest_violations(package: &str, text: &str) -> Vec<String> {
    let others = ["memcore", "backend-cpu", "conformance", "models", "training", "lab", "cli", "xtask"]
        .into_iter()
        .filter(|name| *name != package);
    let manifest = |name: &str, text: &str| {
        let text = format!("[package]\nname = \"{name}\"\n{text}");
        manifests::parse(&file(&format!("{name}/Cargo.toml"), &text))
    };
    let mut members: Vec<_> = others.map(|name| manifest(name, "")).collect();
    members.push(manifest(package, text));
    manifests::check(&members).iter().map(ToString::to_string).collect()
}

#[test]
fn a_dependency_up_is_found_in_every_spelling() {
    for text in [
        "[dependencies]\nlab.workspace = true",
        "[dependencies]\nlab = { path = \"../lab\" }",
        "[dependencies]\nother = { package = \"lab\", path = \"../lab\" }",
        "[dependencies.lab]\npath = \"../lab\"",
        "[build-dependencies]\n\"lab\" = \"1\" # why not",
        "[target.'cfg(unix)'.dependencies]\nlab.workspace = true",
        "[dev-dependencies]\nlab.workspace = true",
    ] {
        let found = manifest_violations("memcore", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].ends_with("`memcore` may not depend on `lab`: the arrow would run up"), "{found:?}");
    }
    let found = manifest_violations("memcore", "\n[dependencies]\nlab = \"1\"");
    assert!(found[0].starts_with("memcore/Cargo.toml:5:"), "{found:?}");
}

#[test]
fn tests_may_depend_on_more() {
    let violations = |package, text| manifest_violations(package, text).len();
    assert_eq!(
        violations("backend-cpu", "[dependencies]\nmemcore = \"1\"\n[dev-dependencies]\nconformance = \"1\""),
        0
    );
    assert_eq!(violations("backend-cpu", "[dependencies]\nconformance = \"1\""), 1);
    assert_eq!(violations("lab", "[dev-dependencies]\nbackend-cpu = \"1\""), 0);
    assert_eq!(violations("lab", "[dependencies]\nbackend-cpu = \"1\""), 1);
    assert_eq!(violations("training", "[dependencies]\nvramlab-models.workspace = true"), 0);
    assert_eq!(violations("models", "[dependencies]\nvramlab-training.workspace = true"), 1);
    assert_eq!(violations("training", "[dependencies]\nvramlab-lab.workspace = true"), 1);
    assert_eq!(violations("cli", "[dependencies]\nlab = \"1\"\nbackend-cpu = \"1\"\nmemcore = \"1\""), 0);
}

#[test]
fn graphics_interfaces_stay_in_their_backends() {
    assert_eq!(manifest_violations("backend-wgpu", "[dependencies]\nwgpu = \"1\"").len(), 0);
    assert_eq!(manifest_violations("memcore", "[dependencies]\nwgpu = \"1\"").len(), 1);
    assert_eq!(manifest_violations("cli", "[dependencies]\ncudarc = \"1\"").len(), 1);
}

#[test]
fn a_member_without_a_rule_is_found() {
    let found = manifest_violations("newcomer", "");
    assert!(found[0].contains("`newcomer` has no rule"), "{found:?}");
}
