//! The tests of what takes the whole laboratory, as one program.

mod adapted;
#[path = "../../imports/tests/it/archives/mod.rs"]
mod archives;
mod channels_last;
mod exported_releases;
mod exported_runs;
mod flags;
mod golden_scripts;
mod hand_over;
mod loop_recordings;
mod loops;
mod losses;
mod recorded;
mod techniques;

/// The folder of exports that PyTorch wrote, and of what it took to train them.
const EXPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/imports/tests/golden/exported");
