//! Finds everything in a source file that leads to other modules of its own crate: the names that it imports, the paths
//! in its code, the modules and macros that it declares.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ItemUse, PathArguments, UseTree, Visibility};

/// A path inside the crate, from its root: `crate::backend::Region` gives `backend::Region`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CratePath {
    /// The segments after `crate`; `*` for a glob.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
    /// True if a `!` follows: a macro, whose path does not tell its place in the crate.
    pub is_macro: bool,
    /// True if a `use` names it.
    pub is_import: bool,
}

/// A path that begins with a plain name: a module below, an imported name, or another crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainPath {
    /// The module that contains it.
    pub module: Vec<String>,
    /// Its segments.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
}

/// One name that a `use` imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The module that contains it.
    pub module: Vec<String>,
    /// The name that it has there; `*` for a glob.
    pub name: String,
    /// Path of the imported item: from the crate's root, or from a plain name.
    pub path: Vec<String>,
    /// True if the path is from the crate's root.
    pub rooted: bool,
    /// True if other modules get the name from here.
    pub public: bool,
    /// True if it is inside a block, where other modules do not see it.
    pub in_block: bool,
    /// Its line, from 1.
    pub line: usize,
}

/// A module that a file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its path from the crate's root.
    pub module: Vec<String>,
    /// True if it exists only for tests.
    pub for_tests: bool,
    /// True if its text follows here, instead of in a file of its own.
    pub inline: bool,
}

/// The modules and paths in one file, without tests.
#[derive(Clone, Debug, Default)]
pub struct ModulePaths {
    /// The paths from the crate's root that its code uses, imports among them.
    pub used: Vec<CratePath>,
    /// The paths in its code that begin with a plain name.
    pub plain: Vec<PlainPath>,
    /// The names that it imports.
    pub imports: Vec<Import>,
    /// The modules that it declares, for tests too.
    pub declared: Vec<Declared>,
    /// The macros that it defines.
    pub macros: Vec<String>,
    /// The macros that it calls by a plain name, with the line.
    pub macro_calls: Vec<(String, usize)>,
    /// The names in its code outside of imports.
    pub mentioned: HashSet<String>,
}

/// Reads a file that is the module `module` (its path from the crate's root).
///
/// # Errors
/// The text is not Rust.
pub fn module_paths(text: &str, module: &[String]) -> syn::Result<ModulePaths> {
    let mut reader = Reader { module: module.to_vec(), blocks: 0, found: ModulePaths::default() };
    reader.visit_file(&syn::parse_file(text)?);
    Ok(reader.found)
}

struct Reader {
    /// The module that is being read: the file's, or one inside it.
    module: Vec<String>,
    /// Number of enclosing blocks within that module.
    blocks: usize,
    found: ModulePaths,
}

/// True if one of the attributes is `#[cfg(test)]` or a `cfg(all(test, …))`.
fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let condition: String = condition.split_whitespace().collect();
        condition == "test" || condition.starts_with("all(test,")
    })
}

