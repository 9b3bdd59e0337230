//! Runs of networks that PyTorch exported: what `show` says of them, when their file is read, and their losses beside PyTorch's.

use std::collections::BTreeMap;

use lab::run::{ModelSpec, RunSpec, resolve};
use memcore::Device;

use crate::archives::{self, compared::golden};
use crate::losses;

/// What `show` says is saved, by module, beside what `saved_tensors_hooks` saw (`scripts/export/saved.py`).
#[test]
fn what_modules_save_is_what_hooks_of_pytorch_see() {
    let recorded: serde_json::Value = serde_json::from_slice(&golden("saved.json")).unwrap();
    let networks = recorded["networks"].as_object().unwrap();
    assert_eq!(networks.len(), 5);
    for (name, theirs) in networks {
        let folder = tempfile::tempdir().unwrap();
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
        let fields = serde_json::json!({"model-file": path, "batch": theirs["batch"], "like": "torch-2.11-sm90"});
        let session = resolve(&RunSpec::of_fields(fields.as_object().unwrap()).unwrap(), &[]).unwrap();
        let (ours, _) = session.inside(&|| false).unwrap();
        let own = |module: &lab_results::ModuleResult| {
            module.operators.iter().map(|operator| operator.saved_bytes).sum::<u64>()
        };
        let saved =
            ours.modules.iter().map(|module| (module.path.clone(), own(module))).filter(|(_, bytes)| *bytes > 0);
        let theirs_by_module: BTreeMap<String, u64> = serde_json::from_value(theirs["modules"].clone()).unwrap();
        assert_eq!(saved.collect::<BTreeMap<String, u64>>(), theirs_by_module, "{name}");
        assert_eq!(Some(ours.saved_bytes), theirs["all"].as_u64(), "{name}");
    }
}

/// Derived runs read their file once, and again only after it has changed.
#[test]
fn a_file_is_read_once_for_all_runs_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = archives::unpacked(&golden("mlp.pt2.gz"), folder.path(), "mlp");
    let spec =
        RunSpec { model: ModelSpec { model_file: Some(path.clone()), ..ModelSpec::default() }, ..RunSpec::default() };
    resolve(&spec, &[]).unwrap();
    // Equal size, time and first bytes count as the same file.
    let time = path.metadata().unwrap().modified().unwrap();
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[4..].fill(0);
    std::fs::write(&path, &damaged).unwrap();
    let touched = |time| std::fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    touched(time);
    let batch = spec.with([("batch", &serde_json::json!(7))]).unwrap();
    assert_eq!(resolve(&batch, &[]).unwrap().run.batch, 7);
    touched(time + std::time::Duration::from_secs(1));
    assert!(resolve(&batch, &[]).is_err());
}

/// The file's weights and graph, computed on the CPU, give PyTorch's losses step by step.
#[test]
fn training_on_the_cpu_gives_pytorchs_losses() {
    losses::are_pytorchs(|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()));
}

#[test]
fn frozen_parameters_and_adapters_give_pytorchs_losses_on_the_cpu() {
    losses::are_pytorchs_of_a_part(|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()));
}

#[test]
fn every_optimizer_of_torch_gives_pytorchs_losses_on_the_cpu() {
    losses::are_pytorchs_with_every_optimizer(|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()));
}
