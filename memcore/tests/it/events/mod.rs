//! Operators, filed by subject, allocate and free what PyTorch's do, in the same order.
//!
//! The expectations are in `golden/events`: with the name of who caused each event, recorded from the unmodified torch 2.11.0+cu130 and
//! 2.15.0+cu132 wheels (`releases`: the rows in which other releases differ), or as sizes alone, from 2.11 (`sizes`).

mod index;
mod inputs;
mod loss;
mod norm;
mod pointwise;
mod products;
mod recurrent;
mod reduce;
mod resample;
mod shape;
