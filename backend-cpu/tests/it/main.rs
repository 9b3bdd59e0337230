//! Kernels through the contract, as one program. Here and not beside the kernels: unit tests that launch them would compile all of them a second time.

mod attention;
mod bench;
mod conv;
mod elementwise;
mod half_adam;
mod matmul;
mod norm;
mod reduce;
