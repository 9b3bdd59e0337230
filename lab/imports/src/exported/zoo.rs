//! Networks that this program has as recorded graphs: `scripts/zoo/record.py` writes one file for each, and their list.

use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::files;

use super::archive::Archive;
use super::folded::Folded;

include!("../../zoo/list.rs");

/// Largest file of a folded graph.
const MOST_PACKED: u64 = 16 << 20;

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
    let folded = folded(name)?;
    let folded = match layers {
        Some(layers) => folded.with_layers(name, layers)?,
        None => folded,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

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
