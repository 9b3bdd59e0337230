//! `cargo xtask`: the project's chores, in Rust so that they run wherever the project builds.
//!
//! Each subcommand is a chore. It writes its outputs (tables in the documents, `docs/json.md`, a package) and returns an exit code.

mod artifact;
mod checks;
mod clock;
mod cuda;
mod dist;
mod environment;
mod licences;
mod measure;
mod python;
mod quick;
mod software_gpu;
mod stamp;
mod steps;
mod suites;

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
    /// Run all checks: formatting, lints, doc tests, all tests. Says what each step took.
    ///
    /// A step that takes minutes and passed with the same inputs is not run again.
    ///
    /// Example: cargo xtask test --full
    Test {
        /// Also run the slow tests: kernels in release mode, reports in a browser, rehearsals. Every step is run again.
        #[arg(long)]
        full: bool,
        /// Leave out what `lint` runs.
        #[arg(long)]
        no_lint: bool,
    },
    /// Run only the checks that run no test: formatting, lints, the contents of packages.
    Lint,
    /// Run the tests of the packages that differ from branch main, and of those that stand on them.
    Quick,
    /// Run only the tests of the package for Python.
    Python {
        /// Also run the tests that need PyTorch, with the Python of VRAMLAB_REHEARSAL_PYTHON.
        #[arg(long)]
        full: bool,
    },
    /// Run the benchmarks in release mode and store the results in benches/results, under today's date.
    ///
    /// Example: cargo xtask bench --group allocators
    Bench(measure::BenchArgs),
    /// Make a release archive and its checksum in target/archives: program, library, manual pages, completions, licences.
    ///
    /// Example: cargo xtask dist --zig
    Dist(dist::DistArgs),
    /// Make a wheel for Python in target/wheels. Installs maturin from PyPI into target/wheel-tools.
    ///
    /// Example: cargo xtask wheel --zig
    Wheel(dist::DistArgs),
    /// Regenerate the tables of figures in the READMEs from benches/results.
    BenchTables,
    /// Regenerate docs/accuracy.md: measured figures beside what the program in target/ says of them.
    ///
    /// Example: cargo xtask published --exports FOLDER --python /usr/bin/python3
    Published {
        /// Fit the bands and make the document, and ask nobody.
        #[arg(long)]
        fit: bool,
        /// Ask about some rows, and fail if an answer has changed.
        #[arg(long, conflicts_with_all = ["fit", "exports", "python"])]
        sample: bool,
        /// The program.
        #[arg(long, default_value = "target/debug/vramlab")]
        program: PathBuf,
        /// Folder with the exported networks, which are not part of the project. Without it their answers are kept.
        #[arg(long)]
        exports: Option<PathBuf>,
        /// A Python with PyTorch, whose cuDNN is asked. Without it the answers that need one are kept.
        #[arg(long)]
        python: Option<PathBuf>,
    },
    /// Regenerate docs/json.md, python/vramlab/schemas.py and the schema of rehearsals from the structs that become JSON.
    Json,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.chore {
        Chore::Test { full, no_lint } => {
            repository_root().and_then(|root| steps::run_all(&root, steps::Asked { full, lint: !no_lint }))
        }
        Chore::Lint => repository_root().and_then(|root| steps::lint(&root)),
        Chore::Quick => repository_root().and_then(|root| quick::run(&root)),
        Chore::Python { full } => repository_root().and_then(|root| python::alone(&root, full)),
        Chore::Bench(args) => repository_root().and_then(|root| measure::run(&root, &args)),
        Chore::Dist(args) => repository_root().and_then(|root| dist::archive(&root, &args)),
        Chore::Wheel(args) => repository_root().and_then(|root| dist::wheel(&root, &args)),
        Chore::BenchTables => repository_root().and_then(|root| measure::tables(&root)),
        Chore::Published { fit: true, .. } => repository_root().and_then(|root| xtask::published::write(&root)),
        Chore::Published { sample: true, program, .. } => repository_root().and_then(|root| {
            let asked = xtask::published::sample(&root, &root.join(program))?;
            println!("{asked} answers are as before");
            Ok(())
        }),
        Chore::Published { program, exports, python, .. } => repository_root()
            .and_then(|root| xtask::published::run(&root, &root.join(program), exports.as_deref(), python.as_deref())),
        Chore::Json => repository_root().and_then(|root| {
            let text = xtask::schemas::markdown(&root)?;
            std::fs::write(root.join(xtask::typed::FILE), xtask::typed::python(&text))?;
            for (file, made) in xtask::contract::FILES.iter().zip(xtask::contract::python(&root)?) {
                std::fs::write(root.join(file), made)?;
            }
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

/// Folder of the workspace, from cargo at run time: the binary may have been moved since it was built.
fn repository_root() -> anyhow::Result<PathBuf> {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").context("cargo did not say where the project is: run `cargo xtask`")?;
    let root = PathBuf::from(manifest_dir).parent().map(PathBuf::from);
    root.context("the xtask package has no directory above it")
}
