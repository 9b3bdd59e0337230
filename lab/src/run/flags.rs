//! Parsers of a run's flags. The flags themselves are the fields of [`RunSpec`](super::RunSpec).

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

/// Heading of the flags of a run that are used most.
pub const MOST_USED: &str = "Most used";

/// Parses one of a few names, in any spelling that the type reads.
pub fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    OneOf { names, kind: PhantomData::<fn() -> T> }
}

/// The parser of [`one_of`]: it offers the names, and takes their other spellings, too.
#[derive(Clone)]
struct OneOf<T> {
    names: &'static [&'static str],
    kind: PhantomData<fn() -> T>,
}

impl<T> OneOf<T> {
    /// True if a name is offered both alone and with a number, and the value has something in the number's place.
    fn has_a_number(&self, value: &OsStr) -> bool {
        let name = value.to_str().and_then(|text| text.split_once(':')).map(|(name, _)| name);
        name.is_some_and(|name| self.names.contains(&format!("{name}:N").as_str()))
    }
}

impl<T> TypedValueParser for OneOf<T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        match value.to_str().map(str::parse) {
            Some(Ok(known)) => Ok(known),
            // Of a name with a number, its own parser says which numbers there are.
            Some(Err(_)) if self.has_a_number(value) => {
                StringValueParser::new().try_map(|name| name.parse::<T>()).parse_ref(command, arg, value)
            }
            // Clap's own parser says what is wrong.
            _ => PossibleValuesParser::new(self.names).try_map(|name| name.parse::<T>()).parse_ref(command, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// Returns the names of all networks.
pub fn names() -> Vec<&'static str> {
    lab_models::ALL.iter().map(|(name, _)| *name).chain(lab_imports::networks::names()).collect()
}

/// Returns the network that a word names: by its own name, or by one on the hub.
pub fn named(word: &str) -> Option<&'static str> {
    let own = lab_models::ALL.iter().map(|(name, _)| *name).find(|name| *name == word);
    own.or_else(|| lab_imports::networks::name_of(word))
}

/// Parses the name of a network: it offers the names, and takes those on the hub, too.
pub fn network() -> impl TypedValueParser<Value = String> {
    NetworkName
}

#[derive(Clone)]
struct NetworkName;

impl TypedValueParser for NetworkName {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let parse = |word: String| {
            let missing = || format!("no network is called so{}", lab_base::similar::did_you_mean(&word, names()));
            named(&word).map(String::from).ok_or_else(missing)
        };
        StringValueParser::new().try_map(parse).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names().into_iter().map(PossibleValue::new)))
    }
}