fn line(span: Span) -> usize {
    span.start().line
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[Attribute] = match item {
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::ExternCrate(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::ForeignMod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Type(item) => &item.attrs,
            syn::Item::Union(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            // A module for tests is recorded.
            _ => &[],
        };
        if !for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    /// Records `mod name;`, and reads `mod name { … }`.
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let for_tests = for_tests(&item.attrs);
        self.module.push(item.ident.to_string());
        self.found.declared.push(Declared { module: self.module.clone(), for_tests, inline: item.content.is_some() });
        if !for_tests {
            let blocks = std::mem::take(&mut self.blocks);
            visit::visit_item_mod(self, item);
            self.blocks = blocks;
        }
        self.module.pop();
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks += 1;
        visit::visit_block(self, block);
        self.blocks -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &mut Vec::new(), public);
    }

    /// A visibility such as `pub(in path)` is not a use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// Reads names in an attribute like code.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            syn::Meta::List(list) => self.tokens(list.tokens.clone()),
            syn::Meta::NameValue(named) => self.visit_expr(&named.value),
            syn::Meta::Path(_) => {}
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.found.macros.extend(item.ident.as_ref().map(Ident::to_string));
        visit::visit_item_macro(self, item);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let names = call.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(names, line(call.path.span()), true);
        self.tokens(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = Vec::new();
        for segment in &path.segments {
            names.push(segment.ident.to_string());
            // `Vec::<u8>` and the like: the path has ended.
            if !matches!(segment.arguments, PathArguments::None) {
                break;
            }
        }
        if path.leading_colon.is_none() {
            self.path(names, line(path.span()), false);
        }
        visit::visit_path(self, path);
    }

    /// The name may be a constant.
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.found.mentioned.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

impl Reader {
    /// Records a path outside of imports, as it is written.
    fn path(&mut self, names: Vec<String>, line: usize, is_macro: bool) {
        // `self` alone is a value, `crate` alone a visibility.
        let (first, is_alone) = (names[0].clone(), names.len() == 1);
        if let Some(segments) = rooted(&names, &self.module) {
            if !is_alone {
                self.found.used.push(CratePath { segments, line, is_macro, is_import: false });
            }
            return;
        }
        match (is_alone, is_macro) {
            (true, true) => self.found.macro_calls.push((first.clone(), line)),
            (true, false) => {}
            (false, _) => self.found.plain.push(PlainPath { module: self.module.clone(), segments: names, line }),
        }
        self.found.mentioned.insert(first);
    }

    /// Reads a macro's arguments or body name by name: only the macro knows how to parse them.
    fn tokens(&mut self, tokens: TokenStream) {
        let all: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, c: char| matches!(all.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let joins = |at: usize| is(at, ':') && is(at + 1, ':');
        let mut at = 0;
        while let Some(tree) = all.get(at) {
            at += 1;
            match tree {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let follows = at > 1 && (is(at - 2, '.') || is(at - 2, '\''))
                        || at > 2 && joins(at - 3)
                        || matches!(at.checked_sub(2).map(|at| &all[at]), Some(TokenTree::Ident(word)) if word == "fn");
                    let mut names = vec![first.to_string()];
                    while let (true, Some(TokenTree::Ident(name))) = (joins(at), all.get(at + 2)) {
                        names.push(name.to_string());
                        at += 3;
                    }
                    let is_macro = is(at, '!') && !is(at + 1, '=');
                    // A field's name, followed by its type or its value, is not a mention; a path before a group of
                    // imports is one.
                    let is_field = names.len() == 1 && is(at, ':') && !joins(at);
                    if !follows && !is_field {
                        self.path(names, line(first.span()), is_macro);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Records the names that a tree of a `use` imports, below `prefix`.
    fn import(&mut self, tree: &UseTree, prefix: &mut Vec<String>, public: bool) {
        let (name, written, span) = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, public);
                prefix.pop();
                return;
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, prefix, public)),
            UseTree::Name(name) => (None, name.ident.to_string(), name.ident.span()),
            UseTree::Rename(rename) => (Some(rename.rename.to_string()), rename.ident.to_string(), rename.ident.span()),
            UseTree::Glob(glob) => (None, "*".into(), glob.star_token.span()),
        };
        let mut path = prefix.clone();
        if written != "self" || path.is_empty() {
            path.push(written);
        }
        let name = name.unwrap_or_else(|| path[path.len() - 1].clone());
        let from_root = rooted(&path, &self.module);
        let (rooted, line) = (from_root.is_some(), line(span));
        if let Some(path) = &from_root {
            // `use crate as name`: everything, under a name that the layers do not follow.
            let segments = if path.is_empty() { vec!["*".into()] } else { path.clone() };
            self.found.used.push(CratePath { segments, line, is_macro: false, is_import: true });
        }
        let (module, path, in_block) = (self.module.clone(), from_root.unwrap_or(path), self.blocks > 0);
        self.found.imports.push(Import { module, name, path, rooted, public, in_block, line });
    }
}

/// Returns a path in `module` from the crate's root, if it begins with `crate`, `self` or `super`; `None` for any
/// other.
fn rooted(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut from_root = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        _ => return None,
    };
    for name in rest {
        match name.as_str() {
            "super" => drop(from_root.pop()),
            _ => from_root.push(name.clone()),
        }
    }
    Some(from_root)
}
