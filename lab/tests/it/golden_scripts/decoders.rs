//! Group f: a decoder of two blocks, trained as its PyTorch source is written.

use lab::models::ModelOptions;

use super::run::{check_model, scripts};

/// The autocast region of the loss ends after the row of the loss; the scaler's update is part of the step.
const SCHEDULE: &str = r#"
    [schedule]
    order = ["input", "forward", "loss", "exit_autocast", "zero_grad", "backward", "step"]
"#;

fn train(name: &str, head: &str, optimizer: &str, options: ModelOptions) {
    let batch = if head.contains("batch") { "" } else { "batch = 8\n" };
    let lines = format!("{batch}steps = 3\n{head}\n[optimizer]\nname = \"{optimizer}\"\n{SCHEDULE}");
    check_model(name, "gpt", options, &lines);
}

fn wide(tied: bool) -> ModelOptions {
    ModelOptions {
        vocabulary: Some(2048),
        sequence: Some(128),
        width: Some(256),
        heads: Some(8),
        tied,
        ..ModelOptions::default()
    }
}

fn plain(name: &str, optimizer: &str) {
    train(name, "", optimizer, ModelOptions::default());
}

fn autocast(name: &str, precision: &str) {
    train(name, &format!("precision = \"{precision}\""), "adamw", ModelOptions::default());
}

scripts! {
    f_gpt_untied => |name| plain(name, "adamw");
    f_gpt_sgd => |name| plain(name, "sgd");
    f_gpt_tied => |name| train(name, "", "adamw", ModelOptions { tied: true, ..ModelOptions::default() });
    f_gpt_dropout => |name| train(name, "", "adamw", ModelOptions { dropout: Some(0.1), ..ModelOptions::default() });
    f_gpt_sdpa => |name| train(name, "", "adamw", ModelOptions { fused_attention: true, ..ModelOptions::default() });
    f_gpt_wide => |name| train(name, "batch = 4", "adamw", wide(false));
    f_gpt_wide_tied_bf16 => |name| train(name, "batch = 4\nprecision = \"autocast-bf16\"", "adamw", wide(true));
    f_gpt_bf16 => |name| autocast(name, "autocast-bf16");
    f_gpt_amp16 => |name| autocast(name, "autocast-fp16");
}
