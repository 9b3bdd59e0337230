//! Resolves the paths in a crate's files to the file that defines an item, through imports and re-exports.

use std::collections::HashMap;

use crate::paths::{Import, PlainPath};
use crate::sources::Source;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A module itself; other paths tell what is used of it.
    Module,
    /// An item of a file, given by its index among the sources.
    Item(usize, String),
}

/// An arrow from one file to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Index of the using file among the sources.
    pub from: usize,
    /// Index of the file that defines the used item.
    pub to: usize,
    /// The used item.
    pub item: String,
    /// The line of the use.
    pub line: usize,
}

/// The modules below one root of a crate: that of its library or of a program.
pub struct Tree<'a> {
    sources: &'a [Source<'a>],
    /// The files that belong to it.
    files: Vec<usize>,
    /// The file that each module is in.
    modules: HashMap<&'a [String], usize>,
    /// The imports, by module and name.
    imports: HashMap<(&'a [String], &'a str), &'a Import>,
}

/// Maximum number of imports of imports that are followed.
const MAX_STEPS: usize = 16;

impl<'a> Tree<'a> {
    /// Follows the declarations of modules from the file at `root` on.
    pub fn new(sources: &'a [Source<'a>], root: usize) -> Self {
        let mut tree = Tree { sources, files: vec![root], modules: HashMap::new(), imports: HashMap::new() };
        tree.modules.insert(&[], root);
        let mut at = 0;
        while let Some(&file) = tree.files.get(at) {
            at += 1;
            tree.read(file);
        }
        tree
    }

    fn read(&mut self, file: usize) {
        let paths = &self.sources[file].paths;
        for declared in paths.declared.iter().filter(|declared| !declared.for_tests) {
            let its_own = || self.sources.iter().position(|source| source.module == declared.module);
            let Some(place) = (if declared.inline { Some(file) } else { its_own() }) else { continue };
            let is_new = self.modules.insert(&declared.module, place).is_none();
            if is_new && !declared.inline {
                self.files.push(place);
            }
        }
        // `use name` of the file's own macro gives it a path, and leads nowhere else.
        let elsewhere =
            |import: &&Import| import.rooted || !paths.macros.iter().any(|own| import.path == [own.as_str()]);
        // Imports inside a block yield to others: other modules do not see them.
        let (in_blocks, visible): (Vec<&Import>, Vec<_>) =
            paths.imports.iter().filter(elsewhere).partition(|import| import.in_block);
        for import in in_blocks.into_iter().chain(visible) {
            self.imports.insert((&import.module, &import.name), import);
        }
    }

    /// Returns the uses between the files of this tree.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut found = Vec::new();
        for &from in &self.files {
            let mut note = |target: Option<Target>, line: usize| {
                if let Some(Target::Item(to, item)) = target
                    && to != from
                {
                    found.push(Arrow { from, to, item, line });
                }
            };
            let source = &self.sources[from];
            for import in source.paths.imports.iter().filter(|import| !self.is_mere_reexport(source, import)) {
                note(self.import_target(import, 0), import.line);
            }
            for path in source.paths.used.iter().filter(|path| !path.is_import) {
                let target = match path.segments.last() {
                    Some(name) if path.is_macro => self.macro_target(name),
                    _ => self.target(&path.segments, 0),
                };
                note(target, path.line);
            }
            for path in &source.paths.plain {
                note(self.plain_target(path), path.line);
            }
            for (name, line) in &source.paths.macro_calls {
                note(self.macro_from_above(source, name), *line);
            }
        }
        found
    }

    /// True if a `pub use` only re-exports an item of a child, and the file itself does not use it.
    fn is_mere_reexport(&self, source: &Source, import: &Import) -> bool {
        let from_below = match import.rooted {
            true => import.path.starts_with(&import.module),
            false => import.path.first().is_some_and(|first| self.child(&import.module, first).is_some()),
        };
        import.public && import.name != "*" && from_below && !source.paths.mentioned.contains(&import.name)
    }

    /// Finds a macro that is visible in the whole crate.
    fn macro_target(&self, name: &str) -> Option<Target> {
        let defines = |file: &usize| self.sources[*file].paths.macros.iter().any(|other| other == name);
        self.files.iter().copied().find(defines).map(|file| Target::Item(file, name.to_string()))
    }

    /// Finds a macro that is called by its plain name, without an import: an enclosing module defines it.
    fn macro_from_above(&self, source: &Source, name: &str) -> Option<Target> {
        let defines = |file: usize| self.sources[file].paths.macros.iter().any(|other| other == name);
        if self.imports.contains_key(&(source.module.as_slice(), name)) {
            return None;
        }
        let mut around =
            (0..=source.module.len()).rev().filter_map(|length| self.modules.get(&source.module[..length]));
        around.find(|&&file| defines(file)).map(|&file| Target::Item(file, name.to_string()))
    }

    fn child(&self, module: &[String], name: &str) -> Option<Vec<String>> {
        let child = [module, &[name.to_string()]].concat();
        self.modules.contains_key(child.as_slice()).then_some(child)
    }

    fn import_target(&self, import: &Import, steps: usize) -> Option<Target> {
        let path = match import.path.split_last() {
            Some((last, module)) if last == "*" => module,
            _ => import.path.as_slice(),
        };
        let full = if import.rooted { path.to_vec() } else { self.full_path(import, path)? };
        match self.target(&full, steps) {
            // A glob uses the module that it names.
            Some(Target::Module) if path.len() < import.path.len() => {
                Some(Target::Item(*self.modules.get(full.as_slice())?, "*".into()))
            }
            target => target,
        }
    }

    /// Returns an import's path from the crate's root, if it begins with a plain name: that of a neighbouring module,
    /// or one that another import brought.
    fn full_path(&self, import: &Import, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if let Some(child) = self.child(&import.module, first) {
            return Some([&child, rest].concat());
        }
        let other = self.imports.get(&(import.module.as_slice(), first.as_str())).filter(|other| **other != import)?;
        other.rooted.then(|| [&other.path, rest].concat())
    }

    /// A path in code that begins with a plain name.
    fn plain_target(&self, path: &PlainPath) -> Option<Target> {
        let (first, rest) = path.segments.split_first()?;
        if let Some(child) = self.child(&path.module, first) {
            return self.target(&[&child, rest].concat(), 0);
        }
        let import = self.imports.get(&(path.module.as_slice(), first.as_str()))?;
        self.through(import, rest, 0)
    }

    /// Follows an import to its target, and from there `rest`.
    fn through(&self, import: &Import, rest: &[String], steps: usize) -> Option<Target> {
        match self.import_target(import, steps + 1)? {
            Target::Module if !rest.is_empty() => {
                let whole = Import { path: [&import.path, rest].concat(), ..import.clone() };
                self.import_target(&whole, steps + 1)
            }
            target => Some(target),
        }
    }

    /// Resolves a path from the crate's root: down the modules, then through the imports of the last one.
    fn target(&self, path: &[String], steps: usize) -> Option<Target> {
        if steps > MAX_STEPS {
            return None;
        }
        let deepest = (0..=path.len()).rev().find(|&length| self.modules.contains_key(&path[..length]))?;
        let seen = |module: &[String], name: &str| {
            self.imports.get(&(module, name)).copied().filter(|import| !import.in_block)
        };
        // If a path names both a module and a function beside it, the function is meant.
        let is_function = |(name, module): (&String, &[String])| deepest == path.len() && seen(module, name).is_some();
        let depth = if path.split_last().is_some_and(is_function) { deepest - 1 } else { deepest };
        let (module, rest) = path.split_at(depth);
        let Some((name, rest)) = rest.split_first() else { return Some(Target::Module) };
        match seen(module, name) {
            Some(import) => self.through(import, rest, steps + 1),
            None => self.modules.get(module).map(|&file| Target::Item(file, name.clone())),
        }
    }
}
