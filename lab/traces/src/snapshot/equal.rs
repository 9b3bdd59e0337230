//! Compares two documents for equality.

use std::collections::HashMap;

use super::value::{Document, Kind, Value};

impl Document {
    /// True if two documents hold equal data, as Python's `==` compares it: sharing and the order of keys do not matter.
    pub fn equals(&self, other: &Document) -> bool {
        Equal { one: self, two: other, known: HashMap::new() }.values(self.root, other.root)
    }
}

/// Compares two documents; pairs found equal are not compared again.
struct Equal<'a> {
    one: &'a Document,
    two: &'a Document,
    known: HashMap<(Value, Value), bool>,
}

impl Equal<'_> {
    fn values(&mut self, a: Value, b: Value) -> bool {
        let (one, two) = (self.one, self.two);
        match (one.kind(a), two.kind(b)) {
            (Kind::Text(x), Kind::Text(y)) => one.texts.get(x) == two.texts.get(y),
            (Kind::Float(x), Kind::Float(y)) => x == y || (x.is_nan() && y.is_nan()),
            (Kind::Tuple(_) | Kind::List(_) | Kind::Dict(_), _) => match self.known.get(&(a, b)) {
                Some(&equal) => equal,
                None => {
                    let equal = self.containers(a, b);
                    self.known.insert((a, b), equal);
                    equal
                }
            },
            (x, y) => x == y,
        }
    }

    fn containers(&mut self, a: Value, b: Value) -> bool {
        let (one, two) = (self.one, self.two);
        let items = |x: &[Value], y: &[Value], this: &mut Self| {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| this.values(*x, *y))
        };
        match (one.kind(a), two.kind(b)) {
            (Kind::Tuple(x), Kind::Tuple(y)) => items(one.tuple_items(x), two.tuple_items(y), self),
            (Kind::List(x), Kind::List(y)) => items(one.items(x), two.items(y), self),
            (Kind::Dict(x), Kind::Dict(y)) => {
                one.len(x) == two.len(y)
                    && one.entries(x).all(|(key, value)| {
                        let key = key.as_text().map_or("", |key| one.texts.get(key));
                        two.get(y, key).is_some_and(|other| self.values(value, other))
                    })
            }
            _ => false,
        }
    }
}
