//! Failures, sorted by whose they are: the exit code follows from that.

use std::process::ExitCode;

use memcore::memory::{Needs, OutOfMemory};

/// How the program ends. The numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Everything was done, whatever came out.
    Done = 0,
    /// A check failed, a prediction was not borne out, or it does not fit the given limit.
    Check = 1,
    /// Bad usage or input; nothing was written.
    Usage = 2,
    /// The device failed, is absent, or ran out of memory without a limit having been given; the host ran out of memory.
    Device = 3,
    /// Stopped by the user; what was measured until then was delivered.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub code: Code,
    /// What happened, outermost context first.
    pub error: anyhow::Error,
}

/// A result whose failure knows its exit code.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with this code.
    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }

    /// Bad usage or input: names what, and what would be right.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, anyhow::Error::msg(message.into()))
    }

    /// The failure of a device that has a limit set by the user (or not): running out of memory is then the answer to the user's question.
    pub(crate) fn limited(mut self, limited: bool) -> Self {
        if limited && (self.is_out_of_memory() || self.is_too_large()) {
            self.code = Code::Check;
        }
        self
    }

    /// The account of who held the memory when it ran out.
    pub(crate) fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self.core_error() {
            Some(memcore::Error::OutOfMemory(report)) => Some(report),
            _ => None,
        }
    }

    /// The same, with the account judged by what the whole run takes with memory enough.
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

    /// Bytes that the whole run needs beyond what there is, where memory ran out and that is known.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        let before = || match self.error.downcast_ref::<lab::Error>() {
            Some(lab::Error::TooLarge { missing_bytes, .. }) => *missing_bytes,
            _ => None,
        };
        self.out_of_memory().map_or_else(before, OutOfMemory::missing_bytes)
    }

    /// Whether memory ran out.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.core_error().is_some_and(memcore::Error::is_out_of_memory)
    }

    /// Whether it was refused before anything was made, because it needs more memory than there is.
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
            // The laboratory names the field of a run; here it is a flag.
            lab::Error::Usage { what, problem } if is_flag(&what) => Self::usage(format!("--{what}: {problem}")),
            _ => Self::new(Code::Usage, error),
        }
    }
}

/// Fields of no run that are flags all the same.
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

/// Shapes, types and options are the user's; the rest is the device's.
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
