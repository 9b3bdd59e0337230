//! What is said of convolutions, whose workspaces only a card knows.

use crate::common::{json, run};

/// Predicts a training of resnet18 on a card with this much memory for tensors.
fn predict(bytes: Option<u64>) -> (serde_json::Value, String) {
    let gpu = bytes.map(|bytes| format!("{bytes}B"));
    let limit: Vec<&str> = gpu.iter().flat_map(|gpu| ["--gpu", gpu]).collect();
    // No table has the workspaces of this batch.
    let words = [&["predict", "--model", "resnet18", "--batch", "19"], &limit[..]].concat();
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
    // Each convolution's operands are in it, three tenths of all that is reserved, and cuDNN's part of the context.
    assert!(upper > reserved + workspace / 2 + reserved * 3 / 10 + context, "{found}");
    // The first convolution has the most: its input of 3 x 224 x 224, its weight, and 64 x 112 x 112 of output.
    let operands = 4 * (19 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 19 * 64 * 112 * 112);
    assert_eq!(workspace, operands + 132 * 128 * 1024);
    let (found, told) = predict(Some(upper + (64 << 20)));
    assert_eq!(found["fits"], true);
    assert!(told.contains("Yes: "), "{told}");
    let (found, told) = predict(Some(reserved + (64 << 20)));
    assert!(found["fits"].is_null(), "{}", found["fits"]);
    let unbroken = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("Perhaps: ") && !told.contains("Yes"), "{told}");
    assert!(unbroken.contains("`--cudnn ask` asks the cuDNN of your PyTorch, without a card"), "{told}");
}

/// torchvision's ConvNeXt-S under autocast, with workspaces of 0: `vramlab rehearse --cudnn none` of torch 2.11 reserves as much where the script
/// calls `zero_grad` before its forward pass.
#[test]
fn a_picture_whose_channels_lie_innermost_is_convolved_as_it_lies() {
    let words = "predict --model convnext-small --batch 37 --precision autocast-bf16 --optimizer momentum --gpu h200 --cudnn-workspace 0";
    let found = json(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(found["needs"]["reserved_bytes"], 4_559_208_448_u64, "{}", found["needs"]);
}

#[test]
fn a_network_without_convolutions_has_no_such_figure() {
    let found = json(&["predict", "--model", "mlp", "--batch", "8"]);
    assert!(found["with_cudnn"].is_null(), "{}", found["with_cudnn"]);
}

/// The verdict with `batch` examples for each of `cards` cards.
fn verdict(batch: u64, cards: u64) -> serde_json::Value {
    let (batch, cards) = ((batch * cards).to_string(), cards.to_string());
    let words = ["predict", "--model", "resnet18", "--batch", &batch, "--gpu", "4GiB"];
    let divided: &[&str] = if cards == "1" { &[] } else { &["--data-parallel", &cards] };
    let told = run(&[&words, divided, &["--json", "-"]].concat());
    serde_json::from_str::<serde_json::Value>(&told.stdout).unwrap()["fits"].clone()
}

#[test]
fn the_largest_batch_has_room_for_cudnn_and_more_is_perhaps() {
    let words = ["fit", "--model", "resnet18", "--gpu", "4GiB"];
    let found = json(&words);
    let [surely, at_best] = ["largest", "largest_without_cudnn"].map(|name| found[name].as_u64().unwrap());
    assert!(surely < at_best, "{found}");
    assert_eq!(verdict(surely, 1), true);
    assert!(verdict(surely + 1, 1).is_null() && verdict(at_best, 1).is_null());
    assert!(verdict((surely + at_best) / 2, 2).is_null());
    assert_eq!(verdict(at_best + at_best / 20 + 1, 1), false, "not even by the lower figure");
    let told = run(&words).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let perhaps = found["largest_with_least_context"].as_u64().unwrap();
    assert!(perhaps >= at_best, "{found}");
    assert!(told.contains(&format!("{perhaps} perhaps, {} do not", perhaps + 1)), "{told}");
    assert!(told.contains("cuDNN 9.19 said what it needs"), "{told}");
}

#[test]
fn changes_that_are_proposed_have_room_for_cudnn() {
    for batch in ["150", "220"] {
        let told = run(&["predict", "--model", "resnet18", "--batch", batch, "--gpu", "4GiB", "--json", "-"]);
        let found: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        let entries = found["tries"]["entries"].as_array().unwrap();
        assert!(!entries.is_empty(), "{found}");
        for entry in entries {
            let command = entry["command"].as_str().unwrap().strip_prefix("vramlab ").unwrap();
            let again = json(&command.split(' ').collect::<Vec<_>>());
            assert_eq!(again["fits"], true, "{command}");
        }
    }
}

/// The tables of capability 7.5 are those of a T4: larger cards of it have other workspaces.
#[test]
fn a_table_of_another_size_of_card_is_not_used() {
    let source = |gpu: &str| {
        let words = ["predict", "--model", "simple-cnn", "--batch", "64", "--gpu", gpu];
        json(&words)["with_cudnn"]["source"].clone()
    };
    assert_ne!(source("t4"), "bounded");
    assert_eq!(source("rtx8000"), "bounded");
    assert_eq!(source("rtx3060"), source("a6000"), "of 8.6 all share answers");
}
