//! Group k: loops that are not one batch after another of one size.

use lab::models::ModelOptions;
use lab::training::{RunSettings, Turns};

use crate::run::{check_run, scripts, zoo_with};

/// A network of the zoo, trained by AdamW for so many steps, with batches of 8 unless `settings` says otherwise.
fn looped(name: &str, network: &str, steps: usize, settings: impl Fn(RunSettings) -> RunSettings) {
    let options = match network {
        "mlp" => ModelOptions {
            layers: Some(4),
            width: Some(1024),
            features: Some(512),
            classes: Some(10),
            ..ModelOptions::default()
        },
        _ => ModelOptions::default(),
    };
    let lines = "batch = 8\n[optimizer]\nname = \"adamw\"\n";
    let (architecture, base) = zoo_with(network, options, lines);
    check_run(name, &*architecture, &settings(RunSettings { steps, ..base }));
}

fn turns(batches: &[usize], lengths: &[usize]) -> impl Fn(RunSettings) -> RunSettings {
    let turns = Turns { batches: batches.to_vec(), lengths: lengths.to_vec() };
    move |base| RunSettings { turns: turns.clone(), ..base }
}

/// The same, in micro-batches or under autocast.
fn with(
    precision: &str,
    accumulate: usize,
    batches: &[usize],
    lengths: &[usize],
) -> impl Fn(RunSettings) -> RunSettings {
    let (turns, precision) = (turns(batches, lengths), precision.parse().unwrap());
    move |base| RunSettings { precision, accumulate, ..turns(base) }
}

scripts! {
    k_batches_cnn => |name| looped(name, "simple-cnn", 8, turns(&[32, 32, 32, 17], &[]));
    k_batches_mlp => |name| looped(name, "mlp", 6, turns(&[100, 7, 640], &[]));
    k_batches_accum2 => |name| looped(name, "mlp", 5, with("fp32", 2, &[96, 96, 41], &[]));
    k_batches_bf16 => |name| looped(name, "mlp", 6, with("autocast-bf16", 1, &[100, 7, 640], &[]));
    k_lengths_gpt => |name| looped(name, "gpt", 7, turns(&[], &[48, 16, 64]));
    k_lengths_batches_gpt => |name| looped(name, "gpt", 7, turns(&[8, 3], &[48, 16, 64]));
    k_lengths_bf16 => |name| looped(name, "gpt", 6, with("autocast-bf16", 1, &[], &[64, 8, 40]));
}
