//! Failures by their cause, from which the exit code follows.

use std::process::ExitCode;

use memcore::memory::{Needs, OutOfMemory};

/// Exit code of the program. The numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Everything was done, whatever the result.
    Done,
    /// A check failed, a measurement contradicted a prediction, or the run does not fit the given limit.
    Check,
    /// Bad usage or input; nothing was written.
    Usage,
    /// The device failed, is absent, or ran out of memory without a given limit; or the host ran out of memory, or of room on a disk.
    Device,
    /// Stopped by the user; the measurements until then were delivered.
    Interrupted,
    /// A watched script ended with this code.
    Script(u8),
}

impl Code {
    /// The code as a number.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Code::Done => 0,
            Code::Check => 1,
            Code::Usage => 2,
            Code::Device => 3,
            Code::Interrupted => 130,
            Code::Script(code) => code,
        }
    }
}

impl Code {
    /// Returns the code of a process of this program that ended with a number.
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        [Self::Done, Self::Check, Self::Usage, Self::Device, Self::Interrupted]
            .into_iter()
            .find(|code| i32::from(code.number()) == number)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code.number())
    }
}

/// Failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub code: Code,
    /// Error, outermost context first.
    pub error: anyhow::Error,
}

/// Result whose failure has an exit code.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Makes a failure with this code.
    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }

    /// Bad usage or input: the message names what is wrong, and what would be right.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, anyhow::Error::msg(message.into()))
    }

    /// A result that cannot be written: the host's where its disk, a quota or a limit on the size of files is reached, else the user's.
    pub(crate) fn unwritten(error: anyhow::Error) -> Self {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
        let full = kinds.into_iter().any(|kind| matches!(kind, StorageFull | QuotaExceeded | FileTooLarge));
        Self::new(if full { Code::Device } else { Code::Usage }, error)
    }

    /// Changes the code of a failure on a device with a limit set by the user: running out of memory is then the answer to the user's question.
    pub(crate) fn limited(mut self, limited: bool) -> Self {
        if limited && (self.is_out_of_memory() || self.is_too_large()) {
            self.code = Code::Check;
        }
        self
    }

    /// Returns the account of the holders of memory when it ran out.
    pub(crate) fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self.core_error() {
            Some(memcore::Error::OutOfMemory(report)) => Some(report),
            _ => None,
        }
    }

    /// Judges an out-of-memory account by the needs of the whole run with enough memory.
    pub(crate) fn judged_by(mut self, needs: Needs) -> Self {
        let core = match self.error.downcast_mut::<lab::Error>() {
            Some(lab::Error::Core(core)) => Some(core),
            _ => self.error.downcast_mut::<memcore::Error>(),
        };
        if let Some(memcore::Error::OutOfMemory(report)) = core {
            **report = (**report).clone().judged_by(needs);
        }
        self
    }

    /// Returns the bytes that the whole run needs beyond what is available, if memory ran out and that is known.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        let before = || match self.error.downcast_ref::<lab::Error>() {
            Some(lab::Error::TooLarge { missing_bytes, .. }) => *missing_bytes,
            _ => None,
        };
        self.out_of_memory().map_or_else(before, OutOfMemory::missing_bytes)
    }

    /// True if memory ran out.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.core_error().is_some_and(memcore::Error::is_out_of_memory)
    }

    /// True if the run was refused before anything was made, because it needs more memory than is available.
    pub(crate) fn is_too_large(&self) -> bool {
        self.error.chain().any(|cause| matches!(cause.downcast_ref(), Some(lab::Error::TooLarge { .. })))
    }

    fn core_error(&self) -> Option<&memcore::Error> {
        self.error.chain().find_map(|cause| match cause.downcast_ref::<lab::Error>() {
            Some(lab::Error::Core(core)) => Some(core),
            _ => cause.downcast_ref::<memcore::Error>(),
        })
    }
}

impl From<memcore::Error> for Failure {
    fn from(error: memcore::Error) -> Self {
        Self::new(core_code(&error), error)
    }
}

impl From<lab::Error> for Failure {
    fn from(error: lab::Error) -> Self {
        match error {
            lab::Error::Core(core) => Self::new(core_code(&core), lab::Error::Core(core)),
            lab::Error::Interrupted => Self::new(Code::Interrupted, error),
            lab::Error::TooLarge { .. } | lab::Error::Host { .. } => Self::new(Code::Device, error),
            // `lab` names the field of a run; on the command line the field is a flag.
            lab::Error::Usage { what, problem } if is_flag(&what) => Self::usage(format!("--{what}: {problem}")),
            _ => Self::new(Code::Usage, error),
        }
    }
}

/// Flags that are not fields of a run.
const FURTHER_FLAGS: [&str; 3] = ["save", "of", "maximum"];

fn is_flag(what: &str) -> bool {
    // A field may be followed by the value in question: `sequence 4096`.
    let field = what.split(' ').next().unwrap_or_default();
    FURTHER_FLAGS.contains(&field) || lab::run::RunSpec::has_field(field)
}

impl From<lab::data::DataError> for Failure {
    fn from(error: lab::data::DataError) -> Self {
        Self::new(Code::Usage, error)
    }
}

/// Shapes, types and options are the user's errors; all others are the device's.
fn core_code(error: &memcore::Error) -> Code {
    match error {
        memcore::Error::Invalid { .. } | memcore::Error::Shape { .. } | memcore::Error::DType { .. } => Code::Usage,
        _ => Code::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_from_whose_fault_it_is() {
        let full = || memcore::Error::DeviceFull { requested_bytes: 1, free_bytes: None };
        assert_eq!(Failure::from(lab::Error::usage("--batch", "must be at least 1")).code, Code::Usage);
        assert_eq!(Failure::from(memcore::Error::invalid("--alloc-conf", "?")).code, Code::Usage);
        assert_eq!(Failure::from(lab::Error::Core(full())).code, Code::Device);
        assert_eq!(Failure::from(lab::Error::Core(full())).limited(true).code, Code::Check);
        assert_eq!(Failure::from(full()).limited(false).code, Code::Device);
        let broken = memcore::Error::backend("cpu", "thread pool");
        assert_eq!(Failure::from(broken).limited(true).code, Code::Device);
        assert_eq!(Failure::from(lab::Error::Interrupted).code, Code::Interrupted);
    }
}
