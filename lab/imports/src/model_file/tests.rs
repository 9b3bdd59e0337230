//! Mistakes in a model file: the message names the file, the line, the key, and what would fit.

use super::*;

/// The message for a file with this text.
fn problem(text: &str) -> String {
    match parse("net.toml", text) {
        Ok(_) => panic!("no mistake was found in\n{text}"),
        Err(error @ Error::Usage { .. }) => error.to_string(),
        Err(error) => panic!("not a mistake of the user's: {error}"),
    }
}

/// Fails unless the message begins with the place and contains the rest.
#[track_caller]
fn finds(text: &str, place: &str, parts: &[&str]) {
    let message = problem(text);
    assert!(message.starts_with(&format!("net.toml:{place}: ")), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message}\nhas no {part:?}");
    }
}

const INPUT: &str = "[input]\nshape = [3, 32, 32]\n"; // lines 1 and 2

fn layers(text: &str) -> String {
    format!("{INPUT}{text}\n[loss]\ntype = \"mse\"\n")
}

#[test]
fn unknown_keys_and_names_list_the_known_ones() {
    finds(&layers("[[layer]]\ntype = \"linear\"\nouts = 10"), "5: layer 0 (linear)", &["outs", "out, bias"]);
    finds("batches = 3\n[input]\nshape = [1]", "1", &["batches", "batch, steps"]);
    finds(&layers("[[layer]]\ntype = \"liner\""), "4: layer 0 (liner), key type", &["conv2d, linear, relu"]);
    let adam = layers("[[layer]]\ntype = \"relu\"\n[optimizer]\nname = \"adm\"");
    finds(&adam, "6: [optimizer], key name", &["adm", "sgd, momentum, adam, adamw"]);
    let order = layers("[[layer]]\ntype = \"relu\"\n[schedule]\norder = [\"input\", \"sleep\"]");
    finds(&order, "6: [schedule], key order", &["sleep", "zero_grad"]);
    let loss = format!("{INPUT}[[layer]]\ntype = \"relu\"\n[loss]\ntype = \"hinge\"");
    finds(&loss, "6: [loss], key type", &["hinge", "cross-entropy, mse"]);
}

#[test]
fn syntax_errors_have_their_line() {
    finds("[input]\nshape = [3, 32\nx", "3", &[]);
    finds("a = 1\na = 2", "2", &["duplicate"]);
}

#[test]
fn values_of_another_type_say_what_is_expected() {
    let layer = |line: &str| layers(&format!("[[layer]]\ntype = \"conv2d\"\nkernel = 3\nout = 4\n{line}"));
    finds(&layer("bias = 1"), "7: layer 0 (conv2d), key bias", &["is 1, expected true or false"]);
    finds(
        &layer("stride = \"2\""),
        "7: layer 0 (conv2d), key stride",
        &["the string \"2\"", "an integer or [height, width]"],
    );
    finds(&layer("padding = [1, 2, 3]"), "7: layer 0 (conv2d), key padding", &["[height, width]"]);
    finds(&layer("stride = 0"), "7: layer 0 (conv2d), key stride", &["is 0, expected 1 to"]);
    finds(&layer("groups = -3"), "7: layer 0 (conv2d), key groups", &["-3"]);
    finds("[input]\nshape = 3", "2: [input], key shape", &["a list of sizes"]);
    finds("[input]\nshape = []", "2: [input], key shape", &["an empty list"]);
    finds("input = 3", "1: key input", &["a table"]);
    finds("layer = 3\n[input]\nshape = [1]", "1: key layer", &["[[layer]]"]);
}

#[test]
fn what_is_missing_is_named() {
    finds(&layers("[[layer]]\ntype = \"linear\""), "3: layer 0 (linear)", &["key out is missing"]);
    finds(&layers("[[layer]]\nout = 3"), "3: layer 0", &["key type is missing"]);
    finds("batch = 3", "1", &["key input is missing"]);
    finds("[input]\ntokens = 4", "1: [input]", &["vocabulary"]);
    finds("[input]\nshape = [1]", "1", &["no layers"]);
    finds("[input]\nshape = [1]\n[[layer]]\ntype = \"relu\"", "1", &["key loss is missing"]);
    finds(&layers("[[layer]]\ntype = \"residual\""), "3: layer 0 (residual)", &["[[layer.layer]]"]);
}

