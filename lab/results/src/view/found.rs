//! A search by line, module or operator.

use super::history::History;
use crate::report::{Event, NameId};

/// A search and its hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The text that was searched for.
    pub text: String,
    /// Events of allocations and failed requests whose line, module or operator has the text, in order.
    pub events: Vec<u32>,
    /// For each name of the recording, whether it has the text.
    names: Vec<bool>,
}

impl Found {
    /// Searches a recording. Case does not count; `train.py:7` is not `train.py:71`.
    pub fn search(history: &History, text: &str) -> Self {
        let recording = &history.recording;
        let wanted = text.trim().to_lowercase();
        let names = recording.names().map(|name| has(&plain(name).to_lowercase(), &wanted)).collect();
        let mut found = Self { text: text.trim().to_string(), events: Vec::new(), names };
        let hit = |event: &Event| match *event {
            Event::Alloc { op, scope, .. } => found.has(op) || found.has(scope),
            Event::Oom { op, .. } => found.has(op),
            _ => false,
        };
        let events = recording.events().iter().enumerate();
        found.events = events.filter(|(_, event)| hit(event)).map(|(at, _)| at as u32).collect();
        found
    }

    /// True if a name has the text.
    pub fn has(&self, name: NameId) -> bool {
        self.names.get(name.0 as usize).copied().unwrap_or(false)
    }
}

/// Formats a path as it is read: a dot within one of its parts is stored as another character.
pub(super) fn plain(name: &str) -> String {
    name.replace('·', ".")
}

/// True if a name has a text. After a line's number no digit follows.
fn has(name: &str, wanted: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let is_line = wanted.rsplit_once(':').is_some_and(|(_, line)| !line.is_empty() && digits(line));
    !wanted.is_empty()
        && name.match_indices(wanted).any(|(at, _)| {
            let next = name[at + wanted.len()..].bytes().next();
            !(is_line && next.is_some_and(|b| b.is_ascii_digit()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_not_a_longer_one() {
        assert!(has("train.py:7 main", "train.py:7") && !has("train.py:71 main", "train.py:7"));
        assert!(has("train.py:71 · train.py:7", "train.py:7"));
        assert!(has("mmbackward0>mm", "backward") && !has("mm", "") && !has("", "mm"));
    }
}
