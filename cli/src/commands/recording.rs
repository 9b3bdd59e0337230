//! Opens recordings: traces of their own format, and PyTorch's snapshots.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lab::input::{self, Input};
use lab::replay::{Machine, Policy, Trace};
use lab::results::ChosenDevice;
use lab::snapshot::{Agreement, Program, Releases, Snapshot, agreement};
use memcore::memory::AllocatorConfig;

use crate::exit::{Failure, Result};

/// Largest standard input that is kept, as it may have to be read twice.
const MAX_STDIN: u64 = 1 << 30;

/// A recording that can be replayed.
pub(super) struct Recording {
    /// The program.
    pub trace: Trace,
    /// Settings in the file.
    pub config: AllocatorConfig,
    /// For a snapshot: what the replay must repeat.
    source: Option<(Snapshot, usize, Program)>,
}

impl Recording {
    /// Reads any recording; `device` chooses one of a snapshot's devices.
    ///
    /// # Errors
    /// Files that are not recordings, naming the byte or the operation.
    pub(super) fn open(file: &Path, device: Option<usize>) -> Result<Self> {
        let name = input::name(file);
        // A pipe can be read once.
        let kept = input::is_pipe(file).then(|| all_of(&name, input::open(file))).transpose()?;
        let trace = || match &kept {
            Some(bytes) => Trace::read(&name, bytes.as_slice()),
            None => Trace::open(file),
        };
        let snapshot = || match &kept {
            Some(bytes) => Snapshot::read(&name, bytes.as_slice()),
            None => Snapshot::open(file),
        };
        if head(file, kept.as_deref()).is_some_and(|head| head != [0x80]) {
            match trace() {
                Ok(trace) if device.is_none() => return Self::of_trace(trace, file),
                Ok(_) => return Err(Failure::usage("--device: only a snapshot has several devices")),
                // The file may be a snapshot: as JSON, or packed.
                Err(problem) => {
                    let Ok(snapshot) = snapshot() else { return Err(problem.into()) };
                    return Self::of_snapshot(snapshot, &name, device);
                }
            }
        }
        Self::of_snapshot(snapshot()?, &name, device)
    }

    fn of_trace(trace: Trace, file: &Path) -> Result<Self> {
        let mut config = AllocatorConfig::for_version(trace.settings.version);
        let update = config.update(&trace.settings.alloc_conf);
        update.map_err(|error| Failure::usage(format!("{}: alloc_conf: {error}", file.display())))?;
        Ok(Self { trace, config, source: None })
    }

    fn of_snapshot(snapshot: Snapshot, name: &str, device: Option<usize>) -> Result<Self> {
        let device = chosen_device(&snapshot, name, device)?;
        let config = snapshot.allocator_config()?;
        let program = snapshot.program(name, device)?;
        let trace = program.trace.clone();
        Ok(Self { trace, config, source: Some((snapshot, device, program)) })
    }

    /// Returns the releases of PyTorch that may have made it.
    pub(super) fn releases(&self) -> Releases {
        self.source.as_ref().map_or_else(Releases::default, |(snapshot, ..)| snapshot.releases)
    }

    /// Returns the device of a snapshot that was chosen, with the others.
    pub(super) fn device(&self) -> Option<ChosenDevice> {
        self.source.as_ref().map(|(snapshot, device, _)| ChosenDevice::from_snapshot(snapshot, *device))
    }

    /// Checks whether a snapshot's own settings reproduce its segments.
    pub(super) fn self_check(&self) -> Result<Option<Agreement>> {
        let Some((snapshot, device, program)) = &self.source else { return Ok(None) };
        let machine = Machine {
            capacity_bytes: self.trace.settings.capacity_bytes,
            memory_fraction: self.trace.settings.memory_fraction,
        };
        let policy = Policy::Caching(Box::new(self.config.clone()));
        Ok(Some(agreement(snapshot, *device, program, &policy, &machine)?))
    }
}

/// Returns the requested device, or the main one.
///
/// # Errors
/// A device that the snapshot does not contain.
pub(super) fn chosen_device(snapshot: &Snapshot, name: &str, device: Option<usize>) -> Result<usize> {
    match device {
        None => Ok(snapshot.main_device()),
        Some(device) if device < snapshot.devices() => Ok(device),
        Some(device) => Err(Failure::usage(format!(
            "--device {device}: {name} has {} devices, numbered from 0",
            snapshot.devices()
        ))),
    }
}

/// Returns the first byte of a file that can be read twice.
fn head(file: &Path, kept: Option<&[u8]>) -> Option<[u8; 1]> {
    let mut head = [0];
    match kept {
        Some(kept) => head[0] = *kept.first()?,
        None => File::open(file).and_then(|mut file| file.read_exact(&mut head)).ok()?,
    }
    Some(head)
}

/// Reads a pipe to its end.
fn all_of(name: &str, input: std::io::Result<Input>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.and_then(|input| input.take(MAX_STDIN + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if bytes.len() as u64 > MAX_STDIN {
        return Err(Failure::usage(format!("{name}: at most {MAX_STDIN} bytes are read of a pipe; name a file")));
    }
    Ok(bytes)
}
