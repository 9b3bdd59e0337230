//! Compares networks that PyTorch exported with the real PyTorch when it trains the exported program (`golden/exported`, made by
//! `scripts/export/record.py`), in every row and column at two batches.

use crate::archives;
use std::ops::ControlFlow;

use lab_imports::exported::{self, Exported, Reads};
use lab_models::Architecture;
use lab_training::{Continuation, Failed, OptimizerKind, OptimizerSettings, Precision, RunResult, RunSettings, Source};
use memcore::Device;

use crate::archives::compared::{self, Recording, golden};

/// Returns every row and column that differs, for all batches.
fn differences(name: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
    compared::differences(&path, &Recording::read(name)).iter().map(ToString::to_string).collect()
}

macro_rules! equal {
    ($($test:ident: $name:literal;)*) => {
        /// Every network that is compared.
        const EQUAL: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            let differences = differences($name);
            assert!(differences.is_empty(), "{}:\n{}", $name, differences.join("\n"));
        })*
    };
}

equal! {
    an_mlp: "mlp";
    a_small_cnn: "cnn";
    a_resnet_written_by_hand: "resnet";
    a_resnet_of_twenty_layers: "resnet20";
    a_u_net_with_transposed_convolutions: "unet";
    a_u_net_with_nearest_neighbours: "unet-nearest";
    a_variational_autoencoder: "vae";
    a_dcgan: "dcgan";
    a_cnn_of_words: "textcnn";
    a_bidirectional_lstm: "lstm";
    a_language_model_of_lstms: "lstm-lm";
    a_bidirectional_gru: "gru";
    a_language_model_of_grus: "gru-lm";
    a_recurrent_network: "rnn";
    a_loop_over_cells: "cells";
    a_u_net_with_instance_normalisation: "instance-unet";
    an_autoencoder_with_kullback_leibler: "vae-kl";
    a_network_of_a_graph: "gnn";
    attention_written_with_einsum: "einsum";
    pointwise_functions: "pointwise";
    a_classifier_of_videos: "video";
    a_u_net_of_volumes: "volumes";
    a_network_that_ranks: "ranked";
    a_spatial_transformer: "spatial-transformer";
    patches_as_columns_and_back: "folds";
    losses_of_pairs: "pairs";
    noise_bounds_and_arithmetic_in_place: "arithmetic";
    a_critic_with_spectral_norm: "spectral-critic";
    indices_for_any_dimension: "indexed";
    equations_of_three_operands: "equations";
    masks_that_become_weights: "masks";
    functions_of_pairs_and_along_an_axis: "functions";
    a_segmenter_with_pooling_undone: "segmenter";
    a_recogniser_of_speech: "ctc";
    a_fourier_neural_operator: "fno";
    tokens_mixed_by_a_fourier_transform: "fnet";
    a_global_filter_network: "gfnet";
    a_spectrum_and_back: "spectra";
    layers_in_bfloat16_with_routers_in_float32: "routed";
    positions_as_complex_numbers_of_length_one: "rotated";
    scores_divided_by_a_constant: "scaled";
    positions_in_buckets_of_constants: "bucketed";
    parts_that_are_zeroed_and_filled: "zeroed";
    a_class_for_each_pixel: "pixels";
    logarithms_of_probabilities_for_each_pixel: "pixels-nll";
    logarithms_of_probabilities: "log-probabilities";
    a_network_with_swiglu: "swiglu";
    a_network_with_squeeze_and_excitation: "squeeze-excite";
    a_transformer_encoder_of_pytorch: "encoder";
    nanogpt: "nanogpt";
    nanogpt_with_fused_attention: "nanogpt-fused";
    gpt2_of_transformers: "gpt2";
    llama_of_transformers: "llama";
    bert_of_transformers: "bert";
    gemma2_of_transformers: "gemma2";
    gemma3_of_transformers: "gemma3";
    mixtral_of_transformers: "mixtral";
    bart_of_transformers: "bart";
    whisper_of_transformers: "whisper";
    wav2vec2_of_transformers: "wav2vec2";
    clip_of_transformers: "clip";
    unet_2d_of_diffusers: "unet2d";
    resnet50_of_torchvision: "resnet50";
    a_vision_transformer_of_torchvision: "vit";
    a_swin_transformer_of_torchvision: "swin";
    mobilenet_v3_of_torchvision: "mobilenet-v3";
    shufflenet_of_torchvision: "shufflenet";
    efficientnet_of_torchvision: "efficientnet";
    densenet_of_torchvision: "densenet";
    convnext_of_torchvision: "convnext";
    regnet_of_torchvision: "regnet";
    inception_of_torchvision: "inception";
    deeplab_of_torchvision: "deeplab";
    the_backbone_of_ssd_of_torchvision: "ssd-backbone";
    vit_small_of_timm: "timm-vit";
    deit_of_timm: "timm-deit";
    convnext_tiny_of_timm: "timm-convnext";
    efficientnet_b3_of_timm: "timm-efficientnet";
    mobilenetv4_of_timm: "timm-mobilenetv4";
    swin_of_timm: "timm-swin";
    regnety_of_timm: "timm-regnety";
}

