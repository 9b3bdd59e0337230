//! How kernel files are compiled for the host.

pub(crate) const HOST: [&str; 4] = ["-std=c++17", "-O2", "-g1", "-DEMULATED"];

/// To find races: the instrumentation alone, what it calls is the emulator's own.
pub(crate) const RACES: [&str; 3] =
    ["-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0"];
