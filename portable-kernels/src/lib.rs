//! Every kernel of the contract as one C-like text, correct and slow, for backends that do not have their own yet.
//!
//! A device that compiles C (OpenCL C, CUDA C, …) has all kernels by three things:
//!
//! 1. a [`Language`]: a few macros in front of the text (address spaces, the index of a work item, the conversions of 16-bit floats);
//! 2. `compile(source, entry)`: a [`Program`]'s [`source`](Program::source) for a language, and a function of it by its name;
//! 3. [`each_launch`] in [`Backend::launch`](memcore::backend::Backend::launch): what to run for a call, over how many work items, with which
//!    arguments and which regions of memory.
//!
//! What a call holds comes from its definition ([`KernelCall::each_operand`], [`KernelCall::each_attribute`](memcore::backend::KernelCall::each_attribute)):
//! an operand's buffer has the operand's name in the text, a function's code the function's.
//!
//! Everything is computed in the type that the contract says, sums over floats with the digits that they lose (Neumaier): 64-bit floats are needed
//! for float64 alone. A work item makes one result, or one group of them; nothing is shared between work items, so that nothing can race.
//!
//! [`KernelCall::each_operand`]: memcore::backend::KernelCall::each_operand

mod arguments;
mod launch;
mod program;

pub use arguments::Arguments;
pub use launch::{Launch, each_launch, supports};
pub use program::{Language, Program};
