//! `bench`: every figure is present and plausible. None is judged.

use std::fs;

use crate::common::{done, fits, refused, run};
use serde_json::Value;

const SHORT: [&str; 5] = ["bench", "--backend", "cpu", "--seconds", "0.2"];

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Reads a required figure of a measurement.
fn positive(value: &Value, key: &str) -> f64 {
    let figure = value[key].as_f64().unwrap_or_else(|| panic!("{key}: {value}"));
    assert!(figure > 0.0 && figure.is_finite(), "{key}: {value}");
    figure
}

/// Checks that the figures of a device are plausible.
fn check_device(device: &Value) {
    assert_eq!((&device["available"], &device["software"]), (&true.into(), &false.into()));
    assert!(list(device, "skipped").is_empty(), "{device}");
    for roof in ["copy_gb_per_s", "gemm_gflop_per_s"] {
        positive(&device["roofs"], roof);
    }
    let names: Vec<&str> = list(device, "kernels").iter().filter_map(|kernel| kernel["name"].as_str()).collect();
    assert_eq!(names, ["launch", "copy", "add, relu", "sum of rows", "softmax", "matmul", "conv2d 3x3"]);
    let networks: Vec<&str> = list(device, "training").iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(networks, ["mlp", "simplecnn-b32"]);
    for measured in list(device, "kernels").iter().chain(list(device, "training")) {
        let (us, bytes) = (positive(measured, "us"), positive(measured, "bytes"));
        assert!(positive(measured, "us_min") <= us && us <= positive(measured, "us_max"), "{measured}");
        let rate = positive(measured, "gb_per_s");
        assert!((rate - bytes / us / 1e3).abs() <= 1e-6 * rate, "{measured}");
        positive(measured, "of_roof");
        assert!(measured["samples"].as_u64() >= Some(1), "{measured}");
    }
    assert!(list(device, "training").iter().all(|step| positive(step, "peak_reserved_bytes") >= (1 << 20) as f64));
    // A product of 1024: two operations for each of 1024³.
    assert_eq!(list(device, "kernels")[5]["flops"], 1u64 << 31);
}

#[test]
fn the_processor_is_measured_for_people_programs_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (result, page, later, csv) = (file("b.json"), file("b.html"), file("later.html"), file("b.csv"));
    let files = ["--json", &result, "--html", &page, "--export-csv", &csv];
    let text = done(&SHORT.iter().copied().chain(files).chain(["--full"]).collect::<Vec<_>>());

    let bench: Value = serde_json::from_str(&fs::read_to_string(&result).unwrap()).unwrap();
    assert_eq!((&bench["schema"], &bench["interrupted"]), (&"vramlab-bench-1".into(), &false.into()));
    assert_eq!(bench["settings"]["backend"], "cpu");
    let [device] = list(&bench, "devices") else { panic!("one device: {bench}") };
    check_device(device);
    assert_eq!(list(&bench, "allocators").len(), 7);
    for policy in list(&bench, "allocators") {
        positive(policy, "ns_per_operation");
    }

    fits(&text);
    for part in [
        "Devices and their rooflines",
        "cpu:0",
        "matmul",
        "GFLOP/s",
        "caching",
        "The roofline is measured on the device",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let csv = fs::read_to_string(&csv).unwrap();
    assert_eq!(csv.lines().next(), Some("device,what,size,us,GB/s,GFLOP/s,of roof"));
    assert_eq!(csv.lines().count(), 1 + 7 + 2 + 7, "{csv}");

    done(&["report", &result, "-o", &later]);
    let shown = fs::read_to_string(&page).unwrap();
    assert_eq!(shown, fs::read_to_string(&later).unwrap());
    for part in ["<svg", "softmax", "simplecnn-b32", "vramlab bench --backend cpu --seconds 0.2"] {
        assert!(shown.contains(part), "{part}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let message = refused(2, &["bench", "--backend", "meta"]);
    assert!(message.contains("computes nothing"), "{message}");
    for wrong in
        [&["--backend", "abacus"][..], &["--seconds", "0"], &["--seconds", "-1"], &["--seconds", "soon"], &["now"]]
    {
        let words: Vec<&str> = ["bench"].iter().chain(wrong).copied().collect();
        assert_eq!(run(&words).code, Some(2), "{wrong:?}");
    }
}
