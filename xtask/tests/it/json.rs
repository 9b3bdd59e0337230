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

#[test]
fn a_rehearsal_and_its_processes_have_one_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let made = xtask::contract::python(root).unwrap();
    let [types, endings] = &made;
    for expected in [
        "class Answer(TypedDict):",
        "    backward: List[Sequence[Any]]\n",
        "    oom: Optional[Oom]\n",
        "    until: List[str]\n",
        "    where: Optional[str]\n",
    ] {
        assert!(types.contains(expected), "{expected}: {types}");
    }
    assert!(types.find("class Card(") < types.find("class Answer("), "{types}");
    assert!(endings.contains("\nSTARTED = \".started\"\n"), "{endings}");
    for (file, made) in xtask::contract::FILES.iter().zip(&made) {
        let there = fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(there == *made, "{file}: run `cargo xtask json`");
    }
}
