//! Training on the emulated device: its memory events are those of the CPU and of a device without values, and every
//! experiment has the same figures.

use std::process::ExitCode;
use std::sync::Arc;

use backend_cpu::Cpu;
use lab::models::{ALL, ModelOptions};
use lab::training::{OptimizerKind, OptimizerSettings};
use libtest_mimic::{Arguments, Failed, Trial};
use memcore::backend::{Backend, DeviceProfile, Limited, Meta};
use memcore::optim::Implementation;
use memcore::{Device, Profile};
use runs::train;

mod emulator;
#[path = "../../lab/tests/runs/mod.rs"]
mod runs;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !emulator::is_here() && !arguments.list {
        return emulator::run_again().unwrap_or_else(|problem| {
            eprintln!("the emulator does not start: {problem}");
            ExitCode::FAILURE
        });
    }
    let mut trials: Vec<Trial> = ALL
        .iter()
        .filter(|(name, _)| !is_deep(name))
        .map(|&(name, _)| trial(format!("events::{name}"), move || same_events(name, &ModelOptions::small(name), None)))
        .collect();
    for kind in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
        for implementation in [Implementation::Loop, Implementation::Foreach, Implementation::Fused] {
            let settings = OptimizerSettings { implementation, ..OptimizerSettings::new(kind, 1e-3) };
            let name = format!("events::mlp::{kind:?}_{implementation:?}");
            trials.push(trial(name, move || same_events("mlp", &ModelOptions::small("mlp"), Some(settings))));
        }
    }
    for name in runs::experiments::names() {
        let here = || Ok::<_, String>(Arc::new(emulator::open()?) as Arc<dyn Backend>);
        trials.push(trial(format!("experiment::{name}"), move || runs::experiments::same_bytes(name, &here()?)));
    }
    trials.push(trial("out_of_memory::the_next_run_works".into(), out_of_memory));
    trials.push(trial("kernels::each_in_the_table_is_in_a_file".into(), every_kernel_loads));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: String, run: impl Fn() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

/// Networks whose smallest form is too large for the emulator.
fn is_deep(name: &str) -> bool {
    ["resnet18", "resnet34", "resnet50", "vgg16", "mobilenet_v2", "densenet121"].contains(&name)
        || name.starts_with("convnext-")
}

/// A device with PyTorch's temporaries and workspaces.
fn device(backend: Arc<dyn Backend>) -> Device {
    runs::device(backend, Profile::torch_2_11(90))
}

fn same_events(name: &str, options: &ModelOptions, optimizer: Option<OptimizerSettings>) -> Result<(), String> {
    let on = |backend: Arc<dyn Backend>| {
        train(name, options, optimizer, device(backend)).map_err(|error| format!("{name}: {error}"))
    };
    let meta = Meta::new(DeviceProfile { total_bytes: 2 << 30, ..DeviceProfile::default() });
    let (dry, _) = on(Arc::new(meta))?;
    let (cuda, losses) = on(Arc::new(emulator::open()?))?;
    let (cpu, expected) = on(Arc::new(Cpu::new().map_err(|error| error.to_string())?))?;
    for (other, events) in [("meta", &dry), ("cpu", &cpu)] {
        runs::same(("cuda", &cuda), (other, events))?;
    }
    let near = losses.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(1.0));
    if near && losses.len() == expected.len() && !losses.is_empty() {
        return Ok(());
    }
    Err(format!("losses {losses:?} on cuda, {expected:?} on cpu"))
}

/// Out of memory in the middle of a step; then, in the same process, a run that fits.
fn out_of_memory() -> Result<(), String> {
    let cuda: Arc<dyn Backend> = Arc::new(emulator::open()?);
    let options = ModelOptions::small("simple-cnn");
    let little: Arc<dyn Backend> = Arc::new(Limited::new(Arc::clone(&cuda), 24 << 20));
    match train("simple-cnn", &options, None, device(little)) {
        Err(lab::Error::Core(error)) if error.is_out_of_memory() => {}
        Err(other) => return Err(format!("memory did not run out: {other}")),
        Ok(_) => return Err("memory did not run out".into()),
    }
    let (_, losses) = train("simple-cnn", &options, None, device(cuda)).map_err(|error| error.to_string())?;
    if losses.is_empty() || losses.iter().any(|loss| !loss.is_finite()) {
        return Err(format!("after running out of memory: {losses:?}"));
    }
    Ok(())
}

/// Every family loads: that looks up every function and compares the sizes of arguments.
fn every_kernel_loads() -> Result<(), String> {
    let names = backend_cuda::kernel_names();
    let cuda = emulator::open()?;
    cuda.load_kernels().map_err(|error| error.to_string())?;
    let mut unknown: Vec<String> = emulator::kernel_names()?.into_iter().filter(|name| !names.contains(name)).collect();
    unknown.sort();
    if unknown.is_empty() { Ok(()) } else { Err(format!("in the files and not in the table: {unknown:?}")) }
}
