//! Several devices by name, and where a network is cut between them.

use std::fmt;
use std::str::FromStr;

use lab_base::as_text;
use lab_base::backends::Entry;
use lab_training::pipeline::Cut;

/// A device of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Name that `--backend` takes.
    pub backend: String,
    /// Its number in the backend.
    pub index: usize,
}

impl DeviceName {
    /// Returns the device's number for the backend, which may be [one device](Entry::is_shared) under several names.
    pub fn number(&self, backends: &[Entry]) -> usize {
        let one = backends.iter().any(|entry| entry.name == self.backend && entry.is_shared());
        if one { 0 } else { self.index }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)
    }
}

/// The most devices of one run.
const MAX_DEVICES: usize = 64;

/// Devices, all different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceList(pub Vec<DeviceName>);

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut devices: Vec<DeviceName> = Vec::new();
        for word in text.split(',') {
            let device = device(word.trim())?;
            if devices.contains(&device) {
                return Err(format!("{device} is named twice"));
            }
            devices.push(device);
        }
        if !(2..=MAX_DEVICES).contains(&devices.len()) {
            return Err(format!("{} devices: from 2 to {MAX_DEVICES} can share a network", devices.len()));
        }
        Ok(Self(devices))
    }
}

fn device(word: &str) -> Result<DeviceName, String> {
    let (backend, index) = word.split_once(':').unwrap_or((word, "0"));
    let index = index.parse().map_err(|_| format!("{word:?}: expected a backend and a number, as in cpu:0"))?;
    if backend.is_empty() {
        return Err(format!("{word:?}: expected a backend and a number, as in cpu:0"));
    }
    Ok(DeviceName { backend: backend.into(), index })
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(DeviceName::to_string).collect();
        f.write_str(&words.join(","))
    }
}

/// Numbers of pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutList(pub Vec<usize>);

impl CutList {
    /// Returns the cut for a pipeline.
    pub fn cut(&self) -> Cut {
        Cut::Before(self.0.clone())
    }
}

impl FromStr for CutList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| word.trim().parse().map_err(|_| format!("{text:?}: expected numbers, as in 1,3"));
        Ok(Self(text.split(',').map(number).collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for CutList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&words.join(","))
    }
}

as_text!(DeviceList);
as_text!(CutList);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        for text in ["meta:0,meta:1", "meta:3,meta:0,meta:7"] {
            assert_eq!(text.parse::<DeviceList>().unwrap().to_string(), text);
        }
        assert_eq!("meta,meta:1".parse::<DeviceList>().unwrap().to_string(), "meta:0,meta:1");
        for (text, part) in [
            ("meta:0", "1 devices"),
            ("meta:0,meta", "meta:0 is named twice"),
            ("meta:0,meta:x", "as in cpu:0"),
            ("", "as in cpu:0"),
        ] {
            let error = text.parse::<DeviceList>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!("1, 3".parse::<CutList>().unwrap().to_string(), "1,3");
        assert!("1,".parse::<CutList>().is_err());
    }
}
