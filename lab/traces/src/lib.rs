//! Where memory came from, from recordings: ours, PyTorch's, and messages that people post.
//!
//! It is given bytes of files and histories of allocations, and gives: [`replay`], a history through any policy of an
//! allocator; [`snapshot`], what `torch.cuda.memory._dump_snapshot` writes, read, written, compared, tuned; [`stacks`], the
//! program's line of an allocation, and what its memory was for; [`explain`], an out-of-memory message understood.
//!
//! Whatever is read from a file is bounded, and nothing in it is run.

pub mod explain;
pub mod replay;
pub mod snapshot;
pub mod stacks;
