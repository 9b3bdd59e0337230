//! `schema.py` and `endings.py` in `rehearsal/python/_vramlab_rehearsal/boot/`: what the launcher of a rehearsal and the Python inside a script's
//! processes tell each other, from the structs and constants in Rust.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use syn::{Attribute, Expr, Field, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// Where the types are, and the endings of files. These are apart, because every Python needs them, and types cost a Python its time.
pub const FILES: [&str; 2] =
    ["rehearsal/python/_vramlab_rehearsal/boot/schema.py", "rehearsal/python/_vramlab_rehearsal/boot/endings.py"];

/// The structs and the endings of files.
const SOURCES: [&str; 2] = ["lab/src/rehearse/contract.rs", "lab/src/rehearse/answers.rs"];

const HEAD: &str = "\"\"\"What the launcher and the processes tell each other, as types.\n\n\
    Made by `cargo xtask json` from lab/src/rehearse/contract.rs and answers.rs; a test compares. A process writes every key.\n\"\"\"\n\n\
    from typing import Any, List, Optional, Sequence, TypedDict\n";

const HEAD_OF_ENDINGS: &str = "\"\"\"Endings of the files that a process writes for the launcher; before each stands the process's number.\n\n\
    Made by `cargo xtask json` from lab/src/rehearse/contract.rs; a test compares.\n\"\"\"\n";

/// The modules, as in [`FILES`].
///
/// # Errors
/// Files that cannot be read or are not Rust, or a type that has no counterpart here.
pub fn python(root: &Path) -> anyhow::Result<[String; 2]> {
    let (mut constants, mut classes) = (String::new(), Vec::new());
    for source in SOURCES {
        let text = std::fs::read_to_string(root.join(source)).with_context(|| source.to_string())?;
        for item in syn::parse_file(&text).with_context(|| source.to_string())?.items {
            match item {
                Item::Const(item) => {
                    if let Some(value) = text_of(&item.expr) {
                        let _ = write!(constants, "\n# {}\n{} = \"{value}\"\n", docs(&item.attrs), item.ident);
                    }
                }
                Item::Struct(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("derive")) => {
                    let mut class =
                        format!("\n\nclass {}(TypedDict):\n    \"\"\"{}\"\"\"\n\n", item.ident, docs(&item.attrs));
                    for field in &item.fields {
                        class += &line(field).with_context(|| format!("{source}: {}", item.ident))?;
                    }
                    classes.push((item.ident.to_string(), class));
                }
                _ => {}
            }
        }
    }
    Ok([HEAD.to_string() + &sorted(classes).concat(), HEAD_OF_ENDINGS.to_string() + &constants])
}

/// Each class after those that it names, else in the order of the source.
fn sorted(mut left: Vec<(String, String)>) -> Vec<String> {
    let mut sorted = Vec::new();
    while !left.is_empty() {
        let names: Vec<String> = left.iter().map(|(name, _)| name.clone()).collect();
        let uses = |text: &str, name: &String| {
            let fields = text.split_once("\"\"\"\n\n").map_or("", |(_, fields)| fields);
            fields.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name)
        };
        let free = |(own, text): &(String, String)| !names.iter().any(|name| name != own && uses(text, name));
        let next = left.iter().position(free).unwrap_or(0);
        sorted.push(left.remove(next).1);
    }
    sorted
}

fn line(field: &Field) -> anyhow::Result<String> {
    let name = field.ident.as_ref().context("a field without a name")?.to_string();
    let name = name.trim_start_matches("r#");
    let mut line = String::new();
    let docs = docs(&field.attrs);
    if !docs.is_empty() {
        let _ = writeln!(line, "    # {docs}");
    }
    let _ = writeln!(line, "    {name}: {}", typed(&field.ty)?);
    Ok(line)
}

/// A type in Python. Tuples are lists of several kinds in JSON.
fn typed(kind: &Type) -> anyhow::Result<String> {
    let path = match kind {
        Type::Tuple(_) => return Ok("Sequence[Any]".into()),
        Type::Reference(reference) => return typed(&reference.elem),
        Type::Path(path) => path.path.segments.last().context("a type without a name")?,
        _ => bail!("a type that this does not know"),
    };
    let inner = || match &path.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(inner)) => typed(inner),
            _ => bail!("{} without a type", path.ident),
        },
        _ => bail!("{} without a type", path.ident),
    };
    Ok(match path.ident.to_string().as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => "int".into(),
        "bool" => "bool".into(),
        // `Use` is one of a few words.
        "String" | "str" | "PathBuf" | "Use" => "str".into(),
        "Vec" => format!("List[{}]", inner()?),
        "Option" => format!("Optional[{}]", inner()?),
        own => own.into(),
    })
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The documentation in one line, without links.
fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => text_of(&pair.value),
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().concat().replace(['[', ']'], "").replace('`', "");
    let without_paths = text.split("(super::").enumerate().map(|(at, part)| match part.split_once(')') {
        Some((_, rest)) if at > 0 => rest,
        _ => part,
    });
    without_paths.collect::<String>().trim().to_string()
}
