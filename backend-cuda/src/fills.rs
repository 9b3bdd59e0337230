//! Fills of single elements that follow each other, in one launch: a fused optimizer sets a counter for each of its parameters.
//!
//! A fill waits until something else is queued, or the host waits for the queue.

use std::sync::{MutexGuard, PoisonError};

use memcore::backend::kernel::Fill;
use memcore::{Error, Result};

use crate::elementwise::{MOST_FILLS, fill_each, scalar_bits};
use crate::kernel::Tag;
use crate::launch::Context;

/// Fills that wait.
#[derive(Default)]
pub(crate) struct Fills {
    /// The width of the elements.
    tag: Option<Tag>,
    /// Addresses, all of them different, and what is to be there.
    elements: Vec<(u64, u64)>,
    /// An error from a call that could not return one.
    failed: Option<Error>,
}

fn waiting<'a>(ctx: &Context<'a>) -> MutexGuard<'a, Fills> {
    ctx.fills.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a fill of one element wait. Returns false if it has more or fewer elements.
///
/// # Errors
/// A failure of fills that waited before.
pub(crate) fn postpone(ctx: &Context<'_>, k: &Fill) -> Result<bool> {
    if k.out.numel() != 1 {
        return Ok(false);
    }
    let (address, tag) = (ctx.at(&k.out)?, Some(Tag::bits(k.out.dtype)));
    let mut fills = waiting(ctx);
    let is_known = fills.elements.iter().any(|(other, _)| *other == address);
    if fills.tag != tag || is_known || fills.elements.len() == MOST_FILLS {
        fills.launch(ctx)?;
    }
    fills.tag = tag;
    fills.elements.push((address, scalar_bits(k.out.dtype, k.value)));
    Ok(true)
}

/// Queues the fills that wait.
///
/// # Errors
/// [`Error::Backend`], also of fills that waited before.
pub(crate) fn launch(ctx: &Context<'_>) -> Result<()> {
    waiting(ctx).launch(ctx)
}

/// Like [`launch`], for callers that cannot return an error: the next call returns it.
pub(crate) fn launch_quietly(ctx: &Context<'_>) {
    let mut fills = waiting(ctx);
    if let Err(error) = fills.launch(ctx) {
        fills.failed = Some(error);
    }
}

impl Fills {
    fn launch(&mut self, ctx: &Context<'_>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            self.elements.clear();
            return Err(error);
        }
        let Some(tag) = self.tag.filter(|_| !self.elements.is_empty()) else { return Ok(()) };
        fill_each(ctx, tag, &std::mem::take(&mut self.elements))
    }
}
