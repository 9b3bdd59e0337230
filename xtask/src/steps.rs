//! The steps of `cargo xtask test`, in order.
//!
//! The test runner comes last, so that its summary is the last line of the output. Skipped steps are reported before
//! it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::artifact::{self, Built, cargo};
use crate::clock::Clock;
use crate::{software_gpu, suites};

/// One command that must succeed.
struct Step {
    name: &'static str,
    /// Arguments of cargo.
    args: &'static [&'static str],
    /// Tool that the command needs besides cargo.
    needs: Option<Tool>,
}

/// A part of the toolchain that may be missing.
struct Tool {
    name: &'static str,
    /// The toolchain that has it, if not the one in use.
    toolchain: Option<&'static str>,
    /// Arguments of cargo that succeed if the tool is installed.
    probe: &'static [&'static str],
    /// A quick command that installs the tool; empty if there is none. It may fail.
    install: &'static [&'static str],
}

const RUSTFMT: Tool = Tool {
    name: "rustfmt",
    toolchain: None,
    probe: &["fmt", "--version"],
    install: &["rustup", "component", "add", "rustfmt"],
};
const CLIPPY: Tool = Tool {
    name: "clippy",
    toolchain: None,
    probe: &["clippy", "--version"],
    install: &["rustup", "component", "add", "clippy"],
};

const MIRI: Tool = Tool {
    name: "Miri",
    toolchain: Some("nightly"),
    probe: &["miri", "--version"],
    install: &["rustup", "toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"],
};

const FMT: Step = Step { name: "fmt", args: &["fmt", "--all", "--check"], needs: Some(RUSTFMT) };
const LINTS: Step = Step {
    name: "clippy",
    args: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    needs: Some(CLIPPY),
};
const DOC_TESTS: Step = Step { name: "doc tests", args: &["test", "--doc", "--workspace"], needs: None };

/// Packages every crate as it would be published.
const PACKAGE: Step =
    Step { name: "package", args: &["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"], needs: None };

/// What [`lint`] runs.
const LINT: [&Step; 3] = [&FMT, &LINTS, &PACKAGE];

/// What [`run_all`] runs before everything else. The build of all tests lints what it compiles.
const BEFORE: [&Step; 2] = [&FMT, &PACKAGE];

/// Steps that only `--full` runs.
const LONG: &[Step] = &[
    // Builds the contents of the packages.
    Step { name: "packages build", args: &["package", "--workspace", "--allow-dirty", "--quiet"], needs: None },
    Step {
        name: "release tests",
        args: &["test", "--release", "-p", "vramlab-conformance", "-p", "backend-cpu", "--lib", "--bins", "--tests"],
        needs: None,
    },
    // Every run tries a few hundred of them.
    Step {
        name: "two thousand bad inputs",
        args: &["test", "-p", "vramlab-cli", "--test", "it", "--", "--ignored", "cases::"],
        needs: None,
    },
    // Walks of people with a script: a Python with PyTorch is asked for.
    Step {
        name: "walks with PyTorch",
        args: &["test", "-p", "vramlab-cli", "--test", "it", "--", "--ignored", "walks::"],
        needs: None,
    },
    // The program without its features, as backends outside of this repository and the library for C have it.
    Step { name: "library for C alone", args: &["check", "-p", "vramlab-capi"], needs: None },
    // Separate workspace that no other step builds. Needs a C++ compiler for libFuzzer.
    Step { name: "fuzz targets", args: &["check", "--manifest-path", "fuzz/Cargo.toml", "--bins"], needs: None },
    // Finds data races between threads, and invalid uses of memory.
    Step {
        name: "threads under Miri",
        args: &["miri", "test", "-p", "memcore", "--test", "it", "several_threads"],
        needs: Some(MIRI),
    },
    // One of them takes minutes, and nextest leaves it out.
    Step { name: "tests of the suites", args: &["test", "-p", "vramlab-conformance", "--lib"], needs: None },
    // Without a driver it prints a message and passes.
    Step {
        name: "ten thousand steps on an adapter",
        args: &["test", "-p", "backend-wgpu", "--test", "it", "--", "--ignored", "endurance::"],
        needs: None,
    },
];

