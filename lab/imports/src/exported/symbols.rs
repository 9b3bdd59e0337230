//! Sizes of a network's inputs: numbers, or expressions of symbols in sympy's notation (`Mul(Integer(2), Symbol('s77', …))`).

use std::collections::BTreeMap;

use super::schema::Size;

/// A size as an expression, or a condition on sizes, whose value is 1 where it holds and 0 where it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Number(i64),
    Symbol(String),
    Call(Function, Vec<Expression>),
}

/// A function of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sum,
    Difference,
    Product,
    Power,
    /// Rounded down, as Python's `//`.
    Quotient,
    Remainder,
    Least,
    Greatest,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    And,
    Or,
    Not,
}

/// Maximum depth of nested expressions.
pub(super) const MAX_DEPTH: usize = 32;

impl Function {
    /// The function of this name in sympy's notation.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Add" => Self::Sum,
            "Mul" => Self::Product,
            "Pow" | "PowByNatural" => Self::Power,
            "FloorDiv" | "CleanDiv" => Self::Quotient,
            "Mod" | "PythonMod" => Self::Remainder,
            "Min" | "min" => Self::Least,
            "Max" | "max" => Self::Greatest,
            _ => return None,
        })
    }

    /// Computes the function of two numbers; `None` beyond 64 bits, and for a division by 0.
    fn both(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            Self::Sum => a.checked_add(b)?,
            Self::Difference => a.checked_sub(b)?,
            Self::Product => a.checked_mul(b)?,
            Self::Power => a.checked_pow(u32::try_from(b).ok()?)?,
            Self::Quotient => floor_div(a, b)?,
            Self::Remainder => a.checked_sub(b.checked_mul(floor_div(a, b)?)?)?,
            Self::Least => a.min(b),
            Self::Greatest => a.max(b),
            Self::Equal => (a == b).into(),
            Self::Unequal => (a != b).into(),
            Self::Less => (a < b).into(),
            Self::LessOrEqual => (a <= b).into(),
            Self::And => (a != 0 && b != 0).into(),
            Self::Or => (a != 0 || b != 0).into(),
            Self::Not => return None,
        })
    }
}

/// Divides and rounds down, as Python's `//` does; `None` for a division by 0 or an overflow.
pub(super) fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl Expression {
    /// Reads a size; `None` if it is not built of numbers, symbols and known functions alone.
    pub(super) fn from_size(size: &Size) -> Option<Self> {
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
            Self::Call(Function::Not, parts) => Some((parts.first()?.value(symbols)? == 0).into()),
            Self::Call(function, parts) => {
                let (first, rest) = parts.split_first()?;
                rest.iter().try_fold(first.value(symbols)?, |a, b| function.both(a, b.value(symbols)?))
            }
        }
    }

    /// Returns the symbols of the expression, each as often as it occurs.
    pub(super) fn symbols(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Symbol(name) => vec![name],
            Self::Call(_, parts) => parts.iter().flat_map(Self::symbols).collect(),
        }
    }

    /// Gives a symbol another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        match self {
            Self::Symbol(name) if name == from => *name = to.into(),
            Self::Call(_, parts) => parts.iter_mut().for_each(|part| part.rename(from, to)),
            _ => {}
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
            other => {
                let function = Function::named(other)?;
                self.parts(depth).map(|parts| Expression::Call(function, parts))
            }
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
        Expression::from_size(&Size::AsExpr(expression))
    }

    #[test]
    fn symbols_and_known_functions_are_read_and_nothing_else() {
        let symbols = BTreeMap::from([("s77".to_string(), 4), ("s1".to_string(), 10)]);
        let value = |text: &str| read(text).and_then(|expression| expression.value(&symbols));
        assert_eq!(value("Symbol('s77', positive=True, integer=True)"), Some(4));
        assert_eq!(value("Mul(Integer(2), Symbol('s77', positive=True, integer=True))"), Some(8));
        assert_eq!(value("Add(Symbol('s1', integer=True), Mul(Integer(-3), Symbol('s77')))"), Some(-2));
        assert_eq!(value("s77"), Some(4));
        assert_eq!(value("FloorDiv(Add(Symbol('s1'), Integer(1)), Integer(2))"), Some(5));
        assert_eq!(value("FloorDiv(Integer(-3), Integer(2))"), Some(-2));
        assert_eq!(value("Pow(Symbol('s1'), Integer(2))"), Some(100));
        assert_eq!(value("Max(Integer(1), Min(Symbol('s1'), Symbol('s77')))"), Some(4));
        assert_eq!(value("Mod(Symbol('s1'), Symbol('s77'))"), Some(2));
        for text in
            ["Pow(Integer(2), Integer(-1))", "Pow(Integer(10), Integer(99))", "FloorDiv(Integer(1), Integer(0))"]
        {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value("Symbol('other')"), None);
        assert_eq!(value(&format!("Mul(Integer({}), Integer(2))", i64::MAX)), None);
        for text in
            ["", "Rational(1, 2)", "Symbol('s1'", "Symbol(s1)", "Mul()", "Integer(1) x", "Add(Integer(1);Integer(2))"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"Add(".repeat(100_000)), None);
    }
}
