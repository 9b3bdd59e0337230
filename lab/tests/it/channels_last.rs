//! Exported networks in channels-last, beside recorded runs of the real PyTorch (`golden/l_export_*`, made by `scripts/loop/formats.py`): every row
//! in every column, with and without cuDNN. Those of built-in networks are in `golden_scripts`, with every event.

use crate::archives;
use std::ops::ControlFlow;
use std::sync::Arc;

use lab::exported;
use lab::record::Row;
use lab::run::{RunSpec, resolve};
use lab::training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::backend::{DeviceProfile, Meta};
use memcore::profile::Convolution;
use memcore::{Device, Profile};
use serde_json::{Value, json};

use crate::archives::compared::golden;
use crate::loop_recordings::{compare, recording};

fn device(recording: &Value) -> Device {
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    let mut profile = Profile { channels_last: true, ..Profile::torch_2_11(90) };
    if recording["cudnn_enabled"] == true {
        profile.convolution = Convolution::Cudnn { workspace_bytes: 0 };
    }
    Device::builder(Arc::new(Meta::new(card))).profile(profile).build()
}

fn ours(recording: &Value) -> Vec<Row> {
    let program = &recording["program"];
    let network = program["network"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden(&format!("{network}.pt2.gz")), folder.path(), network);
    let model = exported::load(&path, Some(program["loss"].as_str().unwrap().parse().unwrap())).unwrap();
    let batch = program["batch"].as_u64().unwrap() as usize;
    let adamw = OptimizerSettings::new(OptimizerKind::AdamW, 1e-3);
    let precision = if program["amp"] == true { "autocast-bf16" } else { "fp32" }.parse().unwrap();
    let settings = RunSettings { channels_last: true, precision, ..RunSettings::new(batch, 3, adamw) };
    let (source, progress) = (Source::Synthetic { seed: 0 }, &mut |_| ControlFlow::Continue(()));
    let result =
        exported::train_from(&model, &device(recording), &settings, source, &mut Continuation::default(), progress);
    let mut rows = result.unwrap().rows;
    rows.pop();
    rows
}

fn equal(name: &str) {
    let recording = recording(name);
    compare(name, &ours(&recording), &recording);
}

macro_rules! equal {
    ($($name:ident: $recording:literal;)*) => {
        $(#[test]
        fn $name() {
            equal($recording);
        })*
    };
}

equal! {
    resnet50: "l_export_resnet50_b4";
    resnet50_at_another_batch: "l_export_resnet50_b7";
    resnet50_with_cudnn: "l_export_resnet50_b4_cudnn";
    resnet50_with_cudnn_at_another_batch: "l_export_resnet50_b7_cudnn";
    resnet50_under_autocast: "l_export_resnet50_bf16";
    resnet50_under_autocast_with_cudnn: "l_export_resnet50_bf16_cudnn";
    a_u_net: "l_export_unet_b4";
    a_u_net_at_another_batch: "l_export_unet_b7";
    a_u_net_under_autocast: "l_export_unet_bf16";
    mobilenet: "l_export_mobilenet-v3_b4";
    mobilenet_at_another_batch: "l_export_mobilenet-v3_b7";
    mobilenet_with_cudnn: "l_export_mobilenet-v3_b4_cudnn";
    mobilenet_with_cudnn_at_another_batch: "l_export_mobilenet-v3_b7_cudnn";
    mobilenet_under_autocast: "l_export_mobilenet-v3_bf16";
    mobilenet_under_autocast_with_cudnn: "l_export_mobilenet-v3_bf16_cudnn";
    convnext: "l_export_convnext_b4";
    convnext_at_another_batch: "l_export_convnext_b7";
    convnext_with_cudnn: "l_export_convnext_b4_cudnn";
    convnext_with_cudnn_at_another_batch: "l_export_convnext_b7_cudnn";
    convnext_under_autocast: "l_export_convnext_bf16";
    convnext_under_autocast_with_cudnn: "l_export_convnext_bf16_cudnn";
}

/// Why a run of these fields is refused, when it is prepared or when it runs.
fn refused(fields: Value) -> String {
    let run = |spec: RunSpec| {
        let session = resolve(&spec, &[])?;
        let device = session.target.open()?;
        session.train(&device, &mut |_| ControlFlow::Continue(())).map_err(|failed| failed.error).map(|_| ())
    };
    RunSpec::of_fields(fields.as_object().unwrap()).and_then(run).unwrap_err().to_string()
}

#[test]
fn what_is_not_recorded_in_channels_last_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let export = |name: &str| archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
    for (fields, message) in [
        (json!({"model": "gpt"}), "channels-last: vramlab does not support this network"),
        (json!({"model": "resnet18", "ema": "model"}), "channels-last: vramlab does not support it with ema"),
        (json!({"model": "resnet18", "eval-every": 1}), "channels-last: vramlab does not support it with eval-every"),
        (
            json!({"model": "resnet18", "optimizer-impl": "fused"}),
            "channels-last: vramlab does not support it with optimizer-impl fused",
        ),
        (json!({"model-file": export("nanogpt")}), "channels-last: the export has no input of four dimensions"),
        (
            json!({"model-file": export("unet-nearest"), "cudnn-workspace": "0"}),
            "unet-nearest.pt2: upsample_nearest2d.vec in ",
        ),
    ] {
        let mut fields = fields;
        fields["channels-last"] = json!(true);
        let error = refused(fields.clone());
        assert!(error.contains(message), "{fields}: {error}");
    }
}
