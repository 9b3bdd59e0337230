//! Files packed with gzip that unpack to much.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use lab_traces::unpacked::Unpacked;

/// Unpacked bytes that any gzip file may have.
const UNPACKED_BYTES: u64 = 64 << 20;

fn packed(chunk: &[u8], count: u64) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..count {
        encoder.write_all(chunk).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn little_that_unpacks_to_much_is_refused_and_much_is_read() {
    let mebibyte = vec![b'N'; 1 << 20];
    let bomb = packed(&mebibyte, 66);
    let mut read = 0;
    let mut contents = Unpacked::new(&bomb[..]);
    let mut buffer = vec![0; 1 << 16];
    let error = loop {
        match contents.read(&mut buffer) {
            Ok(0) => panic!("{} bytes were read", read),
            Ok(count) => read += count as u64,
            Err(error) => break error.to_string(),
        }
    };
    assert!(read <= UNPACKED_BYTES, "{read}");
    assert!(error.starts_with("is more than 67108864 bytes, uncompressed: too many for "), "{error}");
    // As many bytes that pack to a tenth.
    let mut state = 1u32;
    let various: Vec<u8> = (0..1 << 20)
        .map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if at % 10 == 0 { (state >> 24) as u8 } else { 0 }
        })
        .collect();
    let much = packed(&various, 66);
    assert_eq!(io::copy(&mut Unpacked::new(&much[..]), &mut io::sink()).unwrap(), 66 << 20);
}
