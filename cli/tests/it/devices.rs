//! Lists of devices and experiments.

use crate::common::{done, fits, json, refused};

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
    let csv = done(&["devices", "--export-csv", "-"]);
    assert!(csv.lines().any(|line| line.starts_with("meta,0,") && line.contains(",1125899906842624,")), "{csv}");
    let meta = devices.iter().find(|device| device["backend"] == "meta").unwrap();
    assert_eq!((&meta["total_bytes"], &meta["available"]), (&(1u64 << 50).into(), &true.into()));
    assert!(meta["dtypes"].as_array().unwrap().contains(&"float16".into()));
}

/// Without a driver the list shows the device with the reason, and a request for it ends with the exit code for devices. On a machine
/// with an NVIDIA GPU the test is void.
#[cfg(feature = "cuda")]
#[test]
fn an_absent_gpu_says_what_is_missing() {
    let devices = json(&["devices"]);
    let cuda =
        devices["devices"].as_array().unwrap().iter().find(|device| device["backend"] == "cuda").unwrap().clone();
    if cuda["available"] == true {
        return;
    }
    let reason = cuda["reason"].as_str().unwrap();
    assert!(reason.contains("NVIDIA") || reason.contains("NVRTC"), "{reason}");
    let message = refused(3, &["train", "--model", "mlp", "--backend", "cuda", "--steps", "1"]);
    assert!(message.contains("cuda"), "{message}");
}

#[test]
fn experiments_are_listed_for_people_and_programs() {
    let list = json(&["list"]);
    assert_eq!(list["schema"], "vramlab-list-1");
    let text = done(&["list", "--full"]);
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
