//! Parsers of single values.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

/// Heading of the flags of a run that are used most.
pub(super) const MOST_USED: &str = "Most used";

/// Largest size of one dimension. Products of two stay within 64 bits.
const MAX_SIZE: u64 = 1 << 30;

/// Parses one of a few names, in any spelling that the type reads.
pub(super) fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
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

/// Parses the end of a search.
pub(super) fn at_least_2() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(2..=MAX_SIZE)
}

/// Parses a finite number.
pub(super) fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("must be finite".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a finite number, 0 or above.
pub(super) fn non_negative(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value >= 0.0 => Ok(value),
        _ => Err("must not be negative".into()),
    }
}

/// Parses a finite number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if value > 0.0 => Ok(value),
        _ => Err("must be above 0".into()),
    }
}

/// Parses a number from 0 to 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    match finite(text)? {
        value if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("must lie between 0 and 1".into()),
    }
}
