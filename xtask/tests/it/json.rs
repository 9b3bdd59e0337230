//! `docs/json.md` agrees with the structs.

use std::fs;
use std::path::Path;

#[test]
fn the_document_of_the_schemas_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let made = xtask::schemas::markdown(root).unwrap();
    assert!(made.contains("## `vramlab-train-1`") && made.contains("| `settings` |"), "{made}");
    let there = fs::read_to_string(root.join("docs/json.md")).unwrap_or_default();
    assert!(there == made, "docs/json.md: run `cargo xtask json`");
}

#[test]
fn the_types_for_python_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let made = xtask::typed::python(&xtask::schemas::markdown(root).unwrap());
    assert!(made.contains("class TrainV1(TypedDict, total=False):"), "{made}");
    let there = fs::read_to_string(root.join(xtask::typed::FILE)).unwrap_or_default();
    assert!(there == made, "{}: run `cargo xtask json`", xtask::typed::FILE);
}
