//! Group j: a recurrent encoder and decoder with attention between them.

use lab::models::ModelOptions;

use super::run::{check_model, scripts};

/// As in group f: the loss stands in the region of autocast.
const SCHEDULE: &str = r#"
    [schedule]
    order = ["input", "forward", "loss", "exit_autocast", "zero_grad", "backward", "step"]
"#;

fn train(name: &str, head: &str, optimizer: &str, options: ModelOptions) {
    let lines = format!("{head}\nsteps = 3\n[optimizer]\nname = \"{optimizer}\"\n{SCHEDULE}");
    check_model(name, "seq2seq-attention", options, &lines);
}

scripts! {
    j_seq2seq_adam => |name| train(name, "batch = 32", "adam", ModelOptions::default());
    j_seq2seq_kept => |name| {
        train(name, "batch = 32", "adam", ModelOptions { keep_intermediate: true, ..ModelOptions::default() });
    };
    j_seq2seq_wide_sgdm => |name| {
        let wide = ModelOptions {
            vocabulary: Some(300),
            sequence: Some(7),
            width: Some(200),
            ..ModelOptions::default()
        };
        train(name, "batch = 20", "momentum", wide);
    };
    j_seq2seq_bf16 => |name| {
        train(name, "batch = 32\nprecision = \"autocast-bf16\"", "adam", ModelOptions::default());
    };
}
