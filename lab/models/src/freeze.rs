//! Parameters that are not trained, by their names.

use std::fmt;
use std::str::FromStr;

use lab_base::as_text;
use lab_base::error::{Error, Result};
use memcore::nn::Parameter;

/// Patterns of names, of which the last one that matches decides: `*,!head` trains the head alone.
///
/// A pattern is the name of a parameter or of a module that has it (`blocks.0`), with `*` for any characters. With `!` before it, it names what is
/// trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    patterns: Vec<String>,
    /// Parameters that have further names, because layers share them: the name here, and another one.
    shared: Vec<(String, String)>,
}

/// The most names that an error lists.
const SHOWN: usize = 4;

impl Freeze {
    /// The same patterns for a network in which some parameters have another name, too: either one counts.
    #[must_use]
    pub fn with_shared(self, shared: Vec<(String, String)>) -> Self {
        Self { shared, ..self }
    }

    /// True for a parameter that is not trained: `requires_grad_(False)`.
    pub fn covers(&self, name: &str) -> bool {
        let last = self.patterns.iter().rev().find(|pattern| self.is_meant(bare(pattern), name));
        last.is_some_and(|pattern| !pattern.starts_with('!'))
    }

    /// True if a pattern is a name of this parameter, or that of a module around it.
    fn is_meant(&self, pattern: &str, name: &str) -> bool {
        let others = self.shared.iter().filter(|(known, _)| known == name).map(|(_, other)| other.as_str());
        others.chain([name]).any(|name| matches(pattern, name))
    }

    /// Refuses a pattern that no parameter has, and patterns that leave nothing to train.
    ///
    /// # Errors
    /// [`Error::Usage`] with the names that there are.
    pub fn check(&self, parameters: &[Parameter]) -> Result<()> {
        let names = || parameters.iter().map(Parameter::path);
        if let Some(pattern) =
            self.patterns.iter().find(|pattern| !names().any(|name| self.is_meant(bare(pattern), name)))
        {
            let shown: Vec<&str> = names().take(SHOWN).collect();
            let more = if names().count() > SHOWN { ", …" } else { "" };
            let problem = format!("no parameter is called {}; there are {}{more}", bare(pattern), shown.join(", "));
            return Err(Error::usage("freeze", problem));
        }
        if parameters.iter().any(Parameter::is_trained) {
            return Ok(());
        }
        Err(Error::usage("freeze", format!("{self} leaves no parameter to train")))
    }
}

fn bare(pattern: &str) -> &str {
    pattern.strip_prefix('!').unwrap_or(pattern)
}

/// True if a pattern is the name, or that of a module around it.
fn matches(pattern: &str, name: &str) -> bool {
    let modules = name.match_indices('.').map(|(end, _)| &name[..end]);
    modules.chain([name]).any(|part| glob(pattern, part))
}

/// True if `text` is the pattern, in which `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(before) else { return false };
    let (middle, after) = rest.rsplit_once('*').unwrap_or(("", rest));
    // Each part between stars may take its first place: what follows then has most room.
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(after)
}

impl FromStr for Freeze {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let patterns: Vec<String> = text.split(',').map(|pattern| pattern.trim().to_string()).collect();
        match patterns.iter().find(|pattern| bare(pattern).is_empty()) {
            Some(_) => Err(format!("{text:?}: expected names of parameters or modules, as in embed,blocks.0.*,!head")),
            None => Ok(Self { patterns, shared: Vec::new() }),
        }
    }
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.patterns.join(","))
    }
}

as_text!(Freeze);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let frozen = |patterns: &str, name: &str| patterns.parse::<Freeze>().unwrap().covers(name);
        assert!(frozen("blocks.0", "blocks.0.fc1.weight"));
        assert!(frozen("blocks.0", "blocks.0"));
        assert!(!frozen("blocks.0", "blocks.01.fc1.weight"));
        assert!(!frozen("blocks.0", "model.blocks.0.fc1.weight"));
        assert!(frozen("*.bias", "blocks.0.fc1.bias"));
        assert!(frozen("b*.fc*", "blocks.0.fc1.bias"));
        assert!(frozen("b*.*.fc1*as", "blocks.0.fc1.bias"));
        assert!(!frozen("b*0*0*", "blocks.0.fc1.bias"));
        assert!(!frozen("ab*ba", "aba"), "the ends may not share a character");
        assert!(!frozen(&"*a".repeat(40), &"b".repeat(100)));
        assert!(!frozen("*.bias", "blocks.0.fc1.weight"));
        assert!(!frozen("*,!head", "head.weight"));
        assert!(frozen("*,!head", "blocks.0.weight"));
        assert!(frozen("!head,*", "head.weight"));
        let shared =
            "embed".parse::<Freeze>().unwrap().with_shared(vec![("head.weight".into(), "embed.weight".into())]);
        assert!(shared.covers("head.weight") && !shared.covers("other.weight"));
    }

    #[test]
    fn no_names_are_an_error() {
        for text in ["", "a,,b", "!", "a,! "] {
            assert!(text.parse::<Freeze>().unwrap_err().contains("expected names"), "{text:?}");
        }
        assert_eq!("a, !b".parse::<Freeze>().unwrap().to_string(), "a,!b");
    }
}
