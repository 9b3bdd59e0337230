//! Data sets: the first byte says which file of which kind, the rest is that file.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use lab::data::{load_cifar10, load_idx_file};
use libfuzzer_sys::fuzz_target;

/// A directory for the files, in memory where there is such a place.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let directory = parent.join(format!("vramlab-fuzz-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for the files");
    directory
});

/// Two images of 2 × 2, and their labels.
const IMAGES: &[u8] = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02abcdefgh";
const LABELS: &[u8] = b"\0\0\x08\x01\0\0\0\x02\x01\x02";

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let put = |name: &str, contents: &[u8]| fs::write(DIRECTORY.join(name), contents).expect("a file");
    match kind % 3 {
        0 | 1 => {
            let (images, labels) = if kind % 3 == 0 { (rest, LABELS) } else { (IMAGES, rest) };
            put("x-images-idx3-ubyte", images);
            put("x-labels-idx1-ubyte", labels);
            let _ = load_idx_file(&DIRECTORY.join("x-images-idx3-ubyte"));
        }
        _ => {
            for batch in 1..=5 {
                put(&format!("data_batch_{batch}.bin"), rest);
            }
            put("test_batch.bin", rest);
            let _ = load_cifar10(&DIRECTORY);
        }
    }
});
