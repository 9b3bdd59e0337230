//! A folded graph: a network whose layers repeat.
//!
//! A file holds texts of JSON, parts of what `torch.export` writes, and for each part of an export which texts it consists of. A stack of layers names a text
//! for each layer, and layers of one kind have one text. In it `%0@` stands for the layer's number, `%0-` for that before, `%0^` for the first and `%0$`
//! for the last, where 0 is the number of the stack. Written out, they are the graph of the whole network.

use std::collections::BTreeMap;
use std::io::Read as _;

use lab_base::error::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lifetimes::ENTRY;
use super::schema::{Size, TensorMeta};

/// Most bytes that a folded graph becomes.
const MOST_BYTES: u64 = 256 << 20;

/// Marks of the layer itself, of the one before and of the last one, before the name of a value.
const OWN: &str = "%0@.";
const BEFORE: &str = "%0-.";
const LAST: &str = "%0$.";

/// Beginning of the name of a parameter or buffer in a recorded graph.
const TENSOR: &str = "p.";

/// A recorded network.
#[derive(Deserialize)]
pub(super) struct Folded {
    /// Layers of each stack.
    pub layers: Vec<usize>,
    texts: Vec<String>,
    sections: BTreeMap<String, Vec<Piece>>,
    /// The most tokens that an example has.
    pub positions: usize,
    pub class: String,
    pub library: String,
    tied: Box<RawValue>,
    #[serde(default)]
    moved_before: Vec<(String, String)>,
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

impl Piece {
    /// The text of each layer.
    fn plan(&self) -> Option<&Vec<usize>> {
        match self {
            Self::Once(_) => None,
            Self::Layers { plan, .. } => Some(plan),
        }
    }
}

impl Folded {
    pub(super) fn read(name: &str, packed: &[u8]) -> Result<Self> {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(packed).take(MOST_BYTES).read_to_string(&mut text);
        let damaged = |problem: String| Error::host(format!("the recorded graph of {name}"), problem);
        read.map_err(|error| damaged(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))
    }

    /// The network with so many layers in place of its own.
    ///
    /// # Errors
    /// A number of layers that the network does not have.
    pub(super) fn with_layers(mut self, name: &str, layers: usize) -> Result<Self> {
        let most = *self.layers.first().unwrap_or(&0);
        if self.layers.len() != 1 || layers < 2 || layers > most {
            return Err(Error::usage("layers", format!("{layers}: {name} was recorded for 2 to {most}")));
        }
        let unlike = || Error::usage("layers", format!("{layers}: {name} was not recorded with such a last layer"));
        if self.kind(layers - 1) != self.kind(most - 1) {
            self.end_in(layers - 1, most - 1).ok_or_else(unlike)?;
        }
        self.layers = vec![layers];
        Ok(self)
    }

    /// The texts that make a layer what it is.
    fn kind(&self, layer: usize) -> Vec<Option<&usize>> {
        let plans = self.sections.get("nodes").into_iter().flatten().filter_map(Piece::plan);
        plans.map(|plan| plan.get(layer)).collect()
    }

    /// The value that layers of this one's kind hand to the next layer, where it dies.
    fn handed_on(&self, layer: usize) -> Option<String> {
        let next = (1..*self.layers.first()?).find(|next| self.kind(next - 1) == self.kind(layer))?;
        let plans = self.sections.get("dies_after")?.iter().filter_map(Piece::plan);
        let texts = plans.filter_map(|plan| self.texts.get(*plan.get(next)?));
        let mut names = texts.flat_map(|text| text.split(BEFORE).skip(1)).filter_map(|rest| rest.split('"').next());
        let name = names.next()?;
        names.all(|other| other == name).then(|| name.to_string())
    }

    /// Ends the network in this layer, of another kind than `recorded`, the last one: what follows the layers takes what this one hands on.
    fn end_in(&mut self, layer: usize, recorded: usize) -> Option<()> {
        let (theirs, ours) = (self.handed_on(recorded)?, self.handed_on(layer)?);
        let renamed = |text: &str, mark: &str| text.replace(&format!("{mark}{theirs}\""), &format!("{mark}{ours}\""));
        let is_other = |text: &str| text.split(LAST).skip(1).any(|rest| rest.split('"').next() != Some(&theirs));
        if self.texts.iter().any(|text| is_other(text)) {
            return None;
        }
        self.texts.iter_mut().for_each(|text| *text = renamed(text, LAST));
        for piece in self.sections.values_mut().flatten() {
            let Piece::Layers { plan, last: Some(last), .. } = piece else { continue };
            let (whole, like) = (self.texts.get(*last)?, self.texts.get(*plan.get(recorded)?)?);
            let more = renamed(whole.strip_prefix(like.as_str())?, OWN);
            let ending = format!("{}{more}", self.texts.get(*plan.get(layer)?)?);
            *last = self.texts.len();
            self.texts.push(ending);
        }
        Some(())
    }

    /// The entries of the archive.
    pub(super) fn entries(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
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
        let moved_before = serde_json::to_string(&self.moved_before).unwrap_or_default();
        let beside = format!(
            r#"{{"version":1,"dies_after":[{}],"tied":{},"moved_before":{moved_before}}}"#,
            section("dies_after")?,
            self.tied
        );
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
    pub(super) fn parameters(&self, name: &str) -> Result<u64> {
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
    fn a_network_may_end_in_a_layer_of_another_kind() {
        let text = r#"{"layers": [4], "positions": 8, "class": "", "library": "", "tied": [], "range_constraints": {}, "guards_code": [],
            "schema_version": {}, "torch_version": "", "texts": ["\"a%0@\"", "\"b%0@\"", "\"end of %0$.y\"", "[\"%0-.y\"]", "[\"%0-.x\"]", "[\"%0-.x\"],[\"%0@.y\"]"],
            "sections": {"nodes": [{"stack": 0, "plan": [0, 1, 0, 1], "last": null}, 2],
                "dies_after": [{"stack": 0, "plan": [3, 4, 3, 4], "last": 5}]}}"#;
        let written = |layers| {
            let folded = serde_json::from_str::<Folded>(text).unwrap().with_layers("n", layers).unwrap();
            (folded.written("n", "nodes").unwrap(), folded.written("n", "dies_after").unwrap())
        };
        let two = r#""a0","b1","end of 1.y""#;
        assert_eq!(written(2), (two.into(), r#"["0.y"],["0.x"],["1.y"]"#.into()));
        let three = r#""a0","b1","a2","end of 2.x""#;
        assert_eq!(written(3), (three.into(), r#"["0.y"],["0.x"],["1.y"],["2.x"]"#.into()));
    }
}
