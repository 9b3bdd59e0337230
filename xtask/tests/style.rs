//! Files stay short, and whatever is unsafe says why it is sound.

use xtask::files::{SourceFile, all_rust_files, workspace_root};
use xtask::listing;
use xtask::style::{MAX_LINES, too_long, unsafe_without_reason};

/// Nothing is at fault.
const NONE: [usize; 0] = [];

fn lines_at_fault(text: &str) -> Vec<usize> {
    let file = SourceFile { path: "x.rs".into(), text: text.into() };
    unsafe_without_reason(&file).iter().map(|violation| violation.line).collect()
}

#[test]
fn no_file_is_too_long() {
    let files = all_rust_files(&workspace_root()).unwrap();
    assert!(files.len() > 30, "only {} files were found", files.len());
    let violations: Vec<_> = files.iter().filter_map(too_long).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    let files = all_rust_files(&workspace_root()).unwrap();
    let violations: Vec<_> = files.iter().flat_map(unsafe_without_reason).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn a_line_too_many_is_found() {
    let of = |lines| too_long(&SourceFile { path: "x.rs".into(), text: "\n".repeat(lines) });
    assert_eq!(of(MAX_LINES), None);
    assert!(of(MAX_LINES + 1).is_some());
}

#[test]
fn silence_about_unsafe_is_found() {
    assert_eq!(lines_at_fault("fn f() {\n    unsafe { g() }\n}"), [2]);
    assert_eq!(lines_at_fault("unsafe impl Send for X {}"), [1]);
    assert_eq!(lines_at_fault("let s = \"SAFETY: \";\nunsafe { g() }"), [2]);
    assert_eq!(lines_at_fault("// SAFETY: far away\na();\nb();\nc();\nd();\nunsafe { g() }"), [6]);
    assert_eq!(lines_at_fault("let x = unsafe\n{ g() };"), [1]);
}

#[test]
fn a_reason_nearby_is_enough() {
    assert_eq!(
        lines_at_fault("// SAFETY: g has no conditions,\n// as its documentation says.\n\nunsafe { g() }"),
        NONE
    );
    assert_eq!(lines_at_fault("unsafe { g() } // SAFETY: none needed"), NONE);
    assert_eq!(lines_at_fault("// SAFETY: plain data\nunsafe impl Send for X {}\nunsafe impl Sync for X {}"), NONE);
    assert_eq!(lines_at_fault("unsafe fn f() {}\ntype F = unsafe fn();\nunsafe extern \"C\" {}"), NONE);
    assert_eq!(lines_at_fault("// unsafe { g() }\nlet s = \"unsafe { }\";"), NONE);
}
