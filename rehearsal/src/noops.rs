//! No-ops for all other public names, made by `build.rs` from `names/`.
//!
//! Each one is logged at its first call, unless nothing is missing if it does nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::argument::Out;
use crate::work::work;
use crate::{handles, log, space, values};

/// Value that a no-op writes to the address in an argument.
#[derive(Clone, Copy)]
enum Written {
    Handle,
    I32(i32),
    I64(i64),
}

/// Whether a no-op is logged, and whether it stands for work on the card.
#[derive(Clone, Copy)]
struct Kind {
    loud: bool,
    kernel: bool,
}

static CALLED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

fn called(index: usize, name: &str, kind: Kind, writes: &[(usize, Written)]) {
    if kind.loud && !CALLED[index].swap(true, Ordering::Relaxed) {
        log::once("not_implemented", name);
    }
    // Any no-op may stand for writes to the card.
    values::launched();
    if kind.kernel {
        work().capture_library_call();
    }
    for (address, value) in writes {
        if space::card_of(*address).is_some() {
            continue;
        }
        match value {
            Written::Handle => Out::at(*address).offer(handles::new()),
            Written::I32(value) => Out::at(*address).offer(*value),
            Written::I64(value) => Out::at(*address).offer(*value),
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/noops.rs"));
