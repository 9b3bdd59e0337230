//! Made by `cargo xtask published`, which fits each band with measured trainings (`docs/accuracy.md`).

/// All bands: what decides, thousandths below and above, trainings that it was fitted with.
#[rustfmt::skip]
pub(super) const FITTED: [(&str, u64, u64, &str); 12] = [
    ("Requests", 9, 47, "12 of FakeGPU, Qwen3.5, 309 of GPUMemNet, 299 of H100, recorded programs, 27 of H200, own scripts, 8 of H200, public scripts, 43 of Liger-Kernel, operators of PyTorch, 13 of xMem"),
    ("RequestsElsewhere", 20, 53, "the widest of 6 cards"),
    ("WorkspacesMeasured", 9, 47, "8 of H200, built-in networks"),
    ("WorkspacesAsked", 9, 47, "8 of H200, built-in networks"),
    ("WorkspacesAskedInARange", 115, 140, "10 of GPUMemNet, 4 of xMem"),
    ("WorkspacesOfOneCapability", 51, 190, "10 of H100, recorded programs, 3 of H200, built-in networks, 35 of H200, own scripts, 1 of H200, public scripts"),
    ("WorkspacesOfAnotherRelease", 115, 140, "10 of GPUMemNet, 4 of xMem"),
    ("WorkspacesBounded", 83, 241, "10 of GPUMemNet, 5 of H200, built-in networks, 3 of xMem"),
    ("Ranks", 44, 47, "repeated runs of 100 programs on eight H100, nine of ten"),
    ("Compiled", 96, 142, "9 of H200, own scripts"),
    ("Unknown", 115, 241, "too few rows, so the widest of all"),
    ("Own", 0, 0, "the figures are this program's own"),
];

/// Compute capabilities, times ten, of the cards that trained them.
pub const MEASURED: [u32; 5] = [80, 86, 89, 90, 120];
