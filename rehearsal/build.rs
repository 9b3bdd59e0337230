//! Makes a no-op for every public name in `names/` that no file of `src/` defines, and the table of errors.
//!
//! A line of `names/<library>.txt` is a name, followed by marks:
//! - `kernel`: its only results are in device memory, so that nothing is missing if it does nothing;
//! - `quiet`: it has no results, or only the handle that it makes;
//! - `i32@2=0`, `i64@2=0`: writes this number to the address in argument 2, counted from 0;
//! - `handle@0`: writes a new handle to the address in argument 0;
//! - `text`: returns an empty string;
//! - `=801`: returns this status.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=names");
    println!("cargo::rerun-if-changed=src");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let mut defined = BTreeSet::new();
    collect_defined(&root.join("src"), &mut defined);
    let noops = noops(&root.join("names"), &defined);
    fs::write(out.join("noops.rs"), noops).expect("OUT_DIR is writable");
    let errors = fs::read_to_string(root.join("names/errors.txt")).expect("names/errors.txt is there");
    fs::write(out.join("errors.rs"), error_table(&errors)).expect("OUT_DIR is writable");
}

/// Collects the names of exported functions in all files below a directory.
fn collect_defined(dir: &Path, defined: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_defined(&path, defined);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for line in text.lines() {
            defined.extend(names_in_exports(line.trim_start()));
            let after = line.trim_start().split_once("extern \"C\" fn ").map(|(_, after)| after);
            // Functions of macros and of types are not exported names.
            let name = after.and_then(|after| after.split(['(', '<']).next()).unwrap_or_default();
            if !name.is_empty() && !name.contains('$') {
                defined.insert(name.to_string());
            }
        }
        // Macros that define many functions of one form list their names in lines of their own.
        let listed = text.split("exported_names!(").skip(1).filter_map(|rest| rest.split(')').next());
        for name in listed
            .flat_map(|list| list.split(','))
            .map(|name| name.trim().trim_start_matches("//").trim())
            .filter(|name| !name.is_empty())
        {
            defined.insert(name.to_string());
        }
    }
}

/// Returns the names at the start of a line of `exports!`: `driver NAME, runtime NAME(`.
fn names_in_exports(line: &str) -> Vec<String> {
    let head = line.split(['(', '=']).next().unwrap_or_default();
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let name = |part: &str| match part.trim().split_once(' ') {
        Some(("driver" | "runtime", name)) if is_name(name) => Some(name.to_string()),
        _ => None,
    };
    head.split(',').map_while(name).collect()
}

fn noops(dir: &Path, defined: &BTreeSet<String>) -> String {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).expect("names/").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let mut text = String::new();
    let mut index = 0;
    for file in files {
        if file.ends_with("errors.txt") || file.ends_with("real.txt") {
            continue;
        }
        let lines = fs::read_to_string(&file).expect("a list of names");
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !defined.contains(*name)) else { continue };
            text.push_str(&noop(name, index, &words.collect::<Vec<_>>()));
            index += 1;
        }
    }
    writeln!(text, "pub(super) const COUNT: usize = {index};").expect("writing to a string");
    text
}

fn noop(name: &str, index: usize, marks: &[&str]) -> String {
    let (mut loud, mut result, mut writes, mut arguments) = (true, "0".to_string(), String::new(), 0);
    for mark in marks {
        if let Some(status) = mark.strip_prefix('=') {
            result = status.to_string();
        } else if *mark == "text" {
            result = "c\"\".as_ptr() as u64".to_string();
        } else if matches!(*mark, "kernel" | "quiet") {
            loud = false;
        } else {
            let (kind, place) = mark.split_once('@').expect("a mark that build.rs knows");
            let (argument, value) = place.split_once('=').unwrap_or((place, ""));
            let argument: usize = argument.parse().expect("the number of an argument");
            arguments = arguments.max(argument + 1);
            let value = match kind {
                "handle" => "Written::Handle".to_string(),
                "i32" => format!("Written::I32({value})"),
                "i64" => format!("Written::I64({value})"),
                other => panic!("{name}: unknown mark {other}"),
            };
            write!(writes, "(a{argument}, {value}), ").expect("writing to a string");
        }
    }
    let kernel = marks.contains(&"kernel");
    let list: Vec<String> = (0..arguments).map(|at| format!("a{at}: usize")).collect();
    let unused = if writes.is_empty() { "" } else { "#[allow(unused_variables)] " };
    format!(
        "{unused}#[unsafe(no_mangle)] extern \"C\" fn {name}({}) -> u64 {{ called({index}, \"{name}\", Kind {{ loud: {loud}, kernel: {kernel} }}, &[{}]); {result} }}\n",
        list.join(", "),
        writes.trim_end_matches(", "),
    )
}

/// Makes the rows of the table: code, name in the runtime, name in the driver, text. `-` stands for no name.
fn error_table(text: &str) -> String {
    let mut table = "&[\n".to_string();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [code, runtime, driver, meaning] = fields[..] else { panic!("names/errors.txt: {line}") };
        let name = |name: &str| if name == "-" { "None".to_string() } else { format!("Some(c{name:?})") };
        writeln!(table, "    ({code}, {}, {}, c{meaning:?}),", name(runtime), name(driver))
            .expect("writing to a string");
    }
    table + "]"
}
