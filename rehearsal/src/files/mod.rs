//! Keeps a script's files as they are: its writes go to copies, which it reads back.
//!
//! With `VRAMLAB_REHEARSAL_FILES` set, the C library's calls that name files are answered here. A path is *protected*
//! unless it lies in a folder for temporary files or a cache (`protection.rs`). Writing to a protected path writes to a
//! copy at the same path below the copies' folder. Removing it leaves a mark there. All reads (`place.rs`) find copy
//! and marks first. Without the variable each call goes to the C library.
//!
//! ```text
//! open, change, look, folders, descriptors, start: the calls ─► copies ─► contents, place ─► protection, system
//!           └► room
//! ```
//!
//! Not seen: programs without the C library, direct system calls, functions of the C library that a program looks up by
//! itself, `dlopen` of files that are copies, and files that the C library opens for itself (`glob`, `ftw`).

mod as_it_is;
mod change;
mod contents;
mod copies;
mod descriptors;
mod folders;
mod look;
mod open;
mod output;
mod place;
mod protection;
mod real;
mod room;
mod start;
mod system;
