//! Sizes of the inputs of a graph: the batch, the tokens of an example, and the conditions under which the graph holds.

use std::collections::BTreeMap;

use lab_base::error::{Error, Result};
use memcore::{DType, Device, Tensor};

use super::guards::Guard;
use super::inputs::{Division, Input, filled};
use super::schema::Range;
use super::signature::OutputTensor;
use super::symbols::Expression;

/// Sizes of the inputs, by the symbols of the export.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Symbol of the batch; `None` if the export fixes the batch.
    symbol: Option<String>,
    /// The input that fixes the batch though other inputs leave it open.
    fixed_by: Option<String>,
    /// Batch of the example that was exported.
    pub example: usize,
    /// Smallest and largest batch that the export allows.
    pub allowed: (usize, usize),
    /// Tokens of an example; `None` if no input has a number for each token.
    length: Option<Length>,
    /// Symbols other than these two, with their values in the example.
    others: BTreeMap<String, i64>,
    /// Symbols that stand for the same size as another, which takes their place in the inputs.
    same: Vec<(String, String)>,
    /// Conditions under which the graph holds.
    guards: Vec<Guard>,
    /// Conditions that were not understood.
    unread: Vec<String>,
    /// True if the file is one recorded call: a new export would not leave these sizes open either.
    pub(super) is_recorded: bool,
}

/// Tokens of an example.
#[derive(Clone, Debug)]
struct Length {
    /// The symbol; `None` if the export fixes the number.
    symbol: Option<String>,
    example: usize,
    allowed: (usize, usize),
    /// Those of the run.
    tokens: usize,
}

impl Sizes {
    /// The sizes of inputs, with their symbols' values in the example. Symbols that stand for the same size become one. `guards` are conditions as the file has them.
    pub(super) fn read(
        inputs: &mut [Input],
        mut hints: BTreeMap<String, i64>,
        ranges: &BTreeMap<String, Range>,
        guards: &[String],
    ) -> Self {
        let first = |input: &Input| input.sizes.first().cloned();
        let batch = inputs.iter().filter_map(first).find(|size| matches!(size, Expression::Symbol(_)));
        let batch =
            batch.or_else(|| inputs.iter().filter_map(first).find(|size| matches!(size, Expression::Number(_))));
        let mut same = Vec::new();
        let (symbol, example, allowed) = match &batch {
            Some(size) => open(inputs, size, 0, &|_| true, &mut hints, &mut same, ranges),
            None => (None, 1, (1, usize::MAX)),
        };
        // Code that takes the examples of an input apart fixes their number, and may leave open that of another input.
        let fixed_by = symbol.as_ref().and_then(|_| fixes(inputs, example));
        let symbol = match (symbol, &fixed_by) {
            (Some(open), Some(_)) => {
                hints.insert(open, example as i64);
                None
            }
            (symbol, _) => symbol,
        };
        let has_tokens = |input: &Input| input.has_tokens();
        let tokens = inputs.iter().filter(|input| input.has_tokens()).map(|input| input.sizes[1].clone());
        let is_length = |size: &Expression| match size {
            Expression::Symbol(name) => Some(name) != symbol.as_ref(),
            Expression::Number(_) => true,
            Expression::Call(..) => false,
        };
        let length = tokens.into_iter().find(is_length);
        let length = length.map(|size| {
            let (symbol, example, allowed) = open(inputs, &size, 1, &has_tokens, &mut hints, &mut same, ranges);
            Length { symbol, example, allowed, tokens: example }
        });
        let mut sizes = Self {
            symbol,
            fixed_by,
            example,
            allowed,
            length,
            others: hints,
            same,
            guards: Vec::new(),
            unread: Vec::new(),
            is_recorded: false,
        };
        sizes.take(guards, inputs);
        sizes
    }

    /// Takes the conditions of a graph. One that the example does not meet is not understood.
    fn take(&mut self, guards: &[String], inputs: &[Input]) {
        let size_of = |name: &str, dimension: usize| {
            inputs.iter().find(|input| input.name == name)?.sizes.get(dimension).cloned()
        };
        let example = self.symbols(self.example);
        for text in guards {
            match Guard::parse(text, &size_of).filter(|guard| guard.holds(&example)) {
                Some(guard) => self.guards.push(guard),
                None => self.unread.push(text.clone()),
            }
        }
    }

