//! The conformance suites on the first adapter, or on the one whose index is in `VRAMLAB_WGPU_DEVICE`.

use std::process::ExitCode;

use backend_wgpu::Wgpu;

fn main() -> ExitCode {
    conformance::main("wgpu", || {
        let index = match std::env::var("VRAMLAB_WGPU_DEVICE") {
            Ok(text) => text.parse().map_err(|_| format!("VRAMLAB_WGPU_DEVICE: {text} is not a number"))?,
            Err(_) => 0,
        };
        Wgpu::open(index).map_err(|error| error.to_string())
    })
}
