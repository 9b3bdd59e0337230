//! The order of the modules inside a crate: an arrow may run down, never up.
//!
//! The order is that of the architecture. A module need not exist to have a place here. A module without a place is
//! itself a violation: otherwise it could be used to bypass the order.

use std::collections::HashMap;
use std::path::Path;

use crate::Violation;
use crate::files::SourceFile;
use crate::paths::CratePath;
use crate::sources::{Source, without_tests};

/// The layers of one crate.
#[derive(Clone, Copy, Debug)]
pub struct CrateLayers {
    /// The crate, which is also its directory.
    pub name: &'static str,
    /// From low to high; modules of one layer may use each other.
    pub layers: &'static [&'static [&'static str]],
}

/// The crates whose modules have an order.
pub const LAYERS: &[CrateLayers] = &[CrateLayers {
    name: "memcore",
    layers: &[
        // `account` and `segment` are plain data that errors carry.
        &["dtype", "layout", "account", "segment", "error"],
        &["backend"],
        &["memory"],
        // `profile` is data about ops: which workspaces and temporaries they make; `tape` sees nodes through a trait of its own.
        &["context", "deviation", "profile", "tape"],
        &["device"],
        &["storage"],
        &["array"],
        &["autograd"],
        &["ops"],
        &["nn"],
        &["optim"],
        &["amp"],
        &["prelude"],
    ],
}];

impl CrateLayers {
    fn level(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    /// Checks all files of the crate's `src` directory; their paths begin with `source_dir`.
    pub fn check(&self, source_dir: &Path, files: &[SourceFile]) -> Vec<Violation> {
        let sources = match without_tests(source_dir, files) {
            Ok(sources) => sources,
            Err(violation) => return vec![violation],
        };
        let root = sources.iter().find(|source| source.file.path == source_dir.join("lib.rs"));
        let imports = root.into_iter().flat_map(|source| &source.paths.imports);
        let root_names = imports.map(|import| (import.name.clone(), import.path.clone())).collect();
        let code = sources.iter().filter(|source| !source.module.is_empty());
        code.flat_map(|source| self.check_source(source, &root_names)).collect()
    }

    fn check_source(&self, source: &Source, root_names: &HashMap<String, Vec<String>>) -> Vec<Violation> {
        let from = source.module[0].as_str();
        let Some(level) = self.level(from) else {
            let problem = format!("module `{from}` has no place in the layers of {}: {WHERE_TO_ADD}", self.name);
            return vec![Violation::new(&source.file.path, 1, problem)];
        };
        let problems = source.paths.used.iter().filter_map(|path| {
            let problem = self.problem(from, level, path, root_names)?;
            Some(Violation::new(&source.file.path, path.line, problem))
        });
        problems.collect()
    }

    /// Returns the problem with a path that a module uses.
    fn problem(
        &self,
        from: &str,
        level: usize,
        path: &CratePath,
        root_names: &HashMap<String, Vec<String>>,
    ) -> Option<String> {
        let first = path.segments.first()?.as_str();
        if first == "*" {
            return Some(format!("`{from}` imports everything at the crate's root: name what it uses"));
        }
        if first == from {
            return None;
        }
        let resolved = match (self.level(first), root_names.get(first)) {
            (None, Some(target)) => target.as_slice(),
            _ => path.segments.as_slice(),
        };
        let to = resolved.first()?.as_str();
        let Some(target_level) = self.level(to) else {
            let known = path.is_macro || to == from;
            return (!known).then(|| format!("`{to}` has no place in the layers of {}: {WHERE_TO_ADD}", self.name));
        };
        if target_level <= level {
            return None;
        }
        let full = path.segments.join("::");
        Some(format!("`{from}` is below `{to}` in {} and may not use it (crate::{full})", self.name))
    }
}

const WHERE_TO_ADD: &str = "give it one in xtask/src/layers.rs";
