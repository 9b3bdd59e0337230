//! Reads a file in windows.

use std::io::Read;

use super::parse_error::{ParseError, Result};

/// Bytes read at once. A length that a file claims is never trusted beyond this: memory use follows the data that exists.
const WINDOW: usize = 1 << 18;

/// Window on a file; it moves forward only.
pub(super) struct Source<R> {
    reader: R,
    window: Vec<u8>,
    /// Position of the next byte in the window, and the window's end.
    next: usize,
    end: usize,
    /// Offset of the window's first byte in the file.
    base: u64,
    most: u64,
}

impl<R: Read> Source<R> {
    /// Reads at most `most` bytes of a reader.
    pub(crate) fn new(reader: R, most: u64) -> Self {
        Self { reader, window: vec![0; WINDOW], next: 0, end: 0, base: 0, most }
    }

    /// Returns the offset of the next byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.base + self.next as u64
    }

    /// Returns the next byte without consuming it; `None` at the end of the file.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        if self.next == self.end && self.refill(1)? == 0 {
            return Ok(None);
        }
        Ok(Some(self.window[self.next]))
    }

    #[inline]
    pub(super) fn byte(&mut self, what: &str) -> Result<u8> {
        if self.next == self.end && self.refill(1)? == 0 {
            return Err(self.truncated(what, 1));
        }
        let byte = self.window[self.next];
        self.next += 1;
        Ok(byte)
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    /// Reads the next `length` bytes.
    #[inline]
    pub(super) fn take(&mut self, length: usize, what: &str) -> Result<&[u8]> {
        if self.end - self.next < length && self.refill(length)? < length {
            return Err(self.truncated(what, length));
        }
        let start = self.next;
        self.next += length;
        Ok(&self.window[start..self.next])
    }

    /// Skips the byte that [`peek`](Self::peek) returned.
    #[inline]
    pub(super) fn skip(&mut self) {
        self.next = (self.next + 1).min(self.end);
    }

    /// Reads until `length` bytes are in the window or the file ends; returns the number of bytes there.
    #[cold]
    fn refill(&mut self, length: usize) -> Result<usize> {
        self.window.copy_within(self.next..self.end, 0);
        self.base += self.next as u64;
        self.end -= self.next;
        self.next = 0;
        while self.end < length {
            if self.end == self.window.len() {
                self.window.resize(self.window.len() * 2, 0);
            }
            let at = self.base + self.end as u64;
            let read = self.reader.read(&mut self.window[self.end..]);
            match read {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ParseError::new(at, error.to_string())),
            }
            if self.base + self.end as u64 > self.most {
                return Err(ParseError::new(
                    self.most,
                    format!("the file goes on; at most {} bytes are read", self.most),
                ));
            }
        }
        Ok(self.end - self.next)
    }

    #[cold]
    fn truncated(&self, what: &str, length: usize) -> ParseError {
        let there = self.end - self.next;
        let problem = format!("{what} needs {length} bytes, but the file ends after {there}");
        ParseError::new(self.offset(), problem)
    }
}
