//! Groups a to d: the networks of the articles.

use lab::experiments::programs::{KeptActivations, kept_activations};
use lab::models::ModelOptions;

use super::compare::check;
use super::run::{check_file, check_model, check_zoo, scripts, train, zoo};

const SIMPLE_CNN: &str = "batch = 128\nsteps = 3\n[optimizer]\nname = \"adam\"\n[schedule]\nprefix = \"e\"\n";

fn simple_cnn(name: &str) {
    check_zoo(name, "simple-cnn", SIMPLE_CNN);
}

fn simple_cnn_32(name: &str) {
    check_zoo(name, "simple-cnn", &SIMPLE_CNN.replace("128", "32"));
}

fn simple_cnn_emptying_the_cache(name: &str) {
    let order = r#"
        order = ["input", "zero_grad", "forward", "loss", "backward", "step", "del", "empty_cache"]
        rows = ["input", "zero_grad", "forward", "loss", "backward", "step", "empty_cache"]
    "#;
    check_zoo(name, "simple-cnn", &(SIMPLE_CNN.replace("128", "32") + order));
}

fn simple_cnn_twice(name: &str) {
    let (network, first) = zoo("simple-cnn", SIMPLE_CNN);
    let second = lab::training::RunSettings { batch: 32, ..first.clone() };
    check(name, |device| {
        let mut rows = train(&*network, device, &first, "b128.");
        rows.push(lab::record::Row::take(device, "between"));
        rows.extend(train(&*network, device, &second, "b32."));
        rows
    });
}

fn simple_cnn_growing(name: &str) {
    let (network, second) = zoo("simple-cnn", SIMPLE_CNN);
    let first = lab::training::RunSettings { batch: 32, ..second.clone() };
    check(name, |device| {
        let mut rows = train(&*network, device, &first, "b32.");
        rows.push(lab::record::Row::take(device, "between"));
        rows.extend(train(&*network, device, &second, "b128."));
        rows
    });
}

fn linear(name: &str) {
    check_zoo(name, "linear", "batch = 32\nsteps = 5\n[optimizer]\nname = \"sgd\"\n");
}

fn leak(name: &str) {
    let clear = name.ends_with("cleared");
    check(name, |device| kept_activations(device, &KeptActivations { steps: 5, batch: 32, clear, seed: 0 }).unwrap());
}

fn forward_twice(name: &str, network: &str, batch: usize) {
    let schedule = format!(
        "batch = {batch}\n[schedule]\nprefix = \"\"\norder = [\"input\", \"forward\", \"del\", \"forward_no_grad\"]\n"
    );
    check_zoo(name, network, &schedule);
}

fn two_steps(name: &str, network: &str, optimizer: &str) {
    check_zoo(name, network, &format!("batch = 4\nsteps = 2\n[optimizer]\nname = \"{optimizer}\"\n"));
}

fn convolutions(name: &str) {
    let text = r#"
        batch = 8
        steps = 2
        [input]
        shape = [3, 32, 32]
        [[layer]]
        type = "conv2d"
        out = 16
        kernel = 3
        padding = 1
        [[layer]]
        type = "relu"
        [[layer]]
        type = "conv2d"
        out = 32
        kernel = 3
        padding = 1
        [[layer]]
        type = "relu"
        [[layer]]
        type = "conv2d"
        out = 8
        kernel = 1
        [[layer]]
        type = "relu"
        [[layer]]
        type = "flatten"
        [[layer]]
        type = "linear"
        out = 10
        [loss]
        type = "cross-entropy"
        [optimizer]
        name = "sgd"
        [schedule]
        rows = ["input", "forward", "loss", "backward", "step"]
    "#;
    check_file(name, text);
}

fn resnet(name: &str) {
    let options = ModelOptions { classes: Some(10), image: Some(64), ..ModelOptions::default() };
    let lines = "batch = 4\nsteps = 2\n[optimizer]\nname = \"momentum\"\n[schedule]\nrows = [\"input\", \"forward\", \"loss\", \"backward\", \"step\"]\n";
    check_model(name, "resnet18", options, lines);
}

scripts! {
    a_cnn_b128 => simple_cnn;
    a_cnn_b128_nows => simple_cnn;
    a_cnn_b128_sm80 => simple_cnn;
    a_cnn_b128_cudnn_ws0 => simple_cnn;
    a_cnn_b128_cudnn_ws2097152 => simple_cnn;
    a_cnn_b128_cudnn_ws5000000 => simple_cnn;
    a_cnn_b32 => simple_cnn_32;
    a_cnn_b32_empty_cache => simple_cnn_emptying_the_cache;
    a_cnn_b128_then_b32 => simple_cnn_twice;
    a_cnn_b128_then_b32_cudnn_ws0 => simple_cnn_twice;
    a_cnn_b128_expandable => simple_cnn;
    a_cnn_b32_then_b128 => simple_cnn_growing;
    b_linear => linear;
    b_linear_sm80 => linear;
    c_leak => leak;
    c_leak_cleared => leak;
    d_convs => convolutions;
    d_convs_cudnn_ws0 => convolutions;
    d_convs_cudnn_ws2097152 => convolutions;
    d_small_forward_b1 => |name| forward_twice(name, "small-network", 1);
    d_small_forward_b4 => |name| forward_twice(name, "small-network", 4);
    d_small_forward_b4_cudnn_ws0 => |name| forward_twice(name, "small-network", 4);
    d_small_forward_b4_cudnn_ws2097152 => |name| forward_twice(name, "small-network", 4);
    d_larger_forward_b1 => |name| forward_twice(name, "larger-conv", 1);
    d_small_train_adam_b4 => |name| two_steps(name, "small-network", "adam");
    d_small_train_sgd_b4 => |name| two_steps(name, "small-network", "sgd");
    d_larger_train_adamw_b4 => |name| two_steps(name, "larger-conv", "adamw");
    d_small_train_adamw_b4 => |name| two_steps(name, "small-network", "adamw");
    d_larger_train_adam_b4 => |name| two_steps(name, "larger-conv", "adam");
    d_larger_train_adam_b4_cudnn_ws0 => |name| two_steps(name, "larger-conv", "adam");
    d_larger_train_adam_b4_cudnn_ws2097152 => |name| two_steps(name, "larger-conv", "adam");
    d_larger_train_sgd_b4 => |name| two_steps(name, "larger-conv", "sgd");
    f_resnet18_b4_64 => resnet;
}