#[test]
fn shapes_that_do_not_fit_name_the_layer_and_what_arrived() {
    let second = |text: &str| layers(&format!("[[layer]]\ntype = \"flatten\"\n[[layer]]\n{text}"));
    finds(
        &second("type = \"max-pool2d\"\nkernel = 2"),
        "5: layer 1 (max-pool2d)",
        &["[3072] arrives", "[channels, height, width]"],
    );
    finds(&second("type = \"attention\"\nheads = 2"), "5: layer 1 (attention)", &["[3072] arrives", "[tokens, width]"]);
    finds(&second("type = \"embedding\"\nout = 2"), "5: layer 1 (embedding)", &["[3072] arrives", "tokens"]);
    finds(&layers("[[layer]]\ntype = \"conv2d\"\nout = 4\nkernel = 40"), "3: layer 0 (conv2d)", &["[3, 32, 32]", "40"]);
    finds(
        &layers("[[layer]]\ntype = \"max-pool2d\"\nkernel = 40"),
        "5: layer 0 (max-pool2d), key kernel",
        &["[40, 40]"],
    );
    let groups = layers("[[layer]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\ngroups = 2");
    finds(&groups, "7: layer 0 (conv2d), key groups", &["2 groups", "3 channels"]);
    let tokens = "[input]\ntokens = 4\nvocabulary = 9\n[[layer]]\ntype = \"relu\"";
    finds(tokens, "4: layer 0 (relu)", &["4 tokens of 9 arrive", "embedding"]);
    let heads = "[input]\nshape = [4, 6]\n[[layer]]\ntype = \"attention\"\nheads = 4";
    finds(heads, "5: layer 0 (attention), key heads", &["4 heads do not divide the width 6"]);
    let residual = layers("[[layer]]\ntype = \"residual\"\n[[layer.layer]]\ntype = \"linear\"\nout = 7");
    finds(&residual, "3: layer 0 (residual)", &["[3, 32, 32] arrives", "[3, 32, 7]"]);
    let inner = layers("[[layer]]\ntype = \"residual\"\n[[layer.layer]]\ntype = \"attention\"\nheads = 1");
    finds(&inner, "5: layer 0.0 (attention)", &["[3, 32, 32] arrives"]);
}

#[test]
fn a_result_that_the_loss_does_not_take_is_found() {
    let text = format!("{INPUT}[[layer]]\ntype = \"linear\"\nout = 10\n[loss]\ntype = \"cross-entropy\"\nclasses = 10");
    finds(&text, "6: [loss]", &["[3, 32, 10] arrives", "takes [10]", "flatten"]);
    let text =
        "[input]\nshape = [4]\n[[layer]]\ntype = \"linear\"\nout = 9\n[loss]\ntype = \"cross-entropy\"\nclasses = 10";
    finds(text, "6: [loss]", &["[9] arrives", "[10]"]);
}

#[test]
fn absurd_sizes_are_errors() {
    finds(
        &layers("[[layer]]\ntype = \"linear\"\nout = 99999999999999999999999"),
        "5: layer 0 (linear), key out",
        &["999"],
    );
    finds("[input]\nshape = [2000000000, 2000000000]", "2: [input], key shape", &["2^48"]);
    let wide = "[[layer]]\ntype = \"flatten\"\n[[layer]]\ntype = \"linear\"\nout = 2000000000\n";
    finds(
        &layers(&format!("{wide}[[layer]]\ntype = \"linear\"\nout = 2000000000")),
        "8: layer 2 (linear)",
        &["2^48 parameters"],
    );
    let long = "[input]\ntokens = 2000000000\nvocabulary = 2\n[[layer]]\ntype = \"embedding\"\nout = 2\n[[layer]]\ntype = \"attention\"\nheads = 1";
    finds(long, "7: layer 1 (attention)", &["2^48 elements"]);
    finds(&layers("[[layer]]\ntype = \"relu\"\nrepeat = 2000000"), "3: layer 0 (relu)", &["10000 layers"]);
    let twice =
        layers("[[layer]]\ntype = \"sequence\"\nrepeat = 5000\n[[layer.layer]]\ntype = \"relu\"\nrepeat = 5000");
    finds(&twice, "6: layer 0.0 (relu)", &["10000 layers"]);
    let batch = format!("batch = 2000000000\n{}", layers("[[layer]]\ntype = \"conv2d\"\nkernel = 1\nout = 9000"));
    finds(&batch, "1: key batch", &["elements per example"]);
    let padding = layers(
        "[[layer]]\ntype = \"conv2d\"\nkernel = 2147483648\npadding = 2147483648\ndilation = 2147483648\nout = 1",
    );
    finds(&padding, "3: layer 0 (conv2d)", &["does not fit"]);
}

