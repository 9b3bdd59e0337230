//! Every experiment runs on an adapter and gives the same bytes as on the processor.

use std::process::ExitCode;
use std::sync::Arc;

use backend_wgpu::Wgpu;
use libtest_mimic::{Arguments, Failed, Trial};

#[path = "../../lab/tests/runs/mod.rs"]
mod runs;

fn main() -> ExitCode {
    let trials =
        runs::experiments::names().map(|name| Trial::test(name, move || on_the_adapter(name).map_err(Failed::from)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn on_the_adapter(name: &str) -> Result<(), String> {
    let Some(backend) = conformance::or_skip("wgpu", Wgpu::open(0)) else { return Ok(()) };
    runs::experiments::same_bytes(name, &(Arc::new(backend) as _))
}
