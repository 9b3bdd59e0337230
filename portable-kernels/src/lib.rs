//! Every kernel of the backend contract as one C-like text, correct and slow, for backends that do not have their own
//! yet.
//!
//! A device that compiles C (OpenCL C, CUDA C, …) gets all kernels from three things:
//!
//! 1. a [`Language`]: a few macros before the text (address spaces, the index of a work item, conversions of 16-bit
//!    floats);
//! 2. `compile(source, entry)`, which you write: it compiles a [`Program`]'s [`source`](Program::source) for a
//!    language, and finds a function in it by name;
//! 3. [`each_launch`] in [`Backend::launch`](memcore::backend::Backend::launch): it tells which functions to run for a
//!    call, over how many work items, with which arguments and which regions of memory.
//!
//! The text follows the definitions of calls ([`KernelCall::each_operand`],
//! [`KernelCall::each_attribute`](memcore::backend::KernelCall::each_attribute)): in it, a buffer has the name of its
//! operand, and the number of a function has the name of the function.
//!
//! Everything is computed in the type that the contract prescribes, and sums of floats are compensated (Neumaier).
//! 64-bit floats are needed only for float64. A work item computes one result, or one group of results. Work items
//! share nothing, so that nothing can race.
//!
//! [`KernelCall::each_operand`]: memcore::backend::KernelCall::each_operand

mod arguments;
mod launch;
mod program;

pub use arguments::Arguments;
pub use launch::{Launch, each_launch, supports};
pub use program::{Language, Program};
