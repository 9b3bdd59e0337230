//! `cargo xtask quick`: tests of the crates that changed, and of those that stand on them.
//!
//! Changed is what differs from the commit at which the branch left `main`, and what git does not know yet. Everything stands on `memcore`
//! and the other ground floors: for these it is their own tests, and a check that the rest still compiles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::artifact::{cargo, lint_what_is_built, target_folder};
use crate::software_gpu;

/// Packages whose own tests are run if they change, but not those of all that stands on them.
const GROUND: &[&str] = &["memcore", "vramlab-conformance"];

/// Selected beside every package above the ground, if only to be built: with them cargo takes the features of the whole workspace, so
/// that libraries are built once for this command, for `cargo xtask test` and for every other change.
const SAME_FEATURES: &[&str] = &["vramlab-cli", "vramlab-lab"];

/// Test programs that are suites, by package.
const SUITES: &[(&str, &str)] = &[
    ("backend-cpu", "conformance"),
    ("backend-cuda", "conformance"),
    ("backend-opencl", "conformance"),
    ("backend-wgpu", "conformance"),
    ("vramlab-conformance", "meta"),
    ("vramlab-conformance", "reference"),
];

/// Programs that a package's tests read without depending on it: documents and examples are run by the tests of the command line.
const READ_BY_TESTS: &[(&str, &str)] = &[
    ("docs/", "vramlab-cli"),
    ("examples/", "vramlab-cli"),
    ("README.md", "vramlab-cli"),
    ("lab/tests/golden/", "vramlab-training"),
];

/// Files that change every package.
const EVERYTHING: &[&str] = &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    name: String,
    /// Its folder, relative to the workspace's.
    folder: PathBuf,
    /// Packages of the workspace that it is built with; not those that only its tests use.
    uses: Vec<String>,
}

/// What is to be run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Packages whose tests are run.
    tested: BTreeSet<String>,
    /// Whether all packages are checked.
    checked: bool,
    /// Whether the tests of the package for Python are run.
    python: bool,
}

/// Runs the tests of what changed.
///
/// # Errors
/// Git or cargo does not answer, or a check fails.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let packages = packages(root)?;
    let changed = changed(root)?;
    let plan = plan(&packages, &changed);
    if changed.is_empty() {
        println!("==> nothing differs from main");
        return Ok(());
    }
    step(root, &["fmt", "--all", "--check"])?;
    // As `cargo xtask test` does, so that both use the same programs. Without clippy the compiler builds them.
    lint_what_is_built();
    if plan.checked {
        step(root, &["check", "--workspace", "--tests"])?;
    }
    if plan.python {
        crate::python::alone(root, false)?;
    }
    run_tests(root, &plan.tested)
}

/// Runs the tests of these packages, and the rules of the house, which read every file.
fn run_tests(root: &Path, tested: &BTreeSet<String>) -> anyhow::Result<()> {
    let names: BTreeSet<&str> = tested.iter().map(String::as_str).chain(["xtask"]).collect();
    println!("==> tests of {}", names.iter().copied().collect::<Vec<_>>().join(", "));
    let selection = selection(&names);
    let suites: BTreeSet<&str> =
        SUITES.iter().filter(|(name, _)| names.contains(name)).map(|(_, suite)| *suite).collect();
    let filter = filter(&names, &suites);
    let nextest = cargo(None).args(["nextest", "--version"]).output().is_ok_and(|output| output.status.success());
    let (runner, rest): (&[&str], &[&str]) =
        if nextest { (&["nextest", "run"], &["-E", &filter]) } else { (&["test"], &[]) };
    step(root, &[runner, &["--tests"], &selection, rest].concat())?;
    // The other runner has run them.
    if suites.is_empty() || !nextest {
        return Ok(());
    }
    let suites: Vec<&str> = suites.into_iter().flat_map(|suite| ["--test", suite]).collect();
    step(root, &[&["test"], &selection[..], &suites, &["--", "--quiet"]].concat())
}

/// Nextest's expression for all tests of these packages but the suites. A name that is not there is an error to it.
fn filter(names: &BTreeSet<&str>, suites: &BTreeSet<&str>) -> String {
    let any = |kind: &str, names: &BTreeSet<&str>| {
        names.iter().map(|name| format!("{kind}(={name})")).collect::<Vec<_>>().join(" or ")
    };
    let packages = any("package", names);
    if suites.is_empty() { packages } else { format!("({packages}) and not ({})", any("binary", suites)) }
}

/// The arguments of cargo that select these packages.
fn selection<'a>(names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let on_the_ground = names.iter().all(|name| GROUND.contains(name) || *name == "xtask");
    let more = if on_the_ground { &[][..] } else { SAME_FEATURES };
    let selected: BTreeSet<&str> = names.iter().chain(more).copied().collect();
    selected.into_iter().flat_map(|name| ["-p", name]).collect()
}

fn step(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    println!("==> cargo {}", args.join(" "));
    let caches = software_gpu::caches(&target_folder(root))?;
    let status = cargo(None).args(args).envs(caches).current_dir(root).status().context("cargo does not start")?;
    if !status.success() {
        bail!("cargo {} failed ({status})", args.join(" "));
    }
    Ok(())
}

/// The packages of the workspace.
fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let output = cargo(None)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo does not start")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let root = Path::new(metadata["workspace_root"].as_str().context("cargo metadata: no root")?);
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    packages.iter().map(|package| read(package, root).context("cargo metadata: a package")).collect()
}

fn read(package: &Value, root: &Path) -> Option<Package> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let uses = package["dependencies"].as_array()?.iter();
    let uses = uses.filter(|used| used["kind"].is_null() && !used["path"].is_null());
    Some(Package {
        name: package["name"].as_str()?.to_string(),
        folder: manifest.parent()?.strip_prefix(root).ok()?.to_path_buf(),
        uses: uses.filter_map(|used| Some(used["name"].as_str()?.to_string())).collect(),
    })
}

