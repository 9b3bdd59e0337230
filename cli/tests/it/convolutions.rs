//! What is said of convolutions, whose workspaces only a card knows.

use crate::common::{json, run};

/// Predicts a training of resnet18 on a card with this much memory for tensors.
fn predict(bytes: Option<u64>) -> (serde_json::Value, String) {
    let gpu = bytes.map(|bytes| format!("{bytes}B"));
    let limit: Vec<&str> = gpu.iter().flat_map(|gpu| ["--gpu", gpu]).collect();
    let words = [&["predict", "--model", "resnet18", "--batch", "8"], &limit[..]].concat();
    let told = run(&words);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    (json(&words), told.stdout)
}

#[test]
fn a_network_whose_upper_figure_does_not_fit_fits_perhaps() {
    let (found, _) = predict(None);
    let [reserved, upper] =
        ["/needs/reserved_bytes", "/with_cudnn/upper_bytes"].map(|at| found.pointer(at).unwrap().as_u64().unwrap());
    let [workspace, context] = ["workspace_bytes", "context_bytes"].map(|at| found["with_cudnn"][at].as_u64().unwrap());
    assert_eq!(upper, reserved + workspace + context);
    // The first convolution has the most: its input of 3 x 224 x 224, its weight, and 64 x 112 x 112 of output.
    let operands = 4 * (8 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 8 * 64 * 112 * 112);
    assert_eq!(workspace, operands + 132 * 128 * 1024);
    let (found, told) = predict(Some(upper + (64 << 20)));
    assert_eq!(found["fits"], true);
    assert!(told.contains("Yes: "), "{told}");
    let (found, told) = predict(Some(upper - (64 << 20)));
    assert!(found["fits"].is_null(), "{}", found["fits"]);
    let unbroken = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("Perhaps: ") && !told.contains("Yes"), "{told}");
    assert!(unbroken.contains("asks cuDNN itself") && unbroken.contains("vramlab predict train.py"), "{told}");
}

#[test]
fn a_network_without_convolutions_has_no_such_figure() {
    let found = json(&["predict", "--model", "mlp", "--batch", "8"]);
    assert!(found["with_cudnn"].is_null(), "{}", found["with_cudnn"]);
}
