//! Networks that this program has as recorded graphs: `scripts/zoo/record.py` writes one file for each, and their list.
//!
//! A file holds texts of JSON, parts of what `torch.export` writes, and for each part of an export which texts it consists of. A stack of layers names a text
//! for each layer, and layers of one kind have one text. In it `%0@` stands for the layer's number, `%0-` for that before, `%0^` for the first and `%0$`
//! for the last, where 0 is the number of the stack. Written out, they are the graph of the whole network.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::files;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::archive::Archive;
use super::lifetimes::ENTRY;
use super::schema::{Size, TensorMeta};

include!("../../zoo/list.rs");

/// Largest file of a folded graph, and most bytes that it becomes.
const MOST_PACKED: u64 = 16 << 20;
const MOST_BYTES: u64 = 256 << 20;

/// Beginning of the name of a parameter or buffer in a recorded graph.
const TENSOR: &str = "p.";

/// A recorded network.
#[derive(Deserialize)]
struct Folded {
    /// Layers of each stack.
    layers: Vec<usize>,
    texts: Vec<String>,
    sections: BTreeMap<String, Vec<Piece>>,
    /// The most tokens that an example has.
    positions: usize,
    class: String,
    library: String,
    tied: Box<RawValue>,
    range_constraints: Box<RawValue>,
    guards_code: Box<RawValue>,
    schema_version: Box<RawValue>,
    torch_version: Box<RawValue>,
}

/// A part of a section: numbers of texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Once(usize),
    /// A text for each layer of a stack, and another for the last layer if it is not as others of its kind.
    Layers {
        stack: usize,
        plan: Vec<usize>,
        last: Option<usize>,
    },
}

/// A network of the list, in a few words.
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// Layers, parameters, the class and the library.
    pub description: String,
}

/// Returns the names of all recorded networks.
pub fn names() -> impl Iterator<Item = &'static str> {
    RECORDED.iter().map(|(name, _)| *name)
}

