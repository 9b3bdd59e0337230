//! Sizes of a network's inputs: numbers, or expressions of symbols in sympy's notation (`Mul(Integer(2), Symbol('s77', …))`).

use std::collections::BTreeMap;

use super::schema::Size;

/// A size as an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Number(i64),
    Symbol(String),
    Sum(Vec<Expression>),
    Product(Vec<Expression>),
}

/// Maximum depth of nested expressions.
const MAX_DEPTH: usize = 32;

impl Expression {
    /// Reads a size; `None` if it is not built of numbers, symbols, sums and products alone.
    pub(super) fn of(size: &Size) -> Option<Self> {
        match size {
            Size::AsInt(value) => Some(Self::Number(*value)),
            Size::AsExpr(expression) => {
                let mut reader = Reader { rest: expression.expr_str.trim() };
                let read = reader.expression(MAX_DEPTH)?;
                reader.rest.is_empty().then_some(read)
            }
        }
    }

    /// Computes the size for these values of the symbols; `None` if a symbol has no value, or if the result exceeds 64 bits.
    pub(super) fn value(&self, symbols: &BTreeMap<String, i64>) -> Option<i64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Symbol(name) => symbols.get(name).copied(),
            Self::Sum(parts) => parts.iter().try_fold(0i64, |sum, part| sum.checked_add(part.value(symbols)?)),
            Self::Product(parts) => parts.iter().try_fold(1i64, |all, part| all.checked_mul(part.value(symbols)?)),
        }
    }

    /// Returns the symbols of the expression, each as often as it occurs.
    pub(super) fn symbols(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Symbol(name) => vec![name],
            Self::Sum(parts) | Self::Product(parts) => parts.iter().flat_map(Self::symbols).collect(),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn expression(&mut self, depth: usize) -> Option<Expression> {
        let depth = depth.checked_sub(1)?;
        let name = self.word();
        if !self.takes('(') {
            // A number, or a symbol's name alone, as other printers write it.
            return match name.parse() {
                Ok(value) => Some(Expression::Number(value)),
                Err(_) if name.is_empty() => None,
                Err(_) => Some(Expression::Symbol(name)),
            };
        }
        match name.as_str() {
            "Integer" => {
                let value = self.word().parse().ok()?;
                self.takes(')').then_some(Expression::Number(value))
            }
            "Symbol" => self.symbol(),
            "Add" => self.parts(depth).map(Expression::Sum),
            "Mul" => self.parts(depth).map(Expression::Product),
            _ => None,
        }
    }

    /// Reads the rest of a symbol: `'s77', positive=True, integer=True)`.
    fn symbol(&mut self) -> Option<Expression> {
        let quoted = self.rest.strip_prefix(['\'', '"'])?;
        let (name, rest) = quoted.split_once(['\'', '"'])?;
        let (_, rest) = rest.split_once(')')?;
        self.rest = rest.trim_start();
        Some(Expression::Symbol(name.to_string()))
    }

    fn parts(&mut self, depth: usize) -> Option<Vec<Expression>> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.expression(depth)?);
            if self.takes(')') {
                return Some(parts);
            }
            if !self.takes(',') {
                return None;
            }
        }
    }

    fn word(&mut self) -> String {
        let end =
            self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word.to_string()
    }

    fn takes(&mut self, sign: char) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exported::schema;

    fn read(text: &str) -> Option<Expression> {
        let expression = schema::Expression { expr_str: text.into(), hint: None };
        Expression::of(&Size::AsExpr(expression))
    }

    #[test]
    fn symbols_sums_and_products_are_read_and_nothing_else() {
        let symbols = BTreeMap::from([("s77".to_string(), 4), ("s1".to_string(), 10)]);
        let value = |text: &str| read(text).and_then(|expression| expression.value(&symbols));
        assert_eq!(value("Symbol('s77', positive=True, integer=True)"), Some(4));
        assert_eq!(value("Mul(Integer(2), Symbol('s77', positive=True, integer=True))"), Some(8));
        assert_eq!(value("Add(Symbol('s1', integer=True), Mul(Integer(-3), Symbol('s77')))"), Some(-2));
        assert_eq!(value("s77"), Some(4));
        assert_eq!(value("Symbol('other')"), None);
        assert_eq!(value(&format!("Mul(Integer({}), Integer(2))", i64::MAX)), None);
        for text in [
            "",
            "Pow(Symbol('s1'), Integer(2))",
            "Symbol('s1'",
            "Symbol(s1)",
            "Mul()",
            "Integer(1) x",
            "Add(Integer(1);Integer(2))",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"Add(".repeat(100_000)), None);
    }
}