/// Two leaves keep parts of one gradient. At the larger batch the last step takes another free block, whose segment is split
/// differently. The allocated and reserved bytes are equal.
#[test]
fn eva02_of_timm() {
    let differences = differences("timm-eva02");
    assert!(differences.iter().all(|text| text.contains("inactive_split")), "{}", differences.join("\n"));
}

/// The networks that are equal in every row, with their peak allocated memory.
#[test]
fn the_document_lists_the_networks_that_are_compared() {
    let row = |name: &&str| format!("| {name} | {} | equal |\n", Recording::read(name).peaks().join(" | "));
    let rows: String = EQUAL.iter().map(row).collect();
    let head = "| network | peak at batch 4, MiB | at batch 7 | every row, of both |\n|---|---|---|---|\n";
    let table = format!("<!-- networks -->\n{head}{rows}<!-- /networks -->");
    let path = format!("{}/../../docs/evidence-import.md", env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::read_to_string(path).unwrap().contains(&table), "docs/evidence-import.md should have:\n{table}");
}

#[test]
fn a_batch_beyond_the_exports_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden("mlp.pt2.gz"), folder.path(), "mlp");
    let model = exported::load(&path, None).unwrap();
    model.check(65_536, memcore::DType::F32).unwrap();
    let error = model.check(65_537, memcore::DType::F32).unwrap_err().to_string();
    assert_eq!(error, "batch: 65537: the file was exported for batches from 1 to 65536");
}

/// What no backend computes is refused before anything runs.
#[test]
fn predicted_operators_are_refused_on_a_backend() {
    let folder = tempfile::tempdir().unwrap();
    let first = [
        ("video", "conv3d.default"),
        ("spatial-transformer", "affine_grid_generator.default"),
        ("ctc", "ctc_loss.Tensor"),
        ("fno", "fft_rfft2.default"),
    ];
    for (name, operator) in first {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        let model = exported::load(&path, None).unwrap();
        let device = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
        let settings = RunSettings::new(2, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
        let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
        let result = exported::train_from(&model, &device, &settings, source, &mut Continuation::default(), progress);
        let error = result.unwrap_err().error;
        assert!(error.is_usage() && error.to_string().contains(&format!("{operator} in ")), "{error}");
        assert!(error.to_string().contains("is predicted only"), "{error}");
        assert_eq!(device.usage().peak_bytes(), 0);
    }
}

/// Complex numbers are refused where memory is made for them, on a device that computes.
#[test]
fn no_backend_has_complex_numbers() {
    let device = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let error = memcore::Array::empty(&device, &[4], memcore::DType::C64).err().unwrap().to_string();
    assert!(error.contains("is predicted only"), "{error}");
    assert_eq!(device.usage().peak_bytes(), 0);
}

/// What an answer takes for granted of operators, or leaves out, is said, and settings whose memory is not known are refused.
#[test]
fn answers_say_what_they_leave_out_and_refuse_what_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
    for (name, note) in [("ctc", "the longest target of the batch"), ("fno", "work areas of cuFFT's plans")] {
        let notes = exported::load(&path(name), None).unwrap().notes();
        assert!(notes.iter().any(|said| said.contains(note)), "{notes:?}");
    }
    assert!(!exported::load(&path("mlp"), None).unwrap().notes().iter().any(|said| said.contains("cuFFT")));
    let model = exported::load(&path("fno"), None).unwrap();
    let refused = |change: &dyn Fn(&mut RunSettings)| {
        let mut settings = RunSettings::new(4, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
        change(&mut settings);
        let device = Device::meta("torch-2.11-sm90").unwrap();
        let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
        let result = exported::train_from(&model, &device, &settings, source, &mut Continuation::default(), progress);
        result.err().map(|failed| failed.error.to_string())
    };
    assert_eq!(refused(&|_| {}), None);
    let changes: [&dyn Fn(&mut RunSettings); 3] = [
        &|settings| settings.optimizer.kind = OptimizerKind::Sgd,
        &|settings| settings.precision = Precision::AutocastBf16,
        &|settings| settings.clip_grad_norm = Some(1.0),
    ];
    for change in changes {
        let error = refused(change).expect("it was not refused");
        assert!(error.contains("complex parameters, such as spectral.0.low"), "{error}");
    }
}

/// A graph has types of its file as constants. Where they do not go together with another precision, that is refused with the place: an answer
/// tries other precisions, and must not end with them.
#[test]
fn another_precision_runs_or_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut refused = Vec::new();
    for name in EQUAL {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        let model = exported::load(&path, None).unwrap();
        for precision in [Precision::Bf16, Precision::AutocastBf16] {
            if let Err(failed) = trained(&model, precision) {
                assert!(failed.error.is_usage(), "{name} {precision}: {}", failed.error);
                refused.push(format!("{name} {precision}"));
            }
        }
    }
    assert!(refused.iter().any(|run| run == "gpt2 bf16"), "{refused:?}");
    assert!(!refused.iter().any(|run| run == "gpt2 autocast-bf16"), "{refused:?}");
}

