//! Every network of the zoo in small sizes: its ledger, running out of memory, training.

mod book;
mod cases;
mod learning;
mod out_of_memory;
mod recompute;
