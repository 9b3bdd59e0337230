//! Exports with an evaluation after each step beside the eager programs (`golden/exported/evaluated`, made by `scripts/export/evaluated.py`).

use std::path::{Path, PathBuf};

use lab_imports::exported;
use lab_models::Architecture;

use crate::archives::compared::{Difference, Recording, differences, golden};
use crate::archives::{archive, entries, unpacked};

/// The entry that the package writes for an evaluation.
const ENTRY: &str = "net/extra/vramlab-evaluation.json";

/// Networks that are refused, and a part of the reason.
const REFUSED: &[(&str, &str)] =
    &[("encoder", "takes another path under model.eval()"), ("vit", "takes another path under model.eval()")];

fn file(name: &str, folder: &Path) -> PathBuf {
    unpacked(&golden(&format!("evaluated/{name}.pt2.gz")), folder, name)
}

/// All networks that were recorded.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(Path::new(crate::EXPORTS).join("evaluated")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(String::from)).collect();
    names.sort();
    names
}

#[test]
fn every_row_of_a_training_with_evaluations_is_the_eager_programs() {
    let folder = tempfile::tempdir().unwrap();
    let names = names();
    assert!(names.len() >= 10, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        let path = file(name, folder.path());
        let reason = exported::load(&path, None).unwrap().not_evaluated();
        if let Some((_, part)) = REFUSED.iter().find(|(refused, _)| refused == name) {
            assert!(reason.as_ref().is_some_and(|reason| reason.contains(part)), "{name}: {reason:?}");
            continue;
        }
        assert_eq!(reason, None, "{name}");
        let found: Vec<Difference> = differences(&path, &Recording::read(&format!("evaluated/{name}")));
        wrong.extend(found.iter().map(|found| format!("{name}, {found}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(REFUSED.iter().all(|(refused, _)| names.iter().any(|name| name == refused)));
}

/// Why an archive with this entry, or without one, cannot be evaluated.
fn refused(entry: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = file("gpt2", folder.path());
    let mut all = entries(&std::fs::read(&path).unwrap());
    all.retain(|(name, _)| name != ENTRY);
    all.extend(entry.map(|text| (ENTRY.to_string(), text.as_bytes().to_vec())));
    std::fs::write(&path, archive(&all)).unwrap();
    exported::load(&path, None).unwrap().not_evaluated().unwrap()
}

#[test]
fn what_cannot_be_read_of_an_evaluation_refuses_it_and_no_training() {
    let folder = tempfile::tempdir().unwrap();
    let all = entries(&std::fs::read(file("gpt2", folder.path())).unwrap());
    let entry = String::from_utf8(all.into_iter().find(|(name, _)| name == ENTRY).unwrap().1).unwrap();
    assert!(refused(None).ends_with("vramlab.export(model.train(), inputs, path=\"model.pt2\")"));
    for (entry, part) in [
        (entry.replacen("\"version\":1", "\"version\":2", 1), "another release of vramlab"),
        (entry.replace("aten.layer_norm.default", "aten.layer_noise.default"), "layer_noise.default"),
        (entry.replace("transformer.wte.weight", "transformer.other.weight"), "the training has no input as its"),
        (r#"{"version":1,"problem":"it asks for values"}"#.into(), "torch.export: it asks for values"),
        (entry[..entry.len() / 2].into(), "EOF"),
        (entry.replacen("[[", "[[\"nothing\",\"add\"],[", 1), "no graph of the file makes both"),
        ("{}".into(), "missing field"),
    ] {
        let reason = refused(Some(&entry));
        assert!(reason.contains(part), "{part}: {reason}");
    }
}