/// Files that differ from the commit at which this branch left `main`, or that git does not know.
fn changed(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let git = |args: &[&str]| -> anyhow::Result<Vec<u8>> {
        let output = std::process::Command::new("git").args(args).current_dir(root).output().context("git")?;
        if !output.status.success() {
            bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    };
    // Where there is no `main`, as in a clone of one branch, what is not committed yet.
    let bases = ["main", "origin/main"].map(|main| git(&["merge-base", "HEAD", main]));
    let base = bases.into_iter().find_map(Result::ok).unwrap_or_else(|| b"HEAD".to_vec());
    let base = String::from_utf8(base).context("git merge-base")?;
    let mut listed = git(&["diff", "--name-only", "-z", base.trim()])?;
    listed.extend(git(&["ls-files", "--others", "--exclude-standard", "-z"])?);
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())).collect())
}

/// What is to be run for these changed files.
fn plan(packages: &[Package], changed: &[PathBuf]) -> Plan {
    let mut plan = Plan::default();
    let mut found = BTreeSet::new();
    for file in changed {
        if EVERYTHING.iter().any(|name| file == Path::new(name)) {
            plan.checked = true;
        }
        let is_read = file.starts_with("python") || file.extension().is_some_and(|extension| extension == "py");
        plan.python |=
            is_read || [Path::new("pyproject.toml"), Path::new("scripts/mypy.ini")].contains(&file.as_path());
        let owner = packages.iter().filter(|package| file.starts_with(&package.folder));
        let owner = owner.max_by_key(|package| package.folder.components().count());
        found.extend(owner.map(|package| package.name.clone()));
        let text = file.to_string_lossy();
        let readers = READ_BY_TESTS.iter().filter(|(path, _)| text.starts_with(path));
        plan.tested.extend(readers.map(|(_, package)| (*package).to_string()));
    }
    let (ground, above): (Vec<_>, Vec<_>) = found.into_iter().partition(|name| GROUND.contains(&name.as_str()));
    plan.checked |= !ground.is_empty();
    let mut reached: BTreeSet<String> = above.into_iter().collect();
    loop {
        let next = packages.iter().filter(|package| package.uses.iter().any(|used| reached.contains(used)));
        let before = reached.len();
        let next: Vec<String> = next.map(|package| package.name.clone()).collect();
        reached.extend(next);
        if reached.len() == before {
            break;
        }
    }
    plan.tested.extend(reached);
    plan.tested.extend(ground);
    plan.tested.remove("xtask");
    plan
}

#[cfg(test)]
mod tests {
    use super::{Package, Plan, filter, plan, selection};

    fn planned(files: &[&str]) -> Plan {
        let package = |name: &str, folder: &str, uses: &[&str]| Package {
            name: name.into(),
            folder: folder.into(),
            uses: uses.iter().map(|used| (*used).into()).collect(),
        };
        let packages = [
            package("memcore", "memcore", &[]),
            package("vramlab-traces", "lab/traces", &["memcore"]),
            package("vramlab-models", "lab/models", &["memcore"]),
            package("vramlab-lab", "lab", &["memcore", "vramlab-traces", "vramlab-models"]),
            package("vramlab-cli", "cli", &["memcore", "vramlab-lab"]),
        ];
        plan(&packages, &files.iter().map(Into::into).collect::<Vec<_>>())
    }

    fn tests(names: &[&str]) -> Plan {
        Plan { tested: names.iter().map(|name| (*name).to_string()).collect(), ..Plan::default() }
    }

    #[test]
    fn a_change_reaches_what_stands_on_it() {
        assert_eq!(planned(&["lab/traces/src/lib.rs"]), tests(&["vramlab-traces", "vramlab-lab", "vramlab-cli"]));
        assert_eq!(planned(&["lab/src/lib.rs"]), tests(&["vramlab-lab", "vramlab-cli"]));
        assert_eq!(planned(&["docs/guide.md"]), tests(&["vramlab-cli"]));
        assert_eq!(planned(&["CHANGELOG.md"]), Plan::default());
        assert_eq!(planned(&["python/vramlab/_model.py"]), Plan { python: true, ..Plan::default() });
        assert!(planned(&["scripts/export/record.py"]).python, "ruff and mypy read it");
    }

    #[test]
    fn of_the_core_its_own_tests_are_run_and_the_rest_is_checked() {
        assert_eq!(planned(&["memcore/src/ops/relu.rs"]), Plan { checked: true, ..tests(&["memcore"]) });
        assert_eq!(planned(&["Cargo.lock"]), Plan { checked: true, ..Plan::default() });
    }

    #[test]
    fn above_the_ground_the_features_are_those_of_the_workspace() {
        let selected = |names: &[&'static str]| selection(&names.iter().copied().collect());
        assert_eq!(selected(&["memcore", "xtask"]), ["-p", "memcore", "-p", "xtask"]);
        assert_eq!(selected(&["vramlab-cli", "xtask"]), ["-p", "vramlab-cli", "-p", "vramlab-lab", "-p", "xtask"]);
    }

    #[test]
    fn nextest_is_told_only_of_suites_that_are_there() {
        let names = ["backend-cpu", "xtask"].into_iter().collect();
        assert_eq!(filter(&names, &[].into_iter().collect()), "package(=backend-cpu) or package(=xtask)");
        let suites = ["conformance"].into_iter().collect();
        let both = "(package(=backend-cpu) or package(=xtask)) and not (binary(=conformance))";
        assert_eq!(filter(&names, &suites), both);
    }
}
