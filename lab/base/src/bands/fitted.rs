//! Made by `cargo xtask published`, which fits each band with measured trainings (`docs/accuracy.md`).

/// All bands: what decides, thousandths below and above, trainings that it was fitted with.
#[rustfmt::skip]
pub(super) const FITTED: [(&str, u64, u64, &str); 12] = [
    ("Requests", 9, 47, "12 of FakeGPU, Qwen3.5, 309 of GPUMemNet, 299 of H100, recorded programs, 27 of H200, own scripts, 8 of H200, public scripts, 43 of Liger-Kernel, operators of PyTorch, 13 of xMem"),
    ("RequestsElsewhere", 20, 53, "the widest of 6 cards"),
    ("WorkspacesMeasured", 9, 47, "12 of FakeGPU, Qwen3.5, 309 of GPUMemNet, 299 of H100, recorded programs, 27 of H200, own scripts, 8 of H200, public scripts, 43 of Liger-Kernel, operators of PyTorch, 13 of xMem"),
    ("WorkspacesAsked", 9, 47, "12 of FakeGPU, Qwen3.5, 309 of GPUMemNet, 299 of H100, recorded programs, 27 of H200, own scripts, 8 of H200, public scripts, 43 of Liger-Kernel, operators of PyTorch, 13 of xMem"),
    ("WorkspacesAskedInARange", 173, 173, "10 of GPUMemNet, 4 of xMem, and no narrower than runs of one program differ"),
    ("WorkspacesOfOneCapability", 104, 189, "10 of H100, recorded programs, 4 of H200, built-in networks, 35 of H200, own scripts, 1 of H200, public scripts, and no narrower than runs of one program differ"),
    ("WorkspacesOfAnotherRelease", 173, 173, "10 of GPUMemNet, 4 of xMem, and no narrower than runs of one program differ"),
    ("WorkspacesBounded", 130, 243, "10 of GPUMemNet, 4 of H200, built-in networks, 3 of xMem, and no narrower than runs of one program differ"),
    ("Ranks", 44, 47, "repeated runs of 100 programs on eight H100, nine of ten"),
    ("Compiled", 259, 259, "9 of H200, own scripts, and no narrower than runs of one program differ"),
    ("Unknown", 259, 259, "too few rows, so the widest of all, and no narrower than runs of one program differ"),
    ("Own", 0, 0, "the figures are this program's own"),
];

/// Compute capabilities, times ten, of the cards that trained them.
pub const MEASURED: [u32; 5] = [80, 86, 89, 90, 120];
