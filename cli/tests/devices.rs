//! Devices and experiments, listed.

mod common;
use common::{done, fits, json};

#[test]
fn devices_are_listed_for_people_and_programs() {
    let text = done(&["devices"]);
    fits(&text);
    assert!(text.contains("meta") && text.contains("bf16"), "{text}");
    let devices = json(&["devices"]);
    assert_eq!(devices["schema"], "vramlab-devices-1");
    let devices = devices["devices"].as_array().unwrap();
    for device in devices {
        for key in ["backend", "index", "name", "available", "reason", "total_bytes", "free_bytes", "dtypes"] {
            assert!(device.get(key).is_some(), "{key}: {device}");
        }
        assert_eq!(device["available"].as_bool(), Some(device["reason"].is_null()), "{device}");
    }
    let meta = devices.iter().find(|device| device["backend"] == "meta").unwrap();
    assert_eq!((&meta["total_bytes"], &meta["available"]), (&(1u64 << 50).into(), &true.into()));
    assert!(meta["dtypes"].as_array().unwrap().contains(&"float16".into()));
}

#[test]
fn experiments_are_listed_for_people_and_programs() {
    let list = json(&["list"]);
    assert_eq!(list["schema"], "vramlab-list-1");
    let text = done(&["list", "-v"]);
    fits(&text);
    for experiment in list["experiments"].as_array().unwrap() {
        assert!(text.contains(experiment["name"].as_str().unwrap()), "{experiment}");
        for claim in experiment["claims"].as_array().unwrap() {
            assert!(claim["text"].is_string() && claim["source"].is_string(), "{claim}");
        }
        for (name, _) in experiment["sizes"].as_object().unwrap() {
            assert!(text.contains(&format!("--set {name}=")), "{name}");
        }
    }
}
