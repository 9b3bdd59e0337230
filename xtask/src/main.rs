//! `cargo xtask`: the project's chores, in Rust so that they run wherever the project builds.
//!
//! It takes a chore's name, writes the chore's outputs (tables in the texts, `docs/json.md`, a package), and returns an exit code.

mod artifact;
mod checks;
mod cuda;
mod dist;
mod environment;
mod licences;
mod measure;
mod python;
mod software_gpu;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run everything that must pass: formatting, lints, doc tests, all tests.
    ///
    /// Example: cargo xtask test --full
    Test {
        /// Also run what takes long: the kernels' tests in release mode, reports in a browser, rehearsals.
        #[arg(long)]
        full: bool,
    },
    /// Test the package for Python alone, as `test` does.
    Python {
        /// Also beside PyTorch, with the Python that VRAMLAB_REHEARSAL_PYTHON names.
        #[arg(long)]
        full: bool,
    },
    /// Run the benchmarks in release mode and keep what they measured in benches/results, under today's date.
    ///
    /// Example: cargo xtask bench --group allocators
    Bench(measure::BenchArgs),
    /// Make an archive of the program with its library, pages, completions and licences, and its checksum, in target/archives.
    ///
    /// Example: cargo xtask dist --zig
    Dist(dist::DistArgs),
    /// Make a wheel for Python in target/wheels, by maturin, which is installed from PyPI into target/wheel-tools.
    ///
    /// Example: cargo xtask wheel --zig
    Wheel(dist::DistArgs),
    /// Make the READMEs' tables of figures anew from benches/results.
    BenchTables,
    /// Make docs/json.md, and the same as types of Python, anew from the structs that are written.
    Json,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.chore {
        Chore::Test { full } => repository_root().and_then(|root| steps::run_all(&root, full)),
        Chore::Python { full } => repository_root().and_then(|root| python::alone(&root, full)),
        Chore::Bench(args) => repository_root().and_then(|root| measure::run(&root, &args)),
        Chore::Dist(args) => repository_root().and_then(|root| dist::archive(&root, &args)),
        Chore::Wheel(args) => repository_root().and_then(|root| dist::wheel(&root, &args)),
        Chore::BenchTables => repository_root().and_then(|root| measure::tables(&root)),
        Chore::Json => repository_root().and_then(|root| {
            let text = xtask::schemas::markdown(&root)?;
            std::fs::write(root.join(xtask::typed::FILE), xtask::typed::python(&text))?;
            Ok(std::fs::write(root.join("docs/json.md"), text)?)
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Where the workspace is: cargo says so at run time, since the binary may have been moved after it was built.
fn repository_root() -> anyhow::Result<PathBuf> {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").context("cargo did not say where the project is: run `cargo xtask`")?;
    let root = PathBuf::from(manifest_dir).parent().map(PathBuf::from);
    root.context("the xtask package has no directory above it")
}
