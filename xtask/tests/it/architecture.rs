//! What `ARCHITECTURE.md` says: its paths exist and mean one file, its names are defined, its counts are the recordings', and what it calls absent is absent.

use std::collections::BTreeSet;
use std::path::Path;

use xtask::files::{SourceFile, all_rust_files, workspace_root};

/// Endings of file names.
const ENDINGS: [&str; 17] = [
    ".rs", ".py", ".sh", ".md", ".json", ".toml", ".c", ".cpp", ".cu", ".cuh", ".wgsl", ".css", ".js", ".yml", ".txt",
    ".gz", "/",
];

/// Names of the standard library, and words that name nothing here.
const OF_OTHERS: [&str; 2] = ["Drop", "use"];

fn document() -> String {
    std::fs::read_to_string(workspace_root().join("ARCHITECTURE.md")).unwrap()
}

/// What stands between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Names with braces, one by one: `gemm/{tile,tune}.rs`.
fn each(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_string()] };
    let (within, after) = rest.split_once('}').unwrap();
    within.split(',').map(|part| format!("{before}{part}{after}")).collect()
}

/// True if `name` matches `pattern`, in which `*` and `<word>` stand for any part of a name.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['*', '<']) {
        parts.push(&rest[..at]);
        rest = if rest[at..].starts_with('*') { &rest[at + 1..] } else { rest.split_once('>').unwrap().1 };
    }
    let Some(mut left) = name.strip_prefix(*parts.first().unwrap_or(&pattern)) else { return false };
    if parts.is_empty() {
        return left.is_empty();
    }
    for part in &parts[1..] {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.len() >= rest.len() && left.ends_with(rest) && !left[..left.len() - rest.len()].contains('/')
}

/// Files and folders of the repository, by their paths from its root; folders end with a slash.
struct Tree(BTreeSet<String>);

