//! `--save`, `--load`, `--resume` as a user has them.

use crate::common::{done, json, refused};

use serde_json::Value;
use std::fs;

const RUN: [&str; 12] =
    ["train", "--model", "mlp", "--width", "16", "--data", "digits", "--backend", "cpu", "--seed", "5", "--steps"];

fn with<'a>(steps: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    RUN.iter().chain(&[steps]).chain(more).copied().collect()
}

#[test]
fn two_halves_are_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (half, end, whole) = (file("half.safetensors"), file("end.safetensors"), file("whole.safetensors"));
    let losses = |run: Value| run["losses"].as_array().unwrap().clone();
    let all = losses(json(&with("6", &["--save", &whole])));
    let first = losses(json(&with("3", &["--save", &half])));
    let second = json(&with("3", &["--resume", &half, "--save", &end]));
    assert_eq!(second["settings"]["resume"], half.as_str());
    assert_eq!(second["steps"][2][0], "s3.input");
    assert_eq!(all, [first, losses(second)].concat());
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&end).unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "nothing else is left");
    // In place: the file that is read is replaced.
    done(&with("3", &["--resume", &half, "--save", &half]));
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&half).unwrap());
    let anew = losses(json(&with("1", &["--load", &whole, "--optimizer", "sgd"])));
    assert_eq!(anew.len(), 1);
}

/// What two devices begin, one ends, and the reverse.
#[test]
fn a_split_run_and_a_whole_one_have_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let split = |steps: &str, more: &[&str]| {
        let network: Vec<&str> = RUN.into_iter().filter(|word| !["--backend", "cpu"].contains(word)).collect();
        let run = json(&[&network[..], &[steps, "--devices", "cpu:0,cpu:1"], more].concat());
        (run["losses"].as_array().unwrap().clone(), run["accuracy"].clone())
    };
    let (half, whole, end, other) = (file("half"), file("whole"), file("end"), file("other"));
    let all = json(&with("4", &["--save", &whole]));
    let (first, _) = split("2", &["--save", &half]);
    let second = json(&with("2", &["--resume", &half, "--save", &end]));
    assert_eq!(all["losses"].as_array().unwrap(), &[first, second["losses"].as_array().unwrap().clone()].concat());
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&end).unwrap());
    done(&with("2", &["--save", &half]));
    let (losses, accuracy) = split("2", &["--resume", &half, "--save", &other]);
    assert_eq!(&losses, second["losses"].as_array().unwrap());
    assert!(all["accuracy"]["of"].as_u64().is_some_and(|of| of > 0));
    assert_eq!(accuracy, all["accuracy"]);
    let again = json(&with("1", &["--resume", &other]));
    assert_eq!(again["losses"], json(&with("1", &["--resume", &whole]))["losses"]);
}

#[test]
fn what_cannot_be_is_refused_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (state, out) = (path("state.safetensors"), path("out.safetensors"));
    done(&with("1", &["--save", &state]));
    let bytes = fs::read(&state).unwrap();
    let broken = path("broken.safetensors");
    fs::write(&broken, &bytes[..bytes.len() - 7]).unwrap();
    let (absent, folder) = (path("absent.safetensors"), path("no/such.safetensors"));
    for (more, part) in [
        (&["--resume", &state, "--optimizer", "sgd"][..], "optimizer was \"adam\" there"),
        (&["--resume", &state, "--width", "17"], "tensor \"0.weight\" is float32 [16, 64]"),
        (&["--load", &broken], "do not end where the file of"),
        (&["--load", &absent], "absent.safetensors: No such file"),
        (&["--load", env!("CARGO_MANIFEST_DIR")], "not a regular file"),
        (&["--load", &state, "--resume", &state], "cannot be used with"),
        (&["--save", "-"], "--save: needs a file"),
        (&["--save", &folder], "no such directory"),
        (&["--save", &out, "-L", "batch", "8,16"], "--save: it belongs to one run"),
        (&["--save", &out, "--data-parallel", "2"], "cannot be used with"),
        (&["--save", &out, "--backend", "meta"], "--save: meta computes nothing"),
    ] {
        let error = refused(2, &with("1", more));
        assert!(error.contains(part), "{more:?}: {error}");
    }
    let left: Vec<String> =
        fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read(&state).unwrap(), bytes);
}

/// The file with another value of one of its metadata.
fn edited(bytes: &[u8], key: &str, value: &str) -> Vec<u8> {
    let (len, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(len.try_into().unwrap()) as usize);
    let mut header: serde_json::Value = serde_json::from_slice(header).unwrap();
    assert!(header["__metadata__"][key].is_string(), "{header}");
    header["__metadata__"][key] = value.into();
    let header = header.to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes(), &header[..], data].concat()
}

#[test]
fn a_state_after_more_steps_than_can_be_counted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (state, late) = (path("state.safetensors"), path("late.safetensors"));
    done(&with("1", &["--save", &state]));
    fs::write(&late, edited(&fs::read(&state).unwrap(), "step", &usize::MAX.to_string())).unwrap();
    let error = refused(2, &with("1", &["--resume", &late]));
    assert!(error.contains("--steps: 1 after 18446744073709551615"), "{error}");
    let steps = usize::MAX.to_string();
    let error = refused(2, &["train", "--model", "linear", "--steps", &steps, "--accumulate", "3"]);
    assert!(error.contains("each of 3 micro-batches, are too many to count"), "{error}");
}
