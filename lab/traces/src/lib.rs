//! Reads recordings of memory: this program's, PyTorch's, and the messages that people post.
//!
//! The modules take bytes of files and histories of allocations. [`replay`] runs a history through any allocation policy; [`snapshot`] reads, writes,
//! compares and tunes what `torch.cuda.memory._dump_snapshot` writes; [`stacks`] finds an allocation's line in the program and the purpose of its
//! memory; [`explain`] explains an out-of-memory message.
//!
//! Everything read from a file is bounded, and nothing in a file is executed.

pub mod explain;
pub mod replay;
pub mod snapshot;
pub mod stacks;
pub mod unpacked;
