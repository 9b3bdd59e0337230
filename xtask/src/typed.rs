//! `python/vramlab/schemas.py`: the same tables as `docs/json.md`, as types that Python's checkers read.

use std::fmt::Write;

/// Where the module is.
pub const FILE: &str = "python/vramlab/schemas.py";

const HEAD: &str = "\"\"\"The JSON of vramlab, as types.\n\n\
    Made by `cargo xtask json` from the structs that are written, as docs/json.md is; a test compares.\n\
    Bytes are whole numbers. A key may be absent, and keys may be added.\n\"\"\"\n\n\
    from __future__ import annotations\n\nfrom typing import Any, Optional, TypedDict\n";

/// A table of the document.
struct Class {
    name: String,
    docs: String,
    fields: Vec<(String, String)>,
}

/// The module, from the text of `docs/json.md`.
pub fn python(document: &str) -> String {
    let mut out = HEAD.to_string();
    for class in classes(document) {
        // Others are written as a dictionary.
        let plain = class.fields.iter().all(|(name, _)| is_word(name));
        let _ = match plain {
            true => {
                writeln!(out, "\n\nclass {}(TypedDict, total=False):\n    \"\"\"{}\"\"\"\n", class.name, class.docs)
            }
            false => writeln!(out, "\n\n# {}\n{n} = TypedDict(\n    \"{n}\",\n    {{", class.docs, n = class.name),
        };
        for (name, kind) in &class.fields {
            let _ = match plain {
                true => writeln!(out, "    {name}: {}", typed(kind)),
                false => writeln!(out, "        \"{name}\": \"{}\",", typed(kind)),
            };
        }
        if !plain {
            out += "    },\n    total=False,\n)\n";
        }
    }
    out
}

/// Whether it can be an attribute of a class in Python.
fn is_word(name: &str) -> bool {
    !["from", "in", "is", "for", "class", "global"].contains(&name)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn classes(document: &str) -> Vec<Class> {
    let mut found: Vec<Class> = Vec::new();
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            found.push(Class { name: class_name(name), docs: String::new(), fields: Vec::new() });
        } else if let Some(class) = found.last_mut() {
            let cells: Vec<&str> = line.split(" | ").collect();
            match cells.first().and_then(|cell| cell.strip_prefix("| `")?.strip_suffix('`')) {
                Some(field) if cells.len() >= 2 => class.fields.push((field.into(), cells[1].into())),
                _ if class.docs.is_empty() && !line.starts_with('|') => class.docs = line.into(),
                _ => {}
            }
        }
    }
    found
}

/// `vramlab-fit-1` is `FitV1`; a part keeps its name.
fn class_name(heading: &str) -> String {
    let Some(schema) = heading.strip_prefix("`vramlab-").and_then(|rest| rest.strip_suffix('`')) else {
        return heading.into();
    };
    let part = |part: &str| match part.parse::<u32>() {
        Ok(version) => format!("V{version}"),
        Err(_) => part[..1].to_uppercase() + &part[1..],
    };
    schema.split('-').map(part).collect()
}

/// The document's words for a type, in Python.
fn typed(kind: &str) -> String {
    // Null in place of the list, and of its entries.
    if let Some(inner) = kind.strip_suffix(" or null or null").and_then(|kind| kind.strip_prefix("list of ")) {
        return format!("Optional[list[Optional[{}]]]", typed(inner));
    }
    if let Some(inner) = kind.strip_suffix(" or null") {
        return format!("Optional[{}]", typed(inner));
    }
    if let Some(inner) = kind.strip_prefix("list of ") {
        // Of several kinds, in a fixed order.
        return if inner.contains(" and ") { "list[Any]".into() } else { format!("list[{}]", typed(inner)) };
    }
    if let Some(inner) = kind.strip_prefix("object of ") {
        return format!("dict[str, {}]", typed(inner));
    }
    match kind {
        "text" => "str".into(),
        "true or false" => "bool".into(),
        "whole number" => "int".into(),
        "number" => "float".into(),
        "list (the columns)" => "list[Any]".into(),
        link => match link.strip_prefix('[').and_then(|link| link.split_once("](#")) {
            Some((_, anchor)) if anchor.starts_with("vramlab-") => {
                class_name(&format!("`{}`", anchor.trim_end_matches(')')))
            }
            Some((name, _)) => name.into(),
            None => "Any".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_a_class() {
        let document = "# J\n\n## `vramlab-x-y-2`\n\nAn answer.\n\n| field | is | |\n|---|---|---|\n| `a` | list of number or null or null | A. |\n\
            | `b` | object of [Part](#part) | B. |\n\n## Part\n\nA part.\n\n| field | is | |\n|---|---|---|\n| `c-d` | [XYV2](#vramlab-x-y-2) or null | C. |\n";
        let made = python(document);
        assert!(made.contains("class XYV2(TypedDict, total=False):\n    \"\"\"An answer.\"\"\"\n"), "{made}");
        assert!(made.contains("    a: Optional[list[Optional[float]]]\n    b: dict[str, Part]\n"), "{made}");
        assert!(made.contains("        \"c-d\": \"Optional[XYV2]\",\n"), "{made}");
    }
}
