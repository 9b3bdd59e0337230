//! Compiles the CUDA kernels without a GPU.
//!
//! NVIDIA's run-time compiler is one library on PyPI and needs no GPU. It is downloaded into `target/` once; if that is
//! impossible, the step is skipped with a message.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::artifact::{self, Built};
use crate::stamp::Inputs;
use crate::suites::{self, Suite};

/// The compiler's package on PyPI.
const WHEEL: &str = "nvidia-cuda-nvrtc-cu12==12.9.86";

/// The oldest and a recent architecture: Turing, whose tensor cores have no bfloat16 and which has code of its own, and
/// Hopper. Each takes more than a minute of a core.
const ARCHITECTURES: &[&str] = &["75", "90"];

/// Every architecture from Turing to Blackwell, for `--full`.
const ALL_ARCHITECTURES: &[&str] = &["75", "80", "86", "89", "90", "100", "120"];

/// Compiles every kernel for each architecture; fails on an error or a spilled register. `Ok(Some(reason))`: skipped.
///
/// # Errors
/// A kernel does not compile, or spills.
pub(crate) fn compile_kernels(root: &Path, full: bool) -> anyhow::Result<Option<String>> {
    let folder = match fetch(root) {
        Ok(folder) => folder,
        Err(error) => return Ok(Some(format!("the kernels' compiler ({WHEEL}) cannot be had: {error:#}"))),
    };
    let architectures = if full { ALL_ARCHITECTURES } else { ARCHITECTURES };
    let built = artifact::build(root, &["build", "--workspace", "--example", "compile_kernels"])?;
    let program = built.program("example", "backend-cuda", "compile_kernels")?;
    let mut path = OsString::from(&folder);
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(rest);
    }
    if full {
        // The portable kernels as CUDA C: the backend uses its own kernels, so nothing else would compile this text.
        run(Command::new(&program).args(["portable", "90"]).env("LD_LIBRARY_PATH", &path))?;
    }
    // The program knows what it would compile.
    let known = output(Command::new(&program).arg("fingerprint"))?;
    let stamp = Inputs::default().value(WHEEL).value(architectures).value(known).stamp(root, "cuda-kernels");
    if !full && stamp.is_set() {
        println!("==> CUDA kernels: unchanged since they compiled for sm_{}", architectures.join(", sm_"));
        return Ok(None);
    }
    println!("==> CUDA kernels: NVRTC for sm_{}", architectures.join(", sm_"));
    // One process each: the compiler works for one caller at a time.
    let compile = |architecture: &&str| {
        let mut command = Command::new(&program);
        command.arg(architecture).env("LD_LIBRARY_PATH", &path);
        command.spawn().with_context(|| format!("{} does not start", program.display()))
    };
    let running: Vec<_> = architectures.iter().map(compile).collect::<anyhow::Result<_>>()?;
    let ended: Vec<_> = running.into_iter().map(|mut child| child.wait()).collect::<Result<_, _>>()?;
    if let Some(status) = ended.iter().find(|status| !status.success()) {
        bail!("step `CUDA kernels` failed ({status})");
    }
    stamp.set()?;
    Ok(None)
}

/// Runs the conformance suite on the emulator in the ways that the ordinary run does not: products and convolutions by the
/// stand-ins for cuBLASLt and cuDNN, every kernel as on a card whose tensor cores take only f16, every kernel with a search for
/// data races and, if `full`, everything under AddressSanitizer. What passed with the same kernels and the same emulator is run
/// again only if `full`.
///
/// # Errors
/// A case fails.
pub(crate) fn emulated(root: &Path, built: &Built, full: bool) -> anyhow::Result<()> {
    // A race is found in whatever order threads run, so the suites that repeat the kernels would find nothing more.
    // The longest first.
    let mut runs = vec![("races", "kernels::"), ("blas", "conv2d"), ("turing", "kernels::"), ("blas", "matmul")];
    if full {
        runs.push(("address", ""));
    }
    let program = &built.find("test", "backend-cuda", "conformance")?;
    let suite = |(mode, filter): (&'static str, &'static str)| Suite {
        program,
        what: format!("CUDA emulator, {mode}: conformance {filter}"),
        args: if filter.is_empty() { Vec::new() } else { vec![filter] },
        environment: vec![("CUDA_EMULATOR", mode.into())],
    };
    suites::run(root, runs.into_iter().map(suite).collect(), full)
}

/// Returns the folder of the compiler's libraries; downloads them if they are missing.
fn fetch(root: &Path) -> anyhow::Result<PathBuf> {
    let home = artifact::target_folder(root).join("nvrtc-12.9.86");
    let libraries = home.join("nvidia/cuda_nvrtc/lib");
    if libraries.join("libnvrtc.so.12").exists() {
        return Ok(libraries);
    }
    std::fs::create_dir_all(&home).with_context(|| format!("{}", home.display()))?;
    println!("==> fetching {WHEEL} from PyPI");
    run(Command::new("python3").args(["-m", "pip", "download", "--quiet", "--no-deps", WHEEL, "--dest"]).arg(&home))?;
    let wheel = std::fs::read_dir(&home)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip gave no wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(&home))?;
    // The package is no longer needed: a hundred megabytes.
    std::fs::remove_file(&wheel)?;
    Ok(libraries)
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    Ok(output.stdout)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
