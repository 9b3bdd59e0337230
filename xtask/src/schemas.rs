//! `docs/json.md`: the parts of each result, from the structs that are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Field, Fields, GenericArgument, Item, ItemStruct, Lit, Meta, PathArguments, Token, Type};

use crate::files::{SourceFile, rust_files};

/// Folders and files with the structs; of two structs with the same name, the first one here counts.
const PLACES: [&str; 12] = [
    "lab/results/src",
    "lab/src/run",
    "lab/base/src/section",
    "lab/analysis/src/lock",
    "lab/training/src/record.rs",
    "lab/analysis/src/forensics",
    "lab/analysis/src/peaks.rs",
    "lab/experiments/src/claims.rs",
    "lab/experiments/src",
    "lab/base/src/cards.rs",
    "lab/base/src/backends.rs",
    "lab/traces/src/snapshot",
];

const HEAD: &str = "# The JSON of vramlab\n\n\
    Made by `cargo xtask json` from the structs in `lab/results/src/`; a test compares. Each result begins with `\"schema\"`, whose number changes once a program \
    that reads it would be misled, and `\"sentence\"`, the first line of the answer. Fields may be added. Bytes are whole numbers. Other schemas: `vramlab-events-1` (`train --events`, `rehearse --events`: columns of events, see \
    `cli/src/commands/events.rs`), `vramlab-lock-1` (`check --baseline`).\n";

/// A struct that is written.
struct Struct {
    docs: String,
    /// Anchor of its heading in links.
    anchor: String,
    fields: Vec<Written>,
}

struct Written {
    name: String,
    docs: String,
    kind: String,
    /// Structs among its fields' types.
    parts: Vec<String>,
    /// True if its own fields replace it.
    flat: bool,
}

/// The document.
///
/// # Errors
/// Files that cannot be read, or are not Rust.
pub fn markdown(root: &Path) -> anyhow::Result<String> {
    let (mut structs, mut schemas) = (BTreeMap::new(), BTreeMap::new());
    for place in PLACES {
        for file in files(root, place)? {
            let syntax = syn::parse_file(&file.text).with_context(|| file.path.display().to_string())?;
            for item in syntax.items {
                match item {
                    Item::Struct(item) if is_written(&item.attrs) => {
                        structs.entry(item.ident.to_string()).or_insert_with(|| of_struct(&item));
                    }
                    Item::Impl(item) => schemas.extend(schema(&item)),
                    _ => {}
                }
            }
        }
    }
    for (schema, name) in &schemas {
        if let Some(one) = structs.get_mut(name) {
            one.anchor.clone_from(schema);
        }
    }
    let mut out = HEAD.to_string();
    let mut told = BTreeSet::new();
    for (schema, name) in &schemas {
        let _ = write!(out, "\n## `{schema}`\n");
        section(&mut out, &structs, name);
        told.insert(name.clone());
    }
    let mut next: Vec<String> = schemas.values().flat_map(|name| parts(&structs, name)).collect();
    out += "\n# Parts\n";
    let mut all = BTreeSet::new();
    while let Some(name) = next.pop() {
        if !told.contains(&name) && all.insert(name.clone()) {
            next.extend(parts(&structs, &name));
        }
    }
    for name in all {
        let _ = write!(out, "\n## {name}\n");
        section(&mut out, &structs, &name);
    }
    Ok(out)
}

/// A file, or all below a folder.
fn files(root: &Path, place: &str) -> anyhow::Result<Vec<SourceFile>> {
    let path = root.join(place);
    if path.is_dir() {
        return rust_files(root, &path);
    }
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(vec![SourceFile { path, text }])
}

/// The structs among a struct's fields, those of its flattened fields included.
fn parts(structs: &BTreeMap<String, Struct>, name: &str) -> Vec<String> {
    let fields = structs.get(name).map(|one| one.fields.as_slice()).unwrap_or_default();
    let of_field = |field: &Written| match field.flat {
        true => field.parts.iter().flat_map(|part| parts(structs, part)).collect(),
        false => field.parts.iter().filter(|part| structs.contains_key(*part)).cloned().collect::<Vec<_>>(),
    };
    fields.iter().flat_map(of_field).collect()
}

fn section(out: &mut String, structs: &BTreeMap<String, Struct>, name: &str) {
    let Some(one) = structs.get(name) else { return };
    let _ = write!(out, "\n{}\n\n| field | is | |\n|---|---|---|\n", one.docs);
    rows(out, structs, one);
}

fn rows(out: &mut String, structs: &BTreeMap<String, Struct>, one: &Struct) {
    for field in &one.fields {
        match field.parts.first().and_then(|part| structs.get(part)).filter(|_| field.flat) {
            Some(inner) => rows(out, structs, inner),
            None => {
                let docs = field.docs.replace('|', "\\|");
                let _ = writeln!(out, "| `{}` | {} | {docs} |", field.name, linked(structs, &field.kind));
            }
        }
    }
}

