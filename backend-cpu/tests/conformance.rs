//! The conformance suites on the CPU backend.

use std::process::ExitCode;

use backend_cpu::Cpu;

fn main() -> ExitCode {
    conformance::main("cpu", Cpu::new)
}
