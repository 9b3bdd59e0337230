//! Conditions on the sizes of the inputs under which a graph holds, as `torch.export` writes them: expressions of Python such as
//! `L['input_ids'].size()[1] < 128`.

use std::collections::BTreeMap;

use super::symbols::{Expression, Function, MAX_DEPTH};

/// A condition, as it is written and as an expression.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub text: String,
    pub condition: Expression,
}

/// Function that returns the size of an input, by the input's name and the dimension.
type SizeOf<'a> = dyn Fn(&str, usize) -> Option<Expression> + 'a;

impl Guard {
    /// Reads a condition; `None` if it is not built of sizes of inputs, numbers and known functions alone.
    pub(super) fn parse(text: &str, size_of: &SizeOf<'_>) -> Option<Self> {
        let mut reader = Reader { rest: text.trim(), size_of };
        let condition = reader.any(MAX_DEPTH)?;
        reader.rest.is_empty().then(|| Self { text: text.into(), condition })
    }

    /// True if it holds for these values of the symbols.
    pub(super) fn holds(&self, symbols: &BTreeMap<String, i64>) -> bool {
        self.condition.value(symbols).is_some_and(|value| value != 0)
    }
}

struct Reader<'a> {
    rest: &'a str,
    size_of: &'a SizeOf<'a>,
}

/// Signs of comparisons, the longer ones first, each with its function and whether the sides are exchanged.
const COMPARISONS: [(&str, Function, bool); 6] = [
    ("==", Function::Equal, false),
    ("!=", Function::Unequal, false),
    ("<=", Function::LessOrEqual, false),
    (">=", Function::LessOrEqual, true),
    ("<", Function::Less, false),
    (">", Function::Less, true),
];

impl<'a> Reader<'a> {
    fn any(&mut self, depth: usize) -> Option<Expression> {
        let depth = depth.checked_sub(1)?;
        let mut left = self.all(depth)?;
        while self.takes_word("or") {
            left = Expression::Call(Function::Or, vec![left, self.all(depth)?]);
        }
        Some(left)
    }

    fn all(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.not(depth)?;
        while self.takes_word("and") {
            left = Expression::Call(Function::And, vec![left, self.not(depth)?]);
        }
        Some(left)
    }

    fn not(&mut self, depth: usize) -> Option<Expression> {
        let depth = depth.checked_sub(1)?;
        if self.takes_word("not") {
            return Some(Expression::Call(Function::Not, vec![self.not(depth)?]));
        }
        self.comparison(depth)
    }

    /// `a < b`, or `a <= b < c`, which is both.
    fn comparison(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.sum(depth)?;
        let mut whole: Option<Expression> = None;
        while let Some((_, function, exchanged)) = COMPARISONS.into_iter().find(|(sign, ..)| self.takes(sign)) {
            let right = self.sum(depth)?;
            let sides = if exchanged { vec![right.clone(), left] } else { vec![left, right.clone()] };
            let one = Expression::Call(function, sides);
            whole = Some(match whole {
                Some(before) => Expression::Call(Function::And, vec![before, one]),
                None => one,
            });
            left = right;
        }
        Some(whole.unwrap_or(left))
    }

    fn sum(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.product(depth)?;
        loop {
            let function = match () {
                () if self.takes("+") => Function::Sum,
                () if self.takes("-") => Function::Difference,
                () => return Some(left),
            };
            left = Expression::Call(function, vec![left, self.product(depth)?]);
        }
    }

    fn product(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.signed(depth)?;
        loop {
            let function = match () {
                () if self.takes("//") => Function::Quotient,
                () if self.takes("%") => Function::Remainder,
                () if !self.rest.starts_with("**") && self.takes("*") => Function::Product,
                () => return Some(left),
            };
            left = Expression::Call(function, vec![left, self.signed(depth)?]);
        }
    }

