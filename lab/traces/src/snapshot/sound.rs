//! Checks that a document can be walked: no container contains itself, and none is nested too deeply.

use super::parse_error::{ParseError, Result};
use super::value::{Document, Kind, Value};

/// Largest depth of containers within containers. A snapshot has eight.
pub(super) const MAX_DEPTH: u8 = 100;

/// Not seen yet; being looked at.
const UNSEEN: u8 = u8::MAX;
const OPEN: u8 = u8::MAX - 1;

/// Checks everything below the root, each container once.
pub(super) fn check(document: &Document) -> Result<()> {
    let mut walk = Walk::new(document);
    walk.enter(document.root)?;
    while let Some(&Step { value, place, .. }) = walk.path.last() {
        match walk.next(value, place) {
            Some((part, after)) => {
                if let Some(last) = walk.path.last_mut() {
                    last.place = after;
                }
                walk.enter(part)?;
            }
            None => walk.leave(),
        }
    }
    Ok(())
}

/// A container on the path, the position in it, and the largest depth of its parts so far.
struct Step {
    value: Value,
    place: usize,
    deepest: u8,
}

struct Walk<'a> {
    document: &'a Document,
    /// Depth of each container: tuples, then lists, then dicts.
    depths: Vec<u8>,
    lists_from: usize,
    dicts_from: usize,
    path: Vec<Step>,
}

impl<'a> Walk<'a> {
    fn new(document: &'a Document) -> Self {
        let (tuples, lists, dicts) = document.counts();
        let depths = vec![UNSEEN; tuples + lists + dicts];
        Self { document, depths, lists_from: tuples, dicts_from: tuples + lists, path: Vec::new() }
    }

    fn place(&self, value: Value) -> Option<usize> {
        Some(match self.document.kind(value) {
            Kind::Tuple(tuple) => tuple as usize,
            Kind::List(list) => self.lists_from + list as usize,
            Kind::Dict(dict) => self.dicts_from + dict as usize,
            _ => return None,
        })
    }

    /// Enters a value, unless its depth is known or it has no parts.
    fn enter(&mut self, value: Value) -> Result<()> {
        let Some(place) = self.place(value) else { return Ok(()) };
        let document = self.document;
        match self.depths[place] {
            UNSEEN if self.path.len() < usize::from(MAX_DEPTH) => {}
            OPEN => {
                return Err(ParseError::new(
                    document.offset(value),
                    format!("{} contains itself", document.name(value)),
                ));
            }
            known if known <= MAX_DEPTH && self.path.len() + usize::from(known) <= usize::from(MAX_DEPTH) => {
                self.above(known);
                return Ok(());
            }
            _ => {
                let problem = format!("containers are nested more than {MAX_DEPTH} deep");
                return Err(ParseError::new(document.offset(value), problem));
            }
        }
        self.depths[place] = OPEN;
        self.path.push(Step { value, place: 0, deepest: 0 });
        Ok(())
    }

    /// Raises the depth of the container on top of the path.
    fn above(&mut self, depth: u8) {
        if let Some(last) = self.path.last_mut() {
            last.deepest = last.deepest.max(depth);
        }
    }

    /// Returns the next part that is a container, from a position on, and the position after it; `None` if there are no more.
    fn next(&self, value: Value, from: usize) -> Option<(Value, usize)> {
        let document = self.document;
        let among = |items: &[Value]| {
            let rest = items.get(from..)?;
            let at = rest.iter().position(|item| item.is_container())?;
            Some((rest[at], from + at + 1))
        };
        match document.kind(value) {
            Kind::Tuple(tuple) => among(document.tuple_items(tuple)),
            Kind::List(list) => among(document.items(list)),
            Kind::Dict(dict) => match document.shaped(dict) {
                Some((_, fields)) => among(fields),
                None => {
                    let mut places = from..document.len(dict);
                    let at = places.find(|&place| document.entry(dict, place).1.is_container())?;
                    Some((document.entry(dict, at).1, at + 1))
                }
            },
            _ => None,
        }
    }

    /// Leaves the container at the end of the path: the depths of all its parts are known.
    fn leave(&mut self) {
        let Some(Step { value, deepest, .. }) = self.path.pop() else { return };
        if let Some(place) = self.place(value) {
            self.depths[place] = deepest + 1;
        }
        self.above(deepest + 1);
    }
}