// Neither command runs the benches: run as tests they would measure nothing and take minutes.
const NEXTEST: Step =
    Step { name: "tests", args: &["nextest", "run", "--workspace", "--tests", "-E", suites::OTHERS], needs: None };
const LIBTEST: Step = Step { name: "tests", args: &["test", "--workspace", "--tests"], needs: None };

/// Some of the suites for the OpenCL backend, on an interpreter that checks every access and searches for data races.
const INTERPRETED: Step = Step {
    name: "OpenCL kernels on Oclgrind",
    args: &[
        "test",
        "-p",
        "backend-opencl",
        "--test",
        "conformance",
        "--",
        "--quiet",
        "--test-threads",
        "1",
        "kernels::",
    ],
    needs: None,
};

/// What `cargo xtask test` was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// Also the slow tests, and again what passed before.
    pub(crate) full: bool,
    /// The steps of [`lint`] too.
    pub(crate) lint: bool,
}

/// Runs the steps that read the sources and run nothing of them.
///
/// # Errors
/// Names the step that failed, or that could not be started.
pub(crate) fn lint(root: &Path) -> anyhow::Result<()> {
    let (mut clock, mut skipped) = (Clock::default(), Vec::new());
    LINT.iter().try_for_each(|step| run_if_possible(root, step, &mut clock, &mut skipped))
}

/// Runs every step and stops at the first that fails. All tests are built once; what starts one of their programs takes it from there.
///
/// # Errors
/// Names the step that failed, or that could not be started.
pub(crate) fn run_all(root: &Path, asked: Asked) -> anyhow::Result<()> {
    let (mut clock, mut skipped) = (Clock::default(), Vec::new());
    if asked.lint {
        BEFORE.iter().try_for_each(|step| run_if_possible(root, step, &mut clock, &mut skipped))?;
        if missing_tool(root, &LINTS).is_some() || !artifact::lint_what_is_built() {
            println!("==> SKIPPED lints: clippy is missing and could not be installed");
            skipped.push("lints: clippy is missing".into());
        }
    }
    println!("==> build of all tests");
    let built = clock.step("build of all tests", || artifact::tests(root))?;
    run_if_possible(root, &DOC_TESTS, &mut clock, &mut skipped)?;
    if asked.full {
        LONG.iter().try_for_each(|step| run_if_possible(root, step, &mut clock, &mut skipped))?;
    } else {
        skipped.extend(LONG.iter().map(|step| format!("step `{}`: takes long, --full runs it", step.name)));
    }
    // If a driver is installed, a backend's suites may not be skipped.
    let mut required = Vec::new();
    for (backend, driver) in [("wgpu", software_gpu::ensure_driver()), ("opencl", software_gpu::ensure_opencl())] {
        match driver {
            Ok(()) => required.push(backend),
            Err(reason) => skipped.push(format!("the {backend} backend's suites: {reason}")),
        }
    }
    let only_lavapipe = cfg!(target_os = "linux") && required.contains(&"wgpu") && !software_gpu::has_card();
    let vramlab = built.vramlab()?;
    let (variable, library) = vramlab.variable();
    let mut environment = vec![("REQUIRE_DEVICE", require(required)), (variable, library.into())];
    environment.extend(software_gpu::caches(&artifact::target_folder(root))?);
    if asked.full {
        clock.step("other drivers, a browser and scripts", || beyond(root, &built, &mut skipped))?;
    } else {
        skipped.push("reports and ui in a browser: --full looks at them".into());
        skipped.push("rehearsals of whole scripts: --full runs them".into());
    }
    skipped.extend(clock.step("package for Python", || crate::python::package(root, &vramlab, asked.full))?);
    skipped.extend(clock.step("CUDA kernels", || crate::cuda::compile_kernels(root, asked.full))?);
    clock.step("CUDA emulator", || crate::cuda::emulated(root, &built, asked.full))?;
    let nextest = succeeds(root, None, &["nextest", "--version"]);
    if nextest {
        // A card runs the whole suite.
        let swiftshader = only_lavapipe.then(|| software_gpu::swiftshader(&artifact::target_folder(root)));
        let swiftshader = swiftshader.transpose().unwrap_or_else(|reason| {
            skipped.push(reason);
            None
        });
        let driver = swiftshader.as_deref();
        clock.step("conformance", || suites::run_all(root, &built, &environment, driver, asked.full))?;
    }
    for what in &skipped {
        println!("==> skipped: {what}");
    }
    print!("{}", clock.table());
    run_with(root, if nextest { &NEXTEST } else { &LIBTEST }, &environment)
}

