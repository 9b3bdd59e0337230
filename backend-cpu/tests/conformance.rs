//! The conformance suites on the CPU backend.

use std::process::ExitCode;
use std::sync::Arc;

use backend_cpu::Cpu;
use memcore::backend::Backend;

fn main() -> ExitCode {
    conformance::main("cpu", || {
        let cpu = Cpu::new().map_err(|error| error.to_string())?;
        Ok(Arc::new(cpu) as Arc<dyn Backend>)
    })
}
