//! Files packed with gzip, read as what is in them. A small file that unpacks to very much is refused while it is unpacked.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

/// First bytes of a gzip file.
pub const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Unpacked bytes that any gzip file may have; a larger one may have a multiple of its own size. Recordings pack to a tenth or a fiftieth.
const UNPACKED_BYTES: u64 = 64 << 20;
const UNPACKED_PER_BYTE: u64 = 100;

/// The contents of a gzip file, from front to back. Reading fails once they are too many for the packed bytes that were read.
pub struct Unpacked<R> {
    decoder: MultiGzDecoder<Counted<R>>,
    packed: Rc<Cell<u64>>,
    unpacked: u64,
}

/// A reader that counts what is read.
struct Counted<R> {
    reader: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

impl<R: Read> Unpacked<R> {
    /// Unpacks what `reader` gives from its first byte on.
    pub fn new(reader: R) -> Self {
        let packed = Rc::new(Cell::new(0));
        let counted = Counted { reader, bytes: Rc::clone(&packed) };
        Self { decoder: MultiGzDecoder::new(counted), packed, unpacked: 0 }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.unpacked += read as u64;
        let packed = self.packed.get();
        let most = UNPACKED_BYTES.max(packed.saturating_mul(UNPACKED_PER_BYTE));
        if self.unpacked > most {
            let problem = format!("is more than {most} bytes, uncompressed: too many for {packed} compressed ones");
            return Err(io::Error::other(problem));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

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
}
