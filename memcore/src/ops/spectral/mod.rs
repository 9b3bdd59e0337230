//! Fourier transforms and complex numbers.

pub(in crate::ops) mod complex;
pub(in crate::ops) mod fft;

pub use complex::{abs_of_complex, complex, imag, polar, real, view_as_complex, view_as_real};
pub use fft::{fft_c2c, fft_c2r, fft_r2c};
