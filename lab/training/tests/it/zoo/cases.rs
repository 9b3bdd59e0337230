//! Networks and training settings for the other files.

use std::sync::Arc;

use lab_models::{ALL, Architecture, ModelOptions, Recompute, architecture};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::optim::Implementation;
use memcore::{Device, Profile};

/// A network with its training settings.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) architecture: Box<dyn Architecture>,
    pub(crate) settings: RunSettings,
}

/// True if the reference's plain loops are too slow for it.
pub(crate) fn is_deep(name: &str) -> bool {
    ["resnet18", "resnet34", "resnet50", "vgg16", "mobilenet_v2", "densenet121"].contains(&name)
        || name.starts_with("convnext-")
}

/// A network's default settings, with two examples.
pub(crate) fn settings(architecture: &dyn Architecture) -> RunSettings {
    let defaults = architecture.defaults();
    RunSettings {
        seed: 3,
        ..RunSettings::new(2, 3, OptimizerSettings::new(OptimizerKind::parse(defaults.optimizer).unwrap(), defaults.lr))
    }
}

fn case(name: &str, what: &str, options: ModelOptions, change: impl FnOnce(&mut RunSettings)) -> Case {
    let architecture = architecture(name, &options).unwrap();
    let mut settings = settings(&*architecture);
    change(&mut settings);
    Case { name: format!("{name} {what}"), architecture, settings }
}

/// Every network with its default settings.
pub(crate) fn plain() -> Vec<Case> {
    ALL.iter().map(|(name, _)| case(name, "as it comes", ModelOptions::small(name), |_| {})).collect()
}

/// Every network with its default settings, and every option once.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = plain();
    // The options are the same for every network; the deep ones add time, not insight.
    for (name, _) in ALL.iter().filter(|(name, _)| !is_deep(name)) {
        cases.push(case(name, "accumulating", ModelOptions::small(name), |s| s.accumulate = 2));
        cases.push(case(name, "clipping", ModelOptions::small(name), |s| s.clip_grad_norm = Some(0.5)));
        cases.push(case(name, "zeroing", ModelOptions::small(name), |s| s.set_to_none = false));
    }
    for options in [
        ModelOptions { fused_attention: true, ..ModelOptions::small("gpt") },
        ModelOptions { dropout: Some(0.2), ..ModelOptions::small("gpt") },
        ModelOptions { tied: true, ..ModelOptions::small("gpt") },
        ModelOptions { dropout: Some(0.2), recompute: Recompute::Blocks, ..ModelOptions::small("gpt") },
    ] {
        cases.push(case("gpt", &format!("{options:?}"), options, |_| {}));
    }
    for name in ["two-layer", "seq2seq-attention"] {
        let keeping = ModelOptions { keep_intermediate: true, ..ModelOptions::small(name) };
        cases.push(case(name, "keeping", keeping, |_| {}));
    }
    let mlp = || ModelOptions {
        layers: Some(3),
        width: Some(24),
        features: Some(16),
        classes: Some(5),
        ..ModelOptions::default()
    };
    cases.push(case("mlp", "with options", mlp(), |_| {}));
    for name in OptimizerKind::NAMES {
        for implementation in [Implementation::Loop, Implementation::Foreach, Implementation::Fused] {
            let kind = OptimizerKind::parse(name).unwrap();
            let settings = OptimizerSettings {
                implementation,
                weight_decay: (*name != "rprop").then_some(0.1),
                amsgrad: ["adam", "adamw"].contains(name),
                nesterov: *name == "momentum",
                maximize: *name == "sgd",
                ..OptimizerSettings::new(kind, 1e-3)
            };
            // Built over nothing, settings that an optimizer does not have are refused.
            let missing = match implementation {
                Implementation::Loop => false,
                Implementation::Foreach => kind.is_loop(),
                Implementation::Fused => !kind.has_fused(),
            };
            assert_eq!(settings.build(Vec::new()).is_err(), missing, "{name} {implementation:?}");
            if kind.is_computed() && settings.build(Vec::new()).is_ok() {
                cases.push(case("mlp", &format!("{name} {implementation:?}"), mlp(), |s| s.optimizer = settings));
            }
        }
    }
    cases
}

/// A device under PyTorch's profile that keeps its history.
pub(crate) fn torch_device(backend: Arc<dyn Backend>) -> Device {
    Device::builder(backend).profile(Profile::torch_2_11(90)).history(true).build()
}

/// A meta device of 4 GiB, as large as the reference's.
pub(crate) fn meta() -> Meta {
    Meta::new(DeviceProfile { total_bytes: 4 << 30, ..DeviceProfile::default() })
}

/// The network on a device, ready to train on one synthetic batch.
pub(crate) fn trainer(case: &Case, device: &Device) -> lab_base::Result<Trainer> {
    Trainer::build(&*case.architecture, device, &case.settings, Source::Synthetic { seed: 5 }, "")
}

/// Trains for the case's number of steps. Returns the losses, where there are values.
pub(crate) fn train(case: &Case, trainer: &mut Trainer) -> lab_base::Result<Vec<f64>> {
    let losses = (0..case.settings.steps).map(|step| trainer.step(step));
    Ok(losses.collect::<lab_base::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Fails unless only the libraries' workspaces remain, which can be freed on request.
#[track_caller]
pub(crate) fn nothing_is_left(case: &str, device: &Device) {
    use memcore::memory::Category;
    let usage = device.usage();
    let profile = device.profile();
    let mut kept: Vec<u64> = Vec::new();
    for (_, live) in usage.all_live() {
        assert_eq!(live.category, Category::Workspace, "{case}: {live:?} was left");
        kept.push(live.requested_bytes);
    }
    for bytes in [profile.gemm_workspace_bytes, profile.gemm_epilogue_workspace_bytes] {
        let count = kept.iter().filter(|&&k| k == bytes).count();
        assert!(count <= 2, "{case}: {count} workspaces of {bytes} bytes; there is one per role");
        kept.retain(|&k| k != bytes);
    }
    assert!(kept.is_empty(), "{case}: workspaces of {kept:?} bytes, which no library keeps");
    assert_eq!(device.stats().allocated_bytes.all.current, usage.allocated_bytes(), "{case}");
    device.release_workspaces();
    let stats = device.stats();
    assert_eq!((stats.allocated_bytes.all.current, stats.requested_bytes.all.current), (0, 0), "{case}");
    assert_eq!(device.usage().by_category().iter().sum::<u64>(), 0, "{case}");
    device.empty_cache();
    assert_eq!(device.stats().reserved_bytes.all.current, 0, "{case}: reserved after emptying the cache");
}
