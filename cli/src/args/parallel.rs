//! `--devices`: a network split over several devices. `--data-parallel`: a step divided among many.

use std::fmt;
use std::str::FromStr;

use lab::data_parallel::Stage;
use lab::pipeline::Cut;

use super::{DeviceArgs, values};
use crate::backends;

/// A split over devices.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Split over devices")]
pub(crate) struct ParallelArgs {
    /// Split the network over these devices, in this order, by its layers: cpu:0,cpu:1 (predict: meta:0,meta:1). cpu and meta are as many devices
    /// as are named, each with its own allocator and ledger.
    #[arg(long, value_name = "A:0,B:1")]
    pub devices: Option<DeviceList>,
    /// Cut each batch into this many micro-batches [default: 1].
    #[arg(long, value_name = "K", requires = "devices")]
    pub micro_batches: Option<usize>,
    /// Cut the network before these pieces (mlp, small networks, model files: a layer; gpt, config.json:
    /// embedding, blocks, output) [default: so that the
    /// largest share of the parameters is as small as it can be].
    #[arg(long, value_name = "1,2", requires = "devices")]
    pub cut: Option<CutList>,
    /// Divide each step's batch among this many ranks, each with the whole network on a device of its own (meta only; PyTorch's
    /// DistributedDataParallel). The first and the last are run: all hold the same.
    #[arg(long, value_name = "N", conflicts_with = "devices", value_parser = values::ranks())]
    pub data_parallel: Option<usize>,
    /// ZeRO: also divide the optimizer's states (1), gradients (2), parameters (3), or nothing (0). A 16-bit --precision comes with float32 master
    /// weights, as in the paper.
    #[arg(long, value_name = "STAGE", requires = "data_parallel", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: Option<u8>,
    /// Gradients live in the buckets that they are reduced in (DistributedDataParallel's option).
    #[arg(long, requires = "data_parallel")]
    pub gradient_as_bucket_view: bool,
}

impl ParallelArgs {
    /// Where to cut.
    pub(crate) fn cut(&self) -> Cut {
        self.cut.as_ref().map_or(Cut::Balanced, |list| Cut::Before(list.0.clone()))
    }

    /// What is divided among ranks, beside the batch.
    pub(crate) fn stage(&self) -> Stage {
        self.zero.and_then(|stage| Stage::ALL.get(usize::from(stage)).copied()).unwrap_or_default()
    }
}

/// A device of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceName {
    /// As `--backend` takes it.
    pub backend: String,
    /// Its number there.
    pub index: usize,
}

impl DeviceName {
    /// The flags that open it. The processor is one device to its backend, and so is paper: several of that name share it, each with its own
    /// memory account.
    pub(crate) fn args(&self) -> DeviceArgs {
        let device = if matches!(self.backend.as_str(), "cpu" | "meta") { 0 } else { self.index };
        DeviceArgs { backend: self.backend.clone(), device }
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
pub(crate) struct DeviceList(pub Vec<DeviceName>);

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
    if !backends::ALL.iter().any(|entry| entry.name == backend) {
        let known: Vec<&str> = backends::ALL.iter().map(|entry| entry.name).collect();
        return Err(format!("{word:?}: no such backend in this build; there are {}", known.join(", ")));
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
pub(crate) struct CutList(pub Vec<usize>);

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
            ("meta:0,abacus:1", "no such backend"),
            ("meta:0,meta:x", "as in cpu:0"),
            ("", "no such backend"),
        ] {
            let error = text.parse::<DeviceList>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!("1, 3".parse::<CutList>().unwrap().to_string(), "1,3");
        assert!("1,".parse::<CutList>().is_err());
    }
}