/// Names of structs as links.
fn linked(structs: &BTreeMap<String, Struct>, kind: &str) -> String {
    let word = |word: &str| match word {
        name if structs.contains_key(name) => format!("[{name}](#{})", structs[name].anchor),
        // Its form in JSON is described by hand.
        "Table" => "table (title, columns, kinds, rows)".into(),
        // An enum is written as its variant's name.
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => "text".into(),
        other => other.to_string(),
    };
    kind.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the schema and the struct of an implementation of `Findings`.
fn schema(item: &syn::ItemImpl) -> Option<(String, String)> {
    let (_, path, _) = item.trait_.as_ref()?;
    if path.segments.last()?.ident != "Findings" {
        return None;
    }
    let Type::Path(of) = &*item.self_ty else { return None };
    let name = of.path.segments.last()?.ident.to_string();
    let text = |inner: &syn::ImplItem| match inner {
        syn::ImplItem::Const(one) if one.ident == "SCHEMA" => text_of(&one.expr),
        _ => None,
    };
    Some((item.items.iter().find_map(text)?, name))
}

fn of_struct(item: &ItemStruct) -> Struct {
    let kebab = serde(&item.attrs).iter().any(|(key, value)| key == "rename_all" && value == "kebab-case");
    let fields = match &item.fields {
        Fields::Named(fields) => fields.named.iter().filter_map(|field| written(field, kebab)).collect(),
        _ => Vec::new(),
    };
    Struct { docs: docs(&item.attrs), anchor: item.ident.to_string().to_lowercase(), fields }
}

fn written(field: &Field, kebab: bool) -> Option<Written> {
    let said = serde(&field.attrs);
    let has = |name: &str| said.iter().any(|(key, _)| key == name);
    if has("skip") {
        return None;
    }
    let own = field.ident.as_ref()?.to_string();
    let own = own.strip_prefix("r#").unwrap_or(&own).to_string();
    let renamed = said.iter().find(|(key, _)| key == "rename").map(|(_, value)| value.clone());
    let name = renamed.unwrap_or(if kebab { own.replace('_', "-") } else { own });
    let mut parts = Vec::new();
    // A switch is null until it is set.
    let is_switch = said.iter().any(|(key, value)| key == "with" && value.ends_with("::switch"));
    let kind = format!("{}{}", kind(&field.ty, &mut parts), if is_switch { " or null" } else { "" });
    Some(Written { name, docs: docs(&field.attrs), kind, parts, flat: has("flatten") })
}

/// Returns a type in JSON's words; adds names of structs to `parts`.
fn kind(of: &Type, parts: &mut Vec<String>) -> String {
    match of {
        Type::Array(array) => format!("list of {}", kind(&array.elem, parts)),
        Type::Tuple(tuple) => {
            let all: Vec<String> = tuple.elems.iter().map(|part| kind(part, parts)).collect();
            format!("list of {}", all.join(" and "))
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return "value".into() };
            let mut inner = || match &last.arguments {
                PathArguments::AngleBracketed(list) => list.args.iter().rev().find_map(|one| match one {
                    GenericArgument::Type(one) => Some(kind(one, parts)),
                    _ => None,
                }),
                _ => None,
            };
            match last.ident.to_string().as_str() {
                "Option" => format!("{} or null", inner().unwrap_or_default()),
                "Vec" => format!("list of {}", inner().unwrap_or_default()),
                "Box" => inner().unwrap_or_default(),
                "BTreeMap" | "Map" => format!("object of {}", inner().unwrap_or_default()),
                "ByCategory" => "object of whole number".into(),
                // Written with the names of the flags.
                "Settings" => {
                    parts.push("RunSpec".into());
                    "RunSpec".into()
                }
                "Value" => "value".into(),
                "bool" => "true or false".into(),
                "f64" | "f32" => "number".into(),
                "u64" | "u32" | "u16" | "u8" | "usize" | "i64" | "i32" | "ByteSize" | "MemorySize" => {
                    "whole number".into()
                }
                "String" | "PathBuf" | "str" => "text".into(),
                "Row" => "list (the columns)".into(),
                other => {
                    parts.push(other.to_string());
                    other.to_string()
                }
            }
        }
        Type::Reference(reference) => kind(&reference.elem, parts),
        _ => "value".into(),
    }
}

/// True if the struct derives `Serialize`.
fn is_written(attrs: &[Attribute]) -> bool {
    let derives = attrs.iter().filter(|attr| attr.path().is_ident("derive"));
    derives
        .filter_map(|attr| attr.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).ok())
        .any(|list| list.iter().any(|path| path.segments.last().is_some_and(|last| last.ident == "Serialize")))
}

/// Serde's attributes by key; a key without a value has an empty one.
fn serde(attrs: &[Attribute]) -> Vec<(String, String)> {
    let lists = attrs.iter().filter(|attr| attr.path().is_ident("serde"));
    let lists = lists.filter_map(|attr| attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok());
    let key = |path: &syn::Path| path.get_ident().map(ToString::to_string).unwrap_or_default();
    let said = |meta: Meta| match meta {
        Meta::NameValue(pair) => (key(&pair.path), text_of(&pair.value).unwrap_or_default()),
        other => (key(other.path()), String::new()),
    };
    lists.flatten().map(said).collect()
}

fn docs(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter(|attr| attr.path().is_ident("doc")).filter_map(|attr| match &attr.meta {
        Meta::NameValue(pair) => text_of(&pair.value),
        _ => None,
    });
    let text: Vec<String> = lines.map(|line| line.trim().to_string()).take_while(|line| !line.is_empty()).collect();
    text.join(" ")
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}
