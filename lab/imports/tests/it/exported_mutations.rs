//! Damaged exports: after any change, reading ends with a message that names the file, or with a network that can be predicted.

use crate::archives;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use lab_imports::exported;
use lab_training::{Continuation, Failed, OptimizerKind, OptimizerSettings, RunResult, RunSettings, Source};
use memcore::Device;
use proptest::prelude::*;
use serde_json::Value;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/golden/exported/{name}.pt2.gz", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn entries(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    archives::entries(&std::fs::read(archives::unpacked(&golden(name), folder.path(), name)).unwrap())
}

/// The same with the entry that the package for Python adds to the graph.
fn entries_with_lifetimes(name: &str) -> Vec<(String, Vec<u8>)> {
    let path = format!("{}/tests/golden/exported/eager/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let recording: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut all = entries(name);
    all.push((ENTRY.into(), serde_json::to_vec(&recording["entry"]).unwrap()));
    all
}

const ENTRY: &str = "net/extra/vramlab.json";

/// Reads a file, and makes a step of the network if it is small.
fn survives(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.pt2");
    std::fs::write(&path, bytes).unwrap();
    let start = Instant::now();
    match exported::load(&path, None) {
        Ok(model) => drop(train(&model)),
        Err(error) => assert!(!error.to_string().is_empty() && error.is_usage(), "{error}"),
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Makes a step on a device without values. It may fail, but not panic.
fn train(model: &exported::Exported) -> Result<RunResult, Failed> {
    let device = Device::meta("torch-2.11-sm90").unwrap();
    let settings = RunSettings::new(model.sizes().example, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    exported::train_from(model, &device, &settings, source, &mut Continuation::default(), progress)
}

/// The error of reading an export with a changed program.
fn refused(name: &str, change: impl Fn(&mut Value)) -> String {
    refused_archive(&with_program(name, change))
}

/// The export with a changed program.
fn with_program(name: &str, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut entries = entries(name);
    for (entry, bytes) in &mut entries {
        if entry.ends_with("models/model.json") {
            let mut program: Value = serde_json::from_slice(bytes).unwrap();
            change(&mut program);
            *bytes = serde_json::to_vec(&program).unwrap();
        }
    }
    archives::archive(&entries)
}

fn refused_archive(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.pt2");
    std::fs::write(&path, bytes).unwrap();
    let error = exported::load(&path, None).err().expect("it was read");
    assert!(error.is_usage());
    without(folder.path(), &error.to_string())
}

fn without(folder: &Path, text: &str) -> String {
    text.replace(&format!("{}/", folder.display()), "")
}

fn nodes(program: &mut Value) -> &mut Vec<Value> {
    program["graph_module"]["graph"]["nodes"].as_array_mut().unwrap()
}

#[test]
fn operators_that_are_not_represented_are_listed_all_at_once() {
    let error = refused("cnn", |program| {
        let nodes = nodes(program);
        for node in nodes.iter_mut().filter(|node| node["target"] == "torch.ops.aten.relu.default") {
            node["target"] = "torch.ops.aten.special.default".into();
        }
        let last = nodes.len() - 1;
        nodes[last]["target"] = "torch.ops.mine.own.default".into();
    });
    assert_eq!(
        error,
        "net.pt2: vramlab does not support 2 operators: special.default (2 ×, first in networks.py:31); \
         mine.own.default (1 ×, first in fc, networks.py:33)"
    );
}

#[test]
fn an_input_that_keeps_the_examples_batch_fixes_it() {
    let bytes = with_program("unet2d", |program| {
        let sizes = &mut program["graph_module"]["graph"]["tensor_values"]["noisy"]["sizes"];
        sizes[0] = serde_json::json!({"as_int": sizes[0]["as_expr"]["hint"]["as_int"]});
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.pt2");
    std::fs::write(&path, bytes).unwrap();
    let model = exported::load(&path, None).unwrap();
    let example = model.sizes().example;
    model.sizes().check(example).unwrap();
    let error = model.sizes().check(example + 1).unwrap_err().to_string();
    let part = format!("the network's code takes the {example} examples of noisy apart");
    assert!(error.contains(&part), "{error}");
}

#[test]
fn an_lstm_with_projections_is_refused_by_name() {
    let bytes = with_program("lstm", |program| {
        let lstm = nodes(program).iter_mut().find(|node| node["target"] == "torch.ops.aten.lstm.input").unwrap();
        let weights = lstm["inputs"][2]["arg"]["as_tensors"].as_array_mut().unwrap();
        // A further weight of each direction.
        weights.insert(4, weights[1].clone());
        weights.push(weights[1].clone());
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.pt2");
    std::fs::write(&path, bytes).unwrap();
    let error = train(&exported::load(&path, None).unwrap()).unwrap_err().error.to_string();
    assert!(error.contains("an LSTM with proj_size is not supported"), "{error}");
}

#[test]
fn another_version_of_the_schema_is_refused_by_name() {
    let error = refused("mlp", |program| program["schema_version"]["major"] = 9.into());
    assert!(error.starts_with("net.pt2: net/models/model.json: is of version 9."), "{error}");
}

#[test]
fn a_name_that_no_node_makes_and_one_that_two_make_are_refused() {
    let error = refused("mlp", |program| {
        nodes(program)[1]["inputs"][0]["arg"]["as_tensor"]["name"] = "nobody".into();
    });
    assert_eq!(error, "net.pt2: node relu: uses nobody, which no node before it makes");
    // A cycle: a node uses its own result.
    let error = refused("mlp", |program| {
        nodes(program)[0]["inputs"][0]["arg"]["as_tensor"]["name"] = "gelu".into();
    });
    assert_eq!(error, "net.pt2: node linear: uses gelu, which no node before it makes");
    let error = refused("mlp", |program| {
        nodes(program)[1]["outputs"][0]["as_tensor"]["name"] = "linear".into();
    });
    assert_eq!(error, "net.pt2: node linear: the name linear is given a second time");
}

#[test]
fn arguments_of_unknown_kinds_and_functional_programs_are_refused() {
    let error = refused("mlp", |program| {
        nodes(program)[1]["inputs"][0]["arg"] = serde_json::json!({"as_custom_obj": {"name": "x", "class_fqn": "y"}});
    });
    assert_eq!(error, "net.pt2: node relu: an argument of kind as_custom_obj, which is not supported");
    let error = refused("mlp", |program| {
        program["graph_module"]["signature"]["output_specs"][0] =
            serde_json::json!({"buffer_mutation": {"arg": {"name": "x"}, "buffer_name": "b"}});
    });
    assert!(error.contains("an output is a buffer_mutation: the program was made functional"), "{error}");
}

#[test]
fn sizes_beyond_any_device_are_refused() {
    let error = refused("mlp", |program| {
        program["graph_module"]["graph"]["tensor_values"]["p_layers_0_weight"]["sizes"] =
            serde_json::json!([{"as_int": i64::MAX}, {"as_int": i64::MAX}]);
    });
    assert!(error.ends_with("layers.0.weight: its sizes are beyond any device"), "{error}");
}

/// The error of reading an export with this entry added to its graph.
fn refused_beside(name: &str, entry: &Value) -> String {
    let mut all = entries(name);
    all.push((ENTRY.into(), serde_json::to_vec(entry).unwrap()));
    refused_archive(&archives::archive(&all))
}

#[test]
fn what_lies_beside_the_graph_is_refused_where_it_is_of_another_version() {
    let error = refused_beside("mlp", &serde_json::json!({"version": 2, "dies_after": {"other": "format"}}));
    assert_eq!(
        error,
        "net.pt2: net/extra/vramlab.json: is of version 2, and version 1 is read: it was written by another release of vramlab; export the \
         network once more with the package of this one"
    );
    let error = refused_beside("mlp", &serde_json::json!({"dies_after": []}));
    assert!(error.contains("extra/vramlab.json: missing field `version`"), "{error}");
}

#[test]
fn lifetimes_of_values_that_the_graph_does_not_have_are_refused() {
    let of = |deaths: Value| refused_beside("mlp", &serde_json::json!({"version": 1, "dies_after": deaths}));
    let unknown = "relu dies after nobody, and no graph of the file makes both";
    assert_eq!(of(serde_json::json!([["relu", "nobody"]])), format!("net.pt2: extra/vramlab.json: {unknown}"));
    // The network's own tensors do not die.
    let error = of(serde_json::json!([["p_layers_0_weight", "relu"]]));
    assert!(error.ends_with("p_layers_0_weight dies after relu, and no graph of the file makes both"), "{error}");
    // A region that the file does not have has no values.
    let error = of(serde_json::json!([["relu", "linear_1", "submod_1"]]));
    assert!(error.ends_with("relu dies after linear_1, and no graph of the file makes both"), "{error}");
    let error = of(serde_json::json!([["relu"]]));
    assert!(error.contains("a death has two names, and at most that of a region"), "{error}");
    let early = of(serde_json::json!([["relu", "linear"]]));
    assert_eq!(early, "net.pt2: extra/vramlab.json: relu dies before its last use");
    let twice = of(serde_json::json!([["relu", "gelu"], ["relu", "gelu"]]));
    assert_eq!(twice, "net.pt2: net/extra/vramlab.json: the value relu dies twice");
}

#[test]
fn parameters_that_are_said_to_be_one_must_be_alike() {
    let tied = serde_json::json!({"version": 1, "tied": [["layers.0.weight", "layers.2.weight"]]});
    let error = refused_beside("mlp", &tied);
    assert!(
        error.ends_with("layers.0.weight and layers.2.weight are said to be one, and differ in sizes, type or kind"),
        "{error}"
    );
}

#[test]
fn archives_that_are_none_of_these_are_refused_with_what_they_are() {
    assert!(refused_archive(b"PK\x03\x04 and no more").starts_with("net.pt2: "));
    let of = |name: &str| refused_archive(&archives::archive(&[(name.to_string(), b"x".to_vec())]));
    assert_eq!(of("archive/data.pkl"), "net.pt2: was made by torch.save, not by torch.export.save");
    assert_eq!(
        of("serialized_exported_program.json"),
        "net.pt2: an export of torch 2.8 or earlier; export it once more with torch 2.9 or later"
    );
    assert_eq!(of("a/archive_format"), "net.pt2: a/archive_format: says \"x\", not \"pt2\"");
    let mut all = entries("mlp");
    all.retain(|(name, _)| !name.contains("/models/"));
    let error = refused_archive(&archives::archive(&all));
    assert_eq!(error, "net.pt2: net/models: holds no model: torch.export.save writes one, models/model.json");
}

/// The error of a step with four examples, if the file gives this size to the result of `gelu`.
fn refused_in_a_step(dimension: usize, size: &dyn Fn(&Value) -> Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.pt2");
    let changed = with_program("mlp", |program| {
        let known = &mut program["graph_module"]["graph"]["tensor_values"]["gelu"]["sizes"][dimension];
        *known = size(known);
    });
    std::fs::write(&path, changed).unwrap();
    let model = exported::load(&path, None).unwrap();
    let device = Device::meta("torch-2.11-sm90").unwrap();
    let settings = RunSettings::new(4, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let failed = exported::train_from(&model, &device, &settings, source, &mut Continuation::default(), progress);
    without(folder.path(), &failed.unwrap_err().to_string())
}

#[test]
fn a_result_that_is_not_what_the_file_says_is_refused_with_the_line() {
    let error = refused_in_a_step(1, &|_| serde_json::json!({"as_int": 255}));
    assert_eq!(error, "net.pt2: gelu.default in layers.3, networks.py:19: gives [4, 256], the file says [4, 255]");
}

#[test]
fn an_open_size_of_a_result_is_compared_with_what_follows_from_the_inputs() {
    let twice = |known: &Value| {
        let batch = known["as_expr"]["expr_str"].as_str().unwrap();
        serde_json::json!({"as_expr": {"expr_str": format!("Mul(Integer(2), {batch})")}})
    };
    let error = refused_in_a_step(0, &twice);
    assert_eq!(error, "net.pt2: gelu.default in layers.3, networks.py:19: gives [4, 256], the file says [8, 256]");
}

/// Makes one change in the program's text or in the archive.
#[derive(Clone, Debug)]
enum Change {
    Byte(usize, u8),
    Digit(usize, u8),
    Cut(usize, usize),
    Copy(usize, usize, usize),
    Truncate(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || any::<usize>();
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (place(), b'0'..=b'9').prop_map(|(at, digit)| Change::Digit(at, digit)),
        (place(), 1..64usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (place(), place(), 1..64usize).prop_map(|(from, to, length)| Change::Copy(from, to, length)),
        place().prop_map(Change::Truncate),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len().max(1);
        match *change {
            Change::Byte(at, byte) => bytes.get_mut(at % length).into_iter().for_each(|old| *old = byte),
            Change::Digit(at, digit) => {
                // Replaces the next digit: sizes, axes, offsets of weights.
                let at = at % length;
                bytes.iter_mut().skip(at).find(|byte| byte.is_ascii_digit()).into_iter().for_each(|old| *old = digit);
            }
            Change::Cut(at, count) => {
                let at = (at % length).min(bytes.len());
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Change::Copy(from, to, count) => {
                let from = (from % length).min(bytes.len());
                let piece: Vec<u8> = bytes[from..(from + count).min(bytes.len())].to_vec();
                let to = (to % length).min(bytes.len());
                bytes.splice(to..to, piece);
            }
            Change::Truncate(at) => bytes.truncate(at % length),
        }
    }
    bytes
}

#[test]
fn a_damaged_archive_is_survived() {
    let whole = archives::archive(&entries_with_lifetimes("nanogpt"));
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) }, |(
        changes in prop::collection::vec(change(), 1..4),
    )| survives(&changed(whole.clone(), &changes)));
}

#[test]
fn a_damaged_program_is_survived() {
    let networks: BTreeMap<usize, _> =
        ["cnn", "nanogpt", "vae", "resnet"].map(entries_with_lifetimes).into_iter().enumerate().collect();
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }, |(
        which in 0..4usize,
        digits in prop::bool::ANY,
        changes in prop::collection::vec(change(), 1..4),
    )| {
        let mut all = networks[&which].clone();
        let changes: Vec<Change> = changes.into_iter().map(|change| match change {
            // Mostly programs that are still JSON: their numbers are wrong.
            Change::Byte(at, byte) | Change::Digit(at, byte) if digits => Change::Digit(at, b'0' + byte % 10),
            other => other,
        }).collect();
        for (entry, bytes) in &mut all {
            if entry.ends_with(".json") {
                *bytes = changed(std::mem::take(bytes), &changes);
            }
        }
        survives(&archives::archive(&all));
    });
}