#[test]
fn settings_that_an_optimizer_does_not_have_are_found() {
    let with = |line: &str| layers(&format!("[[layer]]\ntype = \"relu\"\n[optimizer]\nname = \"sgd\"\n{line}"));
    finds(&with("amsgrad = true"), "7: [optimizer], key amsgrad", &["sgd", "adamw"]);
    finds(&with("nesterov = true"), "7: [optimizer], key nesterov", &["momentum"]);
    finds(&with("lr = -1"), "7: [optimizer], key lr", &["at least 0"]);
    finds(&with("lr = nan"), "7: [optimizer], key lr", &["finite"]);
    finds(&with("implementation = \"magic\""), "7: [optimizer], key implementation", &["loop, foreach, fused"]);
}

#[test]
fn what_a_file_says_is_what_one_gets() {
    let text = r#"
        batch = 4
        steps = 7
        accumulate = 2
        clip_grad_norm = 1
        seed = 0
        [input]
        shape = [3, 8, 8]
        [[layer]]
        type = "conv2d"
        out = 6
        kernel = 3
        stride = [1, 2]
        groups = 3
        [[layer]]
        type = "batch-norm2d"
        [[layer]]
        type = "global-avg-pool2d"
        [[layer]]
        type = "flatten"
        [loss]
        type = "cross-entropy"
        [optimizer]
        name = "momentum"
        nesterov = true
        [schedule]
        order = ["zero_grad", "input", "forward", "loss", "backward", "step"]
        prefix = "e"
    "#;
    let model = parse("dir/net.toml", text).unwrap();
    assert_eq!(model.architecture.name(), "net");
    assert_eq!(model.architecture.task().loss, Loss::CrossEntropy { classes: 6 });
    assert_eq!(model.architecture.task().input, Input::Values(vec![3, 8, 8]));
    assert_eq!((model.batch, model.steps, model.accumulate, model.seed), (Some(4), Some(7), Some(2), Some(0)));
    assert_eq!(model.clip_grad_norm, Some(1.0));
    let optimizer = model.optimizer.unwrap();
    assert_eq!((optimizer.kind, optimizer.lr, optimizer.nesterov), (OptimizerKind::Momentum, 0.01, true));
    let schedule = model.schedule.unwrap();
    assert_eq!((schedule.order[0], schedule.prefix.as_str()), (lab_training::Phase::ZeroGrad, "e"));
}

#[test]
fn activations_groups_and_larger_pictures_by_name_compute() {
    let text = r#"
        [input]
        shape = [4, 3, 3]
        [[layer]]
        type = "group-norm"
        groups = 2
        [[layer]]
        type = "elu"
        alpha = 0.5
        [[layer]]
        type = "softplus"
        [[layer]]
        type = "mish"
        [[layer]]
        type = "relu6"
        [[layer]]
        type = "hardsigmoid"
        [[layer]]
        type = "hardswish"
        [[layer]]
        type = "log-sigmoid"
        [[layer]]
        type = "upsample-nearest2d"
        factor = [2, 1]
        [[layer]]
        type = "upsample-nearest2d"
        [loss]
        type = "mse"
    "#;
    let model = parse("net.toml", text).unwrap();
    assert_eq!(model.architecture.task().loss, Loss::MeanSquaredError { dims: vec![4, 12, 6] });
    let device = memcore::Device::builder(std::sync::Arc::new(conformance::Reference::default())).build();
    let settings = RunSettings::new(2, 2, OptimizerSettings::new(OptimizerKind::Sgd, 0.1));
    let source = lab_training::Source::Synthetic { seed: 0 };
    let mut trainer = lab_training::Trainer::build(&*model.architecture, &device, &settings, source, "").unwrap();
    let weight =
        |trainer: &lab_training::Trainer| trainer.phases().network.model.parameters[0].array().to_f64().unwrap();
    let before = weight(&trainer);
    let loss = trainer.step(0).unwrap().unwrap();
    assert!(loss.is_finite() && weight(&trainer).iter().zip(&before).all(|(now, then)| now != then), "{loss}");
}

#[test]
fn groups_and_factors_that_do_not_fit_are_found() {
    let groups = |line: &str| layers(&format!("[[layer]]\ntype = \"group-norm\"\n{line}"));
    finds(&groups("groups = 2"), "5: layer 0 (group-norm), key groups", &["do not divide the 3 channels"]);
    finds(&groups("eps = 0.1"), "3: layer 0 (group-norm)", &["key groups is missing"]);
    let flat = "[input]\nshape = [4]\n[[layer]]\ntype = \"group-norm\"\ngroups = 2";
    finds(flat, "3: layer 0 (group-norm)", &["[4] arrives", "more than one position"]);
    finds(
        &layers("[[layer]]\ntype = \"upsample-nearest2d\"\nfactor = 0"),
        "5: layer 0 (upsample-nearest2d), key factor",
        &["is 0"],
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = load(Path::new("no/such.toml")).err().unwrap().to_string();
    assert!(message.starts_with("no/such.toml: "), "{message}");
}
