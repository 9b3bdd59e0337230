//! No files of a crate are in a circle.

use std::path::Path;

use xtask::circles::{Nodes, check};
use xtask::files::{SourceFile, member_manifests, rust_files, workspace_root};
use xtask::listing;

/// The files of each member's library and programs.
fn members() -> Vec<Vec<SourceFile>> {
    let root = workspace_root();
    let source_dir = |manifest: &SourceFile| root.join(manifest.path.parent().unwrap()).join("src");
    let dirs: Vec<_> = member_manifests(&root).unwrap().iter().map(source_dir).filter(|dir| dir.is_dir()).collect();
    dirs.iter().map(|dir| rust_files(&root, dir).unwrap()).collect()
}

/// Checks planted files, each with a path below `src` and a text; returns one line per circle.
fn planted(files: &[(&str, &str)]) -> Vec<String> {
    let file = |(path, text): &(&str, &str)| SourceFile { path: Path::new("src").join(path), text: text.to_string() };
    let files: Vec<SourceFile> = files.iter().map(file).collect();
    check(&files, Nodes::Files).iter().map(ToString::to_string).collect()
}

/// Checks two files `low` and `high`, where `high` uses an item of `low`; `text` is the text of `low`.
fn below(text: &str) -> Vec<String> {
    planted(&[
        ("lib.rs", "mod low;\nmod high;\nmod aside;"),
        ("low.rs", text),
        ("high.rs", "use crate::low::Low;\npub struct High;\nmacro_rules! raise { () => {} }\npub(crate) use raise;"),
        ("aside.rs", "pub use std::fmt;"),
    ])
}

#[test]
fn no_files_are_in_a_circle() {
    let violations: Vec<_> = members().iter().flat_map(|files| check(files, Nodes::Files)).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn no_modules_are_in_a_circle() {
    for files in members() {
        let violations = check(&files, Nodes::Modules);
        assert!(violations.is_empty(), "{}", listing(&violations));
    }
}

#[test]
fn children_are_one_with_their_module() {
    let texts = [
        ("src/lib.rs", "mod high;\nmod low;"),
        ("src/low.rs", "use crate::high::names::Name;\npub struct Low(Name);"),
        ("src/high/mod.rs", "pub(crate) mod names;\nuse crate::low::Low;\npub struct High(Low);"),
        ("src/high/names.rs", "pub struct Name;"),
    ];
    let files = texts.map(|(path, text)| SourceFile { path: path.into(), text: text.into() });
    assert!(check(&files, Nodes::Files).is_empty());
    let found = check(&files, Nodes::Modules);
    assert_eq!(found.len(), 1, "{}", listing(&found));
    assert!(found[0].to_string().contains("modules in a circle: "), "{}", found[0]);
}

#[test]
fn a_circle_is_found_with_its_lines() {
    let found = below("//! Low.\nuse crate::high::High;\npub struct Low(High);");
    let expected = "src/low.rs:2: files in a circle: src/low.rs:2 uses `High` of src/high.rs, src/high.rs:1 uses `Low` of src/low.rs";
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0] == expected || found[0].starts_with("src/high.rs:1: files in a circle: src/high.rs:1"),
        "{found:?}"
    );
}

#[test]
fn a_long_circle_is_told_once() {
    let found = planted(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B;\npub struct A;"),
        ("b.rs", "use crate::c::C;\npub struct B;"),
        ("c.rs", "use crate::a::A;\nuse crate::d::D;\npub struct C;"),
        ("d.rs", "pub struct D;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a.rs:1 uses `B`") && found[0].contains("c.rs:1 uses `A`"), "{found:?}");
    assert!(!found[0].contains("d.rs"), "{found:?}");
}

#[test]
fn every_spelling_of_a_use_is_followed() {
    for text in [
        "use crate::high::High;",
        "use super::high::High as Other;",
        "use crate::{high::{self, High}, aside};",
        "use crate::high::*;",
        "pub use crate::high::High;",
        "fn f() { use crate::high::High; }",
        "fn f() -> crate::high::High { todo() }",
        "use crate::high; fn f() -> high::High { todo() }",
        "use crate as all; fn f() -> all::high::High { todo() }",
        "use super::high as above; impl above::High {}",
        "mod inner { use super::super::high::High; }",
        "mod inner { pub use crate::high::High; } fn f(x: inner::High) {}",
        "#[serde(with = crate::high::High)] struct S;",
        "macro_rules! m { () => { $crate::high::High } }",
        "use crate::high::raise;",
        "fn f() { crate::raise!(); }",
        "#[cfg(unix)]\nuse crate::high::High;",
    ] {
        assert_eq!(below(text).len(), 1, "{text}: {:?}", below(text));
    }
}

