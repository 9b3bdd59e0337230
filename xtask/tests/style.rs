//! Files stay short.

use xtask::files::{SourceFile, all_rust_files, workspace_root};
use xtask::listing;
use xtask::style::{MAX_LINES, too_long};

#[test]
fn no_file_is_too_long() {
    let files = all_rust_files(&workspace_root()).unwrap();
    assert!(files.len() > 30, "only {} files were found", files.len());
    let violations: Vec<_> = files.iter().filter_map(too_long).collect();
    assert!(violations.is_empty(), "{}", listing(&violations));
}

#[test]
fn a_line_too_many_is_found() {
    let of = |lines| too_long(&SourceFile { path: "x.rs".into(), text: "\n".repeat(lines) });
    assert_eq!(of(MAX_LINES), None);
    assert!(of(MAX_LINES + 1).is_some());
}
