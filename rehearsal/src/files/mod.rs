//! A script's files stay as they are: what it would write goes to copies, which it reads back.
//!
//! With `VRAMLAB_REHEARSAL_FILES` set, the C library's calls that name files are answered here. A path is *protected*
//! unless it lies in a folder for temporary files or a cache (`protection.rs`). Writing to a protected path writes to a
//! copy of it below the copies' folder, at the same path; removing it leaves a mark there; everything that reads
//! (`place.rs`) finds copy and marks first. Without the variable each call is the C library's own.
//!
//! ```text
//! open, change, look, folders: the calls ─► copies ─► place ─► protection, system
//! ```
//!
//! Not seen: programs without the C library, system calls made directly, `dlopen` and `execve` of files that are copies,
//! and what the C library opens for itself (`glob`, `ftw`).

mod as_it_is;
mod change;
mod copies;
mod folders;
mod look;
mod open;
mod place;
mod protection;
mod real;
mod system;
