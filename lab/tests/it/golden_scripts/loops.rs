//! Group k: loops that are not one batch after another of one size.

use lab::models::ModelOptions;
use lab::training::{Ema, Evaluation, OptimizerKind, OptimizerSettings, RunSettings, Turns};

use super::compare::{check_figures, check_unordered_frees};
use super::run::{check_run, scripts, train, zoo_with};

/// A network of the zoo in channels-last.
fn in_channels_last(name: &str, network: &str, settings: impl Fn(RunSettings) -> RunSettings) {
    looped(name, network, 3, |base| settings(RunSettings { batch: 4, channels_last: true, ..base }));
}

fn plain(base: RunSettings) -> RunSettings {
    base
}

fn lower(base: RunSettings) -> RunSettings {
    RunSettings { precision: "autocast-bf16".parse().unwrap(), ..base }
}

fn accumulating(base: RunSettings) -> RunSettings {
    RunSettings { accumulate: 2, optimizer: OptimizerSettings::new(OptimizerKind::Momentum, 1e-3), ..base }
}

/// A network of the zoo, trained by AdamW for so many steps, with batches of 8 unless `settings` says otherwise.
fn looped(name: &str, network: &str, steps: usize, settings: impl Fn(RunSettings) -> RunSettings) {
    let options = match network {
        "gpt-dropout" => ModelOptions { dropout: Some(0.1), ..ModelOptions::default() },
        "resnet18" if !name.starts_with("l_") => {
            ModelOptions { image: Some(32), classes: Some(10), ..ModelOptions::default() }
        }
        "vgg16" => ModelOptions { classes: Some(10), ..ModelOptions::default() },
        "resnet18" | "resnet50" | "mobilenet_v2" | "densenet121" | "convnext-tiny" => {
            ModelOptions { image: Some(64), classes: Some(10), ..ModelOptions::default() }
        }
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
    let network = network.trim_end_matches("-dropout");
    let (architecture, base) = zoo_with(network, options, lines);
    let settings = settings(RunSettings { steps, ..base });
    match (settings.evaluation, settings.ema) {
        // Frees at one moment come in another order where a block needs no gradients.
        (None, None) if settings.freeze.is_some() => {
            check_unordered_frees(name, |device| train(&*architecture, device, &settings, ""));
        }
        (None, None) => check_run(name, &*architecture, &settings),
        _ => check_figures(name, |device| train(&*architecture, device, &settings, "")),
    }
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

/// Evaluations of so many batches.
fn evaluated(batch: usize, every: usize, size: usize, batches: usize) -> impl Fn(RunSettings) -> RunSettings {
    let evaluation = Some(Evaluation { every, batch: size, batches, keeps_results: false });
    move |base| RunSettings { batch, evaluation, ..base }
}

fn autocast(base: RunSettings) -> RunSettings {
    RunSettings { precision: "autocast-bf16".parse().unwrap(), ..evaluated(8, 2, 16, 2)(base) }
}

fn averaging(batch: usize, ema: Ema) -> impl Fn(RunSettings) -> RunSettings {
    move |base| RunSettings { batch, ema: Some(ema), ..base }
}

fn holding(names: &str, batch: usize, accumulate: usize) -> impl Fn(RunSettings) -> RunSettings {
    let hold = names.parse().unwrap();
    move |base| RunSettings { batch, accumulate, hold, ..base }
}

fn keeping_results(base: RunSettings) -> RunSettings {
    let settings = evaluated(32, 2, 128, 3)(base);
    let evaluation = settings.evaluation.map(|evaluation| Evaluation { keeps_results: true, ..evaluation });
    RunSettings { evaluation, ..settings }
}

/// A network of which these parameters are not trained.
fn frozen(name: &str, network: &str, patterns: &str, settings: impl Fn(RunSettings) -> RunSettings) {
    let freeze = Some(patterns.parse().unwrap());
    looped(name, network, 3, |base| settings(RunSettings { freeze: freeze.clone(), ..base }));
}

fn of_32(base: RunSettings) -> RunSettings {
    RunSettings { batch: 32, ..base }
}

fn of_64(base: RunSettings) -> RunSettings {
    RunSettings { batch: 64, ..base }
}

fn twice(base: RunSettings) -> RunSettings {
    RunSettings { accumulate: 2, ..base }
}

scripts! {
    freeze_gpt_head => |name| frozen(name, "gpt", "*,!head", plain);
    freeze_gpt_tables => |name| frozen(name, "gpt-dropout", "tok,pos,blocks.0", twice);
    freeze_gpt_biases_bf16 => |name| frozen(name, "gpt", "*,!*.bias", lower);
    freeze_cnn => |name| frozen(name, "simple-cnn", "conv1", of_32);
    freeze_resnet18 => |name| frozen(name, "resnet18", "*,!fc,!layer4", plain);
    freeze_mlp_middle => |name| frozen(name, "mlp", "2,4.weight", of_64);
    k_batches_cnn => |name| looped(name, "simple-cnn", 8, turns(&[32, 32, 32, 17], &[]));
    k_batches_mlp => |name| looped(name, "mlp", 6, turns(&[100, 7, 640], &[]));
    k_batches_accum2 => |name| looped(name, "mlp", 5, with("fp32", 2, &[96, 96, 41], &[]));
    k_batches_bf16 => |name| looped(name, "mlp", 6, with("autocast-bf16", 1, &[100, 7, 640], &[]));
    k_lengths_gpt => |name| looped(name, "gpt", 7, turns(&[], &[48, 16, 64]));
    k_lengths_batches_gpt => |name| looped(name, "gpt", 7, turns(&[8, 3], &[48, 16, 64]));
    k_eval_cnn => |name| looped(name, "simple-cnn", 6, evaluated(32, 2, 100, 2));
    k_eval_gpt => |name| looped(name, "gpt-dropout", 6, evaluated(8, 2, 16, 2));
    k_eval_bf16 => |name| looped(name, "gpt-dropout", 6, autocast);
    k_eval_resnet => |name| looped(name, "resnet18", 2, evaluated(8, 1, 24, 3));
    k_eval_resnet50 => |name| looped(name, "resnet50", 2, evaluated(2, 1, 16, 2));
    k_eval_vgg16 => |name| looped(name, "vgg16", 2, evaluated(2, 1, 6, 2));
    k_eval_mobilenet_v2 => |name| looped(name, "mobilenet_v2", 2, evaluated(2, 1, 16, 2));
    k_eval_densenet121 => |name| looped(name, "densenet121", 2, evaluated(2, 1, 16, 2));
    k_eval_convnext_tiny => |name| looped(name, "convnext-tiny", 2, evaluated(2, 1, 16, 2));
    k_ema_cnn => |name| looped(name, "simple-cnn", 4, averaging(32, Ema::Model));
    k_ema_gpt => |name| looped(name, "gpt", 4, averaging(8, Ema::Model));
    k_ema_resnet => |name| looped(name, "resnet18", 3, averaging(8, Ema::Model));
    k_ema_lerp => |name| looped(name, "resnet18", 3, averaging(8, Ema::Parameters));
    k_ema_mul_add => |name| looped(name, "resnet18", 3, averaging(8, Ema::Parameters));
    k_hold_none_gpt => |name| looped(name, "gpt", 4, holding("none", 8, 1));
    k_hold_loss_cnn => |name| looped(name, "simple-cnn", 4, holding("loss", 32, 1));
    k_hold_outputs_mlp => |name| looped(name, "mlp", 4, holding("outputs", 256, 1));
    k_hold_inputs_accum2 => |name| looped(name, "mlp", 4, holding("inputs", 256, 2));
    l_resnet18 => |name| in_channels_last(name, "resnet18", plain);
    l_resnet18_cudnn => |name| in_channels_last(name, "resnet18", plain);
    l_resnet18_accum2 => |name| in_channels_last(name, "resnet18", accumulating);
    l_resnet18_accum2_cudnn => |name| in_channels_last(name, "resnet18", accumulating);
    l_resnet18_bf16 => |name| in_channels_last(name, "resnet18", lower);
    l_resnet18_bf16_cudnn => |name| in_channels_last(name, "resnet18", lower);
    l_resnet50 => |name| in_channels_last(name, "resnet50", plain);
    l_resnet50_cudnn => |name| in_channels_last(name, "resnet50", plain);
    l_resnet50_bf16 => |name| in_channels_last(name, "resnet50", lower);
    l_resnet50_bf16_cudnn => |name| in_channels_last(name, "resnet50", lower);
    l_mobilenet_v2 => |name| in_channels_last(name, "mobilenet_v2", plain);
    l_mobilenet_v2_cudnn => |name| in_channels_last(name, "mobilenet_v2", plain);
    l_mobilenet_v2_bf16 => |name| in_channels_last(name, "mobilenet_v2", lower);
    l_mobilenet_v2_bf16_cudnn => |name| in_channels_last(name, "mobilenet_v2", lower);
    l_densenet121 => |name| in_channels_last(name, "densenet121", plain);
    l_densenet121_cudnn => |name| in_channels_last(name, "densenet121", plain);
    l_convnext_tiny => |name| in_channels_last(name, "convnext-tiny", plain);
    l_convnext_tiny_cudnn => |name| in_channels_last(name, "convnext-tiny", plain);
    l_convnext_tiny_bf16 => |name| in_channels_last(name, "convnext-tiny", lower);
    l_convnext_tiny_bf16_cudnn => |name| in_channels_last(name, "convnext-tiny", lower);
    k_eval_kept => |name| looped(name, "mlp", 6, keeping_results);
    k_lengths_bf16 => |name| looped(name, "gpt", 6, with("autocast-bf16", 1, &[], &[64, 8, 40]));
}
