//! The order of the crates: the dependencies that each may have.
//!
//! Manifests are read line by line: that suffices for their tables and gives the line number.

use std::path::PathBuf;

use crate::Violation;
use crate::files::SourceFile;

/// The purpose of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The code itself, or its build script.
    Normal,
    /// Tests and benches only.
    Dev,
}

/// One line of a manifest's dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The package.
    pub name: String,
    /// Its purpose.
    pub kind: Kind,
    /// The line, from 1.
    pub line: usize,
}

/// A member's manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file.
    pub path: PathBuf,
    /// The package's name.
    pub package: String,
    /// All dependencies, members or not.
    pub dependencies: Vec<Dependency>,
}

/// The members on which a member may depend. `backend-*` stands for every backend.
struct Rule {
    package: &'static str,
    normal: &'static [&'static str],
    /// Additional ones for tests and benches.
    dev: &'static [&'static str],
}

const RULES: &[Rule] = &[
    // Sizes that were measured, and nothing else.
    Rule { package: "cudnn-sizes", normal: &[], dev: &[] },
    Rule { package: "memcore", normal: &["cudnn-sizes"], dev: &[] },
    Rule { package: "conformance", normal: &["memcore"], dev: &[] },
    Rule { package: "portable-kernels", normal: &["memcore"], dev: &[] },
    Rule {
        package: "backend-*",
        normal: &["memcore", "portable-kernels"],
        dev: &["backend-cpu", "conformance", "lab"],
    },
    // Crates of the laboratory, from low to high.
    Rule { package: "base", normal: &["memcore"], dev: &[] },
    Rule { package: "traces", normal: &["memcore", "base"], dev: &[] },
    Rule { package: "models", normal: &["memcore", "base"], dev: &[] },
    Rule { package: "training", normal: &["memcore", "base", "models"], dev: &["backend-cpu", "conformance"] },
    Rule {
        package: "imports",
        normal: &["memcore", "base", "traces", "models", "training"],
        dev: &["backend-cpu", "conformance"],
    },
    Rule { package: "analysis", normal: &["memcore", "base", "traces", "models", "training"], dev: &["backend-cpu"] },
    Rule {
        package: "experiments",
        normal: &["memcore", "base", "traces", "models", "training", "imports", "analysis"],
        dev: &["backend-cpu"],
    },
    Rule {
        package: "results",
        normal: &["memcore", "base", "traces", "training", "analysis", "experiments"],
        dev: &[],
    },
    Rule {
        package: "lab",
        normal: &[
            "memcore",
            "base",
            "traces",
            "models",
            "training",
            "imports",
            "analysis",
            "experiments",
            "results",
            "rehearsal-python",
        ],
        dev: &["backend-cpu", "conformance"],
    },
    Rule {
        package: "cli",
        normal: &["memcore", "backend-*", "lab"],
        dev: &["backend-cpu", "conformance", "portable-kernels"],
    },
    // The program's answers, for callers in C.
    Rule { package: "capi", normal: &["cli"], dev: &[] },
    Rule { package: "benches", normal: &["memcore", "backend-*", "lab", "conformance"], dev: &[] },
    // Texts of Python, and nothing else.
    Rule { package: "rehearsal-python", normal: &[], dev: &[] },
    // It is loaded into other people's processes, so it depends on no other crate of this project that computes, and no other crate
    // depends on it.
    Rule { package: "rehearsal", normal: &["cudnn-sizes", "rehearsal-python"], dev: &[] },
    Rule { package: "xtask", normal: &["base"], dev: &[] },
    // Outside the workspace, which changes nothing: it feeds files to their readers, and what these readers return to the core.
    Rule { package: "fuzz", normal: &["memcore", "lab", "cli"], dev: &[] },
];

/// External packages that only one member may use.
const EXCLUSIVE: &[(&str, &str)] =
    &[("wgpu", "backend-wgpu"), ("cudarc", "backend-cuda"), ("opencl3", "backend-opencl")];

/// Reads a manifest.
pub fn parse(file: &SourceFile) -> Manifest {
    let mut manifest = Manifest { path: file.path.clone(), package: String::new(), dependencies: Vec::new() };
    let mut section = String::new();
    for (index, text) in file.text.lines().enumerate() {
        let text = text.split('#').next().unwrap_or_default().trim();
        if let Some(header) = text.strip_prefix('[') {
            section = header.trim_matches(['[', ']', ' ']).to_string();
            // `[dependencies.name]` is a dependency by itself.
            if let Some((table, name)) = section.rsplit_once('.')
                && let Some(kind) = kind_of(table)
            {
                manifest.dependencies.push(Dependency { name: unquoted(name), kind, line: index + 1 });
            }
        } else if let Some((key, value)) = text.split_once('=') {
            let key = unquoted(key.split('.').next().unwrap_or_default());
            if section == "package" && key == "name" {
                manifest.package = short(&unquoted(value));
            } else if let Some(kind) = kind_of(&section) {
                manifest.dependencies.push(Dependency { name: real_name(&key, value), kind, line: index + 1 });
            }
        }
    }
    manifest
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_string()
}

/// The kind of a section's entries; sections for one target end in the same words.
fn kind_of(section: &str) -> Option<Kind> {
    match section.rsplit('.').next()? {
        "dependencies" | "build-dependencies" => Some(Kind::Normal),
        "dev-dependencies" => Some(Kind::Dev),
        _ => None,
    }
}

/// The real name of a dependency, which may be renamed: `key = { package = "name" }`.
fn real_name(key: &str, value: &str) -> String {
    let renamed = value.split_once("package").and_then(|(_, rest)| rest.trim_start().strip_prefix('='));
    renamed.and_then(|rest| rest.split(['"', '\'']).nth(1)).map_or_else(|| short(key), short)
}

/// The name of the folder, by which rules name a package; published names begin with the project's.
fn short(package: &str) -> String {
    package.strip_prefix("vramlab-").unwrap_or(package).to_string()
}

/// Checks every member's dependencies on the others, and on packages that only one member may use.
pub fn check(manifests: &[Manifest]) -> Vec<Violation> {
    let is_member = |name: &str| manifests.iter().any(|manifest| manifest.package == name);
    let mut found = Vec::new();
    for manifest in manifests {
        let Some(rule) = RULES.iter().find(|rule| matches(rule.package, &manifest.package)) else {
            let problem = format!("`{}` has no rule: give it one in xtask/src/manifests.rs", manifest.package);
            found.push(Violation::new(&manifest.path, 1, problem));
            continue;
        };
        for dependency in &manifest.dependencies {
            if let Some(problem) = problem(rule, manifest, dependency, is_member(&dependency.name)) {
                found.push(Violation::new(&manifest.path, dependency.line, problem));
            }
        }
    }
    found
}

fn problem(rule: &Rule, manifest: &Manifest, dependency: &Dependency, member: bool) -> Option<String> {
    let (package, name) = (&manifest.package, &dependency.name);
    if let Some((_, owner)) = EXCLUSIVE.iter().find(|(outside, owner)| outside == name && owner != package) {
        return Some(format!("`{package}` may not depend on `{name}`: it belongs to `{owner}` alone"));
    }
    if !member {
        return None;
    }
    let allowed = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, name));
    match dependency.kind {
        _ if allowed(rule.normal) => None,
        Kind::Dev if allowed(rule.dev) => None,
        Kind::Normal if allowed(rule.dev) => Some(format!("`{package}` may depend on `{name}` for tests only")),
        _ => Some(format!("`{package}` may not depend on `{name}`: the arrow would run up")),
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}
