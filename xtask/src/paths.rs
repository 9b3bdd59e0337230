//! Finds the paths in a source file that lead to other modules of its own crate.

use crate::scan::{Scanned, Token, tokens};

/// A path inside the crate, from its root: `crate::backend::{Region, kernel::Fill}` gives two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CratePath {
    /// The segments after `crate`; `*` for a glob.
    pub segments: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
    /// Whether a `!` follows: a macro, whose place in the crate its path does not tell.
    pub is_macro: bool,
}

/// A module that a file declares outside its own text: `mod name;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its path from the crate's root.
    pub module: Vec<String>,
    /// Whether it is there for tests only.
    pub for_tests: bool,
}

/// What one file says about modules.
#[derive(Clone, Debug, Default)]
pub struct ModulePaths {
    /// The paths that its code uses, tests left out.
    pub used: Vec<CratePath>,
    /// The modules that it declares.
    pub declared: Vec<Declared>,
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
                "crate" | "super" if !for_tests && !test_next => self.path(&module),
                "use" if test_next => self.skip_to_semicolon(),
                _ => self.at += 1,
            }
        }
    }

    fn is_name(&self, ahead: usize) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(Token::is_ident)
    }

    /// Skips an attribute; says whether it is `#[cfg(test)]` or a `cfg(all(test, …))`.
    fn attribute(&mut self) -> bool {
        let mut depth = 0;
        let mut words = Vec::new();
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
        words == ["cfg", "(", "test", ")"] || words.starts_with(&["cfg", "(", "all", "(", "test", ","])
    }

    /// From the word `mod`: `mod name;` is noted, `mod name { … }` is read.
    fn module(&mut self, parent: &[String], for_tests: bool) {
        let mut module = parent.to_vec();
        module.push(self.text(1).to_string());
        self.at += 2;
        match self.text(0) {
            "{" => {
                self.at += 1;
                self.items(module, for_tests);
            }
            ";" => {
                self.at += 1;
                self.found.declared.push(Declared { module, for_tests });
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

    /// From `crate` or the first `super`, to the end of the path or of its group.
    fn path(&mut self, module: &[String]) {
        let mut prefix = if self.text(0) == "crate" { Vec::new() } else { module.to_vec() };
        if self.text(0) == "super" {
            prefix.pop();
        }
        self.at += 1;
        while self.text(0) == "::" && self.text(1) == "super" {
            prefix.pop();
            self.at += 2;
        }
        let line = self.tokens[self.at - 1].line;
        if self.text(0) == "::" {
            self.at += 1;
            self.tree(prefix, line);
        } else if self.text(0) == "as" {
            // `use crate as name`: everything, under a name that we do not follow.
            prefix.push("*".into());
            self.note(prefix, line, false);
        }
    }

    /// What may follow `::` in a `use`: a name, a glob or a group; in an expression, a name.
    fn tree(&mut self, mut prefix: Vec<String>, line: usize) {
        loop {
            match self.text(0) {
                "{" => {
                    self.at += 1;
                    return self.group(prefix);
                }
                "*" => prefix.push("*".into()),
                "self" => return self.end(prefix, line),
                _ if self.is_name(0) => prefix.push(self.text(0).to_string()),
                // `Vec::<u8>` and the like: the path has ended before.
                _ => return self.note(prefix, line, false),
            }
            if self.text(1) != "::" {
                return self.end(prefix, line);
            }
            self.at += 2;
        }
    }

    fn end(&mut self, prefix: Vec<String>, line: usize) {
        self.at += 1;
        let is_macro = self.text(0) == "!" && self.text(1) != "=";
        self.note(prefix, line, is_macro);
    }

    fn group(&mut self, prefix: Vec<String>) {
        while self.at < self.tokens.len() {
            match self.text(0) {
                "}" => {
                    self.at += 1;
                    return;
                }
                "self" if self.text(1) == "as" && prefix.is_empty() => {
                    let line = self.tokens[self.at].line;
                    self.note(vec!["*".into()], line, false);
                    self.at += 3;
                }
                "as" => self.at += 2,
                "," => self.at += 1,
                _ if self.is_name(0) || matches!(self.text(0), "*" | "{") => {
                    let line = self.tokens[self.at].line;
                    self.tree(prefix.clone(), line);
                }
                _ => self.at += 1,
            }
        }
    }

    fn note(&mut self, segments: Vec<String>, line: usize, is_macro: bool) {
        self.found.used.push(CratePath { segments, line, is_macro });
    }
}

/// The names that a crate's root re-exports, each with the path where it lives: `pub use error::{Error, Result}`
/// gives `Error` → `error::Error`. Globs and renamed items are given under the name that others use.
pub fn reexports(scanned: &Scanned) -> Vec<(String, Vec<String>)> {
    let all = tokens(&scanned.code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < all.len() {
        if all[at].text == "use" {
            let end = all[at..].iter().position(|token| token.text == ";").map_or(all.len(), |length| at + length);
            use_tree(&all[at + 1..end], &mut 0, &[], &mut found);
            at = end;
        }
        at += 1;
    }
    for (_, path) in &mut found {
        if matches!(path.first().map(String::as_str), Some("crate" | "self")) {
            path.remove(0);
        }
    }
    found
}

/// Reads one tree of a `use`, from `at` to the comma or brace that ends it.
fn use_tree(all: &[Token], at: &mut usize, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let mut path = prefix.to_vec();
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
                let name = all.get(*at + 1).map_or_else(String::new, |token| token.text.clone());
                *at += 2;
                found.push((name, path));
                return;
            }
            name => {
                path.push(name.to_string());
                *at += 1;
            }
        }
    }
    if path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    if let Some(name) = path.last() {
        found.push((name.clone(), path));
    }
}
