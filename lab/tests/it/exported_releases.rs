//! A network is counted by the rules of the release that exported it: compared with the eager programs on PyTorch 2.15
//! (`golden/exported/torch-2.15`, made by `scripts/export/eager.py`).

use crate::archives;
use std::ops::ControlFlow;
use std::path::Path;

use lab::record::Row;
use lab::run::{RunSpec, Session, resolve};
use serde_json::json;

use crate::archives::compared::{Recording, golden};

const NAMES: [&str; 5] = ["encoder", "lstm-lm", "nanogpt", "resnet", "unet"];

fn session(path: &Path, fields: serde_json::Value) -> Session {
    let mut spec = json!({"model-file": path, "optimizer": "adamw", "steps": 3});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    resolve(&RunSpec::of_fields(spec.as_object().unwrap()).unwrap(), &[]).unwrap()
}

/// Rows of the run, without the last one, `end`.
fn rows(session: &Session) -> Vec<Row> {
    let device = session.target.open().unwrap();
    let mut rows = session.train(&device, &mut |_| ControlFlow::Continue(())).unwrap().rows;
    rows.pop();
    rows
}

#[test]
fn every_figure_is_that_of_the_release_that_exported_the_network() {
    for name in NAMES {
        let name = format!("torch-2.15/{name}");
        let (folder, recording) = (tempfile::tempdir().unwrap(), Recording::read(&name));
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), "net");
        for (batch, theirs) in &recording.runs {
            let mut fields = json!({"batch": batch});
            if recording.loss != "inside" {
                fields["loss"] = recording.loss.as_str().into();
            }
            let session = session(&path, fields);
            assert_eq!(session.in_force.like(), "torch-2.15-sm90");
            let ours = rows(&session);
            let figures = |rows: &[Row]| -> Vec<_> { rows.iter().map(|r| (r.label.clone(), r.figures())).collect() };
            assert_eq!(figures(&ours), figures(theirs), "{name}, batch {batch}");
        }
    }
}

/// The file's release is a default like any other: a flag goes before it, and the answer says where it is from.
#[test]
fn the_release_is_the_cards_the_files_or_the_flags() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), "net");
    let release = |session: &Session| {
        let premise = session.premises.iter().find(|premise| premise.name == "release");
        (session.in_force.like(), premise.map(|premise| format!("{}: {}", premise.value, premise.source)))
    };
    let newer = of("torch-2.15/nanogpt");
    let said = Some("PyTorch 2.15: net.pt2; --like RELEASE".to_string());
    assert_eq!(release(&session(&newer, json!({}))), ("torch-2.15-sm90".into(), said.clone()));
    assert_eq!(release(&session(&newer, json!({"gpu": "rtx4090"}))), ("torch-2.15-sm89".into(), said));
    assert_eq!(release(&session(&newer, json!({"like": "torch-2.13"}))), ("torch-2.13-sm90".into(), None));
    // No wheel of 2.15 has kernels for this card.
    assert_eq!(release(&session(&newer, json!({"gpu": "v100-32"}))), ("torch-2.10-sm70".into(), None));
    assert_eq!(release(&session(&of("nanogpt"), json!({}))), ("torch-2.11-sm90".into(), None));
}

/// A release that came after this program is counted as the newest that is known, and the answer says so.
#[test]
fn a_newer_release_is_counted_as_the_newest_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden("torch-2.15/nanogpt.pt2.gz"), folder.path(), "net");
    let mut entries = archives::entries(&std::fs::read(&path).unwrap());
    let model = entries.iter_mut().find(|(name, _)| name.ends_with("models/model.json")).unwrap();
    let text = String::from_utf8(model.1.clone()).unwrap().replace("2.15.0+cu132", "2.97.1+cu140");
    model.1 = text.into_bytes();
    std::fs::write(&path, archives::archive(&entries)).unwrap();
    let session = session(&path, json!({}));
    assert_eq!(session.in_force.like(), "torch-2.15-sm90");
    let premise = session.premises.iter().find(|premise| premise.name == "release").unwrap();
    assert_eq!(premise.source, "the newest known; net.pt2 is of 2.97.1+cu140");
}
