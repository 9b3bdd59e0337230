//! `vramlab`

fn main() -> std::process::ExitCode {
    cli::main_with(cli::BACKENDS)
}
