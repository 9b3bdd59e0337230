//! Parts of a network (`vramlab-network-1`): modules, their parameters and results, and the bytes that each saves for backward.

mod module;
mod tree;

use std::collections::BTreeMap;

use lab_base::figures::{counted, grouped, short};
use lab_base::section::{Bars, Cell, Section, Table};
use serde::{Deserialize, Serialize};

pub use self::module::{ModuleResult, OperatorResult};
use self::tree::{Shown, Tree};
use super::findings::{Findings, Settings, again};
use super::premise::{self, Premise};

/// Rows of the tree in a short answer.
const ROWS: usize = 9;

/// Operators in a short answer.
const OPERATORS: usize = 3;

/// A network, and what one forward pass leaves for the backward pass. Bytes are those of blocks, as PyTorch's allocator hands them out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkResult {
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// The network.
    pub model: String,
    /// One line about it.
    pub description: String,
    /// Premises of the answer.
    pub premises: Vec<Premise>,
    /// Number of trained values; shared ones count once.
    pub parameters: u64,
    /// Bytes of all parameters, frozen ones too.
    pub parameter_bytes: u64,
    /// Bytes of tensors of modules that are not parameters.
    pub buffer_bytes: u64,
    /// Bytes of the batch.
    pub input_bytes: u64,
    /// Bytes that forward and loss saved for backward, without parameters, buffers and the batch. A tensor that several operators save counts once.
    pub saved_bytes: u64,
    /// Every module in the order in which they run, each before those inside it. The first, with an empty path, is the network.
    pub modules: Vec<ModuleResult>,
    /// The pieces of an exported network, by the numbers that `--cut` takes; null for other networks.
    #[serde(default)]
    pub pieces: Option<String>,
    /// Decisions made for the run, and keys of the file that are not understood.
    pub notes: Vec<String>,
}

impl NetworkResult {
    /// Every operator, over all modules, the one that saves most first.
    fn operators(&self) -> Vec<(&str, u64, u64)> {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for operator in self.modules.iter().flat_map(|module| &module.operators) {
            let (times, bytes) = sums.entry(&operator.name).or_default();
            (*times, *bytes) = (*times + operator.times, *bytes + operator.saved_bytes);
        }
        let mut all: Vec<_> = sums.into_iter().map(|(name, (times, bytes))| (name, times, bytes)).collect();
        all.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        all
    }

    fn operator_rows(&self, most: usize) -> Vec<Vec<Cell>> {
        let share = |bytes: u64| Cell::percent(bytes as f64 / self.saved_bytes.max(1) as f64);
        let row = |(name, times, bytes): (&str, u64, u64)| {
            vec![Cell::Text(name.into()), Cell::Count(times), Cell::Bytes(bytes), share(bytes)]
        };
        self.operators().into_iter().take(most).map(row).collect()
    }

    /// Returns the tree, with at most this many rows.
    fn tree(&self, rows: usize) -> Table {
        let row = |shown: Shown<'_>| {
            let output = shown.output.map_or_else(|| "–".into(), by);
            let figures = [shown.parameter_bytes, shown.saved_bytes];
            let bytes = |bytes| if bytes == 0 { Cell::Text("–".into()) } else { Cell::Bytes(bytes) };
            [Cell::Text(shown.name), Cell::Text(output)].into_iter().chain(figures.map(bytes)).collect()
        };
        let rows = Tree::from_modules(&self.modules).rows(rows).into_iter().map(row).collect();
        Table::new("", &["module", "gives", "parameters", "saved"], rows)
    }

    /// Operators, module by module.
    fn each(&self) -> Table {
        let rows = self.modules.iter().flat_map(|module| {
            module.operators.iter().map(move |operator| {
                let name = if module.path.is_empty() { tree::OUTSIDE } else { &module.path };
                let line = operator.line.clone().unwrap_or_default();
                let text = [name, &operator.name, &line].map(|text| Cell::Text(text.into()));
                text.into_iter().chain([Cell::Count(operator.times), Cell::Bytes(operator.saved_bytes)]).collect()
            })
        });
        Table::new("Operators of each module", &["module", "operator", "line", "times", "saved"], rows.collect())
    }

    fn bars(&self) -> Bars {
        let of = |shown: Shown<'_>| (shown.name, Cell::Bytes(shown.saved_bytes));
        let rows = Tree::from_modules(&self.modules).leaves(ROWS).into_iter().map(of).collect();
        Bars { title: "Saved for backward, from the first module to the last".into(), rows }
    }
}

/// `8 × 64 × 32`
fn by(dims: &[usize]) -> String {
    if dims.is_empty() {
        return "a scalar".into();
    }
    dims.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ")
}

impl Findings for NetworkResult {
    const SCHEMA: &'static str = "vramlab-network-1";

    fn title(&self) -> String {
        let saved = short(self.saved_bytes);
        let values = grouped(self.parameters, ' ');
        let what = premise::what(&self.model, &self.premises, &self.settings);
        format!("{what}: {saved} saved for backward, {values} trained values ({})", short(self.parameter_bytes))
    }

    fn sections(&self) -> Vec<Section> {
        let columns = ["operator", "times", "saved", "share"];
        let all = self.operators().len();
        let reading = format!(
            "Saved: kept for backward, besides parameters and the batch ({}). A tensor counts once, where it is saved first. All {}: --full.",
            short(self.input_bytes),
            counted(all as u64, "operator")
        );
        let mut sections: Vec<Section> = self.notes.iter().cloned().map(Section::Warning).collect();
        sections.extend([
            Section::Note(self.description.clone()),
            Section::List(self.tree(ROWS)),
            Section::List(Table::new("Operators that save most", &columns, self.operator_rows(OPERATORS))),
            Section::Note(reading),
            Section::Details {
                title: "Every module and operator".into(),
                sections: [Section::Note(premise::line(&self.premises))]
                    .into_iter()
                    .chain(self.pieces.as_ref().map(|all| Section::Note(format!("Pieces (--devices, --cut): {all}."))))
                    .chain([
                        Section::Table(self.tree(usize::MAX)),
                        Section::Table(Table::new("Operators", &columns, self.operator_rows(usize::MAX))),
                        Section::Table(self.each()),
                    ])
                    .collect(),
            },
            Section::Rest(vec![Section::Bars(self.bars())]),
            again(&["show"], &self.settings),
        ]);
        sections
    }

    fn table(&self) -> Option<Table> {
        let row = |module: &ModuleResult| {
            let text = [module.path.clone(), module.output.as_deref().map(by).unwrap_or_default()].map(Cell::Text);
            let bytes = [module.parameter_bytes, module.buffer_bytes, module.saved_bytes].map(Cell::Bytes);
            text.into_iter().chain(bytes).collect()
        };
        let columns = ["module", "gives", "parameters", "buffers", "saved"];
        Some(Table::new("Modules", &columns, self.modules.iter().map(row).collect()))
    }
}
