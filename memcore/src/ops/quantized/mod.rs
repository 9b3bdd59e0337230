//! Products with weights that bitsandbytes keeps in 4 or 8 bits. Their memory is predicted: no backend computes them.

mod eight_bit;
mod four_bit;
mod kernel;

pub use eight_bit::{EightBit, linear_8bit};
pub use four_bit::{FourBit, linear_4bit};
