//! Several devices of one adapter in as many threads: each reads what it wrote, whichever thread receives the driver's
//! answers.

use std::sync::{Arc, Barrier};

use backend_wgpu::Wgpu;
use memcore::backend::{Backend, DeviceMemory, Region};

use crate::alone;

const THREADS: usize = 4;
const ROUNDS: u32 = 300;
const WORDS: usize = 1024;

#[test]
fn each_reads_what_it_wrote() {
    let _alone = alone();
    if conformance::or_skip("wgpu", Wgpu::open(0)).is_none() {
        return;
    }
    let begin = Arc::new(Barrier::new(THREADS));
    let thread = |number: usize| {
        let begin = Arc::clone(&begin);
        std::thread::spawn(move || {
            let backend = Wgpu::open(0).unwrap();
            let len = 4 * WORDS as u64;
            let region = Region { segment: backend.alloc_segment(len).unwrap(), offset: 0, len };
            begin.wait();
            for round in 0..ROUNDS {
                let word = round * THREADS as u32 + number as u32;
                let bytes = word.to_le_bytes().repeat(WORDS);
                let mut read = vec![0; bytes.len()];
                backend.upload(&bytes, region).unwrap();
                backend.download(region, &mut read).unwrap();
                assert_eq!(read, bytes, "thread {number}, round {round}");
            }
        })
    };
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
