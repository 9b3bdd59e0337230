//! The common start of every group of benchmarks: criterion with settings that let all groups end in minutes, and the
//! devices.
//!
//! Criterion does not know `--backend NAME`, so it is removed from the command line and passed on as `VRAMLAB_BACKEND`;
//! either may be used. Without it every device is measured that is not a software adapter.
#![allow(dead_code)] // each group uses its part

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use backend_cpu::Cpu;
use backend_cuda::Cuda;
use backend_wgpu::Wgpu;
use criterion::Criterion;
use memcore::Device;
use memcore::backend::{Backend, Tf32};

/// Environment variable that names one backend.
const VARIABLE: &str = "VRAMLAB_BACKEND";
const BACKENDS: [&str; 3] = ["cpu", "wgpu", "cuda"];

/// Runs the groups of a benchmark. The defaults can be changed on the command line, as always.
pub(crate) fn main(groups: &[fn(&mut Criterion)]) -> ExitCode {
    if let Some(code) = with_backend_taken_off() {
        return code;
    }
    if let Some(unknown) = wanted().filter(|name| !BACKENDS.contains(&name.as_str())) {
        eprintln!("{VARIABLE}: {unknown:?} is none of {}", BACKENDS.join(", "));
        return ExitCode::from(2);
    }
    // Drawing hundreds of plots takes longer than measuring what they show.
    let criterion = Criterion::default().without_plots().sample_size(10).nresamples(10_000);
    let criterion = criterion.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    let mut criterion = criterion.configure_from_args();
    for group in groups {
        group(&mut criterion);
    }
    criterion.final_summary();
    ExitCode::SUCCESS
}

/// Removes `--backend` and runs this program again: criterion reads the process's own arguments and refuses unknown
/// ones.
fn with_backend_taken_off() -> Option<ExitCode> {
    let mut rest: Vec<OsString> = Vec::new();
    let mut backend: Option<OsString> = None;
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--backend") => backend = Some(args.next().unwrap_or_default()),
            Some(text) => match text.strip_prefix("--backend=") {
                Some(name) => backend = Some(name.into()),
                None => rest.push(arg),
            },
            None => rest.push(arg),
        }
    }
    let backend = backend?;
    let status = std::env::current_exe().and_then(|exe| Command::new(exe).args(rest).env(VARIABLE, backend).status());
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => {
            eprintln!("--backend: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The backend that was asked for.
fn wanted() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())
}

/// True if everything runs only once: `cargo test --benches`, `cargo bench -- --test`.
pub(crate) fn is_test() -> bool {
    let given = |flag: &str| std::env::args().any(|arg| arg == flag);
    given("--test") || !given("--bench")
}

/// Returns all sizes; in a test, only the first.
pub(crate) fn sizes<T>(all: &[T]) -> &[T] {
    if is_test() { &all[..all.len().min(1)] } else { all }
}

/// A device to measure.
pub(crate) struct Found {
    /// Name in the names of benchmarks: `cpu`, `cuda`, `wgpu-1`.
    pub(crate) name: String,
    pub(crate) backend: Arc<dyn Backend>,
    /// True if the host's processor computes, also as a software GPU.
    pub(crate) is_processor: bool,
}

impl Found {
    /// Creates an empty device.
    pub(crate) fn device(&self) -> Device {
        Device::builder(self.backend.clone()).build()
    }
}

/// Returns the devices to measure; the others are reported with the reason.
pub(crate) fn devices() -> Vec<Found> {
    let wanted = wanted();
    let names = BACKENDS.into_iter().filter(|name| wanted.as_deref().is_none_or(|wanted| wanted == *name));
    names.flat_map(|name| of_backend(name, wanted.is_some())).collect()
}

fn of_backend(name: &'static str, named: bool) -> Vec<Found> {
    let skipped = |what: &str, reason: &dyn std::fmt::Display| eprintln!("{what}: skipped: {reason}");
    let count = match name {
        "cuda" => Cuda::count(),
        "wgpu" => Ok(backend_wgpu::adapters().len()),
        _ => Ok(1),
    };
    let count = match count {
        Ok(0) => {
            skipped(name, &"there is no device");
            0
        }
        Ok(count) => count,
        Err(error) => {
            skipped(name, &error);
            0
        }
    };
    let mut found = Vec::new();
    for index in 0..count {
        let label = if index == 0 { name.to_string() } else { format!("{name}-{index}") };
        let is_software = name == "wgpu" && backend_wgpu::adapters()[index].is_software;
        if is_software && !named {
            skipped(&label, &"it computes on the host's processor; --backend wgpu measures it all the same");
            continue;
        }
        let backend = match name {
            "cuda" => Cuda::open(index).map(|device| {
                // PyTorch's default, which this is compared with. A card without TF32 computes in float32, in both
                // programs.
                let _ = device.allow_tf32(Tf32::Convolutions);
                Arc::new(device) as Arc<dyn Backend>
            }),
            "wgpu" => Wgpu::open(index).map(|device| Arc::new(device) as Arc<dyn Backend>),
            _ => Cpu::new().map(|device| Arc::new(device) as Arc<dyn Backend>),
        };
        match backend {
            Ok(backend) => found.push(Found { name: label, backend, is_processor: is_software || name == "cpu" }),
            Err(error) => skipped(&label, &error),
        }
    }
    found
}

/// Writes a result that criterion does not know to the folder from which `cargo xtask bench` collects results.
pub(crate) fn leave(name: &str, json: &serde_json::Value) {
    let Some(folder) = std::env::var_os("CRITERION_HOME").map(PathBuf::from) else { return };
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join(format!("{name}.json")), json.to_string()));
    written.expect("a folder for results");
}

/// Path of a file of the project.
pub(crate) fn in_project(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
