//! `cargo xtask bench`: runs the benchmarks and stores their results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use xtask::bench::collect;
use xtask::bench::results::Results;
use xtask::bench::tables::{READMES, updated};

use crate::artifact::{cargo, target_folder};

/// Folder of the results, below the workspace.
const RESULTS: &str = "benches/results";

/// Number of runs of a whole program; the shortest time counts.
const RUNS: usize = 10;

/// Options of `bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Only these groups (kernels, training, allocators, dry_run, snapshots).
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Only the devices of this backend.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Name of the file, after the date.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    name: String,
    /// Folder of the file.
    #[arg(long, value_name = "FOLDER", default_value = RESULTS)]
    into: PathBuf,
    /// Further arguments for criterion, such as `--measurement-time 0.1`.
    #[arg(last = true, value_name = "FLAGS")]
    criterion: Vec<String>,
}

/// Runs the groups in release mode and writes `DATE-NAME.json`.
///
/// # Errors
/// A benchmark fails, or a file cannot be written.
pub(crate) fn run(root: &Path, args: &BenchArgs) -> anyhow::Result<()> {
    let target = target_folder(root);
    // Fails before minutes of measuring.
    let folder = root.join(&args.into);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let criterion = target.join("criterion-results");
    if criterion.exists() {
        std::fs::remove_dir_all(&criterion).with_context(|| criterion.display().to_string())?;
    }
    let mut words: Vec<String> = ["bench", "-p", "benches"].map(String::from).to_vec();
    words.extend(args.group.iter().flat_map(|group| ["--bench".to_string(), group.clone()]));
    words.push("--".into());
    words.extend(args.backend.iter().flat_map(|backend| ["--backend".to_string(), backend.clone()]));
    words.extend(args.criterion.iter().cloned());
    println!("==> cargo {}", words.join(" "));
    let status = cargo(None).args(&words).env("CRITERION_HOME", &criterion).current_dir(root).status();
    if !status.context("could not start cargo")?.success() {
        bail!("the benchmarks failed");
    }
    let mut rows = collect::rows(&criterion)?;
    if args.group.is_empty() || args.group.iter().any(|group| group == "dry_run") {
        rows.extend(processes(root, &target)?);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    let date = lab_base::figures::date(now.as_secs());
    let mut head = Map::new();
    head.insert("schema".into(), "vramlab-bench-results-1".into());
    head.insert("date".into(), date.clone().into());
    head.insert("host".into(), host().into());
    head.insert("command".into(), format!("cargo {}", words.join(" ")).into());
    head.insert("roofs".into(), collect::roofs(&criterion)?.into());
    let file = folder.join(format!("{date}-{}.json", args.name));
    std::fs::write(&file, collect::text(&head, &rows)).with_context(|| file.display().to_string())?;
    println!(
        "==> {} benchmarks in {}; `cargo xtask bench-tables` puts them into the tables",
        rows.len(),
        file.display()
    );
    Ok(())
}

/// Regenerates the READMEs' tables from the files of results.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn tables(root: &Path) -> anyhow::Result<()> {
    let results = Results::read(&root.join(RESULTS))?;
    for name in READMES {
        let path = root.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| name)?;
        let new = updated(&text, &results).with_context(|| name)?;
        let same = new == text;
        if !same {
            std::fs::write(&path, new).with_context(|| name)?;
        }
        println!("==> {name}: {}", if same { "as it was" } else { "made anew" });
    }
    Ok(())
}

/// Times whole programs, from start to end.
fn processes(root: &Path, target: &Path) -> anyhow::Result<Vec<Value>> {
    const COMMANDS: [&[&str]; 2] =
        [&["predict", "--model", "gpt2", "--batch", "8"], &["run", "batch-size", "--backend", "meta"]];
    let built = cargo(None).args(["build", "--release", "-p", "vramlab-cli"]).current_dir(root).status();
    if !built.context("could not start cargo")?.success() {
        bail!("the program does not build");
    }
    let program = target.join("release").join(format!("vramlab{}", std::env::consts::EXE_SUFFIX));
    let measured = |words: &[&str]| -> anyhow::Result<Value> {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            let output = Command::new(&program).args(words).output().context("could not start vramlab")?;
            best = best.min(start.elapsed().as_nanos() as f64);
            if !output.status.success() {
                bail!("vramlab {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(json!({ "bench": format!("dry_run/whole process: vramlab {}", words.join(" ")), "ns": best }))
    };
    COMMANDS.into_iter().map(measured).collect()
}

/// Name and number of cores of the processor.
fn host() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cores} cores")
}