impl Tree {
    fn read(root: &Path) -> Self {
        let mut found = BTreeSet::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{folder}{}", entry.file_name().to_string_lossy());
                if entry.file_type().unwrap().is_dir() {
                    let last = name.rsplit('/').next().unwrap_or_default();
                    if !last.starts_with('.') && !["target", "__pycache__"].contains(&last) {
                        found.insert(format!("{name}/"));
                        folders.push(format!("{name}/"));
                    }
                } else {
                    found.insert(name);
                }
            }
        }
        Self(found)
    }

    fn has(&self, path: &str) -> bool {
        self.0.contains(path) || path.contains(['*', '<']) && self.0.iter().any(|name| matches(path, name))
    }

    /// The path that a name means after the folders that stand before it in its row: itself, a path in the nearest of these folders, or the only
    /// one in the repository that ends so.
    fn meant(&self, name: &str, before: &[String]) -> Option<String> {
        if self.has(name) {
            return Some(name.to_string());
        }
        if let Some(within) = before.iter().rev().map(|folder| format!("{folder}{name}")).find(|path| self.has(path)) {
            return Some(within);
        }
        let end = format!("/{name}");
        let mut ending = self.0.iter().filter(|path| path.ends_with(&end));
        match (ending.next(), ending.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Paths in a document that do not exist or may be several files, each with its line.
    fn unclear(&self, text: &str) -> (usize, Vec<String>) {
        let (mut count, mut wrong) = (0, Vec::new());
        for (number, line) in text.lines().enumerate() {
            let mut before: Vec<String> = Vec::new();
            let names =
                quoted(line).filter(|name| ENDINGS.iter().any(|end| name.ends_with(end) && name.len() > end.len()));
            for name in names.filter(|name| !name.contains(' ') && !name.starts_with('.')).flat_map(each) {
                count += 1;
                let Some(path) = self.meant(&name, &before) else {
                    wrong.push(format!("{}: {name}", number + 1));
                    continue;
                };
                before.extend(path.rfind('/').map(|end| path[..=end].to_string()));
            }
        }
        (count, wrong)
    }
}

#[test]
fn every_path_is_there_and_means_one_file() {
    let (count, wrong) = Tree::read(&workspace_root()).unclear(&document());
    assert!(count > 300, "only {count} paths were found");
    assert!(wrong.is_empty(), "not there, or in more than one folder:\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_path_is_found() {
    let tree = Tree(["a/", "a/one.rs", "b/", "b/one.rs", "b/two.rs", "b/c/", "b/c/k.cu"].map(String::from).into());
    for right in
        ["`a/one.rs`", "`b/two.rs`; `one.rs` there", "`two.rs`", "`b/{one,two}.rs`", "`b/c/<family>.cu`", "`b/c/*.cu`"]
    {
        assert_eq!(tree.unclear(right).1, Vec::<String>::new(), "{right}");
    }
    for wrong in ["`one.rs`", "`a/two.rs`", "`a/{one,two}.rs`", "`three.rs`", "`a/*.cu`", "`b/<family>.cu`"] {
        assert_eq!(tree.unclear(wrong).1.len(), 1, "{wrong}");
    }
}

/// Words that a definition, a field or a variant introduces in Rust.
fn defined(files: &[SourceFile]) -> BTreeSet<&str> {
    const BEFORE: [&str; 9] = ["fn", "struct", "enum", "trait", "const", "static", "mod", "type", "macro_rules!"];
    let mut found = BTreeSet::new();
    for file in files {
        for line in file.text.lines() {
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '!').collect();
            found.extend(words.windows(2).filter(|pair| BEFORE.contains(&pair[0])).map(|pair| pair[1]));
            let trimmed = line.trim_start().trim_start_matches("pub ");
            let name = trimmed.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let after = &trimmed[name.len()..];
            if after.starts_with([':', '(', ',']) || after.starts_with(" {") || after.is_empty() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn every_name_is_defined() {
    let files = all_rust_files(&workspace_root()).unwrap();
    let mut known = defined(&files);
    let document = document();
    for other in OF_OTHERS {
        let is_needed = !known.contains(other)
            && document.lines().flat_map(quoted).any(|name| name.split("::").any(|part| part == other));
        assert!(is_needed, "{other}: take it out of OF_OTHERS");
    }
    let crates: Vec<String> = ["lab", "memcore"].map(String::from).into();
    known.extend(crates.iter().map(String::as_str));
    known.extend(OF_OTHERS);
    let is_name = |name: &&str| {
        let plain = name.trim_end_matches("()");
        plain.split("::").all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_'))
    };
    let names: Vec<&str> = document.lines().flat_map(quoted).filter(is_name).collect();
    assert!(names.len() > 60, "only {} names were found", names.len());
    let parts = names.iter().flat_map(|name| name.trim_end_matches("()").split("::").map(move |part| (name, part)));
    let missing: Vec<_> = parts.filter(|(_, part)| !known.contains(part)).collect();
    assert!(missing.is_empty(), "defined nowhere: {missing:?}");
}

/// Rows of recordings in `memcore/tests/golden`, under a key.
fn rows(file: &str, key: &str) -> usize {
    let path = workspace_root().join("memcore/tests/golden").join(file);
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    value[key].as_array().map(Vec::len).or_else(|| value[key].as_object().map(serde_json::Map::len)).unwrap()
}

#[test]
fn counts_of_recordings_are_theirs() {
    let text = document().split_whitespace().collect::<Vec<_>>().join(" ");
    let traces = std::fs::read_dir(workspace_root().join("memcore/tests/golden/traces")).unwrap().count();
    let attention = rows("attention_events.json", "2.11-sm75") + rows("card_attention_events.json", "2.11-sm86");
    let subjects = ["index", "loss", "norm", "pointwise", "reduce", "resample"];
    let forms: usize = subjects.iter().map(|subject| rows(&format!("events/{subject}.json"), "2.11")).sum();
    for claim in [
        format!("{traces} allocator traces"),
        format!("{} operators on two types", rows("mixed_events.json", "2.11")),
        format!("{} on operands that are not in row-major order", rows("layout_events.json", "2.11")),
        format!("{forms} in other forms"),
        format!("{attention} forms of fused attention"),
        format!("{} forms of attention", rows("cudnn_attention_events.json", "2.11-sm90")),
        format!("{} of batch norm", rows("cudnn_batch_norm_events.json", "2.11")),
        format!("of {} operators", rows("op_events.json", "rows") - 3),
    ] {
        assert!(text.contains(&claim), "it should say: {claim}");
    }
}

/// Names that a module exports by `pub use`.
fn exported(path: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(workspace_root().join(path)).unwrap();
    let lists = text.split("pub use ").skip(1).filter_map(|list| list.split(';').next());
    let words = lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.map(str::to_lowercase).filter(|word| !word.is_empty()).collect()
}

#[test]
fn what_is_called_absent_is_absent() {
    let text = document().split_whitespace().collect::<Vec<_>>().join(" ");
    let absent = text.split_once("Recorded but not supported: ").unwrap().1;
    let absent = absent.split_once(". ").unwrap().0;
    // An operator in one of its forms has its own test, in op_events.rs.
    let mut known = BTreeSet::new();
    for folder in std::fs::read_dir(workspace_root().join("memcore/src/ops")).unwrap() {
        let file = folder.unwrap().path().join("mod.rs");
        if file.is_file() {
            known.append(&mut exported(file.to_str().unwrap()));
        }
    }
    known.append(&mut exported("memcore/src/autograd/mod.rs"));
    assert!(known.contains("einsum"));
    for name in absent.split(", ").filter(|name| !name.contains(" with ")) {
        let plain = name.trim_matches('`').to_lowercase();
        let word = plain.split_whitespace().next().unwrap();
        assert!(
            !known.iter().any(|function| function == word || function.contains(&format!("_{word}"))),
            "{name} exists"
        );
    }
}
