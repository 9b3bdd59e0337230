//! Compiles every kernel for the named architectures (`75 80 90 120`), without a GPU. Fails if a kernel does not
//! compile or spills registers to memory. `fingerprint` prints a checksum of everything that would be compiled;
//! `portable 90` compiles the portable kernels instead, for every type.

use std::process::ExitCode;

use memcore::DType;
use portable_kernels::{Language, Program};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("fingerprint") {
        println!("{}", backend_cuda::kernel_fingerprint());
        return ExitCode::SUCCESS;
    }
    let portable = std::env::args().nth(1).as_deref() == Some("portable");
    let named: Result<Vec<u32>, _> =
        std::env::args().skip(1 + usize::from(portable)).map(|text| text.parse()).collect();
    let Ok(architectures) = named else {
        eprintln!("architectures are numbers: 75, 80, 90, …");
        return ExitCode::FAILURE;
    };
    let passed = std::thread::scope(|scope| {
        let threads: Vec<_> = architectures
            .iter()
            .map(|&number| scope.spawn(move || if portable { compile_portable(number) } else { check(number) }))
            .collect();
        let outcomes: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect();
        !outcomes.contains(&false)
    });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Compiles every file for one architecture and prints the result.
fn check(number: u32) -> bool {
    let reports = match backend_cuda::compile_reports((number / 10, number % 10)) {
        Ok(reports) => reports,
        Err(error) => {
            println!("sm_{number}: {error}");
            return false;
        }
    };
    let mut passed = true;
    for r in reports {
        let (file, kernels, registers, kib) = (r.file, r.kernels, r.registers, r.bytes >> 10);
        println!("sm_{number} {file}: {kernels} kernels, at most {registers} registers, {kib} KiB");
        for (kernel, bytes) in &r.spills {
            println!("sm_{number} {file}: {kernel} spills {bytes} bytes");
        }
        passed &= r.spills.is_empty() && kernels > 0;
    }
    passed
}

/// Compiles every portable kernel for one architecture and prints the result.
fn compile_portable(number: u32) -> bool {
    let mut bytes = 0;
    for program in Program::all(&DType::ALL) {
        let name = program.functions().next().unwrap_or_default();
        match backend_cuda::compile_text(name, &program.source(Language::cuda()), (number / 10, number % 10)) {
            Ok(code) => bytes += code,
            Err(error) => {
                println!("sm_{number} portable kernels, {name} for {}: {error}", program.dtype());
                return false;
            }
        }
    }
    println!("sm_{number} portable kernels: {} KiB", bytes >> 10);
    true
}
