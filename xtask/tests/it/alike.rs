//! A file that two crates have because neither may use the other is the same in both.

use xtask::files::workspace_root;

#[test]
fn sizes_of_recurrent_networks_are_written_once() {
    let read = |path: &str| std::fs::read_to_string(workspace_root().join(path)).unwrap();
    let [one, other] = ["memcore/src/ops/recurrent/sizes.rs", "rehearsal/src/dnn/recurrent_sizes.rs"].map(read);
    assert!(one == other, "copy the one that was changed over the other");
}
