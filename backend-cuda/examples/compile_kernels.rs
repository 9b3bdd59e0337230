//! Compiles every kernel for the architectures named (`75 80 90 120`), without a GPU, and fails where one does not
//! compile or keeps registers in memory.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut failed = false;
    for architecture in std::env::args().skip(1) {
        let Ok(number) = architecture.parse::<u32>() else {
            eprintln!("{architecture} is no architecture: 75, 80, 90, …");
            return ExitCode::FAILURE;
        };
        match backend_cuda::compile_reports((number / 10, number % 10)) {
            Ok(reports) => {
                for r in reports {
                    let (file, kernels, registers, kib) = (r.file, r.kernels, r.registers, r.bytes >> 10);
                    println!("sm_{number} {file}: {kernels} kernels, at most {registers} registers, {kib} KiB");
                    for (kernel, bytes) in &r.spills {
                        println!("sm_{number} {file}: {kernel} spills {bytes} bytes");
                    }
                    failed |= !r.spills.is_empty() || kernels == 0;
                }
            }
            Err(error) => {
                println!("sm_{number}: {error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