/// What only `--full` does, beside its steps: suites on other implementations, and the checks by scripts.
fn beyond(root: &Path, built: &Built, skipped: &mut Vec<String>) -> anyhow::Result<()> {
    match software_gpu::oclgrind(&artifact::target_folder(root)) {
        Ok(vendors) => interpreted(root, vendors)?,
        Err(reason) => skipped.push(reason),
    }
    let vramlab = built.vramlab()?;
    skipped.extend(crate::checks::reports(root, &vramlab)?);
    skipped.extend(crate::checks::ui(root, &vramlab)?);
    skipped.extend(crate::checks::rehearsals(root, &vramlab)?);
    // Measured trainings: what the program says of them has not changed.
    xtask::published::sample(root, &vramlab.program)?;
    Ok(())
}

/// The devices whose absence is a failure: those in the environment, and `devices`.
fn require(devices: Vec<&str>) -> OsString {
    let named = std::env::var("REQUIRE_DEVICE").unwrap_or_default();
    let all: Vec<&str> = named.split(',').filter(|name| !name.is_empty()).chain(devices).collect();
    all.join(",").into()
}

/// Runs a step, unless its tool is missing and cannot be installed.
fn run_if_possible(root: &Path, step: &Step, clock: &mut Clock, skipped: &mut Vec<String>) -> anyhow::Result<()> {
    let Some(tool) = missing_tool(root, step) else { return clock.step(step.name, || run_with(root, step, &[])) };
    let what = format!("step `{}`: {} is missing and could not be installed", step.name, tool.name);
    println!("==> SKIPPED {what}");
    skipped.push(what);
    Ok(())
}

/// Runs a step with additional environment variables.
fn run_with(root: &Path, step: &Step, environment: &[(&str, OsString)]) -> anyhow::Result<()> {
    println!("==> {}: cargo {}", step.name, step.args.join(" "));
    let status = cargo(step.needs.as_ref().and_then(|tool| tool.toolchain))
        .args(step.args)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(root)
        .status()
        .with_context(|| format!("step `{}` could not start cargo", step.name))?;
    if !status.success() {
        bail!("step `{}` failed ({status})", step.name);
    }
    Ok(())
}

/// Runs kernels on Oclgrind. Its findings are failures: a wrong access may leave correct results.
fn interpreted(root: &Path, vendors: PathBuf) -> anyhow::Result<()> {
    let log = vendors.join("log.txt");
    std::fs::write(&log, "")?;
    run_with(root, &INTERPRETED, &software_gpu::strict(vendors, &log))?;
    let found = std::fs::read(&log).with_context(|| log.display().to_string())?;
    if !found.is_empty() {
        let beginning = String::from_utf8_lossy(&found[..found.len().min(2000)]).into_owned();
        bail!("step `{}`: {} (all of it in {})", INTERPRETED.name, beginning.trim(), log.display());
    }
    Ok(())
}

/// Returns the tool that a step lacks, after an attempt to install it.
fn missing_tool<'a>(root: &Path, step: &'a Step) -> Option<&'a Tool> {
    let tool = step.needs.as_ref()?;
    if succeeds(root, tool.toolchain, tool.probe) {
        return None;
    }
    if let [program, args @ ..] = tool.install {
        println!("==> {} is missing; trying: {}", tool.name, tool.install.join(" "));
        // If the command does not start, the tool is not installed: the probe below shows that.
        let _ = Command::new(program).args(args).current_dir(root).status();
    }
    (!succeeds(root, tool.toolchain, tool.probe)).then_some(tool)
}

fn succeeds(root: &Path, toolchain: Option<&str>, args: &[&str]) -> bool {
    let quiet = cargo(toolchain)
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}
