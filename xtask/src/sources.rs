//! A crate's files after reading: the module of each, its modules and paths, and whether it exists only for tests.

use std::path::Path;

use crate::Violation;
use crate::files::SourceFile;
use crate::paths::{ModulePaths, module_paths};

/// A file with the results of reading it.
pub struct Source<'a> {
    /// The file.
    pub file: &'a SourceFile,
    /// Its module's path; empty for a crate's root.
    pub module: Vec<String>,
    /// Its modules and paths.
    pub paths: ModulePaths,
}

impl<'a> Source<'a> {
    fn read(source_dir: &Path, file: &'a SourceFile) -> Result<Self, Violation> {
        let module = module_of(file.path.strip_prefix(source_dir).unwrap_or(&file.path));
        let not_rust = |error: syn::Error| Violation::new(&file.path, error.span().start().line, error.to_string());
        let paths = module_paths(&file.text, &module).map_err(not_rust)?;
        Ok(Source { file, module, paths })
    }

    fn test_modules(&self) -> impl Iterator<Item = &[String]> {
        self.paths.declared.iter().filter(|declared| declared.for_tests).map(|declared| declared.module.as_slice())
    }

    /// True for a module's tests: `tests.rs`, `…_tests.rs` and everything below `tests/`, even if a `#[path]` attribute
    /// gives the module another name than the file.
    fn is_named_as_test(&self) -> bool {
        self.module.iter().skip(1).any(|name| name == "tests" || name.ends_with("_tests"))
    }
}

/// Returns the files below `source_dir`, with which their paths begin, except those that exist only for tests.
///
/// # Errors
/// A file that is not Rust.
pub fn without_tests<'a>(source_dir: &Path, files: &'a [SourceFile]) -> Result<Vec<Source<'a>>, Violation> {
    let sources: Vec<Source> = files.iter().map(|file| Source::read(source_dir, file)).collect::<Result<_, _>>()?;
    let test_modules: Vec<Vec<String>> = sources.iter().flat_map(Source::test_modules).map(<[_]>::to_vec).collect();
    let is_test = |source: &Source| {
        source.is_named_as_test() || test_modules.iter().any(|module| source.module.starts_with(module))
    };
    Ok(sources.into_iter().filter(|source| !is_test(source)).collect())
}

/// The module of a file, given its path below `src`.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    let root = matches!(module.first().map(String::as_str), Some("lib" | "main" | "bin"));
    if root { Vec::new() } else { module }
}