    fn signed(&mut self, depth: usize) -> Option<Expression> {
        let depth = depth.checked_sub(1)?;
        if self.takes("-") {
            let zero = Expression::Number(0);
            return Some(Expression::Call(Function::Difference, vec![zero, self.signed(depth)?]));
        }
        let base = self.operand(depth)?;
        if self.takes("**") {
            return Some(Expression::Call(Function::Power, vec![base, self.signed(depth)?]));
        }
        Some(base)
    }

    fn operand(&mut self, depth: usize) -> Option<Expression> {
        if self.takes("(") {
            let inner = self.any(depth)?;
            return self.takes(")").then_some(inner);
        }
        let word = self.word();
        if let Ok(value) = word.parse() {
            return Some(Expression::Number(value));
        }
        if word == "L" {
            return self.size();
        }
        let function = Function::named(word)?;
        let mut parts = Vec::new();
        self.takes("(").then_some(())?;
        loop {
            parts.push(self.any(depth)?);
            if self.takes(")") {
                return Some(Expression::Call(function, parts));
            }
            self.takes(",").then_some(())?;
        }
    }

    /// Reads the rest of a size: `['batch'].ids.size()[1]`, where the input's name is `batch_ids`.
    fn size(&mut self) -> Option<Expression> {
        let mut names: Vec<&str> = Vec::new();
        loop {
            if self.takes(".size()[") {
                let dimension = self.word().parse().ok()?;
                self.takes("]").then_some(())?;
                return (self.size_of)(&names.join("_"), dimension);
            }
            if self.takes("[") {
                let name = self.rest.trim_start_matches(['\'', '"']);
                let end = name.find(['\'', '"', ']'])?;
                names.push(&name[..end]);
                self.rest = name[end..].trim_start_matches(['\'', '"']);
                self.takes("]").then_some(())?;
            } else {
                self.takes(".").then_some(())?;
                names.push(self.word());
            }
        }
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        self.rest.strip_prefix(word).is_some_and(is_whole) && self.takes(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Option<bool> {
        let size_of = |name: &str, dimension: usize| {
            (name == "ids" || name == "batch_ids" || name == "0_ids")
                .then(|| Expression::Symbol(if dimension == 0 { "b".into() } else { "s".into() }))
        };
        let symbols = BTreeMap::from([("b".to_string(), 4), ("s".to_string(), 100)]);
        Some(Guard::parse(text, &size_of)?.holds(&symbols))
    }

    #[test]
    fn conditions_as_exports_write_them() {
        for text in [
            "L['ids'].size()[1] < 128",
            "(-1)*L['ids'].size()[1] > -127",
            "min(16*L['ids'].size()[1], 32*L['ids'].size()[1]) == (16*L['ids'].size()[1])",
            "(L['batch'].ids.size()[1]*L['batch']['ids'].size()[0]) == 400",
            "2 <= L['ids'].size()[0] and L['ids'].size()[0] <= 4",
            "not L['ids'].size()[0] == 5 or 1 > 2",
            "2 <= L[\"ids\"].size()[0] <= 4",
            "((L['ids'].size()[1] // 8)) == 12",
            "L['ids'].size()[1] % 8 == 4",
            "Mod(L['ids'].size()[1], 8) != 0",
            "L['ids'].size()[0]**2 == 16",
            "L[0].ids.size()[1] - 1 - 1 == 98",
        ] {
            assert_eq!(holds(text), Some(true), "{text}");
        }
        for text in ["L['ids'].size()[1] >= 128", "L['ids'].size()[1] // 0 == 1", "1 == 1 and 2 <= 1", "0"] {
            assert_eq!(holds(text), Some(false), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_conditions() {
        for text in [
            "",
            "L['other'].size()[0] < 3",
            "L['ids'].size()[",
            "f(3) == 1",
            "L['ids'].stride()[0]",
            "1 <",
            "min(1,",
            "1 2",
        ] {
            assert_eq!(holds(text), None, "{text}");
        }
        assert_eq!(holds(&"(".repeat(100_000)), None);
        assert_eq!(holds(&"-".repeat(100_000)), None);
        assert_eq!(holds(&"not ".repeat(100_000)), None);
    }
}
