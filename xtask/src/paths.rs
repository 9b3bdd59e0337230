//! Finds in a source file what leads to other modules of its own crate: the names that it imports, the paths in its
//! code, the modules and macros that it declares.

use std::collections::HashSet;

use crate::scan::{Scanned, Token, tokens};

/// A path inside the crate, from its root: `crate::backend::Region` gives `backend::Region`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CratePath {
    /// The segments after `crate`; `*` for a glob.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
    /// Whether a `!` follows: a macro, whose place in the crate its path does not tell.
    pub is_macro: bool,
    /// Whether it is what a `use` names.
    pub is_import: bool,
}

/// A path that begins with a plain name: a module below, what an import brought, or another crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainPath {
    /// The module that it stands in.
    pub module: Vec<String>,
    /// Its segments.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
}

/// One name that a `use` brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The module that it stands in.
    pub module: Vec<String>,
    /// The name that is meant by it there; `*` for a glob.
    pub name: String,
    /// Where that lives: from the crate's root, or from a plain name.
    pub path: Vec<String>,
    /// Whether the path is from the crate's root.
    pub rooted: bool,
    /// Whether others get the name from here.
    pub public: bool,
    /// Whether it stands in a block, where other modules do not see it.
    pub in_block: bool,
    /// Its line, from 1.
    pub line: usize,
}

/// A module that a file declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its path from the crate's root.
    pub module: Vec<String>,
    /// Whether it is there for tests only.
    pub for_tests: bool,
    /// Whether its text follows here, instead of in a file of its own.
    pub inline: bool,
}

/// What one file says about modules, tests left out.
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
    /// The names that its code has outside of imports.
    pub mentioned: HashSet<String>,
}

/// Reads a file that is the module `module` (its path from the crate's root).
pub fn module_paths(scanned: &Scanned, module: &[String]) -> ModulePaths {
    let mut reader = Reader { tokens: tokens(&scanned.code), at: 0, found: ModulePaths::default() };
    reader.items(module.to_vec(), false);
    reader.found
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    found: ModulePaths,
}

