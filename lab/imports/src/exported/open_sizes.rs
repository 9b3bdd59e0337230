//! Sizes that a graph leaves open: what they are in a run follows from its inputs.

use std::collections::{BTreeMap, HashMap};

use super::schema::{Graph, Size, TensorMeta};
use super::symbols::Expression;
use super::value::Value;

/// The open sizes of a graph's results, each once.
#[derive(Default)]
pub(super) struct OpenSizes {
    /// Inputs that have a symbol as a size: slot, dimension, symbol.
    given: Vec<(usize, usize, String)>,
    sizes: Vec<Expression>,
    /// Numbers of the sizes, by their text; `None` for one that does not follow from the inputs.
    known: HashMap<String, Option<usize>>,
}

/// An open size of a result: its dimension, and its number among the graph's open sizes.
pub(super) type OpenDim = (usize, usize);

impl OpenSizes {
    /// Reads the symbols of a graph's inputs, which are in these slots under these names.
    pub(super) fn read<'a>(graph: &Graph, inputs: impl Iterator<Item = (usize, &'a str)>) -> Self {
        let mut given = Vec::new();
        for (slot, name) in inputs {
            let sizes = graph.tensor_values.get(name).map_or(&[][..], |meta| &meta.sizes);
            for (dimension, size) in sizes.iter().enumerate() {
                if let (Size::AsExpr(_), Some(Expression::Symbol(symbol))) = (size, Expression::from_size(size)) {
                    given.push((slot, dimension, symbol));
                }
            }
        }
        Self { given, ..Self::default() }
    }

    /// The open sizes of a result that follow from the inputs.
    pub(super) fn of_result(&mut self, meta: &TensorMeta) -> Vec<OpenDim> {
        if self.given.is_empty() {
            return Vec::new();
        }
        let dims = meta.sizes.iter().enumerate();
        dims.filter_map(|(dimension, size)| Some((dimension, self.number(size)?))).collect()
    }

    fn number(&mut self, size: &Size) -> Option<usize> {
        let Size::AsExpr(text) = size else { return None };
        if let Some(known) = self.known.get(&text.expr_str) {
            return *known;
        }
        let follows = |symbol: &str| self.given.iter().any(|(.., given)| given == symbol);
        let size = Expression::from_size(size).filter(|size| size.symbols().into_iter().all(follows));
        let number = size.map(|size| {
            self.sizes.push(size);
            self.sizes.len() - 1
        });
        self.known.insert(text.expr_str.clone(), number);
        number
    }

    /// The open sizes by number, in a run with these values in its slots. A size is `None` if an input that it follows from is elsewhere.
    pub(super) fn values(&self, values: &[Value]) -> Vec<Option<usize>> {
        let mut symbols = BTreeMap::new();
        for (slot, dimension, symbol) in &self.given {
            if let Some(Value::Tensor(input)) = values.get(*slot)
                && let Some(size) = input.dims().get(*dimension)
            {
                symbols.entry(symbol.clone()).or_insert(*size as i64);
            }
        }
        self.sizes.iter().map(|size| usize::try_from(size.value(&symbols)?).ok()).collect()
    }
}