    /// The same sizes with so many tokens.
    ///
    /// # Errors
    /// [`Error::Usage`] if the export fixes the number, or does not allow this one.
    pub(super) fn of_length(&self, tokens: usize) -> Result<Self> {
        let error = |problem: String| Err(Error::usage("sequence", problem));
        let Some(length) = &self.length else {
            return error("no input of the export has a number for each token, [batch, tokens]".into());
        };
        let (least, most) = length.allowed;
        if length.symbol.is_none() && tokens != length.example {
            let what = format!("{tokens}: the export fixes the length to that of its example, {}", length.example);
            return error(format!("{what}; vramlab.export leaves it open where the network's code does"));
        }
        if tokens < least || tokens > most {
            return error(format!("{tokens}: {}; {ANEW}", bounds(least, most)));
        }
        Ok(Self { length: Some(Length { tokens, ..length.clone() }), ..self.clone() })
    }

    /// Symbol of the batch; `None` if the file fixes it to a number.
    pub(super) fn batch_symbol(&self) -> Option<&str> {
        self.symbol.as_deref()
    }

    /// True if the file fixes the batch to a number.
    pub fn is_fixed(&self) -> bool {
        self.symbol.is_none()
    }

    /// Largest number of tokens that the export allows; `None` if it fixes the number.
    pub fn longest(&self) -> Option<usize> {
        self.length.as_ref().filter(|length| length.symbol.is_some()).map(|length| length.allowed.1)
    }

    /// Symbols other than the batch and the tokens, with their values.
    pub fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.others.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Conditions of the file that were not understood, and are not checked.
    pub(super) fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Refuses a batch that the export does not allow.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the batch and the allowed ones, or a condition of the graph that the sizes do not meet.
    pub fn check(&self, batch: usize) -> Result<()> {
        let (least, most) = self.allowed;
        if self.is_recorded && batch != self.example {
            let problem = format!(
                "the file is one call, recorded with a batch of {}, because torch.export cannot follow the code of the network; record it with \
                 an example of this batch",
                self.example
            );
            return Err(Error::usage("batch", problem));
        }
        if let Some(name) = self.fixed_by.as_ref().filter(|_| batch != self.example) {
            let problem = format!(
                "{batch}: the network's code takes the {} examples of {name} apart, so the file holds for that batch alone; {ANEW}",
                self.example
            );
            return Err(Error::usage("batch", problem));
        }
        if self.is_fixed() && batch != self.example {
            let problem = format!(
                "the file was exported for a batch of {}; dynamic_shapes=({{0: torch.export.Dim(\"batch\")}},) leaves it open",
                self.example
            );
            return Err(Error::usage("batch", problem));
        }
        if batch < least || batch > most {
            return Err(Error::usage(
                "batch",
                format!("{batch}: the file was exported for batches from {least} to {most}"),
            ));
        }
        let symbols = self.symbols(batch);
        match self.guards.iter().find(|guard| !guard.holds(&symbols)) {
            Some(guard) => {
                let (field, value) = match &self.length {
                    Some(length) if length.tokens != length.example => ("sequence", length.tokens),
                    _ => ("batch", batch),
                };
                Err(Error::usage(field, format!("{value}: the graph holds only where {}; {ANEW}", guard.text)))
            }
            None => Ok(()),
        }
    }

    /// Returns the values of all symbols for a batch.
    pub(super) fn symbols(&self, batch: usize) -> BTreeMap<String, i64> {
        let mut all = self.others.clone();
        all.extend(self.symbol.clone().map(|symbol| (symbol, batch as i64)));
        if let Some(Length { symbol: Some(symbol), tokens, .. }) = &self.length {
            all.insert(symbol.clone(), *tokens as i64);
        }
        let same = self.same.iter().filter_map(|(other, symbol)| Some((other.clone(), *all.get(symbol)?)));
        let same: Vec<(String, i64)> = same.collect();
        all.extend(same);
        all
    }

    /// The outputs with the sizes that follow from the tokens, beside those that the file gives as numbers.
    pub(super) fn known_outputs(&self, outputs: &[OutputTensor]) -> Vec<OutputTensor> {
        let mut symbols = self.symbols(self.example);
        let of_batch = |name: &String| {
            self.same.iter().any(|(other, symbol)| other == name && Some(symbol) == self.symbol.as_ref())
        };
        symbols.retain(|name, _| Some(name) != self.symbol.as_ref() && !of_batch(name));
        let mut known = outputs.to_vec();
        for OutputTensor { sizes, expected, .. } in &mut known {
            for (dim, size) in expected.iter_mut().flat_map(|expected| &mut expected.dims).zip(sizes) {
                let value = size.as_ref().and_then(|size| usize::try_from(size.value(&symbols)?).ok());
                *dim = dim.or(value);
            }
        }
        known
    }
}

