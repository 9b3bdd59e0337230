//! The tests of the analyses, as one program.

mod fit;
mod forensics;
mod predictions;
