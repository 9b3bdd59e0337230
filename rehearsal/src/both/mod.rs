//! Functions that the driver and the runtime have alike under two names, and others of the same subject.

mod captures;
mod devices;
mod graphs;
mod memory;
mod streams;
