//! Compiler flags for kernel files on the host.

pub(crate) const HOST: [&str; 4] = ["-std=c++17", "-O2", "-g1", "-DEMULATED"];

/// Flags for finding races: only the instrumentation; the functions that it calls are the emulator's own.
pub(crate) const RACES: [&str; 3] =
    ["-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0"];