impl Input {
    /// Returns the sizes for a batch; `None` if the input's bytes exceed 63 bits.
    pub fn dims(&self, sizes: &Sizes, batch: usize) -> Option<Vec<usize>> {
        let symbols = sizes.symbols(batch);
        let dims = self.sizes.iter().map(|size| usize::try_from(size.value(&symbols)?).ok());
        let dims: Vec<usize> = dims.collect::<Option<_>>()?;
        let bytes = dims.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d as u64));
        bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).map(|_| dims)
    }

    /// Returns the sizes of a batch that so many calls of the network share, along the first dimension; `None` if its bytes exceed 63 bits.
    pub(super) fn shared_dims(&self, sizes: &Sizes, batch: usize, calls: usize) -> Option<Vec<usize>> {
        let mut dims = self.dims(sizes, batch / calls.max(1))?;
        if let Some(first) = dims.first_mut().filter(|_| calls > 1 && self.division(sizes) == Division::Examples) {
            *first = first.checked_mul(calls)?;
        }
        let bytes = dims.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d as u64));
        bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).map(|_| dims)
    }

    /// How the input is divided into micro-batches.
    pub(super) fn division(&self, sizes: &Sizes) -> Division {
        let holds_batch = |size: &Expression| match sizes.batch_symbol() {
            Some(symbol) => size.symbols().contains(&symbol),
            None => *size == Expression::Number(sizes.example as i64),
        };
        let Some((first, rest)) = self.sizes.split_first() else { return Division::Whole };
        let is_batch = match (sizes.batch_symbol(), first) {
            (Some(symbol), Expression::Symbol(name)) => name == symbol,
            _ => sizes.is_fixed() && holds_batch(first),
        };
        match (is_batch, sizes.is_fixed()) {
            (true, true) => Division::Examples,
            (true, false) if !rest.iter().any(holds_batch) => Division::Examples,
            (false, false) if !holds_batch(first) && !rest.iter().any(holds_batch) => Division::Whole,
            _ => Division::Unknown,
        }
    }

    /// Makes the input on a device, with this element type; `seed` determines its values.
    ///
    /// # Errors
    /// Sizes beyond 63 bits; those of the device.
    pub fn made(&self, device: &Device, sizes: &Sizes, batch: usize, dtype: DType, seed: u64) -> Result<Tensor> {
        let dims = self.dims(sizes, batch).ok_or_else(|| Error::usage("batch", format!("{batch}: beyond 64 bits")))?;
        Ok(filled(device, &dims, dtype, self.content, seed)?)
    }
}

/// Returns the name of an input whose first size is the example's batch, as a number.
fn fixes(inputs: &[Input], example: usize) -> Option<String> {
    let number = Expression::Number(example as i64);
    let fixed = inputs.iter().filter(|_| example > 1).find(|input| input.sizes.first() == Some(&number));
    fixed.map(|input| input.name.clone())
}

/// What to do where a graph does not hold.
const ANEW: &str = "export the network with an example of these sizes";

fn bounds(least: usize, most: usize) -> String {
    match most {
        usize::MAX => format!("the graph holds from {least} tokens on"),
        _ => format!("the graph holds from {least} to {most} tokens"),
    }
}

/// An open or fixed size: its symbol, its value in the example, and the values for which the graph holds. Other symbols that `inputs` have at this
/// dimension, with the same value in the example, become this one.
fn open(
    inputs: &mut [Input],
    size: &Expression,
    dimension: usize,
    is_meant: &dyn Fn(&Input) -> bool,
    hints: &mut BTreeMap<String, i64>,
    same: &mut Vec<(String, String)>,
    ranges: &BTreeMap<String, Range>,
) -> (Option<String>, usize, (usize, usize)) {
    let symbol = match size {
        Expression::Symbol(symbol) => symbol,
        Expression::Number(value) => return (None, usize::try_from(*value).unwrap_or(1).max(1), (1, usize::MAX)),
        Expression::Call(..) => return (None, 1, (1, usize::MAX)),
    };
    let value = hints.remove(symbol).unwrap_or(1);
    let of_input = |input: &Input| match input.sizes.get(dimension) {
        Some(Expression::Symbol(other)) if hints.get(other) == Some(&value) => Some(other.clone()),
        _ => None,
    };
    let others: Vec<String> = inputs.iter().filter(|input| is_meant(input)).filter_map(of_input).collect();
    let mut allowed = (1, usize::MAX);
    for name in others.iter().chain([symbol]) {
        let range = ranges.get(name);
        let bound = |value: Option<i64>, otherwise: usize| value.map_or(otherwise, |value| value.max(1) as usize);
        allowed.0 = allowed.0.max(bound(range.and_then(|range| range.min_val), 1));
        allowed.1 = allowed.1.min(bound(range.and_then(|range| range.max_val), usize::MAX));
    }
    for other in &others {
        hints.remove(other);
        same.push((other.clone(), symbol.clone()));
        inputs.iter_mut().flat_map(|input| &mut input.sizes).for_each(|size| size.rename(other, symbol));
    }
    (Some(symbol.clone()), usize::try_from(value).unwrap_or(1).max(1), allowed)
}
