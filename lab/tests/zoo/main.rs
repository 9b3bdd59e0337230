//! Every network of the zoo, in sizes that take no time: what its memory does, what happens when memory runs out, and that it learns.

mod book;
mod cases;
mod learning;
mod out_of_memory;
mod recompute;
