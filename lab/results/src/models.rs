//! The networks that have a name (`vramlab-models-1`).

use lab_base::figures::counted;
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};

use super::findings::Findings;

/// Every network that is known by name, and the types of `config.json` that can be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelsResult {
    /// Networks, in the order in which they are listed.
    pub models: Vec<ListedModel>,
    /// Values of `model_type` in a `config.json` of transformers that are supported.
    pub model_types: Vec<String>,
}

/// A network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedModel {
    /// Its name.
    pub name: String,
    /// Its layers and sizes, in its usual form.
    pub description: String,
}

impl Findings for ModelsResult {
    const SCHEMA: &'static str = "vramlab-models-1";

    fn title(&self) -> String {
        format!("{}: vramlab predict NAME", counted(self.models.len() as u64, "built-in network"))
    }

    fn sections(&self) -> Vec<Section> {
        let types = format!(
            "vramlab predict config.json reads these model types of transformers: {}.",
            self.model_types.join(", ")
        );
        let own = "A network of your own: vramlab predict train.py (a script), model.pt2 (torch.export), or net.toml.";
        let table = self.table().into_iter().map(Section::List);
        table.chain([types, own.into()].map(Section::Note)).collect()
    }

    fn table(&self) -> Option<Table> {
        let row = |one: &ListedModel| [one.name.clone(), one.description.clone()].map(Cell::Text).to_vec();
        Some(Table::new("", &["network", "description"], self.models.iter().map(row).collect()))
    }
}