/// True for the name of a recorded network.
pub fn is_recorded(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Returns all recorded networks.
///
/// # Errors
/// A recorded graph that cannot be read.
pub fn listed() -> Result<Vec<Listed>> {
    let one = |&(name, packed): &(&'static str, &[u8])| {
        let folded = Folded::read(name, packed)?;
        let layers = folded.layers.iter().map(usize::to_string).collect::<Vec<_>>().join(" + ");
        let billions = folded.parameters(name)? as f64 / 1e9;
        let description =
            format!("{layers} layers, {billions:.2} billion parameters: {} of {}", folded.class, folded.library);
        Ok(Listed { name, description })
    };
    RECORDED.iter().map(one).collect()
}

fn folded(name: &str) -> Result<Folded> {
    let found = RECORDED.iter().find(|(known, _)| *known == name);
    let (_, packed) = found.ok_or_else(|| Error::usage("model", format!("no recorded network {name:?}")))?;
    Folded::read(name, packed)
}

/// The most tokens that an example of a recorded network has.
///
/// # Errors
/// A recorded graph that cannot be read.
pub(super) fn positions(name: &str) -> Result<usize> {
    Ok(folded(name)?.positions)
}

/// A recorded network as an archive, with so many layers in place of its own.
///
/// # Errors
/// A number of layers that the network does not have; a recorded graph that cannot be read.
pub(super) fn archive(name: &str, layers: Option<usize>) -> Result<Archive> {
    let mut folded = folded(name)?;
    if let Some(layers) = layers {
        let most = *folded.layers.first().unwrap_or(&0);
        if folded.layers.len() != 1 || layers < 2 || layers > most {
            return Err(Error::usage("layers", format!("{layers}: {name} was recorded for 2 to {most}")));
        }
        folded.layers = vec![layers];
    }
    Ok(Archive::of_entries(name, folded.entries(name)?))
}

/// A folded graph in a file, as an archive.
///
/// # Errors
/// A file that is not one, or is damaged.
pub(super) fn archive_in(path: &Path, name: &str) -> Result<Archive> {
    let packed = files::bytes(path, MOST_PACKED, "a folded graph")?;
    let entries = Folded::read(name, &packed).and_then(|folded| folded.entries(name));
    let entries = entries.map_err(|error| Error::usage(path.display().to_string(), error.to_string()))?;
    Ok(Archive::of_entries(name, entries))
}

impl Folded {
    fn read(name: &str, packed: &[u8]) -> Result<Self> {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(packed).take(MOST_BYTES).read_to_string(&mut text);
        let damaged = |problem: String| Error::host(format!("the recorded graph of {name}"), problem);
        read.map_err(|error| damaged(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))
    }

    /// The entries of the archive.
    fn entries(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let section = |section: &str| self.written(name, section);
        let program = format!(
            r#"{{"graph_module":{{"graph":{{"inputs":[{}],"outputs":[{}],"nodes":[{}],"tensor_values":{{{}}}}},"signature":{{"input_specs":[{}],"output_specs":[{}]}}}},"schema_version":{},"range_constraints":{},"guards_code":{},"torch_version":{}}}"#,
            section("inputs")?,
            section("outputs")?,
            section("nodes")?,
            section("values")?,
            section("input_specs")?,
            section("output_specs")?,
            self.schema_version,
            self.range_constraints,
            self.guards_code,
            self.torch_version,
        );
        let beside = format!(r#"{{"version":1,"dies_after":[{}],"tied":{}}}"#, section("dies_after")?, self.tied);
        let entries = [("models/model.json", program), (ENTRY, beside)];
        Ok(entries.map(|(entry, text)| (entry.to_string(), text.into_bytes())).into())
    }

    /// Writes a section out.
    fn written(&self, name: &str, section: &str) -> Result<String> {
        let mut all = String::new();
        for (number, layer) in self.numbers(name, section)? {
            let text = self.texts.get(number).map_or("", String::as_str);
            if !text.is_empty() {
                if !all.is_empty() {
                    all.push(',');
                }
                self.write(text, layer, &mut all);
            }
        }
        Ok(all)
    }

    /// The texts of a section, each with the layer that it is written for.
    fn numbers(&self, name: &str, section: &str) -> Result<Vec<(usize, usize)>> {
        let mut found = Vec::new();
        for piece in self.sections.get(section).into_iter().flatten() {
            match piece {
                Piece::Once(number) => found.push((*number, 0)),
                Piece::Layers { stack, plan, last } => {
                    let layers = self.layers.get(*stack).copied().unwrap_or(0);
                    for layer in 0..layers {
                        let of_kind = plan.get(layer).copied();
                        let number = last.filter(|_| layer + 1 == layers).or(of_kind);
                        let missing = || Error::host(format!("the recorded graph of {name}"), "has no such layer");
                        found.push((number.ok_or_else(missing)?, layer));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Writes a text with numbers in place of its marks.
    fn write(&self, text: &str, layer: usize, all: &mut String) {
        let mut rest = text;
        while let Some((before, marked)) = rest.split_once('%') {
            all.push_str(before);
            let digits = marked.find(|c: char| !c.is_ascii_digit()).unwrap_or(marked.len());
            let stack: usize = marked[..digits].parse().unwrap_or(0);
            let number = match marked[digits..].chars().next() {
                Some('@') => layer,
                Some('-') => layer.saturating_sub(1),
                Some('$') => self.layers.get(stack).copied().unwrap_or(1).saturating_sub(1),
                _ => 0,
            };
            all.push_str(&number.to_string());
            rest = marked.get(digits + 1..).unwrap_or("");
        }
        all.push_str(rest);
    }

    /// Elements of all parameters, tied ones once.
    fn parameters(&self, name: &str) -> Result<u64> {
        let tied: Vec<Vec<String>> = serde_json::from_str(self.tied.get()).unwrap_or_default();
        let again = |path: &str| tied.iter().any(|group| group.iter().skip(1).any(|other| other == path));
        let mut sum = 0;
        for (number, _) in self.numbers(name, "values")? {
            let text = format!("{{{}}}", self.texts.get(number).map_or("", String::as_str));
            let values: BTreeMap<String, TensorMeta> = serde_json::from_str(&text).unwrap_or_default();
            for (value, meta) in values.iter().filter(|(_, meta)| meta.requires_grad) {
                let Some(path) = value.strip_prefix(TENSOR) else { continue };
                let size = |size: &Size| if let Size::AsInt(size) = size { u64::try_from(*size).ok() } else { None };
                sum += if again(path) { 0 } else { meta.sizes.iter().filter_map(size).product() };
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_numbers_of_layers() {
        let text = r#"{"layers": [3], "positions": 8, "class": "", "library": "", "tied": [], "range_constraints": {}, "guards_code": [],
            "schema_version": {}, "torch_version": "", "texts": ["a", "b%0@", "c%0@,%0-", "d%0@", "e%0$%0^"],
            "sections": {"nodes": [0, {"stack": 0, "plan": [1, 2, 2, 2], "last": 3}, 4], "values": [{"stack": 0, "plan": [1, 2], "last": null}]}}"#;
        let folded: Folded = serde_json::from_str(text).unwrap();
        assert_eq!(folded.written("x", "nodes").unwrap(), "a,b0,c1,0,d2,e20");
        assert_eq!(folded.written("x", "inputs").unwrap(), "");
        assert!(folded.written("x", "values").unwrap_err().to_string().contains("has no such layer"));
    }

    #[test]
    fn every_recorded_network_is_read_whole() {
        for name in names() {
            let mut archive = archive(name, None).unwrap();
            let program: serde_json::Value = archive.json("models/model.json").unwrap();
            assert!(
                positions(name).unwrap() > 0
                    && program["graph_module"]["graph"]["nodes"].as_array().unwrap().len() > 100,
                "{name}"
            );
        }
        assert_eq!(listed().unwrap().len(), names().count());
    }
}