impl Reader {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text.as_str())
    }

    /// Reads to the end of the block that was just opened (or of the file).
    fn items(&mut self, module: Vec<String>, for_tests: bool) {
        let mut depth = 0;
        // Whether a `#[cfg(test)]` stands before the next item.
        let mut test_next = false;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "#" if self.text(1) == "[" => test_next |= self.attribute(),
                "mod" if self.is_name(1) => {
                    self.module(&module, for_tests || test_next);
                    test_next = false;
                }
                "{" if test_next => {
                    self.skip_block();
                    test_next = false;
                }
                ";" if test_next => {
                    test_next = false;
                    self.at += 1;
                }
                "{" => {
                    depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.at += 1;
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                }
                _ if for_tests => self.at += 1,
                "use" if test_next => self.skip_to_semicolon(),
                _ if test_next => self.at += 1,
                "use" if !self.is_capture() => self.import(&module, depth > 0),
                "crate" | "super" | "self" if !self.is_visibility() => self.path(&module),
                "macro_rules" if self.text(1) == "!" => {
                    self.found.macros.push(self.text(2).to_string());
                    self.at += 3;
                }
                _ => self.name(&module),
            }
        }
    }

    fn is_name(&self, ahead: usize) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(Token::is_ident)
    }

    /// Skips an attribute that is `#[cfg(test)]` or a `cfg(all(test, …))`, and says so. What another one names is read
    /// as code is.
    fn attribute(&mut self) -> bool {
        let mut depth = 0;
        let mut words = Vec::new();
        let start = self.at;
        self.at += 1;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "[" => depth += 1,
                "]" => depth -= 1,
                word => words.push(word.to_string()),
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let for_tests = words == ["cfg", "(", "test", ")"] || words.starts_with(&["cfg", "(", "all", "(", "test", ","]);
        if !for_tests {
            self.at = start + 2;
        }
        for_tests
    }

    /// From the word `mod`: `mod name;` is noted, `mod name { … }` is read.
    fn module(&mut self, parent: &[String], for_tests: bool) {
        let mut module = parent.to_vec();
        module.push(self.text(1).to_string());
        self.at += 2;
        match self.text(0) {
            "{" => {
                self.at += 1;
                self.found.declared.push(Declared { module: module.clone(), for_tests, inline: true });
                self.items(module, for_tests);
            }
            ";" => {
                self.at += 1;
                self.found.declared.push(Declared { module, for_tests, inline: false });
            }
            _ => {}
        }
    }

    fn skip_block(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_to_semicolon(&mut self) {
        while self.at < self.tokens.len() && self.text(0) != ";" {
            self.at += 1;
        }
    }

    /// The text of the token so many before this one.
    fn before(&self, back: usize) -> &str {
        self.at.checked_sub(back).map_or("", |at| self.tokens[at].text.as_str())
    }

    /// Whether the `use` here is the bound on what an `impl Trait` captures.
    fn is_capture(&self) -> bool {
        self.text(1) == "<"
    }

    /// Whether the path here says who may see an item: `pub(in path)`.
    fn is_visibility(&self) -> bool {
        self.before(1) == "in" && self.before(2) == "(" && self.before(3) == "pub"
    }

    /// A plain name outside of imports: the beginning of a path, a macro's call, or a mention.
    fn name(&mut self, module: &[String]) {
        let follows = matches!(self.before(1), "::" | "." | "fn" | "'");
        if !self.is_name(0) || follows {
            self.at += 1;
            return;
        }
        let Token { text, line } = self.tokens[self.at].clone();
        match self.text(1) {
            "::" => {
                let segments = self.segments();
                self.found.plain.push(PlainPath { module: module.to_vec(), segments, line });
            }
            "!" if self.text(2) != "=" => {
                self.found.macro_calls.push((text.clone(), line));
                self.at += 1;
            }
            _ => self.at += 1,
        }
        // A field's name, with its type or its value, is no mention.
        if self.text(0) != ":" {
            self.found.mentioned.insert(text);
        }
    }

    /// From `crate`, `self` or the first `super`, to the end of the path.
    fn path(&mut self, module: &[String]) {
        let line = self.tokens[self.at].line;
        let segments = self.segments();
        // `self` alone is a value, `crate` alone a visibility.
        let Some(segments) = rooted(&segments, module).filter(|_| segments.len() > 1) else { return };
        let is_macro = self.text(0) == "!" && self.text(1) != "=";
        self.found.used.push(CratePath { segments, line, is_macro, is_import: false });
    }

    /// The names from here on that `::` joins.
    fn segments(&mut self) -> Vec<String> {
        let mut segments = vec![self.text(0).to_string()];
        self.at += 1;
        // `Vec::<u8>` and the like: the path has ended before.
        while self.text(0) == "::" && self.is_name(1) {
            segments.push(self.text(1).to_string());
            self.at += 2;
        }
        segments
    }

    /// A `use`, to its semicolon.
    fn import(&mut self, module: &[String], in_block: bool) {
        let public = matches!(self.before(1), "pub" | ")");
        self.at += 1;
        let end = self.tokens[self.at..].iter().position(|token| token.text == ";");
        let end = end.map_or(self.tokens.len(), |length| self.at + length);
        let mut names = Vec::new();
        use_tree(&self.tokens[..end], &mut self.at, &[], &mut names);
        self.at = end;
        for Used { name, path, line } in names {
            let from_root = rooted(&path, module);
            let rooted = from_root.is_some();
            if let Some(path) = &from_root {
                // `use crate as name`: everything, under a name that the layers do not follow.
                let segments = if path.is_empty() { vec!["*".into()] } else { path.clone() };
                self.found.used.push(CratePath { segments, line, is_macro: false, is_import: true });
            }
            let path = from_root.unwrap_or(path);
            self.found.imports.push(Import { module: module.to_vec(), name, path, rooted, public, in_block, line });
        }
    }
}

/// From the crate's root, a path in `module` that begins with `crate`, `self` or `super`; `None` for any other.
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

/// A name that a `use` brings, as it is written.
struct Used {
    name: String,
    path: Vec<String>,
    line: usize,
}

/// Reads one tree of a `use`, from `at` to the comma or brace that ends it.
fn use_tree(all: &[Token], at: &mut usize, prefix: &[String], found: &mut Vec<Used>) {
    let mut path = prefix.to_vec();
    let line = all.get(*at).map_or(1, |token| token.line);
    let mut renamed = None;
    while let Some(token) = all.get(*at) {
        match token.text.as_str() {
            "::" => *at += 1,
            "{" => {
                *at += 1;
                while all.get(*at).is_some_and(|token| token.text != "}") {
                    use_tree(all, at, &path, found);
                    if all.get(*at).is_some_and(|token| token.text == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "," | "}" => break,
            "as" => {
                renamed = all.get(*at + 1).map(|token| token.text.clone());
                *at += 2;
            }
            name => {
                path.push(name.to_string());
                *at += 1;
            }
        }
    }
    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    if let Some(name) = renamed.or_else(|| path.last().cloned()) {
        found.push(Used { name, path, line });
    }
}
