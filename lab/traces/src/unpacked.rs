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