#[test]
fn what_is_no_use_is_left_alone() {
    for text in [
        "pub struct Low;",
        "use crate::aside::fmt; use std::high::High;",
        "/// See [`crate::high::High`].\n// use crate::high::High;\nconst S: &str = \"crate::high::High\";",
        "pub(in crate::high) struct Low;",
        "fn f(high: usize) -> usize { high }",
        "#[cfg(test)]\nuse crate::high::High;",
        "#[cfg(test)]\nmod tests { use crate::high::High; fn f() { crate::high::f(); super::super::high::f() } }",
        "#[cfg(test)]\nfn f() -> crate::high::High { todo() }",
        "#[cfg(test)]\nmod tests;",
    ] {
        assert_eq!(below(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn files_of_tests_may_use_everything() {
    let found = planted(&[
        ("lib.rs", "mod low; mod high;"),
        (
            "low.rs",
            "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod checks;\n#[cfg(test)]\n#[path = \"low_tests.rs\"]\nmod more;",
        ),
        ("low/tests.rs", "use crate::high::High;\nuse super::super::high;"),
        ("low/checks.rs", "use crate::high::High; pub struct Checks;"),
        ("low_tests.rs", "use crate::high::High;"),
        ("high.rs", "use crate::low::Low; use crate::low::tests::f;\npub struct High;"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

/// Checks a parent with two children, one of which takes something from the parent.
fn family(parent: &str, child: &str) -> Vec<String> {
    planted(&[
        ("lib.rs", "mod parent; mod third;"),
        ("parent/mod.rs", parent),
        ("parent/child.rs", child),
        ("parent/sibling.rs", "pub struct Shared;"),
        ("third.rs", "pub struct Third;"),
    ])
}

#[test]
fn a_parent_that_hands_its_children_on_does_not_use_them() {
    let child = "use super::Own;\npub struct Child;";
    for parent in [
        "mod child;\npub struct Own;",
        "mod child;\npub use child::Child;\npub struct Own;",
        "mod child;\npub(crate) use self::child::Child as Kid;\npub struct Own;",
        "mod child;\npub use crate::parent::child::{Child, Other};\n/// A [`Child`].\npub struct Own { Child: u8 }",
    ] {
        assert_eq!(family(parent, child), Vec::<String>::new(), "{parent}");
    }
    for parent in [
        "mod child;\nuse child::Child;\npub struct Own;",
        "mod child;\npub use child::Child;\npub struct Own(Child);",
        "mod child;\npub use child::*;\npub struct Own;",
        "mod child;\npub struct Own(child::Child);",
        "mod child;\npub struct Own;\nimpl self::child::Child {}",
    ] {
        assert_eq!(family(parent, child).len(), 1, "{parent}");
    }
}

#[test]
fn what_a_parent_has_from_elsewhere_is_elsewhere() {
    let parent = "mod child;\nmod sibling;\nuse child::Child;\nuse crate::third::Third;\npub use sibling::Shared;";
    assert_eq!(family(parent, "use super::{Shared, Third};\npub struct Child;"), Vec::<String>::new());
    assert_eq!(family(parent, "use crate::parent::{self};\npub struct Child(parent::Shared);"), Vec::<String>::new());
    // Only the path leads through the parent: the circle is with the file at its end.
    let found = planted(&[
        ("lib.rs", "mod parent; pub use parent::B;"),
        ("parent.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
        ("parent/a.rs", "use crate::B;\npub struct A;"),
        ("parent/b.rs", "use super::A;\npub struct B;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("uses `B` of src/parent/b.rs") && found[0].contains("uses `A` of src/parent/a.rs"));
}

#[test]
fn a_function_named_as_its_file_is_found_there() {
    let found = planted(&[
        ("lib.rs", "mod parent; mod user;"),
        ("parent.rs", "mod check;\npub use check::check;"),
        ("parent/check.rs", "use crate::user::User;\npub fn check() {}"),
        ("user.rs", "use crate::parent::check;\npub struct User;\nfn f() { check() }"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_macro_of_the_parent_is_the_parents() {
    let found =
        family("macro_rules! m { () => {} }\nmod child;\npub struct Own(child::Child);", "m!();\npub struct Child;");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_program_beside_a_library_has_files_of_its_own() {
    let found = planted(&[
        ("lib.rs", "pub mod shared;\npub struct Common;"),
        ("shared.rs", "use crate::Common;"),
        ("main.rs", "mod chore;\nuse chore::run;\nfn common() {}"),
        ("chore.rs", "use the_library::Common;\npub fn run() {}"),
    ]);
    assert_eq!(found, Vec::<String>::new());
    let found = planted(&[
        ("tool/main.rs", "mod chore;\nuse chore::run;\npub struct Common;"),
        ("tool/chore.rs", "use crate::Common;\npub fn run() {}"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}