fn trained(model: &Exported, precision: Precision) -> Result<RunResult, Failed> {
    let mut settings = RunSettings::new(4, 1, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    settings.precision = precision;
    let device = Device::new(memcore::backend::Meta::default());
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    exported::train_from(model, &device, &settings, source, &mut Continuation::default(), progress)
}

/// The rows of experts are cast to the type that their matrices had in the recording: `input.to(weight.dtype)` in transformers. In another precision the error
/// says which one fits.
#[test]
fn experts_run_in_the_precision_of_their_graph() {
    for name in ["qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b"] {
        let model = Reads::default().recorded(name, Some(4), None, 256, None).unwrap();
        for precision in [Precision::Bf16, Precision::Bf16AutocastBf16] {
            assert!(trained(&model, precision).is_ok(), "{name} {precision}");
        }
        for precision in [Precision::Fp32, Precision::Fp16, Precision::AutocastBf16, Precision::AutocastFp16] {
            let error = trained(&model, precision).expect_err(name).error;
            let says = error.to_string();
            assert!(error.is_usage() && says.contains("--precision is not that of the graph"), "{precision}: {says}");
            assert!(says.ends_with(&format!("vramlab predict {name} --precision bf16")), "{precision}: {says}");
        }
    }
}

/// A network of fewer layers may end in a layer of another kind than its last one. After seven layers each kind of a network has come.
#[test]
fn a_recorded_network_has_any_number_of_layers() {
    for name in exported::names() {
        for layers in 2..=7 {
            let model = Reads::default().recorded(name, Some(layers), None, 1024, None);
            let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
            let precision = if name.contains("bert") { Precision::Fp32 } else { Precision::Bf16 };
            let error = trained(&model, precision).err().map(|failed| failed.error.to_string());
            assert_eq!(error, None, "{name}, {layers} layers");
        }
    }
}

#[test]
fn the_document_lists_the_operators_that_are_covered() {
    let row = |(group, names): (&str, Vec<&str>)| {
        let names: Vec<String> =
            names.iter().map(|name| format!("`{}`", name.strip_suffix(".default").unwrap_or(name))).collect();
        format!("| {group} | {} |\n", names.join(", "))
    };
    let table: String = exported::covered().map(row).collect();
    let table = format!("<!-- operators -->\n| | |\n|---|---|\n{table}<!-- /operators -->");
    let path = format!("{}/../../docs/import.md", env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::read_to_string(path).unwrap().contains(&table), "docs/import.md should have:\n{table}");
}

/// Noise that is multiplied in place: the fraction of zeros is the probability, and the rest is scaled to keep the mean.
#[test]
fn dropout_in_place_drops_its_share() {
    let device = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let ones = memcore::Tensor::from_slice(&device, &[4000], &[1.0f32; 4000]).unwrap();
    let kept = memcore::ops::dropout_(&ones, 0.25, true).unwrap().to_vec::<f32>().unwrap();
    let zeros = kept.iter().filter(|value| **value == 0.0).count();
    assert!((850..1150).contains(&zeros), "{zeros}");
    assert!(kept.iter().all(|value| *value == 0.0 || (*value - 4.0 / 3.0).abs() < 1e-6));
    assert_eq!(memcore::ops::dropout_(&ones, 0.25, false).unwrap().numel(), 4000);
}
